"""What widgets that run something have in common: one run at a time, its state, and the engine's facts."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, ClassVar, Generic, TypeVar

import traitlets

from jupyter_infer.errors import EngineBusy
from jupyter_infer.records import EngineInfo
from jupyter_infer.widgets._base import InferWidget
from jupyter_infer.widgets._engine_facts import engine_facts
from jupyter_infer.widgets._job import Job
from jupyter_infer.widgets._ticker import TICKER

__all__ = ["RunningWidget"]

J = TypeVar("J", bound=Job[Any])


class RunningWidget(InferWidget, Generic[J]):
    """Base of widgets whose runs are jobs (`jupyter_infer.widgets._job`), one at a time.

    A widget starts one with `_start`, says in `_of_run` what is shown of it, and in `_of_engine` what else an engine
    decides.
    """

    called: ClassVar[str] = ""
    """What errors call it."""

    state: str = traitlets.Unicode("idle").tag(sync=True)
    """What it does (str), set by itself: ``"idle"``, ``"loading"``, ``"running"``, ``"done"``, ``"stopped"`` or
    ``"failed"``; default ``"idle"``."""
    error: str = traitlets.Unicode().tag(sync=True)
    """Why the last run gave nothing, in one line (str), set by itself; default empty."""

    _engine = traitlets.List().tag(sync=True)  # pairs of label and value
    _stage = traitlets.Unicode().tag(sync=True)

    def __init__(self, **traits: Any) -> None:
        self._looking = threading.RLock()
        self._run: J | None = None
        self._count = 0
        self._engine_seen: object = None
        super().__init__(**traits)
        self.tick()

    def stop(self) -> bool:
        """Stop the run; what was answered is kept. Return whether one went on."""
        run = self._run
        if run is None or run.done:
            return False
        run.cancel()
        return True

    def clear(self) -> None:
        """Take what was run away; what is asked stays."""
        raise NotImplementedError

    def handle(self, kind: str, payload: dict[str, Any]) -> Mapping[str, Any] | None:
        """Answer ``stop`` and ``clear``."""
        if kind == "stop":
            return {"stopped": self.stop()}
        if kind == "clear":
            self.clear()
            return None
        return super().handle(kind, payload)

    def tick(self) -> bool:
        """Look at the run and the engine, and send what has changed."""
        with self._looking:
            run = self._run
            going_on = run is not None and not run.done  # first: nothing comes after the end
            values = {} if run is None else self._of_run(run)
            status = self.session.status()
            seen = (id(self.session), status.state == "loading", status.info)
            if seen != self._engine_seen:
                self._engine_seen = seen
                values |= {"_engine": engine_facts(self.session, status), **self._of_engine(status.info)}
            self.push(**values)
        return going_on

    def _of_run(self, run: J) -> dict[str, Any]:
        """Return the traits that show a run, by name."""
        raise NotImplementedError

    def _of_engine(self, info: EngineInfo | None) -> Mapping[str, Any]:
        """Return the traits that an engine decides, or none."""
        return {}

    def _start(self, run: J) -> None:
        """Begin a run and show it. Only while none goes on, and under `_looking`."""
        self._count = run.number
        self._run = run.begin()
        self.tick()
        if self.shown:
            TICKER.add(self)  # it may rest

    def _check_idle(self, what: str) -> None:
        if self._run is not None and not self._run.done:
            raise EngineBusy(f"run {self._run.number} of this {self.called} goes on; stop it, or wait, to {what}")
