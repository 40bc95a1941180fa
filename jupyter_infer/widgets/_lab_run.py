"""A run of a batch lab: one workload after another, asked of the engine within limits that can be changed meanwhile."""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jupyter_infer.errors import ConfigError, EngineBusy, InferError, PromptError
from jupyter_infer.handle import RequestHandle
from jupyter_infer.records import EngineInfo
from jupyter_infer.result import Refused
from jupyter_infer.results import Results
from jupyter_infer.session import Session
from jupyter_infer.widgets._job import Job
from jupyter_infer.widgets._lab_workload import Workload

__all__ = ["Asked", "LabRun"]

SAMPLING: dict[str, Any] = {"temperature": 0.0, "ignore_eos": True, "template": False}
"""Every answer has the length that was asked for, and costs what any text of its length does."""
WARM_UPS = tuple(Workload(count, prompt_tokens=16, output_tokens=4) for count in (8, 4, 1))
"""Asked once a load: its first steps pay for more than later ones, and a fit needs steps of different sizes."""

_running: weakref.WeakValueDictionary[int, LabRun] = weakref.WeakValueDictionary()  # by id of their session
_claiming = threading.Lock()
_warm: weakref.WeakKeyDictionary[Session, EngineInfo] = weakref.WeakKeyDictionary()  # the engine that is warmed up


