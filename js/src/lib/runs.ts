// Runs that are over: a list to pin and to choose from, and two of them side by side.

import { h, setAttributes, setText } from "./dom";
import { button } from "./fields";
import { formatCount, formatNs, formatRate, formatUsd, NOT_KNOWN } from "./format";
import { phasesBar, totalNs } from "./phases";

/** What is known of a run; null is not known. The mirror of `Figures` in jupyter_infer/widgets/_playground_figures.py. */
export interface Figures {
  load_ns: number | null;
  queued_ns: number | null;
  prefill_ns: number | null;
  decode_ns: number | null;
  ttft_ns: number | null;
  tokens_per_s: number | null;
  prompt_tokens: number | null;
  cached_tokens: number | null;
  output_tokens: number | null;
  wall_usd: number | null;
  shared_usd: number | null;
  price: string;
  api_usd: number | null;
  api: string;
}

export interface PastRun {
  number: number;
  label: string;
  settings: string;
  state: string;
  figures: Figures;
}

export type WholeRun = PastRun & { text: string };

export type Act = (kind: "use" | "pin" | "compare", number: number, on: boolean) => void;

export interface RunList {
  element: HTMLElement;
  show(runs: readonly PastRun[], pinned: readonly number[], compared: readonly number[]): void;
}

/** Figures in a line that breaks between them alone. */
function figuresLine({ ttft_ns, tokens_per_s, prompt_tokens, output_tokens, wall_usd }: Figures): HTMLElement {
  const rate = tokens_per_s === null ? `${NOT_KNOWN} tok/s` : formatRate(tokens_per_s);
  const tokens = `${formatCount(prompt_tokens)} in → ${formatCount(output_tokens)} out`;
  const line = h("span", { class: "ji-figures" });
  [tokens, `TTFT ${formatNs(ttft_ns)}`, rate, `wall ${formatUsd(wall_usd)}`].forEach((text, at) => {
    line.append(at ? " · " : "", h("span", { class: "ji-whole" }, text));
  });
  return line;
}

/** The list, the newest run first; a row stays the same element, so that the focus stays where it is. */
export function runList(act: Act): RunList {
  const rows = new Map<number, { element: HTMLElement; pin: HTMLElement; compare: HTMLElement }>();
  const list = h("div", { class: "ji-runs", role: "list" });
  const empty = h("div", { class: "ji-label" }, "no run yet");
  const element = h("div", {}, h("div", { class: "ji-head" }, "History"), empty, list);

  const rowOf = (run: PastRun) => {
    const found = rows.get(run.number);
    if (found) {
      return found;
    }
    const name = `run ${run.number}`;
    const toggle = (label: string, kind: "pin" | "compare", title: string) => {
      const made = button(label, title, () => act(kind, run.number, made.getAttribute("aria-pressed") !== "true"));
      setAttributes(made, { "aria-label": `${label} ${name}`, "aria-pressed": "false" });
      return made;
    };
    const use = button("Use", "Put its prompt and settings into the fields", () => act("use", run.number, true));
    setAttributes(use, { "aria-label": `Use ${name} again` });
    const pin = toggle("Pin", "pin", "Keep it in the history");
    const compare = toggle("Compare", "compare", "Show it beside another one");
    const state = run.state === "done" ? "" : ` · ${run.state}`;
    const row = {
      element: h(
        "div",
        { class: "ji-run", role: "listitem" },
        h("span", { class: "ji-number" }, String(run.number)),
        h(
          "span",
          { class: "ji-what" },
          h("span", { class: "ji-prompt" }, run.label),
          h("span", { class: "ji-label" }, `${run.settings} · `, figuresLine(run.figures), state),
        ),
        h("span", { class: "ji-acts" }, use, pin, compare),
      ),
      pin,
      compare,
    };
    rows.set(run.number, row);
    return row;
  };

  return {
    element,
    show(runs, pinned, compared) {
      const known = new Set(runs.map(({ number }) => number));
      for (const [number, row] of [...rows]) {
        if (!known.has(number)) {
          row.element.remove();
          rows.delete(number);
        }
      }
      let next: Element | null = null; // from the oldest at the end to the newest at the top
      for (const run of runs) {
        const row = rowOf(run);
        setAttributes(row.pin, { "aria-pressed": String(pinned.includes(run.number)) });
        setAttributes(row.compare, { "aria-pressed": String(compared.includes(run.number)) });
        if (row.element.parentElement !== list || row.element.nextElementSibling !== next) {
          list.insertBefore(row.element, next);
        }
        next = row.element;
      }
      empty.style.display = runs.length ? "none" : "";
    },
  };
}

export interface SideBySide {
  element: HTMLElement;
  show(runs: readonly WholeRun[]): void;
}

export function sideBySide(): SideBySide {
  const panes = h("div", { class: "ji-panes" });
  const hint = h("div", { class: "ji-label" });
  const element = h("div", { class: "ji-beside" }, h("div", { class: "ji-head" }, "Side by side"), hint, panes);
  let drawn = "";
  return {
    element,
    show(runs) {
      element.style.display = runs.length ? "" : "none";
      setText(hint, runs.length === 1 ? "Choose another run to compare with it." : "");
      const now = JSON.stringify(runs.map(({ number }) => number));
      if (now === drawn) {
        return; // a run that is over does not change
      }
      drawn = now;
      const longest = Math.max(0, ...runs.map(({ figures }) => totalNs(figures))); // one scale for both bars
      panes.replaceChildren(...runs.map((run) => pane(run, longest)));
    },
  };
}

function pane(run: WholeRun, longestNs: number): HTMLElement {
  const bar = phasesBar();
  bar.set(run.figures, longestNs);
  const label = `Answer of run ${run.number}`;
  return h(
    "div",
    { class: "ji-pane", role: "group", "aria-label": `Run ${run.number}` },
    h("div", { class: "ji-prompt" }, `${run.number}: ${run.label}`),
    h("div", { class: "ji-label" }, run.settings),
    figuresLine(run.figures),
    bar.element,
    h("div", { class: "ji-answer", role: "region", tabindex: 0, "aria-label": label }, run.text),
  );
}
