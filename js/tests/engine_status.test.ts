import { afterEach, beforeEach, expect, test } from "vitest";
import widget, { pool, type Status, stateText } from "../src/engine_status";
import type { CleanUp } from "../src/lib/model";
import { FakeModel, frame } from "./model";

const BUSY: Status = {
  model: "smollm2-135m",
  state: "busy",
  stage: "",
  running: 2,
  waiting: 1,
  pool_used: 36,
  pool_total: 363,
  tokens_per_s: 41.26,
  memory_bytes: 1_924_000_000,
};
const UNKNOWN: Status = {
  model: "",
  state: "unloaded",
  stage: "",
  running: null,
  waiting: null,
  pool_used: null,
  pool_total: null,
  tokens_per_s: null,
  memory_bytes: null,
};

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
});

function show(state: Partial<Status> = {}): FakeModel<Status> {
  const model = new FakeModel<Status>({ ...BUSY, ...state });
  clean = widget.render({ model: model.as(), el });
  return model;
}

const text = () =>
  [...el.querySelectorAll(".ji-item")]
    .map((item) =>
      [...item.querySelectorAll(".ji-label, .ji-unseen, .ji-value")].map((part) => part.textContent).join(" "),
    )
    .join(" · ");

const spoken = () => el.querySelector("[role=status]")?.textContent;

test("one line says everything, with labels", () => {
  show();
  expect(text()).toBe(
    "model smollm2-135m · state busy · running 2 · waiting 1 · KV pool 36 of 363 blocks · rate 41.3 tok/s · memory 1.92 GB",
  );
  expect(el.querySelector<HTMLElement>(".ji-pool-used")?.style.width).toMatch(/^9\.9/);
});

test("what is not known is n/a, and no bar is drawn of it", () => {
  show(UNKNOWN);
  expect(text()).toBe(
    "model n/a · state unloaded · running n/a · waiting n/a · KV pool n/a · rate n/a tok/s · memory n/a",
  );
  expect(el.querySelector<HTMLElement>(".ji-pool")?.style.display).toBe("none");
});

test("a load says its stage", () => {
  expect(stateText("loading", "weights")).toBe("loading: weights");
  expect(stateText("loading", "")).toBe("loading");
  expect(stateText("idle", "ready")).toBe("idle");
  expect(pool(0, 363)).toBe("0 of 363 blocks");
});

test("numbers change without a word; a change of state is said, politely", async () => {
  const model = show();
  model.set("tokens_per_s", 50);
  await frame();
  expect(text()).toContain("50 tok/s");
  expect(spoken()).toBe("");
  model.set("state", "idle");
  await frame();
  expect(spoken()).toBe("Engine idle");
});

test("the name of a model is text", () => {
  show({ model: "<img src=x onerror=alert(1)>" });
  expect(el.querySelector("img")).toBeNull();
  expect(text()).toContain("<img src=x");
});

test("when the kernel goes, the line says so and keeps no stale numbers", () => {
  show().tell("comm_live_update");
  expect(text()).toContain("kernel gone; run the cell again");
  expect(text()).toContain("rate n/a tok/s");
  expect(spoken()).toBe("kernel gone; run the cell again");
});

test("after the clean-up nothing listens", () => {
  const model = show();
  clean?.();
  clean = undefined;
  expect(model.listening).toBe(0);
});
