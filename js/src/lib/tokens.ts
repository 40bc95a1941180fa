// An answer token by token: each shaded by how long it was waited for or how likely it was, and what is known of it on
// hovering or by arrow keys.

import { h, setAttributes, setText } from "./dom";
import { formatCount, formatNs, type Known } from "./format";
import { ODDS_NAMES, type Odds, oddsLevel, oddsLines, WHOSE } from "./odds";
import { type Shade, shadeKey } from "./shade";

/** What an engine step gave: text, µs since the first token, index of the step, number of tokens. */
export type Entry = readonly [text: string, sinceUs: number, step: number, tokens: number];

/** Tokens that are elements of their own, at most; those before them are plain text. Half of them give way at a time. */
export const SPANS = 512;

/** Bounds of the shades in µs: those of the bands of tokens a second (30 and 10), one below and one above. */
export const LEVELS_US = [20_000, 33_333, 100_000, 250_000] as const;

export const LEVEL_NAMES = ["to 20 ms", "to 33 ms (30 tok/s)", "to 100 ms (10 tok/s)", "to 250 ms", "longer"] as const;

/** The shade of a gap, from 0 to 4; of the first token there is none. */
export function level(gapUs: number | null): number | null {
  if (gapUs === null) {
    return null;
  }
  const found = LEVELS_US.findIndex((bound) => gapUs <= bound);
  return found < 0 ? LEVELS_US.length : found;
}

const NO_ODDS = "This answer has none: set Alternatives, and run again";

interface Token {
  entry: Entry;
  odds: Odds;
  gapUs: number | null;
  number: number;
}

export interface TokenView {
  element: HTMLElement;
  /**
   * Show the answer of a run: only what is new is drawn, and the end stays in sight of who is there. `odds` has how
   * likely the tokens of each entry were, or nothing if that was not asked for; then the shades tell the waits.
   */
  show(run: number, entries: readonly Entry[], ttftNs: Known, odds?: readonly Odds[], shade?: Shade): void;
}

