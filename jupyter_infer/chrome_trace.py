"""A run as a trace for Perfetto and ``chrome://tracing``: a track for the engine and one a request.

The format is Chrome's JSON trace events (*Trace Event Format*, Google 2016, kept as a public document): complete
events (``X``) with a start and a duration in microseconds, instants (``i``), counters (``C``) and names (``M``).
Nanoseconds stay exact as decimals of a microsecond.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from jupyter_infer.records import RequestRecord, StepRecord
from jupyter_infer.run import Run

__all__ = ["trace_events"]

ENGINE, REQUESTS = 1, 2  # processes of the trace
STEP_PARTS = ("schedule", "forward", "update")


def trace_events(run: Run) -> list[dict[str, Any]]:
    """Return the events of a run, times from its first arrival on.

    A slice a step with its scheduling, forward pass and update within it; counters of running and waiting requests and
    of KV blocks; a track a sample of each request with its phases, and an instant a token step.
    """
    origin, _ = run.span_ns
    engine = f"{run.engine.engine} · {run.engine.model}" if run.engine else "engine"
    events = [_name("process_name", ENGINE, 0, engine), _name("thread_name", ENGINE, 1, "steps")]
    events.append(_name("process_name", REQUESTS, 0, "requests"))
    for step in run.steps:
        events += _step(step, origin, run.engine.kv_blocks_total if run.engine else None)
    track = 0
    for record in run.requests:
        for sample in range(max(len(record.samples), 1)):
            track += 1
            events += _request(record, sample, track, origin)
    return events


def _step(step: StepRecord, origin: int, blocks: int | None) -> Iterator[dict[str, Any]]:
    work = [
        {name: value for name, value in _work_facts(item).items() if value not in (0, None, [])} for item in step.work
    ]
    facts: dict[str, Any] = {
        "index": step.index,
        "tokens": step.tokens,
        "cpu_ms": _ms(step.cpu_ns),
        "threads": step.threads,
    }
    facts |= {"preempted": [f"{name}/{sample}" for name, sample in step.preempted], "evicted": list(step.evicted)}
    yield _slice(f"step {step.index}", ENGINE, 1, step.start_ns - origin, step.duration_ns, {**facts, "work": work})
    at = step.start_ns - origin
    for part, length in zip(STEP_PARTS, (step.schedule_ns, step.forward_ns, step.update_ns), strict=True):
        yield _slice(part, ENGINE, 1, at, length)
        at += length
    counts = {"running": step.running, "waiting": step.waiting}
    planned = _us(max(step.planned_ns, step.start_ns) - origin)
    yield {"ph": "C", "name": "requests", "pid": ENGINE, "ts": planned, "args": counts}
    if step.kv_blocks_free is not None and blocks is not None:
        held = {"held": blocks - step.kv_blocks_free}
        yield {"ph": "C", "name": "KV blocks", "pid": ENGINE, "ts": _us(step.end_ns - origin), "args": held}


def _work_facts(work: Any) -> dict[str, Any]:
    return {
        "request": f"{work.request_id}/{work.sample}",
        "prefill": work.prefill_tokens,
        "recomputed": work.recomputed_tokens,
        "decode": work.decode_tokens,
        "draft": work.draft_tokens,
        "accepted": work.accepted_tokens,
        "cached": work.cached_tokens,
        "new_blocks": list(work.new_blocks),
    }


def _request(record: RequestRecord, sample: int, track: int, origin: int) -> Iterator[dict[str, Any]]:
    several = len(record.samples) > 1
    yield _name("thread_name", REQUESTS, track, f"{record.request_id}{f'/{sample}' if several else ''} {record.label}")
    facts: dict[str, Any] = {"prompt_tokens": record.prompt_tokens, "cached_tokens": record.cached_tokens}
    facts |= {"finish_reason": record.finish_reason, "shared_ms": _ms(record.shared_ns)}
    given = [event.time_ns for event in record.samples[sample].events if event.token_ids] if record.samples else []
    edges = (record.arrival_ns, record.started_ns, min(given, default=None), max(given, default=None))
    for phase, (start, end) in zip(("queued", "prefill", "decode"), itertools.pairwise(edges), strict=True):
        if start is not None and end is not None:
            yield _slice(phase, REQUESTS, track, start - origin, end - start, facts)
    for event in record.samples[sample].events if record.samples else ():
        if event.token_ids:
            told = {"step": event.step, "text": event.text, "token_ids": list(event.token_ids)}
            at = _us(event.time_ns - origin)
            yield {"ph": "i", "s": "t", "name": "token", "pid": REQUESTS, "tid": track, "ts": at, "args": told}
    reason = record.samples[sample].finish_reason if record.samples else "end"
    if record.last_token_ns is None or reason not in ("stop", "length"):
        at = _us(record.finished_ns - origin)
        name = record.error or reason
        yield {"ph": "i", "s": "t", "name": name, "pid": REQUESTS, "tid": track, "ts": at}


def _slice(
    name: str, process: int, track: int, start_ns: int, length_ns: int, facts: dict[str, Any] | None = None
) -> dict[str, Any]:
    made = {"ph": "X", "name": name, "pid": process, "tid": track, "ts": _us(start_ns), "dur": _us(length_ns)}
    return made | ({"args": facts} if facts else {})


def _name(kind: str, process: int, track: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": process, "tid": track, "args": {"name": name}}


def _us(time_ns: int) -> float:
    return time_ns / 1e3


def _ms(time_ns: int | None) -> float | None:
    return None if time_ns is None else time_ns / 1e6
