// Where the time of a run went: a bar that grows along an axis of round lengths, and the same in words.

import { h, setText } from "./dom";
import { formatNs, type Known } from "./format";

export interface Phases {
  queued_ns: Known;
  prefill_ns: Known;
  decode_ns: Known;
}

export interface PhasesBar {
  element: HTMLElement;
  /** Show a run, on the axis of the longest one if there are several. */
  set(phases: Phases, longestNs?: number): void;
}

const NAMES = ["queued", "prefill", "decode"] as const;

/** The axis of a time: 1, 2 or 5 times a power of ten, so that a bar that grows grows to the right. */
export function axisNs(totalNs: number): number {
  if (totalNs <= 0) {
    return 1e9;
  }
  const power = 10 ** Math.floor(Math.log10(totalNs));
  return power * ([1, 2, 5, 10].find((step) => totalNs <= power * step) ?? 10);
}

export function totalNs(phases: Phases): number {
  return NAMES.reduce((sum, name) => sum + (phases[`${name}_ns`] ?? 0), 0);
}

export function phasesBar(): PhasesBar {
  const track = h("div", { class: "ji-phases", "aria-hidden": "true" });
  const words = h("div", { class: "ji-line" });
  const end = h("span", { class: "ji-label" });
  const parts = NAMES.map((name) => {
    const bar = h("span", { class: "ji-phase", "data-phase": name });
    const value = h("span", { class: "ji-value" });
    track.append(bar);
    const swatch = h("span", { class: "ji-swatch", "data-phase": name, "aria-hidden": "true" });
    words.append(h("span", { class: "ji-item" }, swatch, h("span", { class: "ji-label" }, name), value));
    return { bar, value, key: `${name}_ns` as const };
  });
  words.append(h("span", { class: "ji-item" }, end));
  return {
    element: h("div", { class: "ji-where", role: "group", "aria-label": "Phases" }, track, words),
    set(phases, longestNs = 0) {
      const total = totalNs(phases);
      const axis = axisNs(Math.max(total, longestNs));
      for (const { bar, value, key } of parts) {
        bar.style.width = `${(100 * (phases[key] ?? 0)) / axis}%`;
        setText(value, formatNs(phases[key]));
      }
      setText(end, total ? `the bar is ${formatNs(axis)} wide` : "");
    },
  };
}
