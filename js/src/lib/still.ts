// The still form of a widget: an output below it, for pages that draw no widgets. Out of sight while a view is there.

import { h } from "./dom";

/** Hide the still form of a widget for as long as this view of it is in the page. */
export function hideStill(model: { get(name: never): unknown }, el: HTMLElement): void {
  const id = model.get("_id" as never);
  if (typeof id === "string" && /^\w+$/.test(id)) {
    const still = `.ji-still-${id}`;
    // The second rule is for JupyterLab, which gives each output margins of its own.
    el.append(
      h("style", {}, `${still} { display: none }\n.jp-OutputArea-child:has(${still}) { display: none !important }`),
    );
  }
}
