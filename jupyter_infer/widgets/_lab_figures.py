"""The figures of a batch lab: of a workload as it goes on and at its end, and of the points of a sweep."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import TypedDict

from jupyter_infer.attribution import fit
from jupyter_infer.bottleneck import KINDS, Bottleneck, bottleneck
from jupyter_infer.metrics import phases, throughput, wall_ns
from jupyter_infer.numbers import format_share
from jupyter_infer.pricing import MILLION, MachinePrice
from jupyter_infer.records import EngineInfo
from jupyter_infer.run import Run
from jupyter_infer.widgets._lab_trace import LabTrace

__all__ = ["NO_FIGURES", "LabFigures", "Point", "final_figures", "knee", "live_figures", "points_of", "why"]

ALMOST = 0.9
"""Of the highest throughput: the knee is the smallest batch that reaches it."""

CALLED = {
    "cap": "max sequences",
    "budget": "the token budget",
    "pool": "the KV pool",
    "compute": "compute",
    "bandwidth": "memory bandwidth",
    "host": "the host",
    "fixed": "the fixed part",
    "model": "the model (not divided)",
    "idle": "arrivals",
}


class LabFigures(TypedDict):
    """What is known of a workload; None is not known. The mirror of ``BatchFigures`` in ``js/src/lib/batch_gauges.ts``.

    Who runs and waits, and the blocks in use, are those of the last step while it goes on, and the most at its end.
    """

    elapsed_ns: int | None
    output_tokens: int | None
    throughput: float | None
    user_tps: float | None
    ttft_p50_ns: float | None
    ttft_p95_ns: float | None
    tpot_p50_ns: float | None
    e2e_p50_ns: float | None
    running: int | None
    waiting: int | None
    pool_used: int | None
    usd_per_million: float | None
    price: str
    utilisation: float | None


class Point(TypedDict):
    """A point of a sweep."""

    requests: int
    throughput: float | None
    user_tps: float | None
    ttft_p50_ns: float | None
    ttft_p95_ns: float | None
    tpot_p50_ns: float | None
    usd_per_million: float | None
    limit: str  # a kind of `jupyter_infer.bottleneck.KINDS`, empty if it is not known
    shares: dict[str, float]
    why: str


NO_FIGURES: LabFigures = {
    "elapsed_ns": None,
    "output_tokens": None,
    "throughput": None,
    "user_tps": None,
    "ttft_p50_ns": None,
    "ttft_p95_ns": None,
    "tpot_p50_ns": None,
    "e2e_p50_ns": None,
    "running": None,
    "waiting": None,
    "pool_used": None,
    "usd_per_million": None,
    "price": "",
    "utilisation": None,
}


def live_figures(trace: LabTrace, info: EngineInfo, price: MachinePrice, now_ns: int) -> LabFigures:
    """Return the figures of a workload so far."""
    elapsed = max(0, now_ns - trace.asked.begun_ns)
    tokens = sum(lane.tokens for lane in trace.lanes)
    # Who waits for a first token has a TTFT that is larger than all that are known.
    ttfts = [lane.ttft_ns or math.inf for lane in trace.lanes if lane.arrival_ns is not None and lane.open_or_answered]
    tpots = [lane.tpot_ns for lane in trace.lanes]
    free = None if trace.last is None else trace.last.kv_blocks_free
    return {
        "elapsed_ns": elapsed,
        "output_tokens": tokens,
        "throughput": tokens * 1e9 / elapsed if elapsed and tokens else None,
        "user_tps": _percentile((None if tpot is None else 1e9 / tpot for tpot in tpots if tpot), 0.5),
        "ttft_p50_ns": _percentile(ttfts, 0.5),
        "ttft_p95_ns": _percentile(ttfts, 0.95),
        "tpot_p50_ns": _percentile(tpots, 0.5),
        "e2e_p50_ns": None,
        "running": None if trace.last is None else trace.last.running,
        "waiting": None if trace.last is None else trace.last.waiting,
        "pool_used": None if free is None else info.kv_blocks_total - free,
        "usd_per_million": _usd_per_million(price, elapsed, tokens),
        "price": str(price),
        "utilisation": min(1.0, trace.busy_ns / elapsed) if elapsed else None,
    }


def final_figures(run: Run, price: MachinePrice) -> LabFigures:
    """Return the figures of a workload that is over, from its records."""
    times = [phases(record) for record in run.requests]
    tokens, elapsed = sum(record.output_tokens for record in run.requests), wall_ns(run.requests)
    return {
        "elapsed_ns": elapsed,
        "output_tokens": tokens,
        "throughput": throughput(run.requests),
        "user_tps": _percentile((time.decode_tps for time in times), 0.5),
        "ttft_p50_ns": _percentile((time.ttft_ns for time in times), 0.5),
        "ttft_p95_ns": _percentile((time.ttft_ns for time in times), 0.95),
        "tpot_p50_ns": _percentile((time.tpot_ns for time in times), 0.5),
        "e2e_p50_ns": _percentile((time.e2e_ns for time in times), 0.5),
        "running": max((step.running for step in run.steps), default=None),
        "waiting": max((step.waiting for step in run.steps), default=None),
        "pool_used": _most_blocks(run),
        "usd_per_million": _usd_per_million(price, elapsed, tokens),
        "price": str(price),
        "utilisation": run.utilisation,
    }


def points_of(runs: Sequence[tuple[int, Run]], price: MachinePrice, bandwidth: float | None) -> list[Point]:
    """Return the points of a sweep by their number of requests, all split by one fit over all of their steps.

    Parameters
    ----------
    runs
        Of each point the number of requests, and its run as it was when it ended: the engine forgets its steps later.
    price
        What the machine costs.
    bandwidth
        As of `jupyter_infer.bottleneck.bottleneck`.
    """
    by_fit = fit([step for _, run in runs for step in run.steps])
    points: list[Point] = []
    for requests, run in runs:
        figures = final_figures(run, price)
        limit = bottleneck(run, fit=by_fit if by_fit.fixed_ns is not None else None, bandwidth=bandwidth)
        points.append(
            {
                "requests": requests,
                "throughput": figures["throughput"],
                "user_tps": figures["user_tps"],
                "ttft_p50_ns": figures["ttft_p50_ns"],
                "ttft_p95_ns": figures["ttft_p95_ns"],
                "tpot_p50_ns": figures["tpot_p50_ns"],
                "usd_per_million": figures["usd_per_million"],
                "limit": limit.kind if limit and limit.kind and limit.kind != "model" else "",
                "shares": limit.shares if limit else {},
                "why": why(run, limit),
            }
        )
    return sorted(points, key=lambda point: point["requests"])


def knee(points: Sequence[Point]) -> int | None:
    """Return which point is the smallest batch with almost the highest throughput.

    None of fewer than three points, and where the largest batch is the first that has it: it may grow further.
    """
    rates = [point["throughput"] or 0.0 for point in points]
    if len(rates) < 3 or not max(rates):
        return None
    at = next(at for at, rate in enumerate(rates) if rate >= ALMOST * max(rates))
    return at if at < len(rates) - 1 else None


def why(run: Run, limit: Bottleneck | None) -> str:
    """Return a sentence that says what limited a run."""
    if limit is None or limit.kind is None:
        if run.engine is not None and run.engine.is_replay:
            return "A replay computes nothing, so nothing limited it."
        return "What limited it is not known: not all of its steps are remembered."
    shares = limit.shares
    first, *rest = shares
    if first == "model":
        return (
            f"What limited it is not known yet: {_share(shares[first])} of the time cannot be divided, because too few "
            "different steps were seen; run other numbers of requests, or a sweep."
        )
    if rest and rest[0] != "model" and shares[rest[0]] >= ALMOST * shares[first]:  # which is ahead is chance
        second, *rest = rest
        both = f"{_share(shares[first])} and {_share(shares[second])}"
        said = f"Limited by {CALLED[first]} and {CALLED[second]}, about equally: {both} of the time"
    else:
        said = f"Limited by {CALLED[first]}: {KINDS[first]}, {_share(shares[first])} of the time"
    if others := [f"{CALLED[kind]} {_share(shares[kind])}" for kind in rest if shares[kind] >= 0.01]:
        said += f"; {', '.join(others)}"
    if limit.bandwidth is not None and ({"bandwidth", "host"} & shares.keys()):
        said += f" (memory read at {limit.bandwidth / 1e9:.3g} GB/s, measured)"
    return f"{said}."


def _most_blocks(run: Run) -> int | None:
    """Return the most KV blocks that were in use after a step."""
    free = [step.kv_blocks_free for step in run.steps if step.kv_blocks_free is not None]
    return run.engine.kv_blocks_total - min(free) if free and run.engine else None


def _share(part: float) -> str:
    return format_share(part, 1.0).replace(" ", "\u00a0")  # a line does not break there


def _usd_per_million(price: MachinePrice, elapsed_ns: int | None, tokens: int) -> float | None:
    """Return what a million output tokens cost at this throughput, the machine paid for all of the time."""
    amount = price.usd(elapsed_ns)
    return None if amount is None or not tokens else amount * MILLION / tokens


def _percentile(values: Iterable[float | None], part: float) -> float | None:
    """Return the value below which a part of the known ones lies, between two neighbours if need be.

    None if it is not known yet, because those above a known part are infinite.
    """
    known = sorted(value for value in values if value is not None)
    if not known:
        return None
    if part == 0.5:
        return _finite(statistics.median(known))
    at = part * (len(known) - 1)
    low = int(at)
    high = min(low + 1, len(known) - 1)
    return _finite(known[low] if at == low else known[low] + (at - low) * (known[high] - known[low]))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
