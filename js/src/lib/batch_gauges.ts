// What a batch gave: throughput, what a user has of it, the waits, the price; and the rest in a line.

import { SPEEDS, WAITS } from "./bands";
import { h } from "./dom";
import { fact } from "./facts";
import { formatCount, formatNs, formatRate, formatShare, formatUsd, type Known, NOT_KNOWN } from "./format";
import { gauge } from "./gauge";

/** What is known of a run; null is not known. The mirror of `LabFigures` in jupyter_infer/widgets/_lab_figures.py. */
export interface BatchFigures {
  elapsed_ns: number | null;
  output_tokens: number | null;
  throughput: number | null;
  user_tps: number | null;
  ttft_p50_ns: number | null;
  ttft_p95_ns: number | null;
  tpot_p50_ns: number | null;
  e2e_p50_ns: number | null;
  running: number | null;
  waiting: number | null;
  pool_used: number | null;
  usd_per_million: number | null;
  price: string | null;
  utilisation: number | null;
}

export interface BatchGauges {
  element: HTMLElement;
  set(figures: BatchFigures, poolBlocks: Known): void;
}

const rate = (value: Known) => (value === null ? `${NOT_KNOWN} tok/s` : formatRate(value));
const wait = (value: Known) => formatNs(typeof value === "number" ? value * 1e9 : value);

export function batchGauges(): BatchGauges {
  const all = gauge({
    label: "Throughput",
    title: "output tokens of all requests / elapsed time",
    format: rate,
  });
  const user = gauge({
    label: "tok/s a user",
    title: "(output tokens − 1) / decode of one request, the median",
    format: rate,
    scale: [1, 1000],
    bands: SPEEDS,
  });
  const waits = (["p50", "p95"] as const).map((part) =>
    gauge({
      label: `TTFT ${part}`,
      title: `arrival → first output token (queued + prefill): ${part === "p50" ? "the median" : "of 95 in 100 no longer"}`,
      format: wait,
      scale: [0.01, 100],
      bands: WAITS,
    }),
  );
  const cost = gauge({
    label: "$ a million tokens",
    title: "machine price × elapsed time / output tokens, × 1,000,000",
    format: (value) => (value === null ? NOT_KNOWN : `≈${formatUsd(value)}`),
  });
  const gauges = h("div", { class: "ji-gauges" });
  gauges.append(all.element, user.element, ...waits.map(({ element }) => element), cost.element);
  const rest = h("div", { class: "ji-line", role: "group", "aria-label": "More figures" });
  const seconds = (ns: Known) => (typeof ns === "number" ? ns / 1e9 : null);
  return {
    element: h("div", { class: "ji-figures" }, gauges, rest),
    set(figures, poolBlocks) {
      all.set(figures.throughput);
      user.set(figures.user_tps);
      waits[0]?.set(seconds(figures.ttft_p50_ns));
      waits[1]?.set(seconds(figures.ttft_p95_ns));
      cost.set(figures.usd_per_million, figures.price ? `@ ${figures.price}` : "");
      const pool = typeof poolBlocks === "number" ? ` of ${formatCount(poolBlocks)} blocks` : " blocks";
      const most = figures.e2e_p50_ns === null ? "" : ", at most"; // known of a run that is over: no moment is meant
      const facts: [string, string][] = [
        ["elapsed", formatNs(figures.elapsed_ns)],
        ["output tokens", formatCount(figures.output_tokens)],
        [`running${most}`, formatCount(figures.running)],
        [`waiting${most}`, formatCount(figures.waiting)],
        [`KV pool${most}`, `${formatCount(figures.pool_used)}${pool}`],
        ["TPOT p50", formatNs(figures.tpot_p50_ns)],
        ["E2E p50", formatNs(figures.e2e_p50_ns)],
        ["utilisation", formatShare(figures.utilisation, 1)],
      ];
      rest.replaceChildren(...facts.map(fact));
    },
  };
}
