// Fields of a form over values that others may set, too: a field never fights with who types in it.

import { h, setAttributes } from "./dom";

/** A value that a field shows and sets. */
export interface Binding<V> {
  get(): V;
  set(value: V): void;
  /** Somebody begins or ends to type it. */
  edit?(on: boolean): void;
}

export interface Field {
  element: HTMLElement;
  /** Show the value as it is now; what is typed and cannot be used stays until it is mended, or somebody sets another one. */
  draw(): void;
  /** What is wrong with what was typed, in a line; nothing if it can be used. */
  problem?(): string;
  focus?(): void;
}

/** The first field with something that cannot be used, after it got the focus; its line is what to say. */
export function firstProblem(fields: readonly Field[]): string {
  for (const field of fields) {
    const problem = field.element.hidden ? "" : (field.problem?.() ?? "");
    if (problem) {
      field.focus?.();
      return problem;
    }
  }
  return "";
}

/** What was typed and cannot be used: marked, and kept until the value that it was typed over is another one and nobody types. */
function doubts<V>(input: HTMLInputElement, takes: string, get: () => V) {
  let wrong = false;
  let over = "";
  const mark = (now: boolean) => {
    wrong = now;
    over = JSON.stringify(get());
    setAttributes(input, { "aria-invalid": now && "true" });
  };
  return {
    mark,
    /** Whether the field is to be left as it was typed. */
    keeps() {
      const typing = input.ownerDocument.activeElement === input;
      if (wrong && !typing && JSON.stringify(get()) !== over) {
        mark(false);
      }
      return wrong;
    },
    problem: () => (wrong ? takes : ""),
    focus: () => input.focus(),
  };
}

const PAGE = Math.random().toString(36).slice(2); // each widget brings a module of its own, and ids are the page's
let count = 0;

function labelled(
  label: string,
  title: string,
  control: HTMLElement,
  kind: string,
  ...before: HTMLElement[]
): HTMLElement {
  count += 1;
  control.id = `ji-${PAGE}-${count}`;
  const name = h("label", { class: "ji-label", for: control.id }, label);
  return h("div", { class: `ji-field ji-${kind}`, title }, name, ...before, control);
}

/** Tell a binding while somebody may type in a control. */
function edited<V>(control: HTMLElement, bound: Binding<V>): void {
  control.addEventListener("focus", () => bound.edit?.(true));
  control.addEventListener("blur", () => bound.edit?.(false));
}

/** A text of several lines. */
export function textField(
  label: string,
  title: string,
  bound: Binding<string>,
  rows: number,
): Field & { input: HTMLTextAreaElement } {
  const input = h("textarea", { rows, spellcheck: "false", placeholder: title });
  input.addEventListener("input", () => bound.set(input.value));
  edited(input, bound);
  const draw = () => {
    const value = bound.get();
    if (input.value !== value) {
      input.value = value;
    }
  };
  return { element: labelled(label, title, input, "text"), draw, input };
}

export interface NumberOptions {
  label: string;
  title: string;
  /** What an empty field means. */
  unset: string;
  whole?: boolean;
  /** Whether a number, or none, can be used; one that cannot is marked and not taken. */
  fits?: (value: number | null) => boolean;
  /** What it takes, in words: "a number from 0 to 2". */
  takes?: string;
  min?: number;
  step?: number;
  /** A slider beside it, from `min` to here, and where it stands when nothing is set. */
  slider?: { max: number; at: number };
}

/** The number that was typed: null for nothing, undefined for what is no number of that kind. */
export function numberIn(text: string, whole = false): number | null | undefined {
  if (text.trim() === "") {
    return null;
  }
  const value = Number(text);
  return Number.isFinite(value) && (!whole || Number.isSafeInteger(value)) ? value : undefined;
}

/** A number that may be left out. */
export function numberField(
  options: NumberOptions,
  bound: Binding<number | null>,
): Field & {
  /** Let go of what was typed and cannot be used: another value is set beside it. */
  forget(): void;
} {
  const { label, title, unset, whole = false, fits = () => true, min, step, slider } = options;
  const input = h("input", { type: "text", inputmode: whole ? "numeric" : "decimal", placeholder: unset, size: 7 });
  const doubt = doubts(input, `${label}: ${options.takes ?? (whole ? "a whole number" : "a number")}`, bound.get);
  let range: HTMLInputElement | undefined;
  const draw = () => {
    const value = bound.get();
    if (!doubt.keeps() && numberIn(input.value, whole) !== value) {
      input.value = value === null ? "" : String(value);
    }
    if (range && slider) {
      range.value = String(value ?? slider.at);
      setAttributes(range, { "data-unset": value === null });
    }
  };
  input.addEventListener("input", () => {
    const value = numberIn(input.value, whole);
    const usable = value !== undefined && fits(value);
    doubt.mark(!usable);
    if (usable) {
      bound.set(value);
    }
  });
  input.addEventListener("change", draw);
  edited(input, bound);
  const forget = () => doubt.mark(false);
  const field = { draw, problem: doubt.problem, focus: doubt.focus, forget };
  if (!slider) {
    return { element: labelled(label, title, input, "number"), ...field };
  }
  const made = h("input", {
    type: "range",
    min: min ?? 0,
    max: slider.max,
    step: step ?? 0.05,
    "aria-label": `${label}, slider`,
  });
  made.addEventListener("input", () => {
    forget();
    bound.set(Number(made.value));
    draw();
  });
  range = made;
  return { element: labelled(label, title, input, "number", made), ...field };
}

