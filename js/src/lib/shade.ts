// What the shades of tokens tell: a choice, with the words for it.

import { h, setAttributes } from "./dom";
import { button } from "./fields";

/** What a shade tells: how long a token was waited for, or how likely it was. */
export type Shade = "itl" | "logprob";

export interface ShadeKey {
  element: HTMLElement;
  /** Show what the shades tell; `reason` is why it cannot be how likely tokens were, empty if it can. */
  set(shade: Shade, reason: string): void;
}

/** The choice and the legend. `names` has the words of the five shades; a choice that cannot be made is refused. */
export function shadeKey(
  names: Record<Shade, readonly [title: string, word: string, names: readonly string[]]>,
  choose: (shade: Shade) => void,
  refuse: (reason: string) => void,
): ShadeKey {
  let why = "";
  const made: Record<Shade, HTMLButtonElement> = {
    itl: button("ITL", names.itl[0], () => choose("itl")),
    logprob: button("log-probability", names.logprob[0], () => (why ? refuse(why) : choose("logprob"))),
  };
  const choice = h("span", { class: "ji-item", role: "group", "aria-label": "Shade by" }, h("span", {}, "Shade by"));
  choice.append(made.itl, made.logprob);
  const legend = h("span", { class: "ji-key", "aria-hidden": "true" });
  let drawn: Shade | undefined;
  return {
    element: h("div", { class: "ji-key ji-shade" }, choice, legend),
    set(shade, reason) {
      why = reason;
      setAttributes(made.logprob, { "aria-disabled": reason ? "true" : false, title: reason || names.logprob[0] });
      for (const name of ["itl", "logprob"] as const) {
        setAttributes(made[name], { "aria-pressed": String(name === shade) });
      }
      if (shade !== drawn) {
        drawn = shade;
        const [, word, levels] = names[shade];
        const swatches = levels.map((level, at) =>
          h("span", { class: "ji-item" }, h("span", { class: "ji-swatch", "data-level": at }), level),
        );
        legend.replaceChildren(h("span", {}, word), ...swatches);
      }
    },
  };
}
