"""A run of a playground, from the load that it may wait for to its result."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from jupyter_infer.handle import RequestHandle
from jupyter_infer.result import Result
from jupyter_infer.session import Session
from jupyter_infer.widgets._job import Job

__all__ = ["PlaygroundRun"]


class PlaygroundRun(Job[Result]):
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

    kind = "playground"

    def __init__(
        self,
        number: int,
        session: Session,
        prompt: str,
        system: str,
        sampling: Mapping[str, Any],
        ended: Callable[[PlaygroundRun], object] = lambda run: None,
    ) -> None:
        super().__init__(number, session, ended)
        self.prompt, self.system, self.sampling = prompt, system, dict(sampling)
        self.handle: RequestHandle | None = None
        """The request, once the engine has it."""
        self.arrival_ns: int | None = None
        """About when the request arrived, until the record says it exactly."""

    def cancel(self) -> None:
        """Stop it; what was answered is kept. A model that it waits for loads on, and the next run uses it."""
        super().cancel()
        if self.handle is not None:
            self.handle.cancel()

    @property
    def state(self) -> str:
        """What it does: ``"loading"``, ``"running"``, ``"done"``, ``"stopped"`` or ``"failed"``."""
        if not self.done:
            return "loading" if self.handle is None else "running"
        if self.kept is None:
            return "stopped" if self.stopping else "failed"
        return "stopped" if "abort" in self.kept.finish_reason else "done"

    @property
    def text(self) -> str:
        """The answer so far."""
        return "" if self.handle is None else "".join(event.text for event in self.handle.events_after(0))

    def _work(self) -> Result:
        before, loaded = time.monotonic_ns(), self.session.info is not None
        handle = self.session.submit(self.prompt, system=self.system or None, progress=self._loads, **self.sampling)
        self.arrival_ns = before if loaded else time.monotonic_ns()
        self.handle = handle
        if self.stopping:  # meanwhile
            handle.cancel()
        result: Result = handle.result()
        return result
