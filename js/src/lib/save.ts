// What is typed goes to the kernel when the typing pauses, and before anything that is asked for.

import type { Binding } from "./fields";
import type { CleanUp, Model } from "./model";

/** Typing is sent when it pauses; what is run is sent with the run. */
export const SAVE_MS = 300;

export interface Saver<T extends object> {
  /** The value of a trait, for a field. */
  bound<K extends keyof T & string>(name: K): Binding<T[K]>;
  /** Send what was set since, at once. */
  save(): void;
}

export function saver<T extends object>(model: Model<T>, cleanUps: CleanUp[]): Saver<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const save = () => {
    if (timer !== undefined) {
      clearTimeout(timer);
      timer = undefined;
      model.save_changes();
    }
  };
  cleanUps.push(save);
  return {
    save,
    bound: (name) => ({
      get: () => model.get(name),
      set(value) {
        model.set(name, value);
        clearTimeout(timer);
        timer = setTimeout(save, SAVE_MS);
      },
    }),
  };
}
