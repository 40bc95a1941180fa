"""Records with only the facts that a test is about; times in nanoseconds after 0."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jupyter_infer.engine.protocol import EngineRequest, Rendered
from jupyter_infer.records import Limits, RequestRecord, SampleRecord, StepRecord, StepWork, TokenEvent


def make_work(request_id: str = "r1", tokens: int = 1, **facts: Any) -> StepWork:
    """Return the work of a step for a request; tokens that are nothing else are decode."""
    other = sum(facts.get(f"{kind}_tokens", 0) for kind in ("prefill", "recomputed", "draft"))
    values = {
        "sample": 0,
        "prefill_tokens": 0,
        "recomputed_tokens": 0,
        "decode_tokens": tokens - other,
        "draft_tokens": 0,
        "accepted_tokens": 0,
        "output_tokens": 1,
        "kv_tokens": tokens,
    }
    return StepWork(request_id=request_id, tokens=tokens, **(values | facts))


def make_step(
    *work: StepWork,
    start: int = 0,
    end: int = 1000,
    index: int = 0,
    preempted: Sequence[tuple[str, int]] = (),
    freed: Sequence[tuple[str, int]] = (),
    evicted: Sequence[int] = (),
    running: int = 0,
    waiting: int = 0,
    free: int | None = None,
    limits: Limits | None = None,
) -> StepRecord:
    """Return a step; a tenth of it is planning and a tenth taking results in."""
    tenth = (end - start) // 10
    return StepRecord(
        index=index,
        scheduled_ns=start,
        planned_ns=start + tenth,
        start_ns=start,
        computed_ns=end - tenth,
        end_ns=end,
        cpu_ns=0,
        work=work,
        running=running,
        waiting=waiting,
        preempted=tuple(preempted),
        freed=tuple(freed),
        evicted=tuple(evicted),
        kv_blocks_free=free,
        limits=limits,
    )


def make_sample(
    times: Sequence[int],
    *,
    tokens: Sequence[int] | None = None,
    finish: str = "stop",
    index: int = 0,
    request_id: str = "r1",
) -> SampleRecord:
    """Return a sample with an event at each time, of one token unless `tokens` says how many."""
    counts = [1] * len(times) if tokens is None else tokens
    events = tuple(
        TokenEvent(request_id, index, step, time, tuple(range(count)), f"w{step} " if count else "")
        for step, (time, count) in enumerate(zip(times, counts, strict=True))
    )
    return SampleRecord(index, events, finish)


def make_record(*samples: SampleRecord, **facts: Any) -> RequestRecord:
    """Return the record of a request that arrived at 0 and whose first step began at 100; half of a `shared_ns` is
    prefill and half decode.
    """
    if "shared_ns" in facts:
        shared = facts.pop("shared_ns")
        half = None if shared is None else shared // 2
        facts |= {"shared_prefill_ns": half, "shared_decode_ns": None if shared is None else shared - half}
        facts |= {"shared_stalled_ns": None if shared is None else 0}
    samples = samples or (make_sample([300, 400]),)
    times = [event.time_ns for sample in samples for event in sample.events if event.token_ids]
    values: dict[str, Any] = {
        "request_id": "r1",
        "model": "scripted",
        "label": "Why?",
        "prompt": "Why?",
        "prompt_tokens": 10,
        "cached_tokens": 0,
        "sampling": {"max_tokens": 64},
        "load_ns": None,
        "arrival_ns": 0,
        "enqueued_ns": 10,
        "started_ns": 100,
        "first_token_ns": min(times, default=None),
        "last_token_ns": max(times, default=None),
        "finished_ns": max(times, default=1000),
        "stalled_ns": 0,
        "preemptions": 0,
        "shared_prefill_ns": 100,
        "shared_decode_ns": 50,
        "shared_stalled_ns": 0,
        "fit": None,
    }
    return RequestRecord(samples=tuple(samples), **(values | facts))


def make_request(request_id: str = "r1", *, prompt: int = 10, samples: int = 1, **sampling: Any) -> EngineRequest:
    """Return a request whose prompt has so many tokens."""
    return EngineRequest(request_id, "word", Rendered("word " * prompt, tuple(range(prompt))), sampling, samples)
