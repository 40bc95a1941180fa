"""Records as tables: figures by name, in seconds (`*_s`), tokens a second (`*_tps`) and dollars (`*_usd`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

from jupyter_infer.errors import ConfigError, nearest
from jupyter_infer.metrics import phases
from jupyter_infer.pricing import ApiPrice, MachinePrice, api_usd, cost
from jupyter_infer.records import RequestRecord, TokenEvent
from jupyter_infer.run import Run

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Rows", "frame", "request_figures"]

COLUMNS = {
    "requests": [
        *("request_id", "model", "text", "prompt_tokens", "cached_tokens", "output_tokens", "queued_s", "prefill_s"),
        *("decode_s", "stalled_s", "ttft_s", "tpot_s", "e2e_s", "decode_tps", "prefill_tps", "shared_s", "wall_usd"),
        *("shared_usd", "api_usd", "finish_reason"),
    ],
    "steps": [
        *("step", "start_s", "duration_s", "schedule_s", "forward_s", "update_s", "cpu_s", "threads", "tokens"),
        *("prefill_tokens", "recomputed_tokens", "decode_tokens", "draft_tokens", "accepted_tokens", "output_tokens"),
        *("kv_tokens", "scheduled", "running", "waiting", "preempted", "evicted_blocks", "kv_blocks_free"),
        *("max_num_seqs", "max_num_batched_tokens"),
    ],
    "tokens": ["request_id", "sample", "step", "time_s", "itl_s", "tokens", "token_ids", "text", "logprob"],
}
"""Of a frame without a row."""

Rows = Literal["requests", "steps", "tokens"]
"""What a row of a frame is."""


def request_figures(record: RequestRecord, price: MachinePrice | None, api_price: ApiPrice | None) -> dict[str, Any]:
    """Return the figures of a request by name; None for what is not known."""
    times = phases(record)
    money = None if price is None else cost(record, price, api_price)
    return {
        "request_id": record.request_id,
        "model": record.model,
        "text": record.samples[0].text if record.samples else None,
        "prompt_tokens": record.prompt_tokens,
        "cached_tokens": record.cached_tokens,
        "output_tokens": record.output_tokens,
        "queued_s": _seconds(times.queued_ns),
        "prefill_s": _seconds(times.prefill_ns),
        "decode_s": _seconds(times.decode_ns),
        "stalled_s": _seconds(times.stalled_ns),
        "ttft_s": _seconds(times.ttft_ns),
        "tpot_s": _seconds(times.tpot_ns),
        "e2e_s": _seconds(times.e2e_ns),
        "decode_tps": times.decode_tps,
        "prefill_tps": times.prefill_tps,
        "shared_s": _seconds(record.shared_ns),
        "wall_usd": money and money.wall_usd,
        "shared_usd": money and money.shared_usd,
        "api_usd": None if api_price is None else api_usd(record, api_price),
        "finish_reason": record.finish_reason,
    }


def frame(runs: Sequence[Run], rows: str = "requests", *, named: bool = False) -> pd.DataFrame:
    """Return a frame with a row a request, a step or a token event of some runs.

    Parameters
    ----------
    runs
        The runs.
    rows
        ``"requests"``, ``"steps"`` or ``"tokens"``. Times of steps and tokens are from the first arrival of their run.
    named
        Put the name of the run into the first column.

    Raises
    ------
    ConfigError
        If there are no such rows.
    """
    makers = {"requests": _request_rows, "steps": _step_rows, "tokens": _token_rows}
    if rows not in makers:
        raise ConfigError(f"unknown rows {rows!r}{nearest(rows, COLUMNS)}; there is: {', '.join(COLUMNS)}")
    import pandas as pd

    made = [
        ({"run": run.name or number} if named else {}) | row
        for number, run in enumerate(runs, 1)
        for row in makers[rows](run)
    ]
    return pd.DataFrame(made, columns=None if made else [*(["run"] if named else []), *COLUMNS[rows]])


def _request_rows(run: Run) -> Iterable[dict[str, Any]]:
    return (request_figures(record, run.price, run.header.api_price) for record in run.requests)


def _step_rows(run: Run) -> Iterator[dict[str, Any]]:
    origin, _ = run.span_ns
    for step in run.steps:
        limits = run.limits_of(step)
        yield {
            "step": step.index,
            "start_s": _seconds(step.start_ns - origin),
            "duration_s": _seconds(step.duration_ns),
            "schedule_s": _seconds(step.schedule_ns),
            "forward_s": _seconds(step.forward_ns),
            "update_s": _seconds(step.update_ns),
            "cpu_s": _seconds(step.cpu_ns),
            "threads": step.threads,
            "tokens": step.tokens,
            "prefill_tokens": sum(work.prefill_tokens for work in step.work),
            "recomputed_tokens": sum(work.recomputed_tokens for work in step.work),
            "decode_tokens": sum(work.decode_tokens for work in step.work),
            "draft_tokens": sum(work.draft_tokens for work in step.work),
            "accepted_tokens": sum(work.accepted_tokens for work in step.work),
            "output_tokens": sum(work.output_tokens for work in step.work),
            "kv_tokens": sum(work.kv_tokens for work in step.work),
            "scheduled": len(step.work),
            "running": step.running,
            "waiting": step.waiting,
            "preempted": len(step.preempted),
            "evicted_blocks": len(step.evicted),
            "kv_blocks_free": step.kv_blocks_free,
            "max_num_seqs": limits and limits.max_num_seqs,
            "max_num_batched_tokens": limits and limits.max_num_batched_tokens,
        }


def _token_rows(run: Run) -> Iterator[dict[str, Any]]:
    origin, _ = run.span_ns
    for record in run.requests:
        for sample in record.samples:
            before: int | None = None
            for event in sample.events:
                gap = None if before is None or not event.token_ids else event.time_ns - before
                yield {
                    "request_id": record.request_id,
                    "sample": sample.index,
                    "step": event.step,
                    "time_s": _seconds(event.time_ns - origin),
                    "itl_s": _seconds(gap),
                    "tokens": len(event.token_ids),
                    "token_ids": event.token_ids,
                    "text": event.text,
                    "logprob": _logprob(event),
                }
                before = event.time_ns if event.token_ids else before


def _logprob(event: TokenEvent) -> float | None:
    """Return the log-probability of an event's tokens together."""
    said = [token.logprob for token in event.logprobs or ()]
    known = [logprob for logprob in said if logprob is not None]
    return sum(known) if known and len(known) == len(said) else None


def _seconds(duration_ns: float | None) -> float | None:
    return None if duration_ns is None else duration_ns / 1e9
