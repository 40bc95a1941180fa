// Keys that are pressed in a view are the view's: JupyterLab would move between cells by arrow keys and take Enter.

import type { CleanUp } from "./model";

/** Keep a view's keys from the host's commands, except those with Ctrl or ⌘ (save, …) other than Enter. */
export function ownKeys(el: HTMLElement, cleanUps: CleanUp[]): void {
  const before = (event: KeyboardEvent) => {
    const target = event.target;
    if (target instanceof Element && el.contains(target)) {
      const hosts = (event.ctrlKey || event.metaKey) && event.key !== "Enter";
      target.toggleAttribute("data-lm-suppress-shortcuts", !hosts); // on what has the focus: the host looks there first
    }
  };
  window.addEventListener("keydown", before, true); // the host listens at the document, which comes next
  cleanUps.push(() => window.removeEventListener("keydown", before, true));
}
