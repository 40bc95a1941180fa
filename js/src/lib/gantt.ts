// A batch step by step: a lane a request, above it what each step computed against the limits that were in force.

import { h, s, setAttributes, setText } from "./dom";
import { axis, laneNames } from "./gantt_axes";
import { stepCursor } from "./gantt_cursor";
import { HINT, KEYS, legend, titles } from "./gantt_words";
import { laneHeight, lanePainter, type Scale } from "./lanes";
import type { CleanUp } from "./model";
import { onResize } from "./resize";
import { axisEnd, type Lane, ownBegin, type Step, summary } from "./steps";
import { type Span, strip } from "./strip";

export interface Batch {
  /** Number of the run; another one is drawn from the beginning. */
  run: number;
  steps: readonly Step[];
  lanes: readonly Lane[];
  over: boolean;
  /** The oldest steps are not there any more. */
  forgotten: boolean;
}

export interface Gantt {
  element: HTMLElement;
  /** Show a batch; called once a frame at most. */
  show(batch: Batch): void;
}

/** Pixels left of the plot, for names and figures, and right of it. */
export const GUTTER = 44;
const RIGHT = 12;
const STRIP = 36;

export function gantt(cleanUps: CleanUp[]): Gantt {
  const painter = lanePainter();
  const tokens = strip(STRIP, ["ji-amount"]);
  const places = strip(STRIP, ["ji-queue", "ji-amount"]);
  const title = () => h("div", { class: "ji-label ji-title" });
  const [tokensTitle, placesTitle, lanesTitle] = [title(), title(), title()];
  const names = laneNames(GUTTER);
  const preempted = s("path", { class: "ji-preempted" });
  const over = s("svg", { class: "ji-over", "aria-hidden": "true" }, names.element, preempted);
  const lanes = h("div", { class: "ji-lanes" }, painter.element, over);
  const times = axis(GUTTER, RIGHT);
  const area = h("div", {
    class: "ji-gantt",
    tabindex: 0,
    role: "application",
    "aria-roledescription": "chart of steps",
    "aria-label": `Steps of the batch. ${KEYS}`,
  });
  area.append(tokensTitle, tokens.element, placesTitle, places.element, lanesTitle, lanes, times.element);
  setAttributes(painter.element, { role: "img" });

  let batch: Batch = { run: 0, steps: [], lanes: [], over: true, forgotten: false };
  let scale: Scale = { width: 504, laneHeight: 18, fromUs: 0, toUs: 1 };
  const cursor = stepCursor(area, lanes, GUTTER, () => ({ ...batch, scale }));
  const detail = h("div", { class: "ji-detail", role: "status" });
  const element = h("div", { class: "ji-steps", role: "group", "aria-label": "Steps" }, area, detail, legend());
  cursor.onChoice((text) => setText(detail, text || (batch.steps.length ? HINT : "")));

  const draw = () => {
    const { run, steps, lanes: shown, over: ended, forgotten } = batch;
    // Between two runs the picture of the one before keeps its place, faintly: nothing below it jumps.
    setAttributes(element, { hidden: shown.length === 0 && (ended || element.hidden), "data-before": !shown.length });
    if (!shown.length) {
      return;
    }
    scale = {
      width: area.clientWidth ? Math.max(120, area.clientWidth - GUTTER - RIGHT) : scale.width, // none out of sight
      laneHeight: laneHeight(shown.length),
      fromUs: forgotten ? (steps[0]?.[0] ?? 0) : 0,
      toUs: axisEnd(steps, shown, ended),
    };
    painter.paint(run, steps, shown, scale);
    const x = (us: number) => ((us - scale.fromUs) / (scale.toUs - scale.fromUs)) * scale.width;
    const spans = steps.map((step, at): Span => [x(ownBegin(steps, at)), x(step[1])]);
    drawStrips(spans);
    setAttributes(over, { width: GUTTER + scale.width, height: scale.laneHeight * shown.length });
    setAttributes(preempted, { d: crosses(steps, spans, scale.laneHeight) });
    names.draw(shown, scale.laneHeight);
    times.draw(scale);
    setAttributes(painter.element, { "aria-label": summary(steps, shown) });
    cursor.draw();
  };

  const drawStrips = (spans: readonly Span[]) => {
    const { steps } = batch;
    const budgets = steps.map((step) => step[8]);
    const computed = steps.map((step) => step[2]);
    const mostTokens = Math.max(1, ...computed, ...budgets.map((budget) => budget ?? 0));
    const caps = steps.map((step) => step[7]);
    const running = steps.map((step) => step[3]);
    const planned = steps.map((step) => step[3] + step[4]);
    // A limit far above what there is would leave nothing to see of that; it is drawn above the scale.
    const most = Math.max(1, ...planned);
    const mostPlaces = Math.max(most, ...caps.map((cap) => (cap !== null && cap <= 2 * most ? cap : 0)));
    const common = { gutter: GUTTER, width: scale.width, spans };
    tokens.draw({ ...common, areas: [computed], limits: budgets, top: mostTokens, log: true });
    places.draw({ ...common, areas: [planned, running], limits: caps, top: mostPlaces });
    const said = titles(batch, mostPlaces);
    setText(tokensTitle, said.tokens);
    setText(placesTitle, said.places);
    setText(lanesTitle, said.lanes);
  };

  onResize(area, draw, cleanUps);
  return {
    element,
    show(now) {
      if (now.run !== batch.run) {
        cursor.choose(-1, null);
      }
      batch = now;
      draw();
    },
  };
}

/** A cross where a request was preempted: a shape, for those who do not see its colour. */
function crosses(steps: readonly Step[], spans: readonly Span[], height: number): string {
  const size = Math.min(8, height - 1) / 2;
  let path = "";
  steps.forEach(([, , , , , , states], at) => {
    for (let lane = states.indexOf("x"); lane >= 0; lane = states.indexOf("x", lane + 1)) {
      const [left, right] = spans[at] ?? [0, 0];
      const corner = `${(GUTTER + (left + right) / 2 - size).toFixed(1)} ${(lane + 0.5) * height - 0.5 - size}`;
      path += `M${corner}l${2 * size} ${2 * size}m0 ${-2 * size}l${-2 * size} ${2 * size}`;
    }
  });
  return path;
}
