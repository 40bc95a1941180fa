// The slider over the steps that are remembered: play, pause, follow live.

import { h, s, setAttributes, setText } from "./dom";
import { formatCount } from "./format";
import type { Requests } from "./messages";
import type { CleanUp } from "./model";

const FRAME_MS = 100;
const FRAMES = 200; // that a whole trace is played in, if it has more steps
const HEIGHT = 24;

export interface Times {
  position: number | null;
  steps: number;
  following: boolean;
  recorded: boolean;
  since: string;
  total: number;
  track: { levels: number[]; preempted: number[] } | null;
  gone: boolean;
}

export interface Timeline {
  element: HTMLElement;
  draw(times: Times): void;
}

export function timeline(ask: Requests["ask"], complain: (text: string) => void, cleanUps: CleanUp[]): Timeline {
  const play = h("button", { type: "button", class: "ji-button ji-play" }, "▶ Play");
  const live = h("button", { type: "button", class: "ji-button ji-live" }, "Follow live");
  const slider = h("input", { type: "range", class: "ji-slider", min: 0, step: 1, "aria-label": "Step" });
  const label = h("span", { class: "ji-step" });
  const area = s("path", { class: "ji-level" });
  const marks = s("path", { class: "ji-preempted", "vector-effect": "non-scaling-stroke" });
  const track = s("svg", { class: "ji-track", "aria-hidden": "true", preserveAspectRatio: "none" }, area, marks);
  const key = h("div", { class: "ji-key" });
  const element = h(
    "div",
    { class: "ji-time", role: "group", "aria-label": "Time" },
    h("div", { class: "ji-buttons" }, play, live, label),
    h("div", { class: "ji-over" }, track, slider),
    key,
  );
  let times: Times | null = null;
  let wanted: number | null = null;
  let asking = false;
  let asked = Number.NEGATIVE_INFINITY; // when the last one was
  let closed = false;
  let timer: ReturnType<typeof setInterval> | undefined;
  let drawnTrack: Times["track"] = null;

  const request = async (kind: string, payload: Record<string, unknown>): Promise<boolean> => {
    try {
      await ask(kind, payload);
      complain("");
      return true;
    } catch (error) {
      complain(error instanceof Error ? error.message : String(error));
      stop();
      return false;
    }
  };
  // One request at a time, ten a second at most, and of several that wait only the last one.
  const go = async (position: number) => {
    wanted = position;
    if (asking) {
      return;
    }
    asking = true;
    while (wanted !== null && !closed) {
      const early = asked + FRAME_MS - performance.now();
      if (early > 0) {
        await new Promise((resolve) => setTimeout(resolve, early));
        continue;
      }
      asked = performance.now();
      const to: number = wanted;
      wanted = null;
      if (!(await request("go", { position: to }))) {
        wanted = null;
      }
    }
    asking = false;
    redraw();
  };
  const stop = () => {
    clearInterval(timer);
    timer = undefined;
    redraw();
  };
  const next = () => {
    if (!times || asking) {
      return;
    }
    const last = times.steps - 1;
    const at = Number(slider.value);
    if (at >= last) {
      stop();
      return;
    }
    slider.value = String(Math.min(last, at + Math.max(1, Math.round(times.steps / FRAMES))));
    void go(Number(slider.value));
  };
  cleanUps.push(() => {
    closed = true;
    clearInterval(timer);
  });
  play.addEventListener("click", () => {
    if (timer !== undefined) {
      stop();
      return;
    }
    if (times && (times.following || Number(slider.value) >= times.steps - 1)) {
      slider.value = "0";
      void go(0);
    }
    timer = setInterval(next, FRAME_MS);
    redraw();
  });
  live.addEventListener("click", () => {
    const following = times?.following;
    stop();
    wanted = null;
    void (following ? go(Number(slider.value)) : request("follow", {}));
  });
  slider.addEventListener("input", () => {
    void go(Number(slider.value)); // first: what is drawn without a request is where the kernel is
    stop();
  });
  slider.addEventListener("keydown", (event) => {
    if (/^(Arrow|Page|Home|End)/.test(event.key)) {
      event.stopPropagation(); // a notebook would go to another cell
    }
  });

  const redraw = () => {
    if (!times) {
      return;
    }
    const { steps, following, recorded, gone, since } = times;
    setAttributes(element, { hidden: steps === 0 && recorded });
    setAttributes(slider, { max: Math.max(0, steps - 1) });
    const disabled = gone || steps === 0;
    for (const control of [play, slider]) {
      control.disabled = disabled;
    }
    live.disabled = gone;
    setAttributes(live, { hidden: recorded, "aria-pressed": following ? "true" : "false" });
    setText(live, following ? "● Following live" : "Follow live");
    if (!asking && wanted === null && times.position !== null) {
      slider.value = String(times.position);
    }
    const at = Number(slider.value) + 1;
    const step = steps ? `step ${formatCount(at)} of ${formatCount(steps)}` : "no step yet";
    const after = steps && !asking ? `, ${since} after the first` : "";
    setText(label, `${step}${after}`);
    setAttributes(slider, { "aria-valuetext": `${step}${after}` });
    setText(play, timer === undefined ? "▶ Play" : "❚❚ Pause");
    drawTrack();
  };

  const drawTrack = () => {
    const shown = times?.track ?? null;
    track.style.display = shown ? "" : "none";
    if (shown === drawnTrack || !times) {
      return;
    }
    drawnTrack = shown;
    const levels = shown?.levels ?? [];
    const top = Math.max(times.total, ...levels, 1);
    const height = (level: number) => HEIGHT - (HEIGHT * level) / top;
    const path = levels.map((level, place) => `L${place} ${height(level)}L${place + 1} ${height(level)}`).join("");
    setAttributes(track, { viewBox: `0 0 ${Math.max(levels.length, 1)} ${HEIGHT}` });
    setAttributes(area, { d: path ? `M0 ${HEIGHT}${path}L${levels.length} ${HEIGHT}z` : "" });
    const scale = levels.length / Math.max(times.steps, 1);
    const places = shown?.preempted ?? [];
    setAttributes(marks, { d: places.map((place) => `M${(place + 0.5) * scale} 0v${HEIGHT}`).join("") });
    const preempted = places.length ? "; lines: steps that preempted a request" : "";
    setText(key, shown ? `Area: blocks in use at each step, of the pool${preempted}.` : "");
  };

  return {
    element,
    draw(now) {
      times = now;
      if (now.gone) {
        stop();
      }
      redraw();
    },
  };
}
