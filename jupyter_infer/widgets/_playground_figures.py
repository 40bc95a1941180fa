"""The figures of a playground's run, as it goes on and at its end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypedDict

from jupyter_infer.pricing import MachinePrice
from jupyter_infer.records import StepRecord, TokenEvent
from jupyter_infer.result import Result

__all__ = ["NO_FIGURES", "Figures", "LiveFigures", "final_figures"]


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


class LiveFigures:
    """The figures of a run so far. To say them costs the same however long the answer is and whatever was before it.

    Parameters
    ----------
    request_id
        The request.
    arrival_ns
        When it arrived.
    steps
        Returns the remembered steps; called until the first one of the request is among them.
    """

    def __init__(self, request_id: str, arrival_ns: int, steps: Callable[[], Sequence[StepRecord]]) -> None:
        self._request_id, self._arrival_ns, self._steps = request_id, arrival_ns, steps
        self._started_ns: int | None = None
        self._first_ns: int | None = None
        self._last_ns: int | None = None
        self._tokens = 0
        self._end_ns: int | None = None

    def add(self, events: Sequence[TokenEvent]) -> None:
        """Take new events in."""
        for event in events:
            if event.token_ids:
                self._first_ns = event.time_ns if self._first_ns is None else self._first_ns
                self._last_ns = event.time_ns
                self._tokens += len(event.token_ids)

    def end(self, now_ns: int) -> None:
        """Take it that the run is over: no phase lasts longer than until now."""
        self._end_ns = now_ns if self._end_ns is None else self._end_ns

    def at(self, now_ns: int, price: MachinePrice) -> Figures:
        """Return the figures: the phase that it is in lasts until now. The record says them exactly."""
        now_ns = now_ns if self._end_ns is None else self._end_ns
        arrival, started, first = self._arrival_ns, self._start_ns(), self._first_ns
        span = 0 if first is None or self._last_ns is None else self._last_ns - first
        return {
            **NO_FIGURES,
            "queued_ns": max(0, (now_ns if started is None else started) - arrival),
            "prefill_ns": None if started is None else max(0, (now_ns if first is None else first) - started),
            "decode_ns": None if first is None else max(0, now_ns - first),
            "ttft_ns": None if first is None else max(0, first - arrival),
            "tokens_per_s": (self._tokens - 1) * 1e9 / span if span > 0 and self._tokens > 1 else None,
            "output_tokens": self._tokens,
            "wall_usd": price.usd(max(0, now_ns - arrival)),
            "price": str(price),
        }

    def _start_ns(self) -> int | None:
        """Return the start of the first step that computed a token of the request."""
        if self._started_ns is None:
            for step in reversed(self._steps()):
                if step.end_ns < self._arrival_ns:
                    break
                if any(work.request_id == self._request_id for work in step.work):
                    self._started_ns = max(step.start_ns, self._arrival_ns)
            if self._started_ns is None and self._first_ns is not None:
                self._started_ns = self._arrival_ns  # its step is forgotten
        return self._started_ns
