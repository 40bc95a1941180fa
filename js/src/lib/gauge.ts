// A number on a logarithmic scale with named bands. The track is for the eye alone: the text says all of it.

import { h, setText } from "./dom";
import type { Known } from "./format";

export interface Band {
  /** Where it ends; the last one has no end. */
  below: number;
  word: string;
}

export interface Gauge {
  element: HTMLElement;
  set(value: Known, note?: string): void;
}

export interface GaugeOptions {
  label: string;
  title: string;
  format: (value: Known) => string;
  /** Ends of the scale; without one there is no track. */
  scale?: readonly [number, number];
  bands?: readonly Band[];
}

/** The band of a value; of one that is not known there is none. */
export function bandOf(value: Known, bands: readonly Band[]): Band | undefined {
  return typeof value === "number" && Number.isFinite(value) ? bands.find(({ below }) => value < below) : undefined;
}

/** Where a value is on a logarithmic scale, from 0 to 1. */
export function placeOf(value: number, [low, high]: readonly [number, number]): number {
  return Math.min(1, Math.max(0, Math.log(Math.max(value, low) / low) / Math.log(high / low)));
}

export function gauge({ label, title, format, scale, bands = [] }: GaugeOptions): Gauge {
  const value = h("span", { class: "ji-value ji-big" });
  const word = h("span", { class: "ji-label" });
  const element = h("div", { class: "ji-gauge", role: "group", "aria-label": label, title });
  element.append(h("span", { class: "ji-label" }, label), value);
  const needle = h("span", { class: "ji-needle" });
  if (scale) {
    const track = h("span", { class: "ji-track", "aria-hidden": "true" });
    let from = 0;
    bands.forEach(({ below }, at) => {
      const to = Number.isFinite(below) ? placeOf(below, scale) : 1;
      const part = h("span", { class: "ji-band", "data-band": at });
      part.style.width = `${100 * (to - from)}%`;
      track.append(part);
      from = to;
    });
    track.append(needle);
    element.append(track);
  }
  element.append(word);
  return {
    element,
    set(now, note = "") {
      setText(value, format(now));
      const band = bandOf(now, bands);
      setText(word, [band?.word, note].filter(Boolean).join(" · "));
      needle.style.display = band ? "" : "none";
      if (scale && typeof now === "number") {
        needle.style.left = `${100 * placeOf(now, scale)}%`;
      }
    },
  };
}
