// The latency–throughput curve of a sweep: each point by its number of requests and what limited it, the knee marked.

import { h, s, setAttributes } from "./dom";
import { formatRate } from "./format";
import { type Box, dotBox, ends, meets, placeLabels, ticksOf } from "./log_plot";
import { limitWord } from "./shares";

export interface CurvePoint {
  requests: number;
  throughput: number | null;
  user_tps: number | null;
  limit: string;
}

export interface Curve {
  element: HTMLElement;
  show(points: readonly CurvePoint[], knee: number | null, width: number): void;
  /** Mark a point, by its place among the points that were shown. */
  mark(at: number | null): void;
}

const HEIGHT = 240;
const LEFT = 52;
const RIGHT = 14;
const TOP = 22;
const BOTTOM = 36;
const LETTER = 6.3; // pixels that a letter of a label has, about

/** Speeds of one user that have a name. */
const FELT = [
  [10, "reads along (10+)"],
  [30, "agents and code (30+)"],
] as const;

export function labelOf({ requests, limit }: CurvePoint, knee: boolean): string {
  return [String(requests), limit && limitWord(limit), knee && "the knee"].filter(Boolean).join(" · ");
}

export function curve(): Curve {
  const picture = s("svg", { class: "ji-curve", height: HEIGHT, role: "img" });
  const element = h("div", { class: "ji-curve-box" }, picture);
  let dots: (SVGCircleElement | null)[] = [];
  let drawn = "";

  return {
    element,
    show(points, knee, width) {
      const now = JSON.stringify([points, knee, width]);
      if (now === drawn) {
        return;
      }
      drawn = now;
      const known = points.flatMap((point, at) => {
        const { throughput, user_tps: speed } = point;
        return throughput && speed ? [{ point, at, throughput, speed }] : [];
      });
      setAttributes(element, { hidden: !known.length });
      dots = points.map(() => null);
      if (!known.length) {
        picture.replaceChildren();
        return;
      }
      const [lowX, highX] = ends(known.map(({ throughput }) => throughput));
      const [lowY, highY] = ends(known.map(({ speed }) => speed));
      const inside = { x: LEFT, y: TOP, width: Math.max(100, width - LEFT - RIGHT), height: HEIGHT - TOP - BOTTOM };
      const x = (value: number) => inside.x + (inside.width * Math.log(value / lowX)) / Math.log(highX / lowX);
      const y = (value: number) => inside.y + inside.height * (1 - Math.log(value / lowY) / Math.log(highY / lowY));
      const places = known.map(({ throughput, speed }) => [x(throughput), y(speed)] as const);
      const words = known.map(({ point, at }) => labelOf(point, at === knee));

      const right = inside.x + inside.width;
      const bottom = inside.y + inside.height;
      const wide = (text: string) => text.length * LETTER;
      const boxes = placeLabels(places, words.map(wide), inside);
      // A named speed is said where there is room for it.
      const felt = FELT.filter(([speed]) => speed > lowY && speed < highY).flatMap(([speed, name]) => {
        const width = wide(name);
        const sides = [inside.x + 4, right - width].map((left) => ({ x: left, y: y(speed) - 15, width, height: 14 }));
        const box = sides.find((side) => ![...boxes, ...places.map(dotBox)].some((other) => meets(side, other)));
        return box ? [{ box, name, at: y(speed) }] : [];
      });
      setAttributes(picture, {
        width: Math.max(width, 180),
        "aria-label": `Tokens a second of one user against all together: ${known
          .map(
            ({ point, at, throughput, speed }) =>
              `${labelOf(point, at === knee)}: ${formatRate(speed)} at ${formatRate(throughput)}`,
          )
          .join("; ")}.`,
      });
      picture.replaceChildren(
        s("path", { class: "ji-base", d: `M${inside.x} ${inside.y}V${bottom}H${right}` }),
        ...ticksOf(lowX, highX).flatMap((value) => [
          s("path", { class: "ji-base", d: `M${x(value)} ${bottom}v4` }),
          s(
            "text",
            { class: "ji-tick", x: x(value), y: bottom + 15, "text-anchor": "middle" },
            formatRate(value, "").trim(),
          ),
        ]),
        ...ticksOf(lowY, highY).flatMap((value) => [
          s("path", { class: "ji-base", d: `M${inside.x} ${y(value)}h-4` }),
          s(
            "text",
            { class: "ji-tick", x: inside.x - 7, y: y(value) + 4, "text-anchor": "end" },
            formatRate(value, "").trim(),
          ),
        ]),
        ...felt.flatMap(({ box, name, at }) => [
          s("path", { class: "ji-felt", d: `M${inside.x} ${at}H${right}` }),
          s("text", { class: "ji-tick", x: box.x, y: at - 4 }, name),
        ]),
        s("text", { class: "ji-tick", x: right, y: HEIGHT - 4, "text-anchor": "end" }, "throughput, tok/s"),
        s("text", { class: "ji-tick", x: 2, y: 11 }, "tok/s a user"),
        s("path", { class: "ji-path", d: places.map(([px, py], at) => `${at ? "L" : "M"}${px} ${py}`).join("") }),
        ...known.flatMap(({ at }, place) => {
          const [cx, cy] = places[place] ?? [0, 0];
          const box = boxes[place] as Box;
          const dot = s("circle", { class: "ji-point", cx, cy, r: 4 });
          dots[at] = dot;
          const knot = at === knee ? [s("circle", { class: "ji-knee", cx, cy, r: 8 })] : [];
          return [...knot, dot, s("text", { class: "ji-point-name", x: box.x, y: box.y + 11 }, words[place] ?? "")];
        }),
      );
    },
    mark(at) {
      dots.forEach((dot, place) => {
        if (dot) {
          setAttributes(dot, { "data-on": place === at, r: place === at ? 6 : 4 });
        }
      });
    },
  };
}
