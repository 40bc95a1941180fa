// How likely tokens were: the words, the shades, and what is told of one of them.

import { h } from "./dom";
import { formatCount, formatShare, NOT_KNOWN } from "./format";

type Name = string | number; // a token's text, or its id where it has none alone
type Other = readonly [name: Name, logprob: number | null];

/** How likely a token was: as `Odds` in jupyter_infer/widgets/_token_log.py. */
export type TokenOdds = readonly [name: Name, logprob: number | null, rank: number | null, others: readonly Other[]];

/** Of all tokens of an entry. */
export type Odds = readonly TokenOdds[];

/** Lower bounds of the shades, from the likeliest on. */
export const LEVELS = [0.9, 0.5, 0.2, 0.05] as const;

export const ODDS_NAMES = [
  "sure (90 % and more)",
  "likely (50 %+)",
  "open (20 %+)",
  "unlikely (5 %+)",
  "surprising (less)",
] as const;

export const WHOSE =
  "As vLLM reports it: before temperature, top-k, top-p and penalties, unless the model was loaded with another logprobs_mode";

function chance(logprob: number | null): number | null {
  return logprob === null || logprob > 0 ? null : Math.exp(logprob); // above 0 it is a logit
}

/** The shade of an entry, from 0 to 4, by the least likely of its tokens; null where there is none. */
export function oddsLevel(odds: Odds): number | null {
  const chances = odds.map(([, logprob]) => chance(logprob)).filter((value) => value !== null);
  if (!chances.length) {
    return null;
  }
  const found = LEVELS.findIndex((bound) => Math.min(...chances) >= bound);
  return found < 0 ? LEVELS.length : found;
}

/** A probability in per cent; nearly 1 is not said to be 1. */
export function formatChance(logprob: number | null): string {
  const value = chance(logprob);
  if (value === null) {
    return NOT_KNOWN;
  }
  return value >= 0.995 && value < 0.99995 ? "over 99 %" : formatShare(value, 1);
}

/** A line for each token: how likely it was, and what else could have been there. */
export function oddsLines(odds: Odds): HTMLElement[] {
  return odds.map(([name, logprob, rank, others]) => {
    const place = rank === null ? "" : rank === 1 ? ", the likeliest" : `, rank ${formatCount(rank)}`;
    const line = h("div", { class: "ji-odds-of" }, chip("p", name, logprob, place));
    if (others.length) {
      line.append(h("span", {}, "others"), ...others.map(([other, of]) => chip("other", other, of)));
    }
    return line;
  });
}

/** A token and its probability, which its ground shows, too. */
function chip(kind: "p" | "other", name: Name, logprob: number | null, place = ""): HTMLElement {
  const text = typeof name === "number" ? `token ${name}` : JSON.stringify(name);
  const made = h("span", { class: "ji-odd", "data-kind": kind }, h("span", { class: "ji-code" }, text));
  made.append(` ${formatChance(logprob)}${place}`);
  made.style.setProperty("--ji-p", `${100 * (chance(logprob) ?? 0)}%`);
  return made;
}
