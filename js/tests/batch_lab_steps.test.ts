import { afterEach, expect, test, vi } from "vitest";
import { timesOf } from "../src/lib/gantt_axes";
import { movedBy } from "../src/lib/gantt_cursor";
import { laneHeight, lanePainter, type Run, runsOf } from "../src/lib/lanes";
import { latest } from "../src/lib/latest";
import { placeIn, stops } from "../src/lib/limits";
import { type Box, ends, meets, placeLabels, ticksOf } from "../src/lib/log_plot";
import { axisEnd, describeStep, type Lane, ownBegin, type Step, stepAt, summary } from "../src/lib/steps";
import { areaPath, columns, linePath } from "../src/lib/strip";

// Two requests; the second one comes in the first step, waits a step, is preempted in the fourth and computes again.
const STEPS: Step[] = [
  [100, 1_100, 64, 1, 1, 90, "p.", 8, 2048],
  [1_000, 2_000, 65, 2, 0, 86, "dp", 8, 2048], // two in flight: it begins before the first one ends
  [2_500, 3_000, 2, 2, 0, 85, "dd", 1, 2048],
  [3_000, 3_500, 1, 1, 1, 89, "dx", 1, 512],
  [3_500, 4_000, 1, 1, 1, 89, "d.", 1, 512],
  [4_000, 5_000, 66, 1, 0, null, ".s", null, null],
];
const LANES: Lane[] = [
  ["r1", 100, 4_000, 5, "done"],
  ["r2", 600, null, 2, "stalled"],
];

afterEach(() => {
  vi.useRealTimers();
  vi.restoreAllMocks();
});

test("of steps that overlap, a time is the first one's", () => {
  expect([0, 1, 2].map((at) => ownBegin(STEPS, at))).toEqual([100, 1_100, 2_500]);
  expect([0, 1_100, 1_101, 2_200, 4_999, 5_001].map((us) => stepAt(STEPS, us))).toEqual([0, 0, 1, 2, 5, -1]);
});

test("runs of a request join what is the same and nothing else", () => {
  const first: Run[] = [
    ["p", 100, 1_100],
    ["d", 1_100, 2_000],
    ["d", 2_500, 4_000],
  ];
  expect(runsOf(STEPS, 0, LANES[0] as Lane, 0, false).runs).toEqual(first);
  const joined: Run[] = [first[0] as Run, ["d", 1_100, 4_000]];
  expect(runsOf(STEPS, 0, LANES[0] as Lane, 0, false, 500).runs).toEqual(joined);
});

test("a request waits from its arrival on, and after a preemption until it is computed again", () => {
  expect(runsOf(STEPS, 0, LANES[1] as Lane, 1, false)).toEqual({
    runs: [
      ["q", 600, 1_100],
      ["p", 1_100, 2_000],
      ["d", 2_500, 3_000],
      ["w", 3_000, 4_000],
      ["s", 4_000, 5_000],
    ],
    started: true,
  });
  expect(runsOf(STEPS, 4, LANES[1] as Lane, 1, true).runs).toEqual([
    ["w", 3_500, 4_000],
    ["s", 4_000, 5_000],
  ]);
  expect(runsOf(STEPS, 0, ["", null, null, 0, ""], 2, false).runs).toEqual([]);
});

test("a request that waits between two steps waits there too", () => {
  expect(runsOf(STEPS.slice(0, 3), 2, ["r3", 2_100, null, 0, "prefill"], 0, false).runs).toEqual([
    ["q", 2_100, 2_500],
    ["d", 2_500, 3_000],
  ]);
});

test("a step and a request in it are told in words", () => {
  expect(describeStep(STEPS, 3, LANES, 1)).toBe(
    "step 4 · request r2: preempted: lost its KV in this step · 3 ms to 3.5 ms (500 µs) · 1 of 512 tokens · " +
      "1 of 1 running, 1 waiting · 89 blocks free",
  );
  expect(describeStep(STEPS, 5, LANES, 0, true)).toBe(
    "step 6 of those kept · request r1: done · 4 ms to 5 ms (1 ms) · 66 tokens · 1 running, 0 waiting",
  );
  expect(describeStep(STEPS, 0, LANES, 1)).toContain("request r2: queued");
  expect(describeStep(STEPS, 4, LANES, 1)).toContain("request r2: stalled: waits");
  expect(describeStep(STEPS, 0, [["", 1_100, null, 0, ""]], 0)).toContain("request 1: prefill");
  expect(describeStep(STEPS, 0, [LANES[0] as Lane, ["", 1_100, null, 0, ""]], 1)).toContain("request 2: not arrived");
  expect(describeStep(STEPS, 9, LANES, 0)).toBe("");
  expect(summary(STEPS, LANES)).toBe("2 requests (1 done, 1 stalled), 6 steps in 5 ms");
});

