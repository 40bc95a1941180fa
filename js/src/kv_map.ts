// KVCacheMap: every block of the pool, who holds it, and the pool at any step.

import sheet from "./kv_map.css";
import { announcer } from "./lib/announce";
import { h, setAttributes, setText } from "./lib/dom";
import { formatCount, formatNs } from "./lib/format";
import { ownKeys } from "./lib/keys";
import { describe, describeRow, type Facts, type Pool, unpack } from "./lib/kv_frame";
import { blockAt, moved } from "./lib/kv_grid";
import { picture } from "./lib/kv_picture";
import { requestList } from "./lib/kv_requests";
import { timeline } from "./lib/kv_time";
import { requests } from "./lib/messages";
import { all, type CleanUp, follow, type Host, onKernelGone } from "./lib/model";
import { hideStill } from "./lib/still";
import { useTheme } from "./lib/theme";

/** The traits of `jupyter_infer.widgets.kv_map.KVCacheMap`. */
export interface MapState {
  position: number | null;
  following: boolean;
  _steps: number;
  _recorded: boolean;
  _sentence: string;
  _facts: Facts | null;
  _frame: DataView;
  _track: { levels: number[]; preempted: number[] } | null;
}

const TRAITS = ["position", "following", "_steps", "_recorded", "_sentence", "_facts", "_frame", "_track"] as const;
const KEYS = "Arrow keys move over the blocks, Home and End to the first and last one.";
const GONE = "kernel gone; run the cell again";

function render({ model, el }: Host<MapState>): CleanUp {
  const cleanUps: CleanUp[] = [];
  useTheme(el, "kv-map", sheet);
  hideStill(model, el);
  ownKeys(el, cleanUps);
  const { ask } = requests(model, cleanUps);
  const spoken = announcer(cleanUps);

  const reading = h("div", { class: "ji-reading" });
  const drawing = picture(cleanUps);
  const grid = h("div", {
    class: "ji-grid",
    tabindex: 0,
    role: "application",
    "aria-roledescription": "map of blocks",
    "aria-label": `KV blocks. ${KEYS}`,
  });
  grid.append(drawing.element);
  const about = h("div", { class: "ji-about" });
  const list = requestList((name) => {
    picked = name;
    drawOver();
  });
  const scale = h("div", { class: "ji-scale" });
  const left = h("div", { class: "ji-left" }, grid, scale, about, drawing.legend);
  const body = h("div", { class: "ji-body" }, left, list.element);
  const problem = h("div", { class: "ji-problem", role: "alert" });
  const time = timeline(ask, (text) => setText(problem, text), cleanUps);
  const frame = h("div", { class: "ji-map", role: "group", "aria-label": "KV cache map" });
  frame.append(reading, body, time.element, problem, spoken.element);
  el.append(frame);

  let pool: Pool | null = null;
  let cursor = 0; // block that the keyboard is at
  let hovered = 0;
  let picked: string | null = null; // request of the list that is pointed at
  let gone = false;

  const line = (block: number): string => {
    const where = drawing.layout();
    if (!pool || !block) {
      return "";
    }
    const first = where.kind === "rows" ? Math.floor((block - 1) / where.each) * where.each + 1 : block;
    return where.kind === "rows"
      ? describeRow(pool, first, Math.min(first + where.each - 1, pool.total))
      : describe(pool, block);
  };
  const drawOver = () => {
    const block = hovered || (grid.matches(":focus") ? cursor : 0);
    const places = block && pool && drawing.layout().kind === "cells" ? pool.holders(block) : [];
    const name = picked ?? pool?.owners[places[0] ?? -1]?.name ?? null;
    drawing.mark(pool, name, block);
    list.mark(picked === null && places.length ? places : null);
    setText(
      about,
      (picked !== null && list.line(picked)) || line(block) || (pool ? `Point at a block or a request. ${KEYS}` : ""),
    );
  };
  const draw = () => {
    const facts = model.get("_facts");
    pool = facts ? unpack(facts, model.get("_frame")) : null;
    setText(reading, gone ? `${model.get("_sentence")} (${GONE})` : model.get("_sentence"));
    setAttributes(body, { hidden: pool === null });
    if (pool) {
      cursor = Math.min(Math.max(cursor, 1), pool.total);
      const width = left.clientWidth || 560;
      drawing.draw(pool, width);
      list.draw(pool);
      const where = drawing.layout();
      const size = `a block holds ${formatCount(pool.size)} tokens`;
      const row = `each row is a bar of ${formatCount(where.each)} blocks, by state and not by place`;
      setText(
        scale,
        where.kind === "rows" ? `${row}; ${size}` : `blocks 1–${formatCount(pool.total)}, line by line; ${size}`,
      );
    }
    const steps = model.get("_steps");
    time.draw({
      position: model.get("position"),
      steps,
      following: model.get("following"),
      recorded: model.get("_recorded"),
      since: formatNs(facts?.since_ns),
      total: facts?.total ?? 0,
      track: model.get("_track"),
      gone,
    });
    drawOver();
  };

  grid.addEventListener("keydown", (event) => {
    const to =
      pool && !event.ctrlKey && !event.metaKey && !event.altKey ? moved(drawing.layout(), cursor, event.key) : null;
    if (to === null) {
      return;
    }
    event.preventDefault();
    event.stopPropagation(); // a notebook would go to another cell
    cursor = to;
    hovered = 0;
    drawOver();
    spoken.say(line(cursor));
  });
  grid.addEventListener("focus", () => {
    drawOver();
    spoken.say(line(cursor));
  });
  grid.addEventListener("blur", drawOver);
  grid.addEventListener("pointermove", (event) => {
    const at = drawing.element.getBoundingClientRect();
    hovered = pool ? blockAt(drawing.layout(), event.clientX - at.left, event.clientY - at.top) : 0;
    drawOver();
  });
  grid.addEventListener("pointerdown", () => {
    cursor = hovered || cursor;
  });
  grid.addEventListener("pointerleave", () => {
    hovered = 0;
    drawOver();
  });

  follow(model, TRAITS, draw, cleanUps);
  if (typeof ResizeObserver !== "undefined") {
    const observer = new ResizeObserver(() => {
      if (pool && left.clientWidth) {
        drawing.draw(pool, left.clientWidth);
        drawOver();
      }
    });
    observer.observe(left);
    cleanUps.push(() => observer.disconnect());
  }
  onKernelGone(
    model,
    () => {
      gone = true;
      draw();
      spoken.say(GONE);
    },
    cleanUps,
  );
  return all(cleanUps);
}

export default { render };
