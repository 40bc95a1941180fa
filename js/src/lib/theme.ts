// The look of the host: our own CSS properties, made of the host's where it has them.

import { h } from "./dom";
import base from "./theme.css";

/** Put the style sheets into the view and mark it as ours; in the view, so that they are there in any document. */
export function useTheme(el: HTMLElement, name: string, ...sheets: string[]): void {
  el.classList.add("ji", `ji-${name}`);
  el.append(h("style", {}, [base, ...sheets].join("\n")));
}