class Asked:
    """A workload on its way: its requests as they arrive."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.begun_ns = time.monotonic_ns()
        """When the first request was due."""
        self.handles: list[RequestHandle | Refused] = []
        """Those that have arrived, in order."""
        self.arrived_ns: list[int] = []
        """About when, until a record says it exactly."""

    def take(self, handle: RequestHandle | Refused) -> None:
        """Take a request that has arrived."""
        self.arrived_ns.append(time.monotonic_ns())
        self.handles.append(handle)

    def cancel(self) -> None:
        """Stop all that have arrived."""
        for handle in self.handles:
            if isinstance(handle, RequestHandle):
                handle.cancel()

    @property
    def stopped(self) -> bool:
        """Whether somebody has ended one of those that have arrived."""
        kept = [handle.kept for handle in self.handles if isinstance(handle, RequestHandle)]
        return any(result is not None and "abort" in result.finish_reason for result in kept)

    def results(self) -> Results:
        """Wait for all and return what they gave; what the engine refuses is `Refused`, and the others run."""
        return Results([_given(handle) for handle in self.handles])


class LabRun(Job[list[Results]]):
    """What `BatchLab.run` and `BatchLab.sweep` return. It goes on by itself, and loads the model if need be.

    Parameters
    ----------
    number
        Which run of its lab it is, from 1 on.
    session
        The session that is asked.
    workloads
        What is asked, one after another.
    limits
        Returns the scheduler's limits as they are wanted, by the names of `Session.set_limits`.
    measured
        Called on the run's thread with what each workload gave.
    ended
        Called once, on the run's own thread, when it is over.
    sweep
        Whether it is a sweep, in which a workload that did not come to its end is not counted.
    """

    kind = "lab"

    def __init__(
        self,
        number: int,
        session: Session,
        workloads: Sequence[Workload],
        *,
        limits: Callable[[], Mapping[str, int | None]] = dict,
        measured: Callable[[LabRun, Results], object] = lambda run, results: None,
        ended: Callable[[LabRun], object] = lambda run: None,
        sweep: bool = False,
    ) -> None:
        super().__init__(number, session, ended)
        self.workloads, self.is_sweep = tuple(workloads), sweep
        self.info: EngineInfo | None = None
        """The engine that is asked, once it is loaded."""
        self.asked: Asked | None = None
        """The workload that is being asked, or was asked last."""
        self.bandwidth: float | None = None
        """Bytes a second at which this machine reads memory, once it was measured."""
        self.measured = 0
        """Workloads that are over."""
        self.refusal: InferError | None = None
        """Why the engine did not take the limits that were set last."""
        self._limits, self._tell = limits, measured
        self._limiting = threading.Lock()
        self._limited = False  # whether the engine has the lab's limits, and not those of its load

    def claim(self) -> None:
        """Take the session's limits for this run.

        Raises
        ------
        EngineBusy
            If a run of another lab on the same session goes on: each would undo the limits of the other.
        """
        with _claiming:
            other = _running.get(id(self.session))
            if other is not None and not other.done:
                raise EngineBusy(
                    "another batch lab of this session runs; stop it, or wait, then run again; if it is on no page any "
                    "more, type %infer stop"
                )
            _running[id(self.session)] = self

    def limit(self) -> None:
        """Give the scheduler the limits that are wanted now, if the run has a model and is not over."""
        with self._limiting:
            if not self._limited:
                return
            self.refusal = None
            try:
                self.session.set_limits(**self._limits())
            except InferError as error:
                self.refusal = error
                raise

    def cancel(self) -> None:
        """Stop it; what was answered is kept. A model that it waits for loads on, and the next run uses it."""
        super().cancel()
        if (asked := self.asked) is not None:
            asked.cancel()

    @property
    def state(self) -> str:
        """What it does: ``"loading"``, ``"running"``, ``"done"``, ``"stopped"`` or ``"failed"``."""
        if not self.done:
            return "loading" if self.info is None else "running"
        if self.error is not None and not self.stopping:
            return "failed"
        return "stopped" if self.stopping or any(map(_aborted, self.kept or ())) else "done"

    def _work(self) -> list[Results]:
        self.info = self.session.load(progress=self._loads)
        self._check_lengths(self.info)
        self._limited = True
        try:
            self.limit()
            self.bandwidth = self.session.bandwidth()
            self._warm_up()
            found = []
            for workload in self.workloads:
                results = self._ask(workload)
                if self.stopping and not results.done:
                    break
                if not results.done:
                    raise next(item.error for item in results if isinstance(item, Refused))
                found.append(results)
                if self.is_sweep and (self.stopping or _aborted(results)):  # a point is whole or not there
                    break
                self.measured += 1
                self._tell(self, results)
            return found
        finally:
            with self._limiting, contextlib.suppress(InferError):  # or the engine went, and its limits with it
                self._limited = False
                self.session.set_limits()

    def _check_lengths(self, info: EngineInfo) -> None:
        """Refuse what does not fit before prompts are made of it; an answer that is cut would be no measurement."""
        for workload in self.workloads:
            if workload.prompt_tokens + workload.output_tokens > info.max_model_len:
                raise PromptError(
                    f"prompts of {workload.prompt_tokens:,} tokens and answers of {workload.output_tokens:,} do not "
                    f"fit into the context of {info.max_model_len:,}; shorten one of them"
                )

    def _warm_up(self) -> None:
        """Ask what is not counted, unless a lab did so since the load, or the engine computes nothing."""
        if self.bandwidth is None or self.info is None or self.info == _warm.get(self.session):
            return
        for workload in WARM_UPS:
            self._ask(workload)
        if not self.stopping:
            _warm[self.session] = self.info

    def _ask(self, workload: Workload) -> Results:
        """Ask a workload as its requests arrive, and wait for its end."""
        prompts = []
        self._check_engine()
        for prompt in workload.prompts(lambda text: len(self.session.tokens(text))):
            prompts.append(prompt)
            if self.stopping:
                return Results([])
        asked = self.asked = Asked(workload)
        try:
            self._submit(asked, prompts)
            if self.stopping:  # meanwhile
                asked.cancel()
            results = asked.results()
        except BaseException:
            asked.cancel()  # nobody would know of those that run on
            raise
        if not self.stopping:
            self._check_engine()
        return results

    def _submit(self, asked: Asked, prompts: Sequence[str]) -> None:
        workload = asked.workload
        options = {**SAMPLING, "max_tokens": workload.output_tokens}
        if workload.arrivals == "at once":
            self._check_engine()
            for handle in self.session.submit_batch(prompts, **options):
                asked.take(handle)
            return
        for prompt, due_ns in zip(prompts, workload.due_ns(), strict=True):
            if self._stopped.wait(max(0.0, (asked.begun_ns + due_ns - time.monotonic_ns()) / 1e9)):
                return
            self._check_engine()
            if asked.stopped:  # by a cell: what has not arrived does not come any more
                self.cancel()
                return
            try:
                asked.take(self.session.submit(prompt, **options))
            except PromptError as error:
                asked.take(Refused(prompt, error))

    def _check_engine(self) -> None:
        """Refuse to go on with another engine than the one that was limited, warmed up and measured."""
        if self.session.info != self.info:
            raise EngineBusy("the model was unloaded, or another one loaded, meanwhile; run it again")


def _given(handle: RequestHandle | Refused) -> Any:
    """Return the result of a request, or why the engine refused it."""
    if isinstance(handle, Refused):
        return handle
    try:
        return handle.result()
    except (PromptError, ConfigError) as error:
        return Refused(handle.prompt, error)


def _aborted(results: Results) -> bool:
    """Whether somebody ended a request: the lab, a cell or an unload."""
    return any("abort" in result.finish_reason for result in results.done)
