// EngineStatus: one line about the engine.

import sheet from "./engine_status.css";
import { announcer } from "./lib/announce";
import { h, setAttributes, setText } from "./lib/dom";
import { formatBytes, formatCount, formatRate, NOT_KNOWN } from "./lib/format";
import { all, type CleanUp, follow, type Host, onKernelGone } from "./lib/model";
import { hideStill } from "./lib/still";
import { useTheme } from "./lib/theme";

/** The traits of `jupyter_infer.widgets.engine_status.EngineStatus`. */
export interface Status {
  model: string;
  state: string;
  stage: string;
  running: number | null;
  waiting: number | null;
  pool_used: number | null;
  pool_total: number | null;
  tokens_per_s: number | null;
  memory_bytes: number | null;
}

const TRAITS = [
  "model",
  "state",
  "stage",
  "running",
  "waiting",
  "pool_used",
  "pool_total",
  "tokens_per_s",
  "memory_bytes",
] as const;

export function pool(used: number | null, total: number | null): string {
  return used === null || total === null ? NOT_KNOWN : `${formatCount(used)} of ${formatCount(total)} blocks`;
}

export function stateText(state: string, stage: string): string {
  return state === "loading" && stage ? `loading: ${stage}` : state;
}

function render({ model, el }: Host<Status>): CleanUp {
  const cleanUps: CleanUp[] = [];
  useTheme(el, "engine-status", sheet);
  hideStill(model, el);
  // No list of terms: hosts give those a layout of their own.
  const line = h("div", { class: "ji-line", role: "group", "aria-label": "Engine status" });
  const spoken = announcer(cleanUps);

  const item = (name: string, label: string, title: string, ...before: HTMLElement[]): HTMLElement => {
    const value = h("span", { class: "ji-value" });
    const term = h("span", { class: label ? "ji-label" : "ji-unseen" }, label || name);
    line.append(h("span", { class: `ji-item ji-${name}`, title }, term, ...before, value));
    return value;
  };

  const dot = h("span", { class: "ji-dot", "aria-hidden": "true" });
  const name = item("model", "", "The model that is loaded, or that the next request loads");
  const state = item("state", "", "What the engine does", dot);
  const running = item("running", "running", "Answers in the running batch, as of the last step");
  const waiting = item("waiting", "waiting", "Answers that wait for a place in the batch, as of the last step");
  const bar = h("span", { class: "ji-pool-used" });
  const track = h("span", { class: "ji-pool", "aria-hidden": "true" }, bar);
  const blocks = item("blocks", "KV pool", "Blocks of the KV cache that requests hold", track);
  const rate = item("rate", "", "Output tokens a second, over the last two seconds");
  const memory = item("memory", "memory", "Resident memory of the kernel's process");
  el.append(line, spoken.element);

  let gone = false;
  let said = "";
  const draw = () => {
    const now = gone ? "gone" : model.get("state");
    const text = gone ? "kernel gone; run the cell again" : stateText(now, model.get("stage"));
    const unknown = <T>(value: T): T | null => (gone ? null : value);
    setAttributes(line, { "data-state": now });
    setText(name, model.get("model") || NOT_KNOWN);
    setText(state, text);
    setText(running, formatCount(unknown(model.get("running"))));
    setText(waiting, formatCount(unknown(model.get("waiting"))));
    const [used, total] = [unknown(model.get("pool_used")), unknown(model.get("pool_total"))];
    setText(blocks, pool(used, total));
    track.style.display = used === null || !total ? "none" : "";
    bar.style.width = used === null || !total ? "0" : `${(100 * used) / total}%`;
    setText(rate, speed(unknown(model.get("tokens_per_s"))));
    setText(memory, formatBytes(unknown(model.get("memory_bytes"))));
    // The state is read out when it changes, numbers and stages of a load are not; nor is what is there at first.
    if (said && said !== now) {
      spoken.say(gone ? text : `Engine ${now}`);
    }
    said = now;
  };
  follow(model, TRAITS, draw, cleanUps);
  onKernelGone(
    model,
    () => {
      gone = true;
      draw();
    },
    cleanUps,
  );
  return all(cleanUps);
}

function speed(perSecond: number | null): string {
  return perSecond === null ? `${NOT_KNOWN} tok/s` : formatRate(perSecond);
}

export default { render };
