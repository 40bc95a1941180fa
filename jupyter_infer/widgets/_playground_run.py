"""A run of a playground, from the load that it may wait for to its result."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from jupyter_infer.errors import EngineBusy
from jupyter_infer.handle import RequestHandle
from jupyter_infer.interrupts import Latch
from jupyter_infer.records import LoadStage
from jupyter_infer.result import Result
from jupyter_infer.session import Session
from jupyter_infer.widgets._messages import one_line

__all__ = ["PlaygroundRun"]

STOPPED_EARLY = "stopped before anything was asked; a model that was loading loads on"


class _Stopped(Exception):
    """The run was stopped while its model was loading."""


class PlaygroundRun:
    """What `Playground.run` returns: a run that goes on by itself. It loads the model if need be.

    Parameters
    ----------
    number
        Which run of its playground it is, from 1 on.
    session
        The session that is asked.
    prompt, system
        What is asked; an empty system message is none.
    sampling
        Sampling values of vLLM.
    ended
        Called once, on the run's own thread, when it is over.
    """

    def __init__(
        self,
        number: int,
        session: Session,
        prompt: str,
        system: str,
        sampling: Mapping[str, Any],
        ended: Callable[[PlaygroundRun], object] = lambda run: None,
    ) -> None:
        self.number = number
        self.prompt, self.system, self.sampling = prompt, system, dict(sampling)
        self.handle: RequestHandle | None = None
        """The request, once the engine has it."""
        self.arrival_ns: int | None = None
        """About when the request arrived, until the record says it exactly."""
        self.stage: LoadStage | None = None
        """Where the load is that the run waits for."""
        self.error: Exception | None = None
        """Why there is no result."""
        self._session, self._ended = session, ended
        self._kept: Result | None = None
        self._stopped = threading.Event()
        self._done, self._over = False, Latch()  # who waits is told when its end is shown

    def begin(self) -> PlaygroundRun:
        """Start it and return it at once."""
        threading.Thread(target=self._go, name=f"jupyter-infer-playground-{self.number}", daemon=True).start()
        return self

    def cancel(self) -> None:
        """Stop it; what was answered is kept. A model that it waits for loads on, and the next run uses it."""
        self._stopped.set()
        if self.handle is not None:
            self.handle.cancel()

    @property
    def done(self) -> bool:
        """Whether it is over."""
        return self._done

    @property
    def stopping(self) -> bool:
        """Whether somebody stopped it."""
        return self._stopped.is_set()

    @property
    def state(self) -> str:
        """What it does: ``"loading"``, ``"running"``, ``"done"``, ``"stopped"`` or ``"failed"``."""
        if not self.done:
            return "loading" if self.handle is None else "running"
        if self._kept is None:
            return "stopped" if self.stopping else "failed"
        return "stopped" if "abort" in self._kept.finish_reason else "done"

    @property
    def text(self) -> str:
        """The answer so far."""
        return "" if self.handle is None else "".join(event.text for event in self.handle.events_after(0))

    @property
    def kept(self) -> Result | None:
        """The result, or None if the run goes on or gave none."""
        return self._kept

    def result(self, timeout: float | None = None) -> Result:
        """Return the result once the run is over; an interrupt leaves it running.

        Raises
        ------
        TimeoutError
            If it is not over within `timeout` seconds.
        InferError
            Why it could not run.
        """
        if not self._over.wait(timeout):
            raise TimeoutError(f"run {self.number} is still going on after {timeout} s")
        if self.error is not None:
            raise self.error
        assert self._kept is not None
        return self._kept

    def __repr__(self) -> str:
        return f"PlaygroundRun({self.number}, {self.state}; .result() waits, .cancel() stops)"

    def _go(self) -> None:
        try:
            before, loaded = time.monotonic_ns(), self._session.info is not None
            handle = self._session.submit(
                self.prompt, system=self.system or None, progress=self._loads, **self.sampling
            )
            self.arrival_ns = before if loaded else time.monotonic_ns()
            self.handle = handle
            if self.stopping:  # meanwhile
                handle.cancel()
            self._kept = handle.result()
        except _Stopped:
            self.error = EngineBusy(STOPPED_EARLY)
        except Exception as error:
            self.error = error
            logging.getLogger(__name__).debug("run %s failed: %s", self.number, one_line(error), exc_info=True)
        finally:
            self._done = True
            try:
                self._ended(self)
            finally:
                self._over.set()

    def _loads(self, stage: LoadStage) -> None:
        self.stage = stage
        if self.stopping:
            raise _Stopped
