// A strip over time in SVG: areas, and a line for the limit that was in force.

import { s, setAttributes, setText } from "./dom";
import { formatCount } from "./format";

/** A step, in pixels. */
export type Span = readonly [beginX: number, endX: number];

/** Columns of one pixel each: of steps that share one, the largest value; NaN where there was no step. */
export function columns(width: number, spans: readonly Span[], values: readonly number[]): number[] {
  const found = new Array<number>(Math.max(0, Math.ceil(width))).fill(Number.NaN);
  spans.forEach(([begin, end], at) => {
    const before = spans[at - 1]?.[1] ?? Number.NEGATIVE_INFINITY;
    const first = Math.max(0, Math.round(begin - before < 1 ? before : begin)); // less than a pixel is no gap
    const last = Math.max(first + 1, Math.round(end));
    for (let column = first; column < Math.min(last, found.length); column += 1) {
      const there = found[column] as number;
      const value = values[at] ?? 0;
      found[column] = Number.isNaN(there) ? value : Math.max(there, value);
    }
  });
  return found;
}

/** A path around columns, from a base line up. */
export function areaPath(levels: readonly number[], base: number, y: (value: number) => number): string {
  let path = "";
  let at = 0;
  while (at < levels.length) {
    const level = levels[at] as number;
    let end = at + 1;
    while (end < levels.length && Object.is(levels[end], level)) {
      end += 1;
    }
    if (level > 0) {
      path += `M${at} ${base}V${round(y(level))}H${end}V${base}z`;
    }
    at = end;
  }
  return path;
}

/** A line of the values that were in force; it is broken where none is known. */
export function linePath(
  spans: readonly Span[],
  values: readonly (number | null)[],
  y: (value: number) => number,
): string {
  let path = "";
  let before: number | null = null;
  let until = 0;
  spans.forEach(([begin, end], at) => {
    const value = values[at] ?? null;
    if (value !== before) {
      path += before === null ? "" : `H${round(begin)}`;
      path += value === null ? "" : before === null ? `M${round(begin)} ${round(y(value))}` : `V${round(y(value))}`;
      before = value;
    }
    until = end;
  });
  return before === null ? path : `${path}H${round(until)}`;
}

const round = (value: number) => Math.round(value * 10) / 10;

export interface Strip {
  element: SVGSVGElement;
  draw(options: {
    gutter: number;
    width: number;
    spans: readonly Span[];
    /** One over the other: what is drawn later covers what is below it. */
    areas: readonly (readonly number[])[];
    limits: readonly (number | null)[];
    /** The value at the top; a limit above it is at the very top. */
    top: number;
    log?: boolean;
  }): void;
}

const TOP = 8; // room for a line that is above the scale

export function strip(height: number, classes: readonly string[]): Strip {
  const areas = classes.map((name) => s("path", { class: name }));
  const line = s("path", { class: "ji-limit-line" });
  const base = s("path", { class: "ji-base" });
  const highest = s("text", { class: "ji-tick", "text-anchor": "end", y: TOP + 4 });
  const lowest = s("text", { class: "ji-tick", "text-anchor": "end", y: height }, "0");
  const group = s("g", {}, base, ...areas, line);
  const element = s("svg", { class: "ji-strip", height, "aria-hidden": "true" }, group, highest, lowest);
  return {
    element,
    draw({ gutter, width, spans, areas: values, limits, top, log = false }) {
      const part = (value: number) => (log ? Math.log2(1 + value) / Math.log2(1 + top) : value / top);
      const y = (value: number) => height - (height - TOP) * Math.min(1, part(value));
      setAttributes(element, { width: gutter + width });
      setAttributes(group, { transform: `translate(${gutter})` });
      setAttributes(base, { d: `M0 ${height - 0.5}H${width}` });
      values.forEach((levels, at) => {
        setAttributes(areas[at] as Element, { d: areaPath(columns(width, spans, levels), height, y) });
      });
      setAttributes(line, { d: linePath(spans, limits, (value) => (value > top ? 1.5 : y(value))) });
      setAttributes(highest, { x: gutter - 5 });
      setAttributes(lowest, { x: gutter - 5 });
      setText(highest, formatCount(top));
    },
  };
}
