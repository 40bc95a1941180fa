// The look of the host: our own CSS properties, made of the host's where it has them.

import { h } from "./dom";
import base from "./theme.css";

/** Put the style sheets into the view and mark it as ours; in the view, so that they are there in any document. */
export function useTheme(el: HTMLElement, name: string, ...sheets: string[]): void {
  el.classList.add("ji", `ji-${name}`);
  el.append(h("style", {}, [base, ...sheets.map((sheet) => within(name, sheet))].join("\n")));
}

/** Nest a sheet in its widget, which it calls `.ji` or by name: another widget of the page has classes of the same names. */
function within(name: string, sheet: string): string {
  return `.ji-${name} {\n${sheet.replaceAll(new RegExp(`\\.ji(-${name})?(?![\\w-])`, "g"), "&")}\n}`;
}
