// BatchLab: requests as a batch, step by step; limits that move while it runs; latency against throughput.

import sheet from "./batch_lab.css";
import { acting } from "./lib/acting";
import { announcer } from "./lib/announce";
import { ASKED, type Asked, type Bounds, batchForm } from "./lib/batch_form";
import { type BatchFigures, batchGauges } from "./lib/batch_gauges";
import { h, setAttributes, setText } from "./lib/dom";
import { fact } from "./lib/facts";
import { button } from "./lib/fields";
import formSheet from "./lib/form.css";
import { gantt } from "./lib/gantt";
import { ownKeys } from "./lib/keys";
import { requests } from "./lib/messages";
import { all, type CleanUp, follow, type Host } from "./lib/model";
import { closeWhenGone, runState } from "./lib/run_state";
import { saver } from "./lib/save";
import { type Shares, sharesBar } from "./lib/shares";
import type { Lane, Step } from "./lib/steps";
import { hideStill } from "./lib/still";
import { type SweepPoint, sweep } from "./lib/sweep";
import { useTheme } from "./lib/theme";

/** The traits of `jupyter_infer.widgets.batch_lab.BatchLab`. */
export interface BatchLab extends Asked {
  chart: string;
  state: string;
  error: string;
  _engine: [string, string][];
  _stage: string;
  _progress: string;
  _bounds: Bounds | null;
  _charts: string[];
  _shown_run: number;
  _lanes: Lane[];
  _settled: Step[];
  _recent: Step[];
  _latest: Step[];
  _forgotten: boolean;
  _figures: BatchFigures;
  _limit: string;
  _shares: Shares;
  _swept: string;
  _points: SweepPoint[];
  _knee: number | null;
  _status: string;
}

const STEPS = ["state", "_shown_run", "_lanes", "_settled", "_recent", "_latest", "_forgotten"] as const;
const STATE = ["state", "error", "_stage", "_progress", "_status"] as const;

const CHARTS: Record<string, string> = {
  steps: "Steps",
  phases: "Phases",
  tokens: "Tokens",
  cost: "Cost",
  kv: "KV pool",
};

function render({ model, el }: Host<BatchLab>): CleanUp {
  const cleanUps: CleanUp[] = [];
  useTheme(el, "batch-lab", formSheet, sheet);
  hideStill(model, el);
  ownKeys(el, cleanUps);
  const spoken = announcer(cleanUps);
  const { ask } = requests(model, cleanUps);
  const { save, bound } = saver<Asked>(model, cleanUps, () => view.hush());
  const view = acting(ask, spoken, save, () => drawState());
  const { act } = view;

  const fields = batchForm(model, bound, (limits) => view.tell("limits", { ...limits }), cleanUps);
  const start = (kind: "run" | "sweep") => {
    const problem = view.gone ? "" : fields.problem();
    if (problem) {
      view.say(problem);
    } else {
      void act(kind, { ...fields.asked() });
    }
  };

  // What is done with it.
  const run = button("Run", "Send the requests as a batch", () => start("run"));
  const sweepIt = button("Sweep", "Run a batch of each of the sizes, and compare them", () => start("sweep"));
  const stop = button("Stop", "End it; what was measured is kept", () => void act("stop"));
  const clear = button("Clear", "Take the run and the sweep away; the settings stay", () => void act("clear"));
  const now = runState(model, view, spoken, [
    [run, "idle"],
    [sweepIt, "idle"],
    [stop, "running"],
    [clear, "idle"],
  ]);
  const progress = h("div", { class: "ji-label ji-progress" });
  now.bar.append(progress);
  const form = h("fieldset", { class: "ji-form" }, ...fields.elements, now.bar);

  // What came of it.
  const engine = h("div", { class: "ji-line ji-engine", role: "group", "aria-label": "Model and engine" });
  const steps = gantt(cleanUps);
  const gauges = batchGauges();
  const shares = sharesBar();
  const points = sweep(cleanUps);
  const status = h("div", { class: "ji-label" });
  const charts = h("fieldset", { class: "ji-form" });
  el.append(engine, form, now.error, gauges.element, steps.element, shares.element, status, points.element);
  el.append(charts, spoken.element);

  const drawState = () => {
    now.draw();
    setText(progress, view.gone ? "" : model.get("_progress"));
    setText(status, model.get("_status"));
  };
  const drawSteps = () =>
    steps.show({
      run: model.get("_shown_run"),
      steps: [...model.get("_settled"), ...model.get("_recent"), ...model.get("_latest")],
      lanes: model.get("_lanes"),
      over: !now.goingOn(),
      forgotten: model.get("_forgotten"),
    });
  const drawCharts = () => {
    const kinds = model.get("_charts");
    setAttributes(charts, { hidden: !kinds.length });
    const there = [...charts.querySelectorAll("button")];
    if (there.map((made) => made.dataset.kind).join() !== kinds.join()) {
      const made = kinds.map((kind) => {
        const toggle = button(CHARTS[kind] ?? kind, `Show this chart below`, () => void act("chart", { kind }));
        toggle.dataset.kind = kind;
        return toggle;
      });
      const line = h("div", { class: "ji-line", role: "group", "aria-label": "Chart below" });
      line.append(h("span", { class: "ji-label" }, "Chart below"), ...made);
      charts.replaceChildren(line);
    }
    for (const made of charts.querySelectorAll("button")) {
      setAttributes(made, { "aria-pressed": String(made.dataset.kind === model.get("chart")) });
    }
  };

  follow(model, [...ASKED, "_bounds"], fields.draw, cleanUps);
  follow(model, ["_engine"], () => engine.replaceChildren(...model.get("_engine").map(fact)), cleanUps);
  follow(model, STATE, drawState, cleanUps);
  follow(model, STEPS, drawSteps, cleanUps);
  follow(
    model,
    ["_figures", "_bounds"],
    () => gauges.set(model.get("_figures"), model.get("_bounds")?.kv_blocks_total),
    cleanUps,
  );
  follow(
    model,
    ["_limit", "_shares", "state"],
    () => shares.set(model.get("_limit"), model.get("_shares"), now.goingOn()),
    cleanUps,
  );
  follow(
    model,
    ["_points", "_knee", "_swept"],
    () => points.show(model.get("_points"), model.get("_knee"), model.get("_swept")),
    cleanUps,
  );
  follow(model, ["_charts", "chart"], drawCharts, cleanUps);
  closeWhenGone(model, view, [form, charts], drawState, cleanUps);
  return all(cleanUps);
}

export default { render };
