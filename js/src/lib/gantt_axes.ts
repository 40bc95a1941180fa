// The names of the lanes and the axis of time, in SVG.

import { s, setAttributes } from "./dom";
import { formatNs } from "./format";
import type { Scale } from "./lanes";
import type { Lane } from "./steps";

const LETTERS = 12; // pixels that a name needs
const APART = 80; // pixels between two times, about

export function laneNames(gutter: number): {
  element: SVGGElement;
  draw(lanes: readonly Lane[], height: number): void;
} {
  const element = s("g");
  let drawn = "";
  return {
    element,
    draw(lanes, height) {
      const each = Math.ceil(LETTERS / height);
      const names = lanes
        .map(([label], at) => ({ label: label || String(at + 1), at }))
        .filter(({ at }) => at % each === 0);
      const now = JSON.stringify([height, names]);
      if (now === drawn) {
        return;
      }
      drawn = now;
      const place = { class: "ji-tick", x: gutter - 5, "text-anchor": "end", "dominant-baseline": "central" };
      element.replaceChildren(
        ...names.map(({ label, at }) => s("text", { ...place, y: (at + 0.5) * height - 0.5 }, shorten(label))),
      );
    },
  };
}

const shorten = (label: string) => (label.length > 6 ? `${label.slice(0, 5)}…` : label);

/** Round times between two, about so many. */
export function timesOf(fromUs: number, toUs: number, about: number): number[] {
  const rough = (toUs - fromUs) / Math.max(2, about);
  const power = 10 ** Math.floor(Math.log10(rough));
  const each = power * ([1, 2, 5, 10].find((part) => rough <= power * part) ?? 10);
  const times: number[] = [];
  for (let at = Math.ceil(fromUs / each); at * each <= toUs; at += 1) {
    times.push(at * each);
  }
  return times;
}

export function axis(gutter: number, right: number): { element: SVGSVGElement; draw(scale: Scale): void } {
  const element = s("svg", { class: "ji-axis", height: 18, "aria-hidden": "true" });
  let drawn = "";
  return {
    element,
    draw({ width, fromUs, toUs }) {
      const now = `${width} ${fromUs} ${toUs}`;
      if (now === drawn) {
        return;
      }
      drawn = now;
      const end = gutter + width;
      setAttributes(element, { width: end + right });
      element.replaceChildren(
        ...timesOf(fromUs, toUs, width / APART).flatMap((us) => {
          const at = gutter + ((us - fromUs) / (toUs - fromUs)) * width;
          const last = at > end - 16;
          const anchor = last ? "end" : us === fromUs ? "start" : "middle";
          return [
            s("path", { class: "ji-base", d: `M${at.toFixed(1)} 0v4` }),
            s(
              "text",
              { class: "ji-tick", x: last ? end + right : at, y: 15, "text-anchor": anchor },
              formatNs(us * 1e3),
            ),
          ];
        }),
      );
    },
  };
}