test("the axis ends at a round time while it grows, and with the run when it is over", () => {
  const until = (endUs: number): Step[] => [[0, endUs, 1, 1, 0, 9, "d", 8, 512]];
  expect(axisEnd([], LANES.slice(1), false)).toBe(100_000);
  expect([5e6, 5.1e6, 6e6, 9.1e6, 12e6].map((us) => axisEnd(until(us), [], false))).toEqual([
    5e6, 6.3e6, 6.3e6, 1e7, 1.25e7,
  ]);
  expect(axisEnd(STEPS.slice(0, 2), LANES, true)).toBe(4_000); // the end of the first request
  expect(axisEnd([], [], true)).toBe(1);
  expect(timesOf(0, 5_000, 6)).toEqual([0, 1_000, 2_000, 3_000, 4_000, 5_000]);
  expect(timesOf(3_100, 5_000, 4)).toEqual([3_500, 4_000, 4_500, 5_000]);
});

test("lanes of one to 64 requests fit", () => {
  expect([1, 8, 32, 48, 64].map(laneHeight)).toEqual([18, 18, 12, 8, 6]);
});

test("arrow keys move over steps and requests and stop at the ends", () => {
  const at = { step: 3, lane: 0 };
  expect(movedBy("ArrowLeft", at, 6, 2)).toEqual({ step: 2, lane: 0 });
  expect(movedBy("PageDown", at, 6, 2)).toEqual({ step: 5, lane: 0 });
  expect(movedBy("ArrowUp", at, 6, 2)).toEqual({ step: 3, lane: 0 });
  expect(movedBy("ArrowDown", { step: 3, lane: null }, 6, 2)).toEqual({ step: 3, lane: 0 });
  expect(movedBy("ArrowLeft", null, 6, 2)).toEqual({ step: 5, lane: null });
  expect(movedBy("Escape", at, 6, 2)?.step).toBe(-1);
  expect(movedBy("a", at, 6, 2)).toBeNull();
});

test("steps that share a pixel show the largest value, and those that touch leave no gap", () => {
  const spans = [
    [0, 0.4],
    [0.4, 0.9],
    [1.4, 3],
    [4, 5],
  ] as const;
  expect(columns(5, spans, [3, 9, 2, 7])).toEqual([9, 2, 2, Number.NaN, 7]);
  expect(areaPath([9, 2, 2, Number.NaN, 7], 10, (value) => 10 - value)).toBe("M0 10V1H1V10zM1 10V8H3V10zM4 10V3H5V10z");
});

test("a limit that is moved is a step of its line, and one that is not known a gap", () => {
  const spans = [
    [0, 10],
    [10, 20],
    [20, 30],
    [30, 40],
    [40, 50],
  ] as const;
  expect(linePath(spans, [8, 8, 2, null, 4], (value) => 20 - value)).toBe("M0 12H20V18H30M40 16H50");
  expect(linePath([], [], (value) => value)).toBe("");
});

test("sliders of limits stop at four values in each doubling and at the largest", () => {
  expect(stops(20)).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20]);
  expect(stops(1)).toEqual([1]);
  expect([1, 9, 20, 99].map((value) => placeIn(stops(20), value))).toEqual([0, 7, 12, 12]);
});

test("a logarithmic axis has room at its ends and round ticks", () => {
  const [low, high] = ends([10, 100]);
  expect(low).toBeCloseTo(7.586, 3);
  expect(high).toBeCloseTo(131.8, 1);
  expect(ticksOf(8, 132)).toEqual([10, 20, 50, 100]);
  expect(ticksOf(21, 33)).toEqual([30]);
  expect(ticksOf(11, 33)).toEqual([15, 20, 30]);
});

test("labels beside points meet neither each other nor points, and stay inside", () => {
  const points = [
    [60, 60],
    [75, 60],
    [90, 62],
    [195, 100],
  ] as const;
  const inside: Box = { x: 0, y: 0, width: 200, height: 120 };
  const boxes = placeLabels(points, [40, 40, 40, 40], inside);
  const dots = points.map(([x, y]) => ({ x: x - 4, y: y - 4, width: 8, height: 8 }));
  for (const [at, box] of boxes.entries()) {
    expect(boxes.filter((other, place) => place !== at && meets(box, other))).toEqual([]);
    expect(dots.filter((dot, place) => place !== at && meets(box, dot))).toEqual([]);
    expect(box.x >= 0 && box.x + box.width <= 200 && box.y >= 0 && box.y + box.height <= 120).toBe(true);
  }
});

