// A sweep over numbers of requests: the curve, and beneath it the figures as a table.

import { type CurvePoint, curve } from "./curve";
import { h, setAttributes, setText } from "./dom";
import { formatCount, formatNs, formatRate, formatUsd, type Known, NOT_KNOWN } from "./format";
import type { CleanUp } from "./model";
import { onResize } from "./resize";
import { limitWord } from "./shares";

/** A point as the kernel measured it; null is not known. The mirror of `Point` in jupyter_infer/widgets/_lab_figures.py. */
export interface SweepPoint extends CurvePoint {
  ttft_p50_ns: number | null;
  ttft_p95_ns: number | null;
  tpot_p50_ns: number | null;
  usd_per_million: number | null;
  shares: Record<string, number>;
  why: string;
}

export interface Sweep {
  element: HTMLElement;
  show(points: readonly SweepPoint[], knee: number | null, asked: string): void;
}

const COLUMNS = [
  ["requests", "Requests at once"],
  ["tok/s all", "Output tokens a second, all together"],
  ["tok/s a user", "Output tokens a second of one request while it decodes, median"],
  ["TTFT p50", "arrival → first output token, median"],
  ["TTFT p95", "arrival → first output token, of the 95th of a hundred"],
  ["$ / 1M", "Dollars a million tokens"],
  ["limited by", "What limited it most"],
] as const;

export function sweep(cleanUps: CleanUp[]): Sweep {
  const picture = curve();
  const body = h("tbody");
  const head = h("tr", {}, ...COLUMNS.map(([name, title]) => h("th", { scope: "col", title }, name)));
  const table = h(
    "table",
    { class: "ji-table" },
    h("caption", { class: "ji-unseen" }, "The sweep in figures"),
    h("thead", {}, head),
    body,
  );
  const knee = h("div", { class: "ji-label" });
  const why = h("div", { class: "ji-detail", role: "status" });
  const box = h("div", { class: "ji-table-box" }, table);
  const askedLine = h("div", { class: "ji-label" });
  const title = h(
    "div",
    { class: "ji-label" },
    "Both axes are logarithmic. Beside a point: the number of requests, and what limited it most.",
  );
  const element = h(
    "div",
    { class: "ji-sweep", role: "group", "aria-label": "Sweep" },
    h("div", { class: "ji-head" }, "Latency against throughput"),
    askedLine,
    title,
    picture.element,
    knee,
    box,
    why,
  );
  let points: readonly SweepPoint[] = [];
  let kneeAt: number | null = null;
  let drawn = "";
  let width = 560; // until it has one; out of sight it has none
  let rows: HTMLElement[] = [];
  let chosen: number | null = null; // number of requests

  const draw = () => {
    width = element.clientWidth || width;
    picture.show(points, kneeAt, width);
  };
  const choose = (at: number | null) => {
    chosen = at === null ? null : (points[at]?.requests ?? null);
    drawChosen();
  };
  const drawChosen = () => {
    const at = points.findIndex(({ requests }) => requests === chosen);
    const point = points[at];
    picture.mark(at < 0 ? null : at);
    rows.forEach((row, place) => void setAttributes(row, { "data-on": place === at }));
    const reason = point?.why || (point?.limit ? limitWord(point.limit) : "what limited it is not known");
    const hint = "Point at a row, or focus it, to read what limited that run.";
    setText(why, point ? `${formatCount(point.requests)} requests: ${reason}` : points.length ? hint : "");
  };

  onResize(
    element,
    () => {
      draw();
      drawChosen();
    },
    cleanUps,
  );
  return {
    element,
    show(now, at, asked) {
      const text = JSON.stringify([now, at, asked]);
      if (text === drawn) {
        return;
      }
      drawn = text;
      setText(askedLine, asked && `Of a sweep: ${asked}.`);
      points = now;
      kneeAt = at;
      setAttributes(element, { hidden: !now.length });
      const focused = rows.indexOf(document.activeElement as HTMLElement);
      rows = now.map((point, place) => {
        const row = rowOf(point, place === at);
        row.addEventListener("focus", () => choose(place));
        row.addEventListener("pointerenter", () => choose(place));
        return row;
      });
      body.replaceChildren(...rows);
      rows[focused]?.focus();
      const best = at === null ? undefined : now[at];
      setText(
        knee,
        best ? `The knee: ${formatCount(best.requests)} requests, the fewest with 90 % of the highest throughput.` : "",
      );
      draw();
      drawChosen();
    },
  };
}

const rate = (value: Known) => (value === null ? NOT_KNOWN : formatRate(value, "").trim());

function rowOf(point: SweepPoint, knee: boolean): HTMLElement {
  const cells = [
    rate(point.throughput),
    rate(point.user_tps),
    formatNs(point.ttft_p50_ns),
    formatNs(point.ttft_p95_ns),
    formatUsd(point.usd_per_million),
    point.limit ? limitWord(point.limit) : NOT_KNOWN,
  ];
  const name = `${formatCount(point.requests)}${knee ? " (knee)" : ""}`;
  return h(
    "tr",
    { tabindex: 0, "data-knee": knee },
    h("th", { scope: "row" }, name),
    ...cells.map((text) => h("td", {}, text)),
  );
}
