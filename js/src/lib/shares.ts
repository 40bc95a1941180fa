// What limited a run: shares of its time as one bar, and the same in words.

import { h, setAttributes, setText } from "./dom";
import { formatShare } from "./format";

/** What can limit a run, in the order of the bar: the mirror of `KINDS` in jupyter_infer/bottleneck.py. */
export const LIMITS: Readonly<Record<string, string>> = {
  bandwidth: "memory bandwidth",
  compute: "compute",
  host: "host",
  cap: "max sequences",
  budget: "token budget",
  pool: "KV pool",
  fixed: "fixed part of steps",
  model: "not divided",
  idle: "idle",
};

export type Shares = Readonly<Record<string, number>>;

export interface SharesBar {
  element: HTMLElement;
  /** Show a sentence and the shares of the elapsed time; without both nothing is, while a run goes on in its place. */
  set(sentence: string, shares: Shares, goingOn: boolean): void;
}

export const limitWord = (kind: string): string => LIMITS[kind] ?? kind;

export function sharesBar(): SharesBar {
  const said = h("div", { class: "ji-said" });
  const track = h("div", { class: "ji-phases", "aria-hidden": "true" });
  const words = h("div", { class: "ji-line" });
  const head = h("div", { class: "ji-head" }, "What limited it");
  const element = h("div", { class: "ji-where", role: "group", "aria-label": "What limited it" });
  element.append(head, said, track, words);
  return {
    element,
    set(sentence, shares, goingOn) {
      const known = Object.entries(shares)
        .filter(([, share]) => share > 0)
        .sort(([one], [other]) => placeOf(one) - placeOf(other));
      const nothing = !sentence && !known.length;
      const waits = nothing && goingOn && !element.hidden && element.textContent !== head.textContent;
      setAttributes(element, { "data-waits": waits });
      if (waits) {
        return;
      }
      setAttributes(element, { hidden: nothing });
      setText(said, sentence);
      setAttributes(track, { hidden: !known.length });
      track.replaceChildren(
        ...known.map(([kind, share]) => {
          const part = h("span", { class: "ji-phase", "data-limit": kind });
          part.style.width = `${100 * share}%`;
          return part;
        }),
      );
      words.replaceChildren(
        ...known.map(([kind, share]) =>
          h(
            "span",
            { class: "ji-item" },
            h("span", { class: "ji-swatch", "data-limit": kind, "aria-hidden": "true" }),
            h("span", { class: "ji-label" }, limitWord(kind)),
            h("span", { class: "ji-value" }, formatShare(share, 1)),
          ),
        ),
      );
    },
  };
}

function placeOf(kind: string): number {
  const place = Object.keys(LIMITS).indexOf(kind);
  return place < 0 ? Number.POSITIVE_INFINITY : place;
}
