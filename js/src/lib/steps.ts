// The steps of a batch: what each computed, what each request did in it, and the same in words.

import { formatCount, formatNs } from "./format";

/** A step: times in µs since the begin of the run, what was planned, the states of the requests, the limits in force. */
export type Step = readonly [
  beginUs: number,
  endUs: number,
  tokens: number,
  running: number,
  waiting: number,
  blocksFree: number | null,
  states: string,
  maxSeqs: number | null,
  budget: number | null,
];

/** A request; null is not yet. */
export type Lane = readonly [
  label: string,
  arrivalUs: number | null,
  endUs: number | null,
  outputTokens: number,
  state: string,
];

/** What a request does in a step: as sent, and `q` and `w` for waiting before and after its first step. */
export type Doing = "p" | "d" | "s" | "x" | "q" | "w" | "";

const WORDS: Record<Doing, string> = {
  p: "prefill",
  d: "decode",
  s: "stalled: computes lost KV again",
  x: "preempted: lost its KV in this step",
  q: "queued",
  w: "stalled: waits",
  "": "",
};

/** When a step begins: steps of an engine with two in flight overlap, and the time of both counts for the first one. */
export function ownBegin(steps: readonly Step[], at: number): number {
  const [begin, end] = steps[at] ?? [0, 0];
  return Math.min(Math.max(begin, steps[at - 1]?.[1] ?? 0), end);
}

/** The step at a time; of a time between two steps, the next one. -1 if there is none. */
export function stepAt(steps: readonly Step[], us: number): number {
  let low = 0;
  let high = steps.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((steps[middle]?.[1] ?? 0) < us) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low < steps.length ? low : -1;
}

/** What a request does in a step, `started` if it was in an earlier one. */
export function doing(step: Step, beginUs: number, lane: Lane, at: number, started: boolean): Doing {
  const char = step[6][at];
  if (char === "p" || char === "d" || char === "s" || char === "x") {
    return char;
  }
  const [, arrival, end] = lane;
  const waits = arrival !== null && arrival < step[1] && (end === null || end > beginUs);
  return waits ? (started ? "w" : "q") : "";
}

/** Whether a request was in one of the steps before this one. */
export function startedBefore(steps: readonly Step[], at: number, lane: number): boolean {
  for (let before = at - 1; before >= 0; before -= 1) {
    if ("pdsx".includes(steps[before]?.[6][lane] ?? ".")) {
      return true;
    }
  }
  return false;
}

/** A step, and a request in it, in words. */
export function describeStep(
  steps: readonly Step[],
  at: number,
  lanes: readonly Lane[],
  laneAt: number | null,
  forgotten = false,
): string {
  const step = steps[at];
  if (!step) {
    return "";
  }
  const [, end, tokens, running, waiting, free, , maxSeqs, budget] = step;
  const begin = ownBegin(steps, at);
  const limit = (value: number | null) => (value === null ? "" : ` of ${formatCount(value)}`);
  const lane = laneAt === null ? undefined : lanes[laneAt];
  return [
    `step ${formatCount(at + 1)}${forgotten ? " of those kept" : ""}`,
    lane && laneAt !== null ? `request ${lane[0] || laneAt + 1}: ${stateIn(steps, at, lane, laneAt)}` : "",
    `${since(begin)} to ${since(end)} (${formatNs((end - begin) * 1e3)})`,
    `${formatCount(tokens)}${limit(budget)} ${tokens === 1 && budget === null ? "token" : "tokens"}`,
    `${formatCount(running)}${limit(maxSeqs)} running, ${formatCount(waiting)} waiting`,
    free === null ? "" : `${formatCount(free)} blocks free`,
  ]
    .filter(Boolean)
    .join(" · ");
}

const since = (us: number) => formatNs(us * 1e3);

function stateIn(steps: readonly Step[], at: number, lane: Lane, laneAt: number): string {
  const step = steps[at];
  if (!step) {
    return "";
  }
  const now = doing(step, ownBegin(steps, at), lane, laneAt, startedBefore(steps, at, laneAt));
  if (now) {
    return WORDS[now];
  }
  const [, arrival, , , state] = lane;
  return arrival === null || arrival >= step[1] ? "not arrived" : state || "over";
}

/** A run in a sentence. */
export function summary(steps: readonly Step[], lanes: readonly Lane[]): string {
  const counts = new Map<string, number>();
  for (const [, , , , state] of lanes) {
    const word = state || "not arrived";
    counts.set(word, (counts.get(word) ?? 0) + 1);
  }
  const states = [...counts].map(([state, count]) => `${count} ${state}`).join(", ");
  const end = steps.at(-1)?.[1];
  const many = (count: number, noun: string) => `${formatCount(count)} ${noun}${count === 1 ? "" : "s"}`;
  return `${many(lanes.length, "request")} (${states}), ${many(steps.length, "step")}${end === undefined ? "" : ` in ${since(end)}`}`;
}

const SHORTEST_US = 100_000; // of the axis, before there is much to see

/** The end of the axis: that of the run if it is over, else a round time after it, so that it seldom moves. */
export function axisEnd(steps: readonly Step[], lanes: readonly Lane[], over: boolean): number {
  const end = Math.max(1, steps.at(-1)?.[1] ?? 0, ...lanes.map(([, arrival, ended]) => ended ?? arrival ?? 0));
  if (over) {
    return end;
  }
  if (end <= SHORTEST_US) {
    return SHORTEST_US;
  }
  const power = 10 ** Math.floor(Math.log10(end));
  return power * ([1.25, 1.6, 2, 2.5, 3.2, 4, 5, 6.3, 8, 10].find((part) => end <= power * part) ?? 12.5);
}
