"""What a widget does on a thread of its own: it loads the model if need be, can be stopped, and waited for."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar

from jupyter_infer.errors import EngineBusy
from jupyter_infer.interrupts import Latch
from jupyter_infer.records import LoadStage
from jupyter_infer.session import Session
from jupyter_infer.widgets._messages import one_line

__all__ = ["Job"]

STOPPED_EARLY = "stopped before anything was asked; a model that was loading loads on"

R = TypeVar("R")


class _Stopped(Exception):
    """It was stopped while its model was loading."""


class Job(ABC, Generic[R]):
    """Goes on by itself from `begin` on.

    Parameters
    ----------
    number
        Which run of its widget it is, from 1 on.
    session
        The session that is asked.
    ended
        Called once, on the job's own thread, when it is over.
    """

    kind = "job"
    """What its thread is called."""

    def __init__(self, number: int, session: Session, ended: Callable[[Any], object]) -> None:
        self.number, self.session = number, session
        self.stage: LoadStage | None = None
        """Where the load is that it waits for."""
        self.error: Exception | None = None
        """Why there is no result."""
        self._ended = ended
        self._kept: R | None = None
        self._stopped = threading.Event()
        self._done, self._over = False, Latch()  # who waits is told when its end is shown

    @abstractmethod
    def _work(self) -> R:
        """Do it and return what it gave; called on a thread of its own."""

    @property
    @abstractmethod
    def state(self) -> str:
        """What it does: ``"loading"``, ``"running"``, ``"done"``, ``"stopped"`` or ``"failed"``."""

    def begin(self) -> Self:
        """Start it and return it at once."""
        threading.Thread(target=self._go, name=f"jupyter-infer-{self.kind}-{self.number}", daemon=True).start()
        return self

    def cancel(self) -> None:
        """Stop it; what was answered is kept. A model that it waits for loads on, and the next run uses it."""
        self._stopped.set()

    @property
    def done(self) -> bool:
        """Whether it is over."""
        return self._done

    @property
    def stopping(self) -> bool:
        """Whether somebody stopped it."""
        return self._stopped.is_set()

    @property
    def kept(self) -> R | None:
        """The result, or None if it goes on or gave none."""
        return self._kept

    def result(self, timeout: float | None = None) -> R:
        """Return the result once it is over; an interrupt leaves it running.

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
        return f"{type(self).__name__}({self.number}, {self.state}; .result() waits, .cancel() stops)"

    def _go(self) -> None:
        try:
            self._kept = self._work()
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
