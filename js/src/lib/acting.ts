// What is pressed in a view: the kernel is asked, and what came of it is said in a line.

import type { Announcer } from "./announce";
import type { Requests } from "./messages";
import type { State } from "./model";

export interface Acting {
  /** The kernel has gone: nothing is asked any more. */
  gone: boolean;
  /** About what was pressed in this view; empty for nothing. */
  saying: string;
  /** Say something of what was pressed, until the next thing is. */
  say(text: string): void;
  /** Say it no longer: what it was about is another. */
  hush(): void;
  /** Ask the kernel; resolve to its reply, or to null if it could not or would not, which is then said. */
  act(kind: string, payload?: State): Promise<State | null>;
  /** The same, without what goes before: of what is sent many times a second. */
  tell(kind: string, payload?: State): Promise<State | null>;
}

/** `before` is called before each request, `after` when its reply has been taken in. */
export function acting(ask: Requests["ask"], spoken: Announcer, before: () => void, after: () => void): Acting {
  const view: Acting = {
    gone: false,
    saying: "",
    say(text) {
      view.saying = text;
      spoken.say(text);
      after();
    },
    hush() {
      if (view.saying) {
        view.saying = "";
        spoken.sayNow("");
        after();
      }
    },
    async act(kind, payload = {}) {
      if (!view.gone) {
        before(); // what was typed goes before what it is about, and not after what the kernel makes of it
      }
      return view.tell(kind, payload);
    },
    async tell(kind, payload = {}) {
      if (view.gone) {
        return null;
      }
      try {
        const reply = await ask(kind, payload);
        view.saying = "";
        return reply;
      } catch (error) {
        view.say((error as Error).message.replace(/^\w+: /, ""));
        return null;
      } finally {
        after();
      }
    },
  };
  return view;
}
