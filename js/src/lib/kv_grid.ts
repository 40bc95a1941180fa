// Where blocks are drawn, and paths that draw them: cells in lines from the left to the right, or, of a pool that is
// too large for cells, rows of many blocks each.

import { countStates, FREE, fill, type Owner, type Pool, SHARED, UNSEEN, USED } from "./kv_frame";

export const HEIGHT = 300; // pixels that the cells may take
const LARGEST = 24;
const SMALLEST = 4;
const ROWS = 24;
const ROW_HEIGHT = 14;
/** From this size on, a cell has room for letters. */
export const LETTERS = 20;
/** From this size on, a line leads through the blocks of a table. */
export const ORDERED = 10;

export interface Layout {
  /** Blocks that a cell stands for, or that a row does. */
  kind: "cells" | "rows";
  /** Pixels of a cell, or the height of a row. */
  size: number;
  columns: number;
  rows: number;
  /** Blocks of a row. */
  each: number;
  width: number;
  height: number;
  total: number;
}

/** The layout for so many blocks in so many pixels: the largest cells of which all fit. */
export function layout(total: number, width: number): Layout {
  const room = Math.max(width, 20 * SMALLEST);
  for (let size = LARGEST; size >= SMALLEST; size -= 1) {
    const columns = Math.min(Math.floor(room / size), Math.max(total, 1));
    const rows = Math.ceil(total / columns);
    if (rows * size <= (size > 6 ? HEIGHT : 2 * HEIGHT)) {
      const height = Math.max(rows, 1) * size;
      return { kind: "cells", size, columns, rows, each: columns, width: columns * size, height, total };
    }
  }
  const each = roundUp(total / ROWS);
  const rows = Math.ceil(total / each);
  return { kind: "rows", size: ROW_HEIGHT, columns: 1, rows, each, width: room, height: rows * ROW_HEIGHT, total };
}

/** The next number of 1, 2 or 5 and zeros. */
function roundUp(value: number): number {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
  return power * ([1, 2, 5].find((digit) => digit * power >= value) ?? 10);
}

/** The block at a point, or the first one of the row there; 0 outside. */
export function blockAt(grid: Layout, x: number, y: number): number {
  const row = Math.floor(y / grid.size);
  const column = grid.kind === "rows" ? 0 : Math.floor(x / grid.size);
  const block = row * grid.each + column + 1;
  const inside = x >= 0 && y >= 0 && column < grid.columns && row < grid.rows && x < grid.width;
  return inside && block <= grid.total ? block : 0;
}

/** Where the cursor goes; rows are gone over one by one, by their first block. */
export function moved(grid: Layout, block: number, key: string): number | null {
  const by = grid.kind === "rows" ? grid.each : 1;
  const start = grid.kind === "rows" ? Math.floor((block - 1) / by) * by + 1 : block;
  const last = grid.kind === "rows" ? (grid.rows - 1) * by + 1 : grid.total;
  const to: Record<string, number> = {
    ArrowRight: start + by,
    ArrowLeft: start - by,
    ArrowDown: start + grid.each,
    ArrowUp: start - grid.each,
    PageDown: start + 5 * grid.each,
    PageUp: start - 5 * grid.each,
    Home: 1,
    End: last,
  };
  const next = to[key];
  if (next === undefined) {
    return null;
  }
  const vertical = /^(Arrow(Up|Down)|Page)/.test(key);
  return next < 1 || next > last
    ? vertical && !key.startsWith("Page")
      ? start
      : Math.max(1, Math.min(last, next))
    : next;
}

export function corner(grid: Layout, block: number): [x: number, y: number] {
  const place = block - 1;
  return [(place % grid.each) * grid.size, Math.floor(place / grid.each) * grid.size];
}

