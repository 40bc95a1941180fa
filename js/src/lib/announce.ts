// What a screen reader says of a change, politely and not more often than anybody could listen to.

import { h, setText } from "./dom";
import type { CleanUp } from "./model";

export const PAUSE_MS = 1_000;

export interface Announcer {
  element: HTMLElement;
  /** Say a text; of several within the pause only the last one is said, and one that was said is not repeated. */
  say(text: string): void;
  /** Say a text at once, in the place of what waits. */
  sayNow(text: string): void;
}

export function announcer(cleanUps: CleanUp[], pauseMs = PAUSE_MS): Announcer {
  const element = h("span", { class: "ji-unseen", role: "status", "aria-live": "polite", "aria-atomic": "true" });
  let waiting: string | null = null;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const flush = () => {
    timer = undefined;
    if (waiting !== null) {
      setText(element, waiting);
      waiting = null;
      timer = setTimeout(flush, pauseMs);
    }
  };
  cleanUps.push(() => clearTimeout(timer));
  return {
    element,
    sayNow(text) {
      clearTimeout(timer);
      waiting = text;
      flush();
    },
    say(text) {
      waiting = text;
      if (timer === undefined) {
        flush();
      }
    },
  };
}
