import { afterEach, beforeEach, expect, test, vi } from "vitest";
import widget, { type BatchLab } from "../src/batch_lab";
import { LIMITS_MS } from "../src/lib/batch_form";
import type { BatchFigures } from "../src/lib/batch_gauges";
import { numbersIn } from "../src/lib/fields";
import type { CleanUp } from "../src/lib/model";
import { SAVE_MS } from "../src/lib/save";
import type { SweepPoint } from "../src/lib/sweep";
import { FakeModel, frame } from "./model";

const UNKNOWN: BatchFigures = {
  elapsed_ns: null,
  output_tokens: null,
  throughput: null,
  user_tps: null,
  ttft_p50_ns: null,
  ttft_p95_ns: null,
  tpot_p50_ns: null,
  e2e_p50_ns: null,
  running: null,
  waiting: null,
  pool_used: null,
  usd_per_million: null,
  price: "",
  utilisation: null,
};
const KNOWN: BatchFigures = {
  elapsed_ns: 3.2e9,
  output_tokens: 256,
  throughput: 80,
  user_tps: 12.4,
  ttft_p50_ns: 0.4e9,
  ttft_p95_ns: 1.3e9,
  tpot_p50_ns: 80e6,
  e2e_p50_ns: 2.9e9,
  running: 6,
  waiting: 2,
  pool_used: 96,
  usd_per_million: 0.174,
  price: "$0.05/h assumed",
  utilisation: 0.98,
};
const START: BatchLab = {
  requests: 8,
  prompt_tokens: 64,
  output_tokens: 32,
  arrivals: "at once",
  interval_s: 0.25,
  seed: 0,
  shared_prefix: false,
  max_num_seqs: null,
  max_num_batched_tokens: null,
  sizes: [1, 2, 4],
  chart: "steps",
  state: "idle",
  error: "",
  _engine: [["model", "smollm2-135m"]],
  _stage: "",
  _progress: "",
  _bounds: null,
  _charts: [],
  _shown_run: 0,
  _lanes: [],
  _settled: [],
  _recent: [],
  _latest: [],
  _forgotten: false,
  _figures: UNKNOWN,
  _limit: "",
  _shares: {},
  _points: [],
  _swept: "",
  _knee: null,
  _status: "",
};
const BOUNDS = { max_num_seqs: 64, max_num_batched_tokens: 2048, block_size: 16, kv_blocks_total: 512 };
const RUN: Partial<BatchLab> = {
  state: "running",
  _bounds: BOUNDS,
  _shown_run: 1,
  _lanes: [
    ["r1", 0, null, 2, "decode"],
    ["r2", 500, null, 1, "stalled"],
  ],
  _settled: [[0, 1_000, 64, 1, 1, 90, "p.", 64, 2048]],
  _recent: [[1_000, 2_000, 65, 2, 0, 86, "dp", 64, 2048]],
  _latest: [[2_000, 3_000, 1, 1, 1, 90, "dx", 1, 512]],
};
const point = (requests: number, throughput: number, user_tps: number, limit: string): SweepPoint => ({
  requests,
  throughput,
  user_tps,
  ttft_p50_ns: 0.1e9 * requests,
  ttft_p95_ns: 0.2e9 * requests,
  tpot_p50_ns: 1e9 / user_tps,
  usd_per_million: 10 / throughput,
  limit,
  shares: {},
  why: limit && `Limited by ${limit}.`,
});
const POINTS = [point(1, 30, 32, "bandwidth"), point(2, 58, 30, "compute"), point(4, 60, 16, "")];

let el: HTMLElement;
let clean: CleanUp | undefined;

beforeEach(() => {
  el = document.createElement("div");
  document.body.append(el);
});

afterEach(() => {
  clean?.();
  clean = undefined;
  el.remove();
  vi.useRealTimers();
});

function show(state: Partial<BatchLab> = {}): FakeModel<BatchLab> {
  const model = new FakeModel<BatchLab>({ ...START, ...state });
  clean = widget.render({ model: model.as(), el });
  return model;
}

