// The drawing of the pool: paths of SVG, whose colours are the style sheet's and so follow the theme by themselves.

import { h, s, setAttributes, setText } from "./dom";
import { CACHED, FREE, type Pool, SHARED, UNSEEN, USED } from "./kv_frame";
import {
  box,
  corner,
  corners,
  type Layout,
  LETTERS,
  layout,
  lines,
  ORDERED,
  outline,
  paths,
  unfilled,
} from "./kv_grid";
import type { CleanUp } from "./model";

export interface Picture {
  element: SVGSVGElement;
  legend: HTMLElement;
  layout(): Layout;
  draw(pool: Pool, width: number): void;
  /** Outline the table of a request and the block that the cursor is at. */
  mark(pool: Pool | null, name: string | null, block: number): void;
}

let made = 0;

export function picture(cleanUps: CleanUp[]): Picture {
  made += 1;
  const id = (name: string) => `ji-kv-${name}-${made}`; // fills find their patterns in the whole document
  const path = (name: string, fill?: string) => s("path", { class: `ji-${name}`, ...(fill ? { fill } : {}) });
  const fills: Record<number, string | undefined> = {
    [CACHED]: `url(#${id("cached")})`,
    [UNSEEN]: `url(#${id("unseen")})`,
    [SHARED]: `url(#${id("shared")})`,
  };
  const states: Record<number, SVGPathElement> = {
    [FREE]: path("free"),
    [CACHED]: path("cached", fills[CACHED]),
    [UNSEEN]: path("unknown", fills[UNSEEN]),
    [USED]: path("used"),
    [SHARED]: path("shared", fills[SHARED]),
  };
  const empty = path("unfilled");
  const between = path("lines");
  const gone = path("evicted");
  const texts = s("g", { class: "ji-letters" });
  const frames = path("frames");
  const halo = path("halo");
  const order = path("order");
  const start = s("circle", { class: "ji-start", r: 0 });
  const cursor = path("cursor");
  const element = s("svg", { class: "ji-picture", "aria-hidden": "true" }, patterns(id));
  element.append(...Object.values(states), empty, between, gone, frames, halo, order, start, texts, cursor);
  let where = layout(0, 0);
  const letters: SVGTextElement[] = [];
  cleanUps.push(() => element.replaceChildren());

  return {
    element,
    legend: legend(fills),
    layout: () => where,
    draw(pool, width) {
      where = layout(pool.total, width);
      setAttributes(element, {
        width: where.width,
        height: where.height,
        "data-kind": where.kind,
        "data-small": where.size < ORDERED,
      });
      for (const [state, d] of paths(where, pool).entries()) {
        set(states[state], d);
      }
      set(empty, unfilled(where, pool));
      set(between, lines(where));
      setAttributes(between, { "stroke-width": where.size > 8 ? 2 : 1 });
      set(gone, corners(where, pool.evicted));
      write(texts, letters, where, pool);
    },
    mark(pool, name, block) {
      const owner = pool?.owners.find((one) => one.name === name);
      const drawn = owner ? outline(where, owner) : { frames: "", order: "" };
      set(frames, drawn.frames);
      set(halo, drawn.order);
      set(order, drawn.order);
      const first = owner?.table[0];
      if (first && drawn.order) {
        const [x, y] = corner(where, first);
        setAttributes(start, { cx: x + where.size / 2, cy: y + where.size / 2, r: Math.min(4, where.size / 3) });
      } else {
        setAttributes(start, { r: 0 });
      }
      if (pool && block && where.kind === "rows") {
        set(cursor, box(0, Math.floor((block - 1) / where.each) * where.size, where.width, where.size));
      } else if (pool && block) {
        const [x, y] = corner(where, block);
        set(cursor, box(x, y, where.size, where.size));
      } else {
        set(cursor, "");
      }
    },
  };
}

/** Set a path if it is another one: one that did not change is not drawn again. */
function set(path: SVGPathElement | undefined, d: string): void {
  if (path && path.getAttribute("d") !== d) {
    path.setAttribute("d", d);
  }
}

/** Whose a block is, or how many share it, where a cell has room for it. */
function write(texts: SVGGElement, letters: SVGTextElement[], where: Layout, pool: Pool): void {
  let count = 0;
  if (where.kind === "cells" && where.size >= LETTERS) {
    const names = new Map<number, string>();
    for (const owner of pool.owners) {
      for (const block of owner.table) {
        const refs = pool.refs[block] ?? 0;
        names.set(block, refs > 1 ? `×${refs}` : owner.name.replace(/^r(?=\d)/, "").replace(" ", ""));
      }
    }
    for (const [block, name] of names) {
      const text = letters[count] ?? s("text");
      letters[count] = text;
      const [x, y] = corner(where, block);
      const shared = pool.state[block] === SHARED;
      setAttributes(text, {
        x: x + where.size / 2,
        y: y + where.size / 2,
        class: shared ? "ji-on-shared" : "ji-on-used",
      });
      setText(text, name.length > 3 ? "" : name);
      if (!text.parentNode) {
        texts.append(text);
      }
      count += 1;
    }
  }
  for (const text of letters.splice(count)) {
    text.remove();
  }
}

function patterns(id: (name: string) => string): SVGDefsElement {
  const pattern = (name: string, size: number, ...parts: SVGElement[]) =>
    s("pattern", { id: id(name), width: size, height: size, patternUnits: "userSpaceOnUse" }, ...parts);
  const ground = (name: string, size: number) => s("rect", { class: `ji-${name}-ground`, width: size, height: size });
  return s(
    "defs",
    {},
    pattern("cached", 4, ground("cached", 4), s("circle", { class: "ji-cached-dot", cx: 2, cy: 2, r: 1.1 })),
    pattern("shared", 6, ground("shared", 6), s("path", { class: "ji-stripe", d: "M-1 1l2 -2M0 6l6 -6M5 7l2 -2" })),
    pattern("unseen", 6, ground("unknown", 6), s("path", { class: "ji-cross", d: "M0 0l6 6M6 0l-6 6" })),
  );
}

function legend(fills: Record<number, string | undefined>): HTMLElement {
  const entry = (name: string, words: string, title: string, fill?: string, d = "M0 0h14v14h-14z") => {
    const mark = s("path", { class: `ji-${name}`, d, ...(fill ? { fill } : {}) });
    const swatch = s("svg", { width: 14, height: 14, "aria-hidden": "true", class: "ji-swatch" }, mark);
    return h("span", { class: "ji-entry", title }, swatch, words);
  };
  return h(
    "div",
    { class: "ji-legend" },
    entry("used", "in use by one", "In one block table; the part without colour has no token yet"),
    entry("shared", "shared prefix", "In several tables, held once", fills[SHARED]),
    entry("cached", "cached, free", "Free, and found again by a prompt that begins alike", fills[CACHED]),
    entry("free", "free", "Holds nothing that is known of"),
    entry("unknown", "not recorded", "Of a request that began before the remembered steps, or free", fills[UNSEEN]),
    entry(
      "evicted",
      "just evicted",
      "Its cached content was just given up for another request",
      undefined,
      "M4 0h10v10z",
    ),
  );
}
