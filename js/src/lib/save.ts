// What is typed goes to the kernel when the typing pauses, and before anything that is asked for.

import type { Binding } from "./fields";
import type { CleanUp, Model } from "./model";

/** Typing is sent when it pauses; what is run is sent with the run. */
export const SAVE_MS = 300;

export interface Saver<T extends object> {
  /** The value of a trait, for a field: as it was typed, whatever the kernel says of it until it is sent. */
  bound<K extends keyof T & string>(name: K): Binding<T[K]>;
  /** Send what was set since, at once. */
  save(): void;
}

/** `changed` is called as something is set here. */
export function saver<T extends object>(model: Model<T>, cleanUps: CleanUp[], changed = () => {}): Saver<T> {
  const unsaved = new Map<keyof T & string, unknown>(); // the model can get an older value back meanwhile: an echo
  let timer: ReturnType<typeof setTimeout> | undefined;
  const save = () => {
    clearTimeout(timer);
    if (unsaved.size) {
      for (const [name, value] of unsaved) {
        model.set(name, value as T[typeof name]);
      }
      unsaved.clear();
      model.save_changes();
    }
  };
  cleanUps.push(save);
  return {
    save,
    bound: (name) => ({
      get: () => (unsaved.has(name) ? (unsaved.get(name) as T[typeof name]) : model.get(name)),
      set(value) {
        unsaved.set(name, value);
        model.set(name, value);
        clearTimeout(timer);
        timer = setTimeout(save, SAVE_MS);
        changed();
      },
    }),
  };
}