const find = <E extends Element = HTMLElement>(selector: string): E => {
  const found = el.querySelector<E>(selector);
  if (!found) {
    throw new Error(`there is no ${selector}`);
  }
  return found;
};
const texts = (selector: string) => [...el.querySelectorAll(selector)].map((found) => found.textContent);
const named = (label: string): HTMLElement => {
  const found = [...el.querySelectorAll<HTMLElement>("button, [aria-label]")].find(
    (one) => (one.getAttribute("aria-label") ?? one.textContent) === label,
  );
  if (!found) {
    throw new Error(`there is no ${label}`);
  }
  return found;
};
const press = (label: string) => named(label).click();
const field = (label: string): HTMLInputElement => {
  const name = [...el.querySelectorAll("label")].find((found) => found.textContent === label);
  return find<HTMLInputElement>(`#${name?.getAttribute("for")}`);
};
const put = (input: HTMLElement, value: string, event = "input") => {
  (input as HTMLInputElement).value = value;
  input.dispatchEvent(new Event(event));
};
const type = (label: string, text: string) => put(field(label), text);
const key = (target: Element, name: string) =>
  target.dispatchEvent(new KeyboardEvent("keydown", { key: name, bubbles: true, cancelable: true }));
const asked = (model: FakeModel<BatchLab>) =>
  model.sent as { kind: string; id: string; payload: Record<string, unknown> }[];
const answer = async (model: FakeModel<BatchLab>, reply: object = { payload: {} }) => {
  model.tell("msg:custom", { kind: "reply", id: asked(model).at(-1)?.id, ...reply });
  for (let turn = 0; turn < 5; turn += 1) {
    await Promise.resolve();
  }
};
const hidden = (element: Element | null | undefined) => element?.hasAttribute("hidden");

test("every field has a label, and what is typed is set at once and sent when typing pauses", () => {
  vi.useFakeTimers();
  const model = show();
  type("Requests", "16");
  type("Prompt tokens", "100");
  type("Output tokens", "20");
  type("Sizes of the sweep", "1, 8 16");
  put(field("Arrivals"), "staggered", "change");
  field("Shared prefix").checked = true;
  field("Shared prefix").dispatchEvent(new Event("change"));
  expect(model.saves).toBe(0);
  vi.advanceTimersByTime(SAVE_MS);
  expect(model.saves).toBe(1);
  press("Run");
  expect(asked(model)[0]).toMatchObject({
    kind: "run",
    payload: {
      requests: 16,
      prompt_tokens: 100,
      output_tokens: 20,
      arrivals: "staggered",
      interval_s: 0.25,
      seed: 0,
      shared_prefix: true,
      max_num_seqs: null,
      max_num_batched_tokens: null,
      sizes: [1, 8, 16],
    },
  });
  press("Sweep");
  expect(asked(model)[1]).toMatchObject({ kind: "sweep", payload: { sizes: [1, 8, 16] } });
});

test("numbers that cannot be are marked, not set, and stay until they are mended", () => {
  const model = show();
  for (const [label, wrong, right] of [
    ["Requests", "65", "8"],
    ["Requests", "", "8"],
    ["Prompt tokens", "0", "64"],
    ["Sizes of the sweep", "1, x", "1, 2, 4"],
    ["Sizes of the sweep", "", "1, 2, 4"],
  ] as const) {
    type(label, wrong);
    expect(field(label).getAttribute("aria-invalid")).toBe("true");
    field(label).dispatchEvent(new Event("change"));
    expect(field(label).value).toBe(wrong);
    expect(field(label).getAttribute("aria-invalid")).toBe("true");
    type(label, right);
    expect(field(label).hasAttribute("aria-invalid")).toBe(false);
  }
  expect([model.get("requests"), model.get("prompt_tokens"), model.get("sizes")]).toEqual([8, 64, [1, 2, 4]]);
  expect(numbersIn("4,2;1 3", 1, 64)).toEqual([4, 2, 1, 3]);
  expect(numbersIn("0", 1, 64)).toBeUndefined();
});

test("with a number that cannot be nothing is run, and one line says what the field takes", async () => {
  const model = show();
  for (const [label, wrong, said, which] of [
    [
      "Sizes of the sweep",
      "1, 2, 100",
      "Sizes of the sweep: whole numbers from 1 to 64, with commas between them",
      "Sweep",
    ],
    ["Requests", "500", "Requests: a whole number from 1 to 64", "Run"],
    ["Output tokens", "", "Output tokens: a whole number, 1 or more", "Run"],
  ] as const) {
    const right = field(label).value;
    type(label, wrong);
    press(which);
    await frame();
    expect(find(".ji-error").textContent).toBe(said);
    expect(document.activeElement).toBe(field(label));
    type(label, right);
    expect(find(".ji-error").textContent).toBe(""); // it was about that value
    expect(find(".ji-unseen[role=status]").textContent).toBe("");
  }
  type("Interval, s", "0"); // out of sight, and not asked
  press("Run");
  await frame();
  expect(model.sent.map((message) => (message as { kind: string }).kind)).toEqual(["run"]);
});

