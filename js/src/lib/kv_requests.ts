// The requests beside the map: one that is pointed at or focused has its blocks outlined.

import { h, setAttributes, setText } from "./dom";
import { formatCount } from "./format";
import { fill, type Pool } from "./kv_frame";

const MOST = 256; // rows; a page of more is no list that anybody reads
const HEAD = ["request", "blocks", "tokens", "last block", "shared"];

export interface RequestList {
  element: HTMLElement;
  draw(pool: Pool): void;
  /** One line about a request. */
  line(name: string): string;
  /** Mark the requests at these places, which hold the block that is pointed at. */
  mark(places: readonly number[] | null): void;
}

export function requestList(pick: (name: string | null) => void): RequestList {
  const head = h("div", { class: "ji-row ji-head", "aria-hidden": "true" }, ...HEAD.map((name) => h("span", {}, name)));
  const list = h("div", { class: "ji-list", role: "listbox", "aria-label": "Requests in the pool" });
  const none = h("div", { class: "ji-none" }, "No request holds a block.");
  const more = h("div", { class: "ji-none" });
  const element = h("div", { class: "ji-requests" }, head, list, none, more);
  const rows: HTMLElement[] = [];
  let names: string[] = [];
  let current = 0; // the row that Tab comes to

  const focus = (place: number) => {
    current = Math.max(0, Math.min(place, names.length - 1));
    for (const [at, row] of rows.entries()) {
      setAttributes(row, { tabindex: at === current ? 0 : -1 });
    }
    rows[current]?.focus();
  };
  list.addEventListener("keydown", (event) => {
    const to: Record<string, number> = {
      ArrowDown: current + 1,
      ArrowUp: current - 1,
      Home: 0,
      End: names.length - 1,
    };
    const next = to[event.key];
    if (next !== undefined && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      event.stopPropagation();
      focus(next);
    }
  });
  const place = (target: EventTarget | null) => rows.findIndex((row) => target instanceof Node && row.contains(target));
  const focused = () => list.querySelector(":focus"); // also where a view has a document of its own
  const chosen = () => names[place(focused())] ?? null;
  list.addEventListener("focusin", (event) => {
    current = Math.max(0, place(event.target));
    pick(names[current] ?? null);
  });
  list.addEventListener("focusout", () => pick(null));
  list.addEventListener("pointerover", (event) => pick(names[place(event.target)] ?? chosen()));
  list.addEventListener("pointerleave", () => pick(chosen()));

  return {
    element,
    draw(pool) {
      const before = names[place(focused())];
      names = pool.owners.slice(0, MOST).map((owner) => owner.name);
      while (rows.length < names.length) {
        const row = h("div", { class: "ji-row", role: "option", tabindex: -1 }, ...HEAD.map(() => h("span")));
        rows.push(row);
        list.append(row);
      }
      const left = rows.splice(names.length);
      const lost = left.some((row) => row.matches(":focus"));
      for (const row of left) {
        row.remove();
      }
      for (const [at, row] of rows.entries()) {
        const owner = pool.owners[at];
        if (owner) {
          const known = owner.missing ? `${owner.table.length} of ${owner.table.length + owner.missing}` : "";
          const last = `${fill(owner.tokens, pool.size)} of ${pool.size}`;
          const cells = [
            owner.name,
            known || formatCount(owner.table.length),
            formatCount(owner.tokens),
            last,
            formatCount(owner.shared),
          ];
          for (const [column, cell] of [...row.children].entries()) {
            setText(cell, cells[column] ?? "");
          }
          setAttributes(row, {
            "aria-label": `${cells[0]}: ${cells[1]} blocks${known ? " known" : ""}, ${cells[2]} tokens, ${last} in the last block, ${cells[4]} shared`,
            "aria-selected": row.matches(":focus") ? "true" : "false",
          });
        }
      }
      current = Math.max(0, Math.min(current, rows.length - 1));
      for (const [at, row] of rows.entries()) {
        setAttributes(row, { tabindex: at === current ? 0 : -1 });
      }
      // Whose row it was is followed, as requests before it come and go.
      const now = before === undefined ? -1 : names.indexOf(before);
      if (now >= 0 && names[place(focused())] !== before) {
        focus(now);
      } else if (lost && rows.length) {
        focus(current);
      } else if (before !== undefined && now < 0) {
        pick(names[place(focused())] ?? null);
      }
      setAttributes(none, { hidden: rows.length > 0 });
      setAttributes(head, { hidden: rows.length === 0 });
      setAttributes(list, { hidden: rows.length === 0 });
      const rest = pool.owners.length - names.length;
      setText(more, rest > 0 ? `… and ${formatCount(rest)} more` : "");
    },
    line: (name) => rows[names.indexOf(name)]?.getAttribute("aria-label") ?? "",
    mark(places) {
      const marked = new Set(places ?? []);
      for (const [at, row] of rows.entries()) {
        row.classList.toggle("ji-holds", marked.has(at));
      }
    },
  };
}
