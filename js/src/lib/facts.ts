// A line of facts: a label and a value each.

import { h } from "./dom";

export function fact([label, value]: readonly [string, string]): HTMLElement {
  const name = h("span", { class: "ji-label" }, label);
  return h("span", { class: "ji-item" }, name, h("span", { class: "ji-value" }, value));
}
