// What is typed goes to the kernel when the typing pauses, and before anything that is asked for. Until it has gone, and in
// a field that has the focus until somebody sets something else, it is not undone by answers about what was typed before.

import type { Binding } from "./fields";
import { type CleanUp, listen, type Model } from "./model";

/** Typing is sent when it pauses; what is run is sent with the run. */
export const SAVE_MS = 300;
/** Values of a field that were sent and may still come back. */
const SENT_KEPT = 50;

export interface Saver<T extends object> {
  /** The value of a trait, for a field. */
  bound<K extends keyof T & string>(name: K): Binding<T[K]>;
  /** Send what was set since, at once. */
  save(): void;
}

interface Own<V> extends Binding<V> {
  /** What was set is sent now. */
  sent(): void;
}

const same = (one: unknown, other: unknown) => JSON.stringify(one) === JSON.stringify(other);

/** `changed` is called as something is set here. */
export function saver<T extends object>(model: Model<T>, cleanUps: CleanUp[], changed = () => {}): Saver<T> {
  const made = new Map<string, Own<never>>();
  let timer: ReturnType<typeof setTimeout> | undefined;
  let closed = false; // it cannot send any more, and would throw
  const save = () => {
    if (timer === undefined) {
      return;
    }
    clearTimeout(timer);
    timer = undefined;
    for (const own of made.values()) {
      own.sent();
    }
    if (!closed) {
      model.save_changes();
    }
  };
  const later = () => {
    clearTimeout(timer);
    timer = setTimeout(save, SAVE_MS);
    changed();
  };
  listen(
    model,
    "comm:close",
    () => {
      closed = true;
    },
    cleanUps,
  );
  cleanUps.push(save);
  return {
    save,
    bound<K extends keyof T & string>(name: K): Binding<T[K]> {
      const found = made.get(name) ?? ownValue(model, name, later, cleanUps);
      made.set(name, found as Own<never>);
      return found as Own<T[K]>;
    },
  };
}

function ownValue<T extends object, K extends keyof T & string>(
  model: Model<T>,
  name: K,
  later: () => void,
  cleanUps: CleanUp[],
): Own<T[K]> {
  let own: { value: T[K]; unsaved: boolean } | null = null;
  let sent: T[K][] = []; // while it is edited
  let editing = false;
  let setting = false;
  const put = (value: T[K]) => {
    setting = true;
    model.set(name, value);
    setting = false;
  };
  const hear = () => {
    const value = model.get(name);
    if (setting || !own || same(value, own.value)) {
      return;
    }
    if (own.unsaved || sent.some((before) => same(before, value))) {
      put(own.value); // at once: what was not sent yet would be lost in the model, too
    } else {
      own = null;
      sent = [];
    }
  };
  listen(model, `change:${name}`, hear, cleanUps);
  return {
    get: () => model.get(name),
    set(value) {
      own = { value, unsaved: true };
      put(value);
      later();
    },
    edit(on) {
      editing = on;
      sent = [];
    },
    sent() {
      if (own?.unsaved) {
        own.unsaved = false;
        sent = editing ? [...sent.slice(1 - SENT_KEPT), own.value] : [];
      }
    },
  };
}
