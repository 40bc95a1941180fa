"""A load under way, and the one place for an engine that a process has."""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jupyter_infer.engine.messages import Reply
from jupyter_infer.engine.protocol import Engine, Progress
from jupyter_infer.engine.worker import EngineWorker
from jupyter_infer.errors import EngineBusy
from jupyter_infer.records import LoadStage

__all__ = ["Loading", "begin"]

STAGE_POLL_S = 0.1
"""How often somebody who waits for a load looks for its next stage."""

STAGE_REPEAT_S = 1.0
"""A stage that lasts is told again this often, so that a display can show the time."""

Prepare = Callable[[Progress], Callable[[Progress], Engine]]

# vLLM's process groups are global: one local engine a process. The worker is kept until its engine is gone, also when
# nobody has its session any more.
_holder: tuple[EngineWorker, weakref.ref[Any]] | None = None
_holder_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Loading:
    """A load under way; several callers may wait for it."""

    wanted: tuple[str, dict[str, Any]]
    reply: Reply
    stages: deque[LoadStage]  # written by the worker, told to each caller on the caller's own thread

    def wait(self, progress: Progress | None) -> Any:
        """Return the engine, telling the stages as they begin, and the last one again now and then."""
        told, told_at = 0, time.monotonic()
        while True:
            answered = self.reply.answered
            new = list(self.stages)[told:]
            told += len(new)
            if not new and time.monotonic() - told_at >= STAGE_REPEAT_S:
                new = list(self.stages)[-1:]
            if progress is not None and new:
                told_at = time.monotonic()
                for stage in new:
                    progress(stage)
            if answered:
                return self.reply.wait()
            with contextlib.suppress(TimeoutError):
                self.reply.wait(STAGE_POLL_S)


def begin(
    worker: EngineWorker,
    wanted: tuple[str, dict[str, Any]],
    prepare: Prepare,
    *,
    owner: Any | None,
    take_over: bool = False,
) -> Loading:
    """Begin a load; of those that say who their `owner` is, one at a time has an engine in this process.

    Raises
    ------
    EngineBusy
        If another one has it, unless `take_over`: then it is unloaded first.
    """
    global _holder
    while True:
        with _holder_lock:
            free = _holder is None or _holder[0] is worker or not _holder[0].occupied
            if owner is None or free:
                stages: deque[LoadStage] = deque(maxlen=1000)
                loading = Loading(wanted, worker.load(prepare, stages.append), stages)
                if owner is not None:
                    _holder = (worker, weakref.ref(owner))
                return loading
            assert _holder is not None
            before, other = _holder[0], _holder[1]()
        if other is not None and not take_over and not before.leaving:
            raise EngineBusy(
                f"{other!r} holds this process's engine; type session.load(take_over=True) to unload it, "
                "or use it: ji.current_session()"
            )
        before.unload().wait()
