// How a wait and a speed feel to who reads along: the bands of the gauges.

import type { Band } from "./gauge";

/** Of a TTFT, in seconds. */
export const WAITS: readonly Band[] = [
  { below: 1, word: "feels instant (under 1 s)" },
  { below: Number.POSITIVE_INFINITY, word: "a wait (1 s and more)" },
];

/** Of the tokens a second of one user. */
export const SPEEDS: readonly Band[] = [
  { below: 10, word: "slower than reading (under 10)" },
  { below: 30, word: "reads along (10+)" },
  { below: Number.POSITIVE_INFINITY, word: "agents and code (30+)" },
];
