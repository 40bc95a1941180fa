"""One line about the engine that lives in any cell: model, state, requests, pool, speed, memory."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, ClassVar

import traitlets

from jupyter_infer.charts.labels import cut
from jupyter_infer.charts.static import table_html
from jupyter_infer.numbers import NOT_KNOWN, format_bytes, format_count, format_rate
from jupyter_infer.records import StepRecord
from jupyter_infer.session import Status
from jupyter_infer.widgets._base import InferWidget

__all__ = ["RATE_NS", "EngineStatus", "output_rate"]

RATE_NS = 2_000_000_000
"""The rate is that of the last two seconds."""
STAGE_CHARS = 60


class EngineStatus(InferWidget):
    """One line about the engine of a session, kept up to date while a cell shows it.

    Its traits can be read and observed from Python; they are set by the widget itself. None is not known, and is shown
    as ``n/a``.
    """

    front_end: ClassVar[str] = "engine_status"

    model: str = traitlets.Unicode().tag(sync=True)
    """Name of the model that is loaded, or that the next request loads (str, default: the session's)."""
    state: str = traitlets.Unicode("unloaded").tag(sync=True)
    """What the engine does (str): ``"unloaded"``, ``"loading"``, ``"idle"`` or ``"busy"``; default ``"unloaded"``."""
    stage: str = traitlets.Unicode().tag(sync=True)
    """Where a load is (str), empty if none runs; default empty."""
    running: int | None = traitlets.Int(None, allow_none=True).tag(sync=True)
    """Answers in the running batch, as of the last step (int or None, default None)."""
    waiting: int | None = traitlets.Int(None, allow_none=True).tag(sync=True)
    """Answers that waited for a place in it, as of the last step (int or None, default None)."""
    pool_used: int | None = traitlets.Int(None, allow_none=True).tag(sync=True)
    """KV blocks that requests hold (int or None, default None)."""
    pool_total: int | None = traitlets.Int(None, allow_none=True).tag(sync=True)
    """KV blocks that requests can use (int or None, default None)."""
    tokens_per_s: float | None = traitlets.Float(None, allow_none=True).tag(sync=True)
    """Output tokens a second over the last two seconds, three digits of it (float or None, default None)."""
    memory_bytes: int | None = traitlets.Int(None, allow_none=True).tag(sync=True)
    """Resident memory of the kernel's process in bytes, three digits of it (int or None, default None)."""

    def __init__(self, **traits: Any) -> None:
        self._quiet_ns = 0  # when it was last seen without an open request
        self._seen: object = None
        super().__init__(**traits)
        self.tick()

    def tick(self) -> bool:
        """Look at the session and send what has changed."""
        session, now = self.session, time.monotonic_ns()
        status, steps = session.status(), session.steps
        info, before = status.info, self.state
        if status.state != "busy":
            self._quiet_ns = now
        rate = output_rate(steps, now) if info else None
        running, waiting = _batch(status, steps, self._quiet_ns)
        seen = (id(session), status.state, info)
        values: dict[str, Any] = {
            "state": status.state,
            "stage": _stage(status),
            "running": running,
            "waiting": waiting,
            "pool_total": info.kv_blocks_total if info else None,
            "pool_used": _used(status),
            "tokens_per_s": None if rate is None else float(f"{rate:.3g}"),
            "memory_bytes": int(float(f"{status.rss_bytes:.3g}")),
        }
        if seen != self._seen:  # to look for this machine's default takes a moment
            values["model"], self._seen = status.model or session.model, seen
        self.push(**values)
        if before != status.state and status.state in ("idle", "unloaded"):
            self.refresh()
        return status.state in ("busy", "loading") or bool(rate)

    def summary(self) -> str:
        """Return the line as plain text."""
        state = f"loading: {self.stage}" if self.stage else self.state
        rate = f"{NOT_KNOWN} tok/s" if self.tokens_per_s is None else format_rate(self.tokens_per_s)
        pool = NOT_KNOWN
        if self.pool_used is not None and self.pool_total is not None:
            pool = f"{format_count(self.pool_used)} of {format_count(self.pool_total)} blocks"
        counts = f"{format_count(self.running)} running · {format_count(self.waiting)} waiting"
        parts = (
            self.model or NOT_KNOWN,
            state,
            counts,
            f"KV pool {pool}",
            rate,
            f"memory {format_bytes(self.memory_bytes)}",
        )
        return " · ".join(parts)

    def static_html(self) -> str:
        """Return the line on a card."""
        return table_html(self.summary(), (), (), ())


def output_rate(steps: Sequence[StepRecord], now_ns: int, window_ns: int = RATE_NS) -> float:
    """Return output tokens a second of the steps that ended in the last `window_ns`, from the first one's start on."""
    since, tokens, start = now_ns - window_ns, 0, None
    for step in reversed(steps):
        if step.end_ns <= since:
            break
        tokens += sum(work.output_tokens for work in step.work)
        start = step.start_ns
    if start is None or (span := now_ns - max(start, since)) <= 0:
        return 0.0
    return tokens * 1e9 / span


def _batch(status: Status, steps: Sequence[StepRecord], quiet_ns: int) -> tuple[int | None, int | None]:
    """Return who runs and who waits; not known before the first step of what is open now."""
    if status.state == "idle":
        return 0, 0
    if status.state != "busy" or not steps or steps[-1].end_ns < quiet_ns:
        return None, None
    return steps[-1].running, steps[-1].waiting


def _used(status: Status) -> int | None:
    if status.info is None or status.kv_blocks_free is None:
        return None
    return max(0, status.info.kv_blocks_total - status.kv_blocks_free)


def _stage(status: Status) -> str:
    if status.state != "loading" or status.stage is None:
        return ""
    detail = f", {status.stage.detail}" if status.stage.detail else ""
    return cut(f"{status.stage.stage}{detail}", STAGE_CHARS)