/** A number that cannot be left out: whole ones from `min` to `max`, or any above 0. */
export function neededField(
  options: Omit<NumberOptions, "unset" | "fits"> & { max?: number },
  bound: Binding<number>,
): Field {
  const { whole = false, min = 0, max = Number.POSITIVE_INFINITY } = options;
  const fits = (value: number | null) => value !== null && value <= max && (whole ? value >= min : value > min);
  const from = Number.isFinite(max) ? ` from ${min} to ${max}` : min > 0 ? `, ${min} or more` : "";
  const takes = whole
    ? `a whole number${from}`
    : `a number above ${min}${Number.isFinite(max) ? `, up to ${max}` : ""}`;
  return numberField(
    { takes, ...options, unset: "", fits },
    {
      ...bound,
      set(value) {
        if (value !== null) {
          bound.set(value);
        }
      },
    },
  );
}

/** One of some texts. */
export function choiceField(
  label: string,
  title: string,
  bound: Binding<string>,
  choices: readonly (readonly [value: string, name: string])[],
): Field {
  const input = h("select", {}, ...choices.map(([value, name]) => h("option", { value }, name)));
  input.addEventListener("change", () => bound.set(input.value));
  return {
    element: labelled(label, title, input, "choice"),
    draw: () => {
      input.value = bound.get();
    },
  };
}

/** Whole numbers from `min` to `max` with commas or spaces between them; undefined if there is anything else, or nothing. */
export function numbersIn(text: string, min: number, max: number): number[] | undefined {
  const numbers = text
    .split(/[\s,;]+/)
    .filter(Boolean)
    .map(Number);
  const fit = numbers.every((value) => Number.isInteger(value) && value >= min && value <= max);
  return numbers.length && fit ? numbers : undefined;
}

/** A list of whole numbers. */
export function numbersField(
  label: string,
  title: string,
  bound: Binding<number[]>,
  [min, max]: readonly [number, number],
): Field {
  const input = h("input", { type: "text", spellcheck: "false", size: 18 });
  const doubt = doubts(input, `${label}: whole numbers from ${min} to ${max}, with commas between them`, bound.get);
  const draw = () => {
    if (!doubt.keeps() && JSON.stringify(numbersIn(input.value, min, max)) !== JSON.stringify(bound.get())) {
      input.value = bound.get().join(", ");
    }
  };
  input.addEventListener("input", () => {
    const numbers = numbersIn(input.value, min, max);
    doubt.mark(numbers === undefined);
    if (numbers) {
      bound.set(numbers);
    }
  });
  input.addEventListener("change", draw);
  edited(input, bound);
  return { element: labelled(label, title, input, "numbers"), draw, problem: doubt.problem, focus: doubt.focus };
}

/** Something that is on or off. */
export function switchField(label: string, title: string, bound: Binding<boolean>): Field {
  const input = h("input", { type: "checkbox" });
  input.addEventListener("change", () => bound.set(input.checked));
  return {
    element: labelled(label, title, input, "switch"),
    draw: () => {
      input.checked = bound.get();
    },
  };
}

const ESCAPES: Record<string, string> = { n: "\n", t: "\t", r: "\r", "\\": "\\" };

/** Texts as lines: a new line, a tab and a backslash within one are written `\n`, `\t` and `\\`. */
export function linesOf(texts: readonly string[]): string {
  return texts
    .map((text) =>
      text.replace(/[\n\t\r\\]/g, (found) => `\\${Object.keys(ESCAPES).find((key) => ESCAPES[key] === found)}`),
    )
    .join("\n");
}

/** Lines as texts; what `linesOf` wrote comes back, empty lines are left out. */
export function textsIn(lines: string): string[] {
  return lines
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => line.replace(/\\([ntr\\])/g, (_, key: string) => ESCAPES[key] ?? ""));
}

/** A list of texts, one a line. */
export function linesField(label: string, title: string, bound: Binding<string[]>): Field {
  const input = h("textarea", { rows: 1, spellcheck: "false", placeholder: "none" });
  input.addEventListener("input", () => bound.set(textsIn(input.value)));
  edited(input, bound);
  return {
    element: labelled(label, title, input, "lines"),
    draw: () => {
      if (linesOf(textsIn(input.value)) !== linesOf(bound.get())) {
        input.value = linesOf(bound.get());
      }
    },
  };
}

/** A button; one that cannot be used now keeps the focus, and says why when it is pressed. */
export function button(label: string, title: string, press: () => void): HTMLButtonElement {
  const made = h("button", { type: "button", class: "ji-button", title }, label);
  made.addEventListener("click", press);
  return made;
}