test("a limit above what was loaded later is marked, and somebody else's value takes the place of a wrong one", async () => {
  const model = show({ max_num_seqs: 40 });
  expect(field("Max sequences").hasAttribute("aria-invalid")).toBe(false);
  model.set("_bounds", { max_num_seqs: 8, max_num_batched_tokens: 512, block_size: 32, kv_blocks_total: 100 });
  await frame();
  expect(field("Max sequences").getAttribute("aria-invalid")).toBe("true");
  press("Run");
  await frame();
  expect(find(".ji-error").textContent).toBe("Max sequences: 8 at most, which is what was loaded");
  expect(model.sent).toEqual([]);
  field("Requests").focus();
  type("Requests", "x");
  model.set("requests", 3);
  await frame();
  expect(field("Requests").value).toBe("x"); // somebody is at it
  field("Requests").blur();
  field("Requests").dispatchEvent(new Event("change"));
  expect(field("Requests").value).toBe("3");
  expect(field("Requests").hasAttribute("aria-invalid")).toBe(false);
});

test("between two runs the picture of the steps keeps its place", async () => {
  const model = show({ ...RUN, state: "done" });
  model.set("state", "running");
  model.set("_lanes", []);
  await frame();
  expect([hidden(find(".ji-steps")), find(".ji-steps").hasAttribute("data-before")]).toEqual([false, true]);
  model.set("state", "done"); // cleared
  await frame();
  expect(hidden(find(".ji-steps"))).toBe(true);
});

test("what limited a run keeps its place while the next one goes on, out of sight", async () => {
  const model = show({ state: "done", _limit: "Limited by compute.", _shares: { compute: 1 } });
  const where = named("What limited it");
  const kept = () => [hidden(where), where.hasAttribute("data-waits"), find(".ji-said").textContent];
  model.set("state", "running");
  model.set("_limit", "");
  model.set("_shares", {});
  await frame();
  expect(kept()).toEqual([false, true, "Limited by compute."]);
  model.set("state", "stopped");
  await frame();
  expect(kept()).toEqual([true, false, ""]);
});

test("a limit that cannot hold says why beside it, and As loaded lets go of what was typed", async () => {
  const model = show({ max_num_seqs: 80, _bounds: BOUNDS });
  const why = () => texts(".ji-why")[0];
  expect(why()).toBe("64 at most, which is what was loaded");
  expect(named("Max sequences, slider").hasAttribute("data-unset")).toBe(true);
  press("Max sequences as loaded");
  expect([model.get("max_num_seqs"), field("Max sequences").value, why()]).toEqual([null, "", ""]);
  type("Max sequences", "abc");
  expect(field("Max sequences").getAttribute("aria-invalid")).toBe("true");
  expect(why()).toBe("a whole number from 1 to 64, or nothing");
  expect(find(`#${field("Max sequences").getAttribute("aria-describedby")}`).textContent).toBe(why());
  expect(find("[aria-label='Max sequences as loaded']").hasAttribute("aria-disabled")).toBe(false);
  press("Max sequences as loaded");
  expect(field("Max sequences").value).toBe("");
  expect(field("Max sequences").hasAttribute("aria-invalid")).toBe(false);
});

test("interval and seed are there where they count", async () => {
  const model = show();
  const there = () => [field("Interval, s"), field("Seed")].map((input) => !hidden(input.closest(".ji-field")));
  expect(there()).toEqual([false, false]);
  model.set("arrivals", "staggered");
  await frame();
  expect(there()).toEqual([true, false]);
  model.set("arrivals", "poisson");
  await frame();
  expect(there()).toEqual([true, true]);
  type("Interval, s", "0");
  expect(model.get("interval_s")).toBe(0.25);
  type("Interval, s", "0.5");
  expect(model.get("interval_s")).toBe(0.5);
});