test("of values that come quickly the last one is sent, and always", async () => {
  vi.useFakeTimers();
  const sent: number[] = [];
  const replies: (() => void)[] = [];
  const send = latest<number>(
    (value) => {
      sent.push(value);
      return new Promise<void>((resolve) => replies.push(resolve));
    },
    100,
    [],
  );
  for (const value of [1, 2, 3]) {
    send(value);
  }
  expect(sent).toEqual([1]);
  await vi.advanceTimersByTimeAsync(500);
  expect(sent).toEqual([1]); // the kernel has not answered yet
  replies[0]?.();
  await vi.advanceTimersByTimeAsync(0);
  expect(sent).toEqual([1, 3]);
  replies[1]?.();
  await vi.advanceTimersByTimeAsync(0);
  send(4);
  send(5);
  expect(sent).toEqual([1, 3]); // it is too early
  await vi.advanceTimersByTimeAsync(100);
  expect(sent).toEqual([1, 3, 5]);
});

test("after the view's end nothing is sent", async () => {
  vi.useFakeTimers();
  const sent: number[] = [];
  const cleanUps: (() => void)[] = [];
  const send = latest<number>(async (value) => sent.push(value), 100, cleanUps);
  send(1);
  send(2);
  for (const cleanUp of cleanUps) {
    cleanUp();
  }
  await vi.advanceTimersByTimeAsync(1_000);
  expect(sent).toEqual([1]);
  expect(vi.getTimerCount()).toBe(0);
});

/** A canvas that keeps what is painted: left, top, width and height of each cell by its colour's place. */
function recorder() {
  const painter = lanePainter();
  const rects: number[][] = [];
  const cleared: number[][] = [];
  const context = {
    canvas: painter.element,
    fillStyle: "",
    fillRect: (...rect: number[]) => rects.push(rect),
    clearRect: (...rect: number[]) => cleared.push(rect),
  };
  vi.spyOn(painter.element, "getContext").mockReturnValue(context as unknown as CanvasRenderingContext2D & null);
  return { painter, rects, cleared };
}

test("only new steps are painted, at whole pixels, with heights that tell the phases", () => {
  const { painter, rects, cleared } = recorder();
  const scale = { width: 500, laneHeight: 18, fromUs: 0, toUs: 5_000 };
  painter.paint(1, STEPS.slice(0, 2), LANES, scale);
  expect(rects).toEqual([
    [110, 3, 90, 10], // decode of the first one
    [10, 0, 100, 16], // its prefill
    [110, 18, 90, 16], // prefill of the second one
    [60, 24, 50, 5], // which waited before
  ]);
  expect(cleared).toEqual([[110, 0, 1, 36]]);
  rects.length = 0;
  painter.paint(1, STEPS.slice(0, 2), LANES, scale);
  expect(rects).toEqual([]);
  painter.paint(1, STEPS.slice(0, 3), LANES, scale);
  expect(rects).toEqual([
    [250, 3, 50, 10],
    [250, 21, 50, 10],
  ]);
});

test("all is painted again for another scale or run, and where the past turns out otherwise", () => {
  const { painter, rects } = recorder();
  const scale = { width: 500, laneHeight: 18, fromUs: 0, toUs: 5_000 };
  const painted = (...given: Parameters<typeof painter.paint>) => {
    rects.length = 0;
    painter.paint(...given);
    return rects.length;
  };
  const whole = painted(1, STEPS, LANES, scale);
  expect(whole).toBeGreaterThan(6);
  expect(painted(1, STEPS, LANES, scale)).toBe(0);
  expect(painted(1, STEPS, LANES, { ...scale, toUs: 8_000 })).toBeGreaterThan(6);
  expect(painted(2, STEPS, LANES, { ...scale, toUs: 8_000 })).toBeGreaterThan(6);
  expect(painted(2, STEPS.slice(1), LANES, { ...scale, toUs: 8_000 })).toBeGreaterThan(4);
  const ended: Lane[] = [LANES[0] as Lane, ["r2", 600, 3_600, 2, "stopped"]];
  expect(painted(2, STEPS.slice(1), ended, { ...scale, toUs: 8_000 })).toBeGreaterThan(4);
});
