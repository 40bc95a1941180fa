"""The figures that runs are compared by."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean, median

from jupyter_infer.metrics import DEFINITIONS, phases, throughput, wall_ns
from jupyter_infer.numbers import NOT_KNOWN, format_count, format_ns, format_rate
from jupyter_infer.pricing import cost, format_usd, per_million
from jupyter_infer.run import Run

__all__ = ["METRICS", "UNKNOWN", "Metric", "measure"]


@dataclass(frozen=True, slots=True)
class Metric:
    """A figure that runs are compared by. `lower_is_better` is None where neither is."""

    definition: str
    lower_is_better: bool | None
    text: Callable[[float | None], str]
    over: str = ""  # how the figures of requests make one of the run


def _tokens(count: float | None) -> str:
    return format_count(None if count is None else round(count))


UNKNOWN = NOT_KNOWN
MEDIAN = "median of the requests"
METRICS: Mapping[str, Metric] = {
    "TTFT": Metric(DEFINITIONS["TTFT"], True, format_ns, MEDIAN),
    "TPOT": Metric(DEFINITIONS["TPOT"], True, format_ns, MEDIAN),
    "e2e": Metric(DEFINITIONS["e2e"], True, format_ns, MEDIAN),
    "throughput": Metric(DEFINITIONS["throughput"], False, format_rate),
    "shared cost": Metric(DEFINITIONS["shared cost"], True, format_usd, "mean of the requests"),
    "decode speed": Metric(DEFINITIONS["decode speed"], False, format_rate, MEDIAN),
    "wall time": Metric("first arrival → last output token of all requests", True, format_ns),
    "$ / 1M tokens": Metric("shared cost / all tokens, cached ones too", True, format_usd),
    "cached tokens": Metric("prompt tokens found in the prefix cache, of all requests", None, _tokens),
}


def measure(run: Run) -> dict[str, float | None]:
    """Return the figures of a run by metric; of requests that did not get to a figure those of the others count."""
    times = [phases(record) for record in run.requests]
    known_cached = [record.cached_tokens for record in run.requests if record.cached_tokens is not None]
    price = run.price
    return {
        "TTFT": _middle(time.ttft_ns for time in times),
        "TPOT": _middle(time.tpot_ns for time in times),
        "e2e": _middle(time.e2e_ns for time in times),
        "throughput": throughput(run.requests),
        "shared cost": None if price is None else _mean(cost(record, price).shared_usd for record in run.requests),
        "decode speed": _middle(time.decode_tps for time in times),
        "wall time": wall_ns(run.requests),
        "$ / 1M tokens": None if price is None else per_million(run.requests, price).blended,
        "cached tokens": sum(known_cached) if known_cached and len(known_cached) == len(times) else None,
    }


def _middle(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
