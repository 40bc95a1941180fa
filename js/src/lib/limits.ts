// A limit of the scheduler that can be moved while it works: a number, a slider over round values, and back again.

import { h, setAttributes, setText } from "./dom";
import { type Binding, button, type Field, numberField } from "./fields";
import { formatCount } from "./format";

/** The values that a slider stops at: four in each doubling, and the largest one. */
export function stops(most: number): number[] {
  const found: number[] = [];
  for (let power = 1; power < most; power *= 2) {
    for (const part of [1, 1.25, 1.5, 1.75]) {
      const value = power * part;
      if (Number.isInteger(value) && value < most) {
        found.push(value);
      }
    }
  }
  return [...found, most];
}

/** The place of a value among the stops; of one between two, the place of the lower one. */
export function placeIn(values: readonly number[], value: number): number {
  const above = values.findIndex((stop) => stop > value);
  return above < 0 ? values.length - 1 : Math.max(0, above - 1);
}

/** A field for a limit; `most` is its largest value, null while none is known. */
export function limitField(
  label: string,
  title: string,
  bound: Binding<number | null>,
  most: () => number | null,
): Field {
  const fits = (value: number | null) => value === null || (value >= 1 && value <= (most() ?? Number.MAX_SAFE_INTEGER));
  const field = numberField({ label, title, unset: "as loaded", whole: true, fits }, bound);
  const input = field.element.querySelector("input");
  const range = h("input", { type: "range", min: 0, step: 1, "aria-label": `${label}, slider` });
  const reset = button("As loaded", `${label}: back to what the model was loaded with`, () => {
    field.forget();
    bound.set(null);
    draw();
  });
  setAttributes(reset, { "aria-label": `${label} as loaded` });
  range.addEventListener("input", () => {
    const value = stops(most() ?? 1)[Number(range.value)];
    if (value !== undefined) {
      field.forget();
      bound.set(value);
      draw();
    }
  });
  field.element.classList.add("ji-limit");
  input?.before(range);
  const why = h("span", { class: "ji-why", id: `${input?.id}-why` });
  field.element.append(reset, why);

  const draw = () => {
    field.draw();
    const value = bound.get();
    const largest = most();
    const values = stops(largest ?? 1);
    setAttributes(range, {
      max: values.length - 1,
      disabled: largest === null,
      "data-unset": value === null || (largest !== null && value > largest),
      "aria-valuetext": value === null ? `as loaded${largest ? `: ${formatCount(largest)}` : ""}` : formatCount(value),
    });
    if (input) {
      input.placeholder = largest === null ? "as loaded" : `as loaded: ${largest}`;
    }
    range.value = String(value === null ? values.length - 1 : placeIn(values, value));
    setAttributes(reset, { "aria-disabled": value === null && !field.problem?.() && "true" });
    const above = tooMuch();
    if (input) {
      const marked = Boolean(above || wrong());
      setAttributes(input, { "aria-invalid": marked && "true", "aria-describedby": marked && why.id });
    }
    setText(why, (above || wrong()).replace(`${label}: `, ""));
  };
  // Set before this model was loaded, which has made less room.
  const tooMuch = () => {
    const [value, largest] = [bound.get(), most()];
    return value !== null && largest !== null && value > largest
      ? `${label}: ${formatCount(largest)} at most, which is what was loaded`
      : "";
  };
  const wrong = () => {
    const largest = most();
    const range = largest === null ? ", 1 or more" : ` from 1 to ${formatCount(largest)}`;
    return field.problem?.() ? `${label}: a whole number${range}, or nothing` : "";
  };
  input?.addEventListener("input", draw);
  return { ...field, draw, problem: () => wrong() || tooMuch() };
}
