// A step and a request that are chosen, by the pointer or by keys, and what is said of them.

import { h, setAttributes } from "./dom";
import type { Batch } from "./gantt";
import type { Scale } from "./lanes";
import { describeStep, ownBegin, stepAt } from "./steps";

export interface StepCursor {
  /** Choose a step, or none by -1, and a request of it, or none by null. */
  choose(step: number, lane: number | null): void;
  /** Draw it where it is now. */
  draw(): void;
  /** Hear what is said of the choice; empty if there is none. */
  onChoice(tell: (text: string) => void): void;
}

/** Where a key leads from a step and a request, or null for a key of somebody else; -1 is no step. */
export function movedBy(
  key: string,
  at: { step: number; lane: number | null } | null,
  steps: number,
  lanes: number,
): { step: number; lane: number | null } | null {
  const last = steps - 1;
  const { step, lane } = at ?? { step: last, lane: null };
  const to: Record<string, [step: number, lane: number | null]> = {
    ArrowLeft: [at ? step - 1 : last, lane],
    ArrowRight: [at ? step + 1 : 0, lane],
    PageUp: [step - 10, lane],
    PageDown: [step + 10, lane],
    Home: [0, lane],
    End: [last, lane],
    ArrowUp: [step, lane === null ? lanes - 1 : lane - 1],
    ArrowDown: [step, lane === null ? 0 : lane + 1],
  };
  if (key === "Escape") {
    return { step: -1, lane: null };
  }
  const next = to[key];
  const within = (value: number, most: number) => Math.max(0, Math.min(most, value));
  return next ? { step: within(next[0], last), lane: next[1] === null ? null : within(next[1], lanes - 1) } : null;
}

export function stepCursor(
  area: HTMLElement,
  lanes: HTMLElement,
  gutter: number,
  shown: () => Batch & { scale: Scale },
): StepCursor {
  const column = h("div", { class: "ji-chosen-step" });
  const cell = h("div", { class: "ji-chosen-cell" });
  area.append(column);
  lanes.append(cell);
  let chosen: { beginUs: number; lane: number | null } | null = null; // by its begin: the oldest steps may go
  let tell: (text: string) => void = () => {};

  const place = () => {
    const at = chosen ? shown().steps.findIndex(([begin]) => begin === chosen?.beginUs) : -1;
    return at < 0 ? null : { step: at, lane: chosen?.lane ?? null };
  };
  const draw = () => {
    const { steps, lanes: requests, forgotten, scale } = shown();
    const at = place();
    const step = at ? steps[at.step] : undefined;
    setAttributes(column, { hidden: !step });
    setAttributes(cell, { hidden: !step || at?.lane === null });
    if (!step || !at) {
      tell("");
      return;
    }
    const x = (us: number) => ((us - scale.fromUs) / (scale.toUs - scale.fromUs)) * scale.width;
    const left = x(ownBegin(steps, at.step));
    for (const made of [column, cell]) {
      made.style.left = `${gutter + left}px`;
      made.style.width = `${Math.max(2, x(step[1]) - left)}px`;
    }
    cell.style.top = `${(at.lane ?? 0) * scale.laneHeight}px`;
    cell.style.height = `${scale.laneHeight}px`;
    tell(describeStep(steps, at.step, requests, at.lane, forgotten));
  };
  const choose = (step: number, lane: number | null) => {
    const found = shown().steps[step];
    chosen = found ? { beginUs: found[0], lane } : null;
    draw();
  };

  area.addEventListener("pointermove", (event) => {
    const { steps, lanes: requests, scale } = shown();
    const box = lanes.getBoundingClientRect();
    const left = event.clientX - box.left - gutter;
    const lane = Math.floor((event.clientY - box.top) / scale.laneHeight);
    const us = scale.fromUs + (left / scale.width) * (scale.toUs - scale.fromUs);
    const inside = left >= 0 && left <= scale.width;
    choose(inside ? stepAt(steps, us) : -1, lane >= 0 && lane < requests.length ? lane : null);
  });
  area.addEventListener("pointerleave", () => {
    if (!area.matches(":focus")) {
      choose(-1, null);
    }
  });
  area.addEventListener("keydown", (event) => {
    const { steps, lanes: requests } = shown();
    const others = event.ctrlKey || event.metaKey || event.altKey || !steps.length;
    const to = others ? null : movedBy(event.key, place(), steps.length, requests.length);
    if (to) {
      event.preventDefault();
      event.stopPropagation(); // a notebook would go to another cell
      choose(to.step, to.lane);
    }
  });

  return {
    choose,
    draw,
    onChoice(hear) {
      tell = hear;
    },
  };
}
