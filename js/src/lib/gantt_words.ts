// What the chart of steps says in words.

import { h } from "./dom";
import { formatCount } from "./format";
import type { Batch } from "./gantt";

export const KEYS = "Arrow keys choose a step and a request, Home and End the first and last step, Escape none.";
export const HINT = "Point at a step, or use the arrow keys, to read it.";

const LEGEND = [
  ["queued", "queued", "It has arrived and waits for its first step (thin)"],
  ["prefill", "prefill", "Its prompt is computed (full height)"],
  ["decode", "decode", "It gets a token a step (lower)"],
  ["waits", "stalled: waits", "It was in a step before and is in none now (thin)"],
  ["stalled", "stalled: recomputes", "It computes again what it lost (full height)"],
  ["preempted", "preempted", "It lost its blocks in this step (a cross)"],
] as const;

export function legend(): HTMLElement {
  const entries = LEGEND.map(([kind, words, title]) => {
    const swatch = h("span", { class: "ji-mark", "data-kind": kind, "aria-hidden": "true" });
    return h("span", { class: "ji-item", title }, swatch, words);
  });
  return h("div", { class: "ji-key", role: "group", "aria-label": "Legend" }, ...entries);
}

/** What stands above the parts of the chart; `mostPlaces` is the top of the scale of running requests. */
export function titles(
  { steps, over, forgotten }: Batch,
  mostPlaces: number,
): Record<"tokens" | "places" | "lanes", string> {
  const last = steps[steps.length - 1];
  const line = (name: string, value: number | null | undefined, top = Number.POSITIVE_INFINITY) => {
    const where = (value ?? 0) > top ? ", above the scale" : "";
    return typeof value === "number"
      ? ` Line: ${name}, ${over ? "at the end" : "now"} ${formatCount(value)}${where}.`
      : "";
  };
  return {
    tokens: `Tokens a step (logarithmic).${line("token budget", last?.[8])}`,
    places: `Requests running, others\u2019 too, and waiting above them.${line("max sequences", last?.[7], mostPlaces)}`,
    lanes: forgotten ? "A lane a request; the oldest steps are not kept." : "A lane a request.",
  };
}