test("a limit that is dragged is sent at once, seldom, and the last value always", async () => {
  vi.useFakeTimers();
  const model = show(RUN);
  const slider = named("Max sequences, slider");
  expect(slider.getAttribute("aria-valuetext")).toBe("as loaded: 64");
  expect(field("Max sequences").placeholder).toBe("as loaded: 64");
  for (const place of ["5", "4", "3"]) {
    put(slider, place);
  }
  expect(asked(model).map(({ kind, payload }) => [kind, payload])).toEqual([
    ["limits", { max_num_seqs: 6, max_num_batched_tokens: null }],
  ]);
  expect(model.saves).toBe(0);
  await answer(model);
  model.set("max_num_seqs", 6); // the kernel's echo of the first one
  await vi.advanceTimersByTimeAsync(20);
  expect(field("Max sequences").value).toBe("4"); // is not fought about
  await vi.advanceTimersByTimeAsync(LIMITS_MS);
  expect(asked(model).at(-1)?.payload).toEqual({ max_num_seqs: 4, max_num_batched_tokens: null });
  await answer(model);
  model.set("max_num_seqs", 4);
  type("Token budget", "512");
  await vi.advanceTimersByTimeAsync(LIMITS_MS);
  expect(asked(model).at(-1)?.payload).toEqual({ max_num_seqs: 4, max_num_batched_tokens: 512 });
  await answer(model);
  press("Max sequences as loaded");
  await vi.advanceTimersByTimeAsync(LIMITS_MS);
  expect(asked(model).at(-1)?.payload).toEqual({ max_num_seqs: null, max_num_batched_tokens: 512 });
  expect(field("Max sequences").value).toBe("");
  expect(asked(model)).toHaveLength(4);
});

test("limits stay in their bounds, and a refusal is one line", async () => {
  const model = show({ _bounds: BOUNDS });
  type("Max sequences", "65");
  expect(field("Max sequences").getAttribute("aria-invalid")).toBe("true");
  type("Token budget", "0");
  expect(asked(model)).toEqual([]);
  type("Max sequences", "64");
  await answer(model, { error: "ConfigError: max_num_seqs: at most 32" });
  expect(find(".ji-error").textContent).toBe("max_num_seqs: at most 32");
});

test("before a model is loaded the sliders of limits rest, and a number can be typed", () => {
  const model = show();
  expect((named("Max sequences, slider") as HTMLInputElement).disabled).toBe(true);
  expect(field("Max sequences").placeholder).toBe("as loaded");
  type("Max sequences", "4");
  expect(model.get("max_num_seqs")).toBe(4);
});

test("the state says what goes on, and what cannot be used now", async () => {
  const model = show({ state: "loading", _stage: "reading weights" });
  expect(find(".ji-now").textContent).toBe("loading the model: reading weights");
  expect(["Run", "Sweep", "Stop", "Clear"].map((name) => named(name).getAttribute("aria-disabled"))).toEqual([
    "true",
    "true",
    null,
    "true",
  ]);
  model.set("state", "running");
  model.set("_progress", "sweep: 8 requests, 4 of 6");
  await frame();
  expect(find(".ji-progress").textContent).toBe("sweep: 8 requests, 4 of 6");
  model.set("state", "failed");
  model.set("error", "no memory; choose a smaller model");
  await frame();
  expect(find(".ji-error").textContent).toBe("no memory; choose a smaller model");
  expect(find(".ji-unseen[role=status]").textContent).toBe("no memory; choose a smaller model"); // at once
});

test("figures have their bands, and what is not known is n/a", async () => {
  const model = show();
  expect(texts(".ji-big")).toEqual(["n/a tok/s", "n/a tok/s", "n/a", "n/a", "n/a"]);
  model.set("_bounds", BOUNDS);
  model.set("_figures", KNOWN);
  await frame();
  expect(texts(".ji-big")).toEqual(["80 tok/s", "12.4 tok/s", "400 ms", "1.3 s", "≈$0.17"]);
  expect(named("tok/s a user").textContent).toContain("reads along (10+)");
  expect(named("TTFT p50").textContent).toContain("feels instant");
  expect(named("TTFT p95").textContent).toContain("a wait");
  expect(named("$ a million tokens").textContent).toContain("@ $0.05/h assumed");
  const rest = () => named("More figures").textContent;
  expect(rest()).toContain("running, at most6waiting, at most2KV pool, at most96 of 512 blocks"); // it is over
  model.set("_figures", { ...KNOWN, e2e_p50_ns: null });
  await frame();
  expect(rest()).toContain("running6waiting2KV pool96 of 512 blocks");
});

