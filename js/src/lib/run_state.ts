// What a widget's run does, in words with a dot; the buttons that can be pressed now; and what went wrong.

import type { Acting } from "./acting";
import type { Announcer } from "./announce";
import { h, setAttributes, setText } from "./dom";
import { type CleanUp, type Model, onKernelGone } from "./model";

/** As much of a widget's traits as tells of its run. */
export interface Run {
  state: string;
  error: string;
  _stage: string;
}

export interface RunState {
  /** The buttons, and the state behind them. */
  bar: HTMLElement;
  error: HTMLElement;
  goingOn(): boolean;
  draw(): void;
}

const WORDS: Record<string, string> = {
  idle: "ready",
  running: "running",
  done: "done",
  stopped: "stopped",
  failed: "failed",
  gone: "kernel gone; run the cell again",
};

/** `buttons` are in their order, each with when it can be pressed: while a run goes on, while none does, or always. */
export function runState<T extends Run>(
  model: Model<T>,
  view: Acting,
  spoken: Announcer,
  buttons: readonly (readonly [made: HTMLElement, when: "running" | "idle" | "always"])[],
): RunState {
  const dot = h("span", { class: "ji-dot", "aria-hidden": "true" });
  const state = h("span", { class: "ji-value ji-now" });
  const bar = h("div", { class: "ji-line ji-bar" }, ...buttons.map(([made]) => made));
  bar.append(h("span", { class: "ji-item" }, dot, state));
  const error = h("div", { class: "ji-error" });
  const goingOn = () => ["loading", "running"].includes(model.get("state"));
  let said = "";
  return {
    bar,
    error,
    goingOn,
    draw() {
      const now = view.gone ? "gone" : model.get("state");
      const stage = model.get("_stage");
      const text = now === "loading" ? `loading the model${stage ? `: ${stage}` : ""}` : (WORDS[now] ?? now);
      setAttributes(bar, { "data-state": now === "running" ? "busy" : now });
      setText(state, text);
      for (const [made, when] of buttons) {
        const usable = when === "always" || (when === "running") === goingOn();
        setAttributes(made, { "aria-disabled": usable ? false : "true" });
      }
      if (said && said !== now && !view.saying.startsWith("copied")) {
        view.saying = ""; // it was about how things stood
      }
      setText(error, view.saying || model.get("error"));
      setAttributes(error, { "data-wrong": !view.saying.startsWith("copied") });
      if (said && said !== now) {
        // An end is not kept waiting, with something older to be read meanwhile.
        (goingOn() ? spoken.say : spoken.sayNow)(model.get("error") || text);
      }
      said = now;
    },
  };
}

/** Once the kernel behind a view has gone, nothing of these can be used any more. */
export function closeWhenGone<T extends object>(
  model: Model<T>,
  view: Acting,
  closed: readonly HTMLElement[],
  draw: () => void,
  cleanUps: CleanUp[],
): void {
  onKernelGone(
    model,
    () => {
      view.gone = true;
      view.saying = "";
      for (const element of closed) {
        setAttributes(element, { disabled: true });
      }
      draw();
    },
    cleanUps,
  );
}
