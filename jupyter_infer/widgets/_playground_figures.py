"""The figures of a playground's run, as it goes on and at its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from jupyter_infer.pricing import MachinePrice
from jupyter_infer.records import StepRecord, TokenEvent
from jupyter_infer.result import Result

__all__ = ["NO_FIGURES", "Figures", "final_figures", "live_figures"]


class Figures(TypedDict):
    """What is known of a run; None is not known. The mirror of ``Figures`` in ``js/src/lib/runs.ts``."""

    load_ns: int | None
    queued_ns: int | None
    prefill_ns: int | None
    decode_ns: int | None
    ttft_ns: int | None
    tokens_per_s: float | None
    prompt_tokens: int | None
    cached_tokens: int | None
    output_tokens: int | None
    wall_usd: float | None
    shared_usd: float | None
    price: str
    api_usd: float | None
    api: str


NO_FIGURES: Figures = {
    "load_ns": None,
    "queued_ns": None,
    "prefill_ns": None,
    "decode_ns": None,
    "ttft_ns": None,
    "tokens_per_s": None,
    "prompt_tokens": None,
    "cached_tokens": None,
    "output_tokens": None,
    "wall_usd": None,
    "shared_usd": None,
    "price": "",
    "api_usd": None,
    "api": "",
}


def final_figures(result: Result) -> Figures:
    """Return the figures of a run that is over, from its record."""
    times, usage, cost = result.phases, result.usage, result.cost
    return {
        "load_ns": times.load_ns,
        "queued_ns": times.queued_ns,
        "prefill_ns": times.prefill_ns,
        "decode_ns": times.decode_ns,
        "ttft_ns": times.ttft_ns,
        "tokens_per_s": times.decode_tps,
        "prompt_tokens": usage.prompt_tokens,
        "cached_tokens": usage.cached_tokens,
        "output_tokens": usage.output_tokens,
        "wall_usd": cost.wall_usd,
        "shared_usd": cost.shared_usd,
        "price": str(cost.price),
        "api_usd": cost.api_usd,
        "api": "" if cost.api is None else cost.api.name,
    }


def live_figures(
    request_id: str,
    arrival_ns: int,
    events: Sequence[TokenEvent],
    steps: Sequence[StepRecord],
    price: MachinePrice,
    now_ns: int,
) -> Figures:
    """Return the figures of a run so far: the phase that it is in lasts until now. The record says them exactly."""
    times = [event.time_ns for event in events if event.token_ids]
    tokens = sum(len(event.token_ids) for event in events)
    started = _start_ns(request_id, arrival_ns, steps)
    first = times[0] if times else None
    if started is None and first is not None:
        started = arrival_ns  # its step is forgotten
    span = times[-1] - times[0] if times else 0
    return {
        **NO_FIGURES,
        "queued_ns": max(0, (now_ns if started is None else started) - arrival_ns),
        "prefill_ns": None if started is None else max(0, (now_ns if first is None else first) - started),
        "decode_ns": None if first is None else max(0, now_ns - first),
        "ttft_ns": None if first is None else max(0, first - arrival_ns),
        "tokens_per_s": (tokens - 1) * 1e9 / span if span > 0 and tokens > 1 else None,
        "output_tokens": tokens,
        "wall_usd": price.usd(max(0, now_ns - arrival_ns)),
        "price": str(price),
    }


def _start_ns(request_id: str, since_ns: int, steps: Sequence[StepRecord]) -> int | None:
    """Return the start of the first step that computed a token of a request."""
    found = None
    for step in reversed(steps):
        if step.end_ns < since_ns:
            break
        if any(work.request_id == request_id for work in step.work):
            found = step.start_ns
    return None if found is None else max(found, since_ns)
