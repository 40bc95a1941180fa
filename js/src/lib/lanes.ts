// The requests of a batch as lanes of cells on a canvas: as many as fit, and only what is new is painted.
//
// The canvas is transparent and has the colours of the phases alone, which are the same in all themes; what follows the
// theme (texts, lines, marks) is SVG above it. Phases have a height each, too: a colour is never all that says what it is.

import { type Doing, doing, type Lane, ownBegin, type Step } from "./steps";

/** Where cells are: CSS pixels, and µs at the left and the right edge. */
export interface Scale {
  width: number;
  laneHeight: number;
  fromUs: number;
  toUs: number;
}

/** What is painted; a preempted request waits, and its mark is above the canvas. */
export type Painted = Exclude<Doing, "" | "x">;

export type Run = [what: Painted, beginUs: number, endUs: number];

/** Part of a lane's height that a cell has. */
export const HEIGHTS: Record<Painted, number> = { p: 1, s: 1, d: 0.62, q: 0.3, w: 0.3 };
const PROPERTIES: Record<Painted, string> = {
  d: "--ji-decode",
  p: "--ji-prefill",
  q: "--ji-queued",
  w: "--ji-stalled",
  s: "--ji-stalled",
};
/** Those that are rare come last: where many steps share a pixel, they are seen. */
const ORDER = Object.keys(PROPERTIES) as Painted[];
/** CSS pixels of a step from which on gaps part steps, on average and at least. */
const PARTED = [4, 2] as const;

/** The height of a lane where there are so many. */
export function laneHeight(lanes: number): number {
  return Math.max(6, Math.min(18, Math.floor(384 / Math.max(lanes, 1))));
}

/** What a request did from a step on, as runs of the same; gaps of up to `joinUs` are joined. */
export function runsOf(
  steps: readonly Step[],
  from: number,
  lane: Lane,
  at: number,
  started: boolean,
  joinUs = 0,
): { runs: Run[]; started: boolean } {
  const runs: Run[] = [];
  const add = (what: Painted, beginUs: number, endUs: number) => {
    const last = runs[runs.length - 1];
    if (last && last[0] === what && beginUs - last[2] <= joinUs) {
      last[2] = Math.max(last[2], endUs);
    } else if (endUs > beginUs) {
      runs.push([what, beginUs, endUs]);
    }
  };
  const arrival = lane[1] ?? Number.POSITIVE_INFINITY;
  const end = lane[2] ?? Number.POSITIVE_INFINITY;
  for (let place = from; place < steps.length; place += 1) {
    const step = steps[place] as Step;
    const begin = ownBegin(steps, place);
    const now = doing(step, begin, lane, at, started);
    const idleFrom = Math.max(steps[place - 1]?.[1] ?? 0, arrival);
    if (now === "q" || now === "w") {
      add(now, idleFrom, Math.min(step[1], end));
    } else if (now) {
      if (!started) {
        add("q", idleFrom, begin); // it waited between two steps as well
      }
      add(now === "x" ? "w" : now, begin, step[1]);
      started = true;
    }
  }
  return { runs, started };
}

export interface LanePainter {
  element: HTMLCanvasElement;
  /** Paint what is new; all of it if the scale, the run or what was painted has changed. */
  paint(run: number, steps: readonly Step[], lanes: readonly Lane[], scale: Scale): void;
}