/** A path a state, of rectangles that join neighbours; what is drawn over them parts them. */
export function paths(grid: Layout, pool: Pool): string[] {
  const made = ["", "", "", "", ""];
  if (grid.kind === "rows") {
    return rowPaths(grid, pool);
  }
  for (let row = 0; row < grid.rows; row += 1) {
    const last = Math.min((row + 1) * grid.each, grid.total);
    let first = row * grid.each + 1;
    while (first <= last) {
      const state = pool.state[first] ?? FREE;
      let end = first;
      while (end < last && (pool.state[end + 1] ?? FREE) === state) {
        end += 1;
      }
      const [x, y] = corner(grid, first);
      made[state] += box(x, y, (end - first + 1) * grid.size, grid.size);
      first = end + 1;
    }
  }
  return made;
}

/** Of each row a bar: shared, in use, not recorded, cached and free blocks, by how many there are. */
function rowPaths(grid: Layout, pool: Pool): string[] {
  const made = ["", "", "", "", ""];
  for (let row = 0; row < grid.rows; row += 1) {
    const first = row * grid.each + 1;
    const counts = countStates(pool, first, Math.min(first + grid.each - 1, grid.total));
    let x = 0;
    for (const state of [SHARED, USED, UNSEEN, 1, FREE]) {
      const width = ((counts[state as 0] ?? 0) / grid.each) * grid.width;
      if (width) {
        made[state] += box(round(x), row * grid.size + 1, round(width), grid.size - 2);
      }
      x += width;
    }
  }
  return made;
}

/** Lines between the cells. */
export function lines(grid: Layout): string {
  if (grid.kind === "rows") {
    return "";
  }
  let path = "";
  for (let column = 0; column <= grid.columns; column += 1) {
    path += `M${column * grid.size} 0v${grid.height}`;
  }
  for (let row = 0; row <= grid.rows; row += 1) {
    path += `M0 ${row * grid.size}h${grid.width}`;
  }
  return path;
}

/** What is empty of the last blocks, as boxes from the top of their cells. */
export function unfilled(grid: Layout, pool: Pool): string {
  let path = "";
  for (const owner of grid.kind === "cells" ? pool.owners : []) {
    const last = Math.ceil(owner.tokens / pool.size) - owner.missing - 1;
    for (let place = Math.max(last, 0); place < owner.table.length; place += 1) {
      const block = owner.table[place] ?? 0;
      const filled = place === last ? fill(owner.tokens, pool.size) / pool.size : 0;
      if (filled < 1 && pool.state[block] === USED) {
        const [x, y] = corner(grid, block);
        path += box(x, y, grid.size, round(grid.size * (1 - filled)));
      }
    }
  }
  return path;
}

/** A corner of each cell of some blocks. */
export function corners(grid: Layout, blocks: Iterable<number>): string {
  let path = "";
  if (grid.kind === "cells") {
    const side = Math.max(3, Math.round(grid.size * 0.45));
    for (const block of blocks) {
      const [x, y] = corner(grid, block);
      path += `M${x + grid.size - side} ${y}h${side}v${side}z`;
    }
  }
  return path;
}

/** Frames around the blocks of a table, and a line through them in the order of the tokens. */
export function outline(grid: Layout, owner: Owner): { frames: string; order: string } {
  if (grid.kind === "rows") {
    const rows = new Set(owner.table.map((block) => Math.floor((block - 1) / grid.each)));
    return {
      frames: [...rows].map((row) => box(0.5, row * grid.size + 0.5, grid.width - 1, grid.size - 1)).join(""),
      order: "",
    };
  }
  const frames = owner.table.map((block) => {
    const [x, y] = corner(grid, block);
    return box(x + 0.5, y + 0.5, grid.size - 1, grid.size - 1);
  });
  const points = owner.table.map((block) =>
    corner(grid, block)
      .map((at) => at + grid.size / 2)
      .join(" "),
  );
  return { frames: frames.join(""), order: points.length > 1 && grid.size >= ORDERED ? `M${points.join("L")}` : "" };
}

export function box(x: number, y: number, width: number, height: number): string {
  return `M${x} ${y}h${width}v${height}h${-width}z`;
}

function round(value: number): number {
  return Math.round(value * 100) / 100;
}