test("steps are read with the keyboard, and the picture has a text", async () => {
  const model = show(RUN);
  const area = find(".ji-gantt");
  expect(find("canvas").getAttribute("aria-label")).toBe("2 requests (1 decode, 1 stalled), 3 steps in 3 ms");
  expect(find(".ji-detail").textContent).toContain("Point at a step");
  key(area, "Home");
  key(area, "ArrowDown");
  key(area, "ArrowDown");
  expect(find(".ji-steps .ji-detail").textContent).toBe(
    "step 1 · request r2: queued · 0 s to 1 ms (1 ms) · 64 of 2,048 tokens · 1 of 64 running, 1 waiting · 90 blocks free",
  );
  key(area, "End");
  expect(find(".ji-steps .ji-detail").textContent).toContain("request r2: preempted");
  expect(find(".ji-chosen-cell").style.top).toBe("18px");
  model.set("_latest", [...model.get("_latest"), [3_000, 4_000, 1, 1, 1, 90, "d.", 1, 512]]);
  await frame();
  expect(find(".ji-steps .ji-detail").textContent).toContain("step 3"); // it stays where it was put
  key(area, "Escape");
  expect(hidden(find(".ji-chosen-step"))).toBe(true);
});

test("strips say the limits in force, and a preemption is a mark of its own", async () => {
  const model = show(RUN);
  expect(texts(".ji-title")).toEqual([
    "Tokens a step (logarithmic). Line: token budget, now 512.",
    "Requests running, others’ too, and waiting above them. Line: max sequences, now 1.",
    "A lane a request.",
  ]);
  expect(find(".ji-preempted").getAttribute("d")?.match(/M/g)).toHaveLength(1);
  expect(texts(".ji-legend, [aria-label=Legend] .ji-item")).toEqual([
    "queued",
    "prefill",
    "decode",
    "stalled: waits",
    "stalled: recomputes",
    "preempted",
  ]);
  model.set("state", "idle");
  model.set("_shown_run", 2);
  model.set("_lanes", []);
  await frame();
  expect(hidden(find(".ji-steps"))).toBe(true);
});

test("another run forgets what was chosen in the one before", async () => {
  const model = show(RUN);
  key(find(".ji-gantt"), "Home");
  model.set("_shown_run", 2);
  await frame();
  expect(hidden(find(".ji-chosen-step"))).toBe(true);
});

test("what limited a run is a sentence and shares in words", async () => {
  const model = show();
  expect(hidden(named("What limited it"))).toBe(true);
  model.set("_limit", "Limited by compute, 63 % of the time.");
  model.set("_shares", { cap: 0.37, compute: 0.63, idle: 0 });
  await frame();
  expect(find(".ji-said").textContent).toBe("Limited by compute, 63 % of the time.");
  const words = [...named("What limited it").querySelectorAll(".ji-item")].map((item) => item.textContent);
  expect(words).toEqual(["compute63 %", "max sequences37 %"]);
  expect([...el.querySelectorAll<HTMLElement>(".ji-phase")].map((part) => part.style.width)).toEqual(["63%", "37%"]);
});

test("a sweep is a curve with named points and a table of the same", async () => {
  const model = show({ _points: POINTS, _knee: 1, _swept: "requests of 64 in → 24 out, at once" });
  expect(find(".ji-sweep").textContent).toContain("Of a sweep: requests of 64 in → 24 out, at once.");
  expect(texts(".ji-point-name")).toEqual(["1 · memory bandwidth", "2 · compute · the knee", "4"]);
  expect(find(".ji-curve").getAttribute("aria-label")).toBe(
    "Tokens a second of one user against all together: 1 · memory bandwidth: 32 tok/s at 30 tok/s; " +
      "2 · compute · the knee: 30 tok/s at 58 tok/s; 4: 16 tok/s at 60 tok/s.",
  );
  expect(el.querySelectorAll(".ji-knee")).toHaveLength(1);
  const points = [...el.querySelectorAll(".ji-point")];
  const places = points.map((dot) => [Number(dot.getAttribute("cx")), Number(dot.getAttribute("cy"))] as const);
  expect(places.every(([x], at) => x > (places[at - 1]?.[0] ?? 0))).toBe(true); // to the right, and down
  expect(places.every(([, y], at) => y > (places[at - 1]?.[1] ?? 0))).toBe(true);
  expect(texts("th[scope=col]")).toHaveLength(7);
  expect(texts("th[scope=row]")).toEqual(["1", "2 (knee)", "4"]);
  expect(texts("tbody tr")[1]).toBe("2 (knee)5830200 ms400 ms$0.17compute");
  expect(texts("tbody tr")[2]).toContain("n/a");

  const rows = [...el.querySelectorAll<HTMLElement>("tbody tr")];
  rows[1]?.focus();
  expect(find(".ji-sweep .ji-detail").textContent).toBe("2 requests: Limited by compute.");
  expect(points[1]?.hasAttribute("data-on")).toBe(true);
  model.set("_points", [...POINTS, point(8, 61, 8, "cap")]);
  await frame();
  expect(document.activeElement?.querySelector("th")?.textContent).toBe("2 (knee)"); // the focus stays
  expect(find(".ji-sweep").textContent).toContain("The knee: 2 requests, the fewest with 90 %");
  model.set("_points", []);
  await frame();
  expect(hidden(find(".ji-sweep"))).toBe(true);
});