/** `choose` is called with what the shades are to tell, `refuse` with why they cannot. */
export function tokenView(
  label: string,
  choose: (shade: Shade) => void = () => {},
  refuse: (reason: string) => void = () => {},
): TokenView {
  const older = h("span");
  const shaded = h("span");
  const text = h("div", { class: "ji-answer", role: "region", tabindex: 0, "aria-label": label }, older, shaded);
  const detail = h("div", { class: "ji-detail", "aria-live": "polite" });
  const likely = h("div", { class: "ji-odds", "aria-live": "polite", title: WHOSE });
  const key = shadeKey(
    {
      itl: ["How long each token was waited for", "waited", LEVEL_NAMES],
      logprob: ["How likely each token was", "probability", ODDS_NAMES],
    },
    choose,
    refuse,
  );
  const hint = "Point at a token, or use ← → in the answer, for its time, step and ITL.";
  setText(detail, hint);
  const element = h("div", { class: "ji-tokens" }, text, h("div", { class: "ji-below" }, detail, key.element), likely);

  let shown = 0;
  let tokens: Token[] = [];
  let lastUs: number | null = null;
  let counted = 0;
  let ttft: Known = null;
  let chosen: HTMLElement | null = null;
  let by: Shade = "itl";

  const point = (span: HTMLElement | null) => {
    chosen?.removeAttribute("data-on");
    chosen = span;
    chosen?.setAttribute("data-on", "");
    const token = span ? tokens[Number(span.dataset.at)] : undefined;
    setText(detail, token ? describe(token, ttft) : hint);
    likely.replaceChildren(...oddsLines(token?.odds ?? []));
    likely.style.minHeight = `${likely.offsetHeight}px`; // what is below stays where it is, from token to token
  };
  text.addEventListener("mouseover", (event) => {
    const span = (event.target as HTMLElement).closest<HTMLElement>("[data-at]");
    if (span) {
      point(span);
    }
  });
  text.addEventListener("keydown", (event) => {
    const spans = shaded.children;
    const goTo = (span: Element | null | undefined) => {
      if (span) {
        point(span as HTMLElement);
        span.scrollIntoView?.({ block: "nearest" });
      }
      event.preventDefault();
    };
    if (event.key === "ArrowRight") {
      goTo(chosen ? chosen.nextElementSibling : spans[0]);
    } else if (event.key === "ArrowLeft") {
      goTo(chosen ? chosen.previousElementSibling : spans[spans.length - 1]);
    } else if (event.key === "Home") {
      goTo(spans[0]);
    } else if (event.key === "End") {
      goTo(spans[spans.length - 1]);
    } else if (event.key === "Escape") {
      point(null);
    }
  });

  const reset = (run: number) => {
    shown = run;
    tokens = [];
    lastUs = null;
    counted = 0;
    older.replaceChildren();
    shaded.replaceChildren();
    likely.style.minHeight = "";
    point(null);
  };

  const take = (entry: Entry, odds: Odds): Token => {
    const [, sinceUs, , count] = entry;
    const gapUs = count > 0 && lastUs !== null ? sinceUs - lastUs : null;
    lastUs = count > 0 ? sinceUs : lastUs;
    counted += count;
    return { entry, odds, gapUs, number: counted };
  };

  return {
    element,
    show(run, entries, ttftNs, odds = [], shade = "itl") {
      ttft = ttftNs;
      if (run !== shown || entries.length < tokens.length) {
        reset(run);
      }
      const now = odds.length ? shade : "itl";
      key.set(now, odds.length ? "" : NO_ODDS);
      if (now !== by) {
        by = now;
        for (const span of shaded.querySelectorAll<HTMLElement>("[data-at]")) {
          const token = tokens[Number(span.dataset.at)];
          setAttributes(span, { "data-level": token ? levelOf(token, by) : null });
        }
      }
      const begin = tokens.length;
      if (entries.length === begin) {
        return;
      }
      const atEnd = text.scrollHeight - text.scrollTop - text.clientHeight < 30;
      tokens = tokens.concat(entries.slice(begin).map((entry, at) => take(entry, odds[begin + at] ?? [])));
      const from = Math.max(begin, tokens.length - SPANS);
      if (from > begin) {
        // Too many at once: those in sight so far, and the first of the new ones, become text.
        plain(shaded, older, shaded.children.length);
        older.append(textOf(tokens.slice(begin, from)));
      }
      shaded.append(...tokens.slice(from).flatMap((token, at) => spanOf(token, from + at, by)));
      if (shaded.children.length > SPANS) {
        plain(shaded, older, shaded.children.length - SPANS / 2);
      }
      if (chosen && !chosen.isConnected) {
        point(null);
      }
      if (atEnd) {
        text.scrollTop = text.scrollHeight;
      }
    },
  };
}

function levelOf({ gapUs, odds }: Token, by: Shade): number | null {
  return by === "itl" ? level(gapUs) : oddsLevel(odds);
}

function spanOf(token: Token, at: number, by: Shade): HTMLElement[] {
  const [text] = token.entry;
  return text ? [h("span", { class: "ji-token", "data-at": at, "data-level": levelOf(token, by) }, text)] : [];
}

function textOf(tokens: readonly Token[]): string {
  return tokens.map(({ entry }) => entry[0]).join("");
}

/** Turn the first spans into a text node. */
function plain(shaded: HTMLElement, older: HTMLElement, count: number): void {
  const going = [...shaded.children].slice(0, count);
  older.append(going.map((span) => span.textContent).join(""));
  for (const span of going) {
    span.remove();
  }
}

function describe({ entry: [text, sinceUs, step, count], gapUs, number }: Token, ttftNs: Known): string {
  const name = count === 1 ? `token ${formatCount(number)}` : `${formatCount(count)} tokens, to ${formatCount(number)}`;
  const wait = number === count ? `TTFT ${formatNs(ttftNs)}` : `ITL ${formatNs(gapUs === null ? null : gapUs * 1e3)}`;
  const since = typeof ttftNs === "number" ? ttftNs + sinceUs * 1e3 : null;
  return [
    count ? name : "text without a token",
    JSON.stringify(text),
    wait,
    `at ${formatNs(since)}`,
    `step ${step}`,
  ].join(" · ");
}