export function lanePainter(): LanePainter {
  const element = document.createElement("canvas");
  element.className = "ji-cells";
  let picture = ""; // what the painted picture is of
  let past = ""; // arrivals and ends that are in it
  let count = 0; // steps that are in it
  let untilUs = 0;
  let started: boolean[] = [];
  let parted = true; // for the whole picture: some gaps and some none would look like something that happened
  let colours: Partial<Record<Painted, string>> = {};

  const pastOf = (lanes: readonly Lane[]) => {
    const seen = (us: number | null) => (us !== null && us < untilUs ? us : null);
    return JSON.stringify(lanes.map(([, arrival, end]) => [seen(arrival), seen(end)]));
  };
  const begin = (lanes: number, scale: Scale, ratio: number) => {
    const height = scale.laneHeight * lanes;
    element.width = Math.round(scale.width * ratio); // which empties it
    element.height = Math.round(height * ratio);
    element.style.width = `${scale.width}px`;
    element.style.height = `${height}px`;
    const style = getComputedStyle(element);
    colours = Object.fromEntries(ORDER.map((what) => [what, style.getPropertyValue(PROPERTIES[what]).trim()]));
    count = 0;
    started = [];
  };

  return {
    element,
    paint(run, steps, lanes, scale) {
      const context = element.getContext?.("2d");
      if (!context) {
        return;
      }
      const ratio = window.devicePixelRatio || 1;
      const now = JSON.stringify([run, steps[0]?.[0], scale, lanes.length, ratio]);
      if (now !== picture || steps.length < count || pastOf(lanes) !== past) {
        picture = now;
        begin(lanes.length, scale, ratio);
        const doneUs = (steps[steps.length - 1]?.[1] ?? 0) - scale.fromUs;
        parted = (doneUs / steps.length / (scale.toUs - scale.fromUs)) * scale.width >= PARTED[0];
      }
      if (steps.length > count) {
        paintFrom(context, steps, count, lanes, started, scale, ratio, colours);
        if (parted) {
          part(context, steps, count, scale, ratio);
        }
        count = steps.length;
        untilUs = steps[count - 1]?.[1] ?? 0;
      }
      past = pastOf(lanes);
    },
  };
}

/** Where a time is, in pixels of the device, whole ones: edges are sharp, and later cells meet the earlier ones. */
function pixels({ width, fromUs, toUs }: Scale, ratio: number): (us: number) => number {
  const perUs = (width * ratio) / (toUs - fromUs);
  return (us) => Math.round((us - fromUs) * perUs);
}

function paintFrom(
  context: CanvasRenderingContext2D,
  steps: readonly Step[],
  from: number,
  lanes: readonly Lane[],
  started: boolean[],
  scale: Scale,
  ratio: number,
  colours: Partial<Record<Painted, string>>,
): void {
  const x = pixels(scale, ratio);
  const pixelUs = (scale.toUs - scale.fromUs) / (scale.width * ratio);
  const gap = Math.max(1, Math.round((scale.laneHeight > 9 ? 2 : 1) * ratio));
  const high = Math.round(scale.laneHeight * ratio) - gap;
  const rects: Record<Painted, number[]> = { d: [], p: [], q: [], w: [], s: [] };
  lanes.forEach((lane, at) => {
    const made = runsOf(steps, from, lane, at, started[at] ?? false, pixelUs / 2);
    started[at] = made.started;
    for (const [what, beginUs, endUs] of made.runs) {
      const left = x(beginUs);
      rects[what].push(left, at, Math.max(1, x(endUs) - left));
    }
  });
  for (const what of ORDER) {
    context.fillStyle = colours[what] || "gray";
    const height = Math.max(1, Math.round(high * HEIGHTS[what]));
    const cells = rects[what];
    for (let place = 0; place < cells.length; place += 3) {
      const top = Math.round((cells[place + 1] as number) * scale.laneHeight * ratio) + Math.round((high - height) / 2);
      context.fillRect(cells[place] as number, top, cells[place + 2] as number, height);
    }
  }
}

/** Leave a gap where a step begins. */
function part(
  context: CanvasRenderingContext2D,
  steps: readonly Step[],
  from: number,
  scale: Scale,
  ratio: number,
): void {
  const x = pixels(scale, ratio);
  for (let place = Math.max(from, 1); place < steps.length; place += 1) {
    const left = x(ownBegin(steps, place));
    if (x((steps[place] as Step)[1]) - left >= PARTED[1] * ratio) {
      context.clearRect(left, 0, Math.round(ratio), context.canvas.height);
    }
  }
}