test("a point that is not known is in the table and not in the curve", () => {
  show({ _points: [{ ...point(1, 30, 32, ""), throughput: null }, point(2, 58, 30, "cap")] });
  expect(texts(".ji-point-name")).toEqual(["2 · max sequences"]);
  expect(texts("tbody tr")[0]).toBe("1n/a32100 ms200 ms$0.33n/a");
});

test("a chart below is chosen by a button that says whether it is shown", async () => {
  const model = show({ _charts: ["steps", "kv"] });
  expect(named("Steps").getAttribute("role")).toBe("group"); // the chart of steps; the button is the next one
  const buttons = [...named("Chart below").querySelectorAll("button")];
  expect(buttons.map((made) => [made.textContent, made.getAttribute("aria-pressed")])).toEqual([
    ["Steps", "true"],
    ["KV pool", "false"],
  ]);
  buttons[1]?.click();
  expect(asked(model)[0]).toMatchObject({ kind: "chart", payload: { kind: "kv" } });
  model.set("chart", "kv");
  await frame();
  expect(buttons.map((made) => made.getAttribute("aria-pressed"))).toEqual(["false", "true"]);
  model.set("_charts", []);
  await frame();
  expect(hidden(named("Chart below").closest("fieldset"))).toBe(true);
});

test("two views and a late one show the same", async () => {
  const model = show();
  for (const [name, value] of Object.entries({ ...RUN, _figures: KNOWN, _points: POINTS, _knee: 1, _charts: ["kv"] })) {
    model.set(name as keyof BatchLab, value as never);
  }
  await frame();
  const late = document.createElement("div");
  document.body.append(late);
  const gone = widget.render({ model: model.as(), el: late });
  const shown = (root: HTMLElement) =>
    root.innerHTML
      .replace(/ji-[a-z0-9]+-\d+/g, "ID")
      .replace(/<style>.*?<\/style>|<span class="ji-unseen" role.*?<\/span>/gs, ""); // what was spoken is the first one's
  await frame();
  expect(shown(late)).toBe(shown(el));
  gone();
  late.remove();
});

test("when the kernel has gone nothing can be pressed and what was shown stays", async () => {
  const model = show({ ...RUN, _points: POINTS, _charts: ["kv"] });
  model.tell("comm_live_update");
  expect(find(".ji-now").textContent).toBe("kernel gone; run the cell again");
  expect([...el.querySelectorAll("fieldset")].every((set) => set.disabled)).toBe(true);
  expect(texts("tbody tr")).toHaveLength(3);
  key(find(".ji-gantt"), "Home");
  expect(find(".ji-steps .ji-detail").textContent).toContain("step 1");
});

test("text of others is text", () => {
  const evil = '<img src=x onerror="window.__p=1">';
  const lanes: BatchLab["_lanes"] = [[evil, 0, null, 0, evil]];
  show({ ...RUN, _lanes: lanes, _status: evil, _limit: evil, _points: [{ ...point(1, 2, 3, evil), why: evil }] });
  expect(el.querySelector("img")).toBeNull();
});

test("a view that goes listens to nothing any more", () => {
  const model = show(RUN);
  expect(model.listening).toBeGreaterThan(10);
  clean?.();
  clean = undefined;
  expect(model.listening).toBe(0);
});
