"""Figures of a request, computed from its record alone.

The definitions are the ones that every chart prints. Times are integer nanoseconds; rates are tokens a second. A figure
that was not measured, or that has no meaning for the request, is `None`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from jupyter_infer.records import RequestRecord, StepRecord

__all__ = ["DEFINITIONS", "Phases", "busy_ns", "itl_ns", "phases", "throughput", "wall_ns"]

DEFINITIONS = {
    "load": "loading the model, before the request arrived; in no phase",
    "queued": "arrival → start of the first step that computed a token of it",
    "prefill": "that start → first output token",
    "decode": "first → last output token",
    "stalled": "part of decode: preempted, or computing lost KV again",
    "TTFT": "arrival → first output token (queued + prefill)",
    "TPOT": "decode / (output tokens − 1); of several samples, the mean",
    "ITL": "gap between consecutive steps that gave output tokens",
    "e2e": "arrival → last output token = queued + prefill + decode",
    "decode speed": "(output tokens − samples) / decode",
    "prefill speed": "uncached prompt tokens / prefill",
    "throughput": "output tokens of all requests / wall time of the run",
    "wall cost": "machine price × e2e; neighbours' work in the same steps included",
    "shared cost": "machine price × attributed part of the engine's busy time",
    "API cost": "API prices × tokens: uncached prompt + cached prompt + output",
    "utilisation": "busy time / elapsed time, from the first arrival to the last end",
    "$ / 1M tokens": "shared cost: of prefill / uncached prompt tokens, of the rest / output tokens; ÷ utilisation",
}


@dataclass(frozen=True, slots=True)
class Phases:
    """The times of one request in nanoseconds: `queued_ns + prefill_ns + decode_ns == e2e_ns`, exactly."""

    load_ns: int | None
    queued_ns: int | None
    prefill_ns: int | None
    decode_ns: int | None
    stalled_ns: int | None
    ttft_ns: int | None
    tpot_ns: float | None
    e2e_ns: int | None
    decode_tps: float | None
    prefill_tps: float | None


def phases(record: RequestRecord) -> Phases:
    """Return where the time of a request went; phases that it did not reach are `None`."""
    queued = _between(record.arrival_ns, record.started_ns)
    prefill = _between(record.started_ns, record.first_token_ns)
    decode = _between(record.first_token_ns, record.last_token_ns)
    ttft = _between(record.arrival_ns, record.first_token_ns)
    uncached = None if record.cached_tokens is None else record.prompt_tokens - record.cached_tokens
    return Phases(
        load_ns=record.load_ns,
        queued_ns=queued,
        prefill_ns=prefill,
        decode_ns=decode,
        stalled_ns=record.stalled_ns if decode is not None else None,
        ttft_ns=ttft,
        tpot_ns=_tpot_ns(record),
        e2e_ns=_between(record.arrival_ns, record.last_token_ns),
        decode_tps=_rate(record.output_tokens - sum(bool(sample.token_ids) for sample in record.samples), decode),
        prefill_tps=_rate(uncached, prefill),
    )


def itl_ns(record: RequestRecord, sample: int = 0) -> tuple[int, ...]:
    """Return the gaps between consecutive steps that gave output tokens to a sample, in nanoseconds.

    A step that gave several tokens is one gap, and a step that gave text but no token is none.
    """
    times = [event.time_ns for event in record.samples[sample].events if event.token_ids]
    return tuple(later - earlier for earlier, later in itertools.pairwise(times))


def wall_ns(records: Sequence[RequestRecord]) -> int | None:
    """Return the wall time of a run: first arrival → last output token of all its requests."""
    ends = [record.last_token_ns for record in records if record.last_token_ns is not None]
    return max(ends) - min(record.arrival_ns for record in records) if ends else None


def throughput(records: Sequence[RequestRecord]) -> float | None:
    """Return the output tokens of all requests a second of the run's wall time."""
    return _rate(sum(record.output_tokens for record in records), wall_ns(records))


def busy_ns(steps: Iterable[StepRecord]) -> int:
    """Return the time in which the engine worked: the union of the steps, which their own times already are."""
    return sum(step.duration_ns for step in steps)


def _between(start: int | None, end: int | None) -> int | None:
    return None if start is None or end is None else end - start


def _rate(count: int | None, duration_ns: int | None) -> float | None:
    return count * 1e9 / duration_ns if count and duration_ns and count > 0 else None


def _tpot_ns(record: RequestRecord) -> float | None:
    """Mean over the samples that got more than one token of (last − first) / (tokens − 1)."""
    values = []
    for sample in record.samples:
        events = [event for event in sample.events if event.token_ids]
        tokens = sum(len(event.token_ids) for event in events)
        if tokens > 1:
            values.append((events[-1].time_ns - events[0].time_ns) / (tokens - 1))
    return sum(values) / len(values) if values else None
