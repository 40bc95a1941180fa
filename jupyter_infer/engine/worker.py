"""The one owner of an engine: a thread that loads it, steps it, aborts on it and closes it.

Everyone else speaks to it in messages. Because the messages and the answers are plain values, the owner can later live
in a child process or behind a socket without the rest noticing.
"""

from __future__ import annotations

import contextlib
import queue
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from jupyter_infer.engine import gil
from jupyter_infer.engine.ledger import Ledger
from jupyter_infer.engine.messages import Ask, Cancel, Load, Reply, Sink, Stop, Submission, Submit, ToWorker, Unload
from jupyter_infer.engine.protocol import Engine, Progress
from jupyter_infer.errors import (
    ConfigError,
    EngineBusy,
    EngineFailed,
    EngineNotLoaded,
    InferError,
    NotEnoughMemory,
    PromptError,
)
from jupyter_infer.records import LoadStage, RequestRecord, StepRecord
from jupyter_infer.structured import FORMS

__all__ = ["STEPS_KEPT", "EngineWorker"]

STEPS_KEPT = 8192
"""Steps that a worker remembers; older ones are dropped."""

STUCK_AFTER = 10_000
"""Consecutive steps that got nobody further, a millisecond apart at least, after which the request that has waited
longest is given up as impossible to schedule. A grammar that is being compiled takes some, too."""

IDLE_S = 0.001


class EngineWorker:
    """A thread that owns at most one engine at a time. All public methods may be called from any thread."""

    def __init__(self, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self.steps: deque[StepRecord] = deque(maxlen=STEPS_KEPT)
        self.kv_blocks_free: int | None = None
        self._clock = clock
        self._inbox: queue.SimpleQueue[ToWorker] = queue.SimpleQueue()
        self._engine: Engine | None = None
        self._ledger: Ledger | None = None
        self._sinks: dict[str, Sink] = {}
        self._loads = 0  # that are not over
        self._coming = 0  # requests in the inbox
        self._closing = False
        self._idle_steps = 0
        self._hurrying = False
        self._thread: threading.Thread | None = None
        # Reentrant: a session that is collected while this thread holds it posts its farewell from here.
        self._starting = threading.RLock()

    # What others call.

    @property
    def engine(self) -> Engine | None:
        """The loaded engine, for `info`, `render` and `admit` only."""
        return self._engine

    @property
    def occupied(self) -> bool:
        """Whether there is an engine that has the process for itself, or one is on its way."""
        if self._loads > 0 or ((engine := self._engine) is not None and not engine.info.is_replay):  # in this order
            return True
        return self._closing

    @property
    def leaving(self) -> bool:
        """Whether an engine is being closed, and none comes after it."""
        return self._closing and self._loads == 0

    @property
    def open_requests(self) -> int:
        """Requests that are on their way, queued or running."""
        with self._starting:
            return self._coming + len(self._sinks)

    @property
    def busy_ns(self) -> int:
        """Busy time since the load."""
        ledger = self._ledger
        return ledger.attribution.busy_ns if ledger else 0

    @property
    def unattributed_ns(self) -> int:
        """Busy time since the load that belongs to no request."""
        ledger = self._ledger
        return ledger.attribution.unattributed_ns if ledger else 0

    def load(self, prepare: Callable[[Progress], Callable[[Progress], Engine]], progress: Progress) -> Reply:
        """Build an engine on the worker's thread. Answers the engine; refused while requests run.

        `prepare` fetches and checks what it can and returns what builds the engine. Until it has returned, the engine
        before stays as it is.
        """
        reply = Reply()
        with self._starting:
            self._post(Load(prepare, progress, reply))
            self._loads += 1
        return reply

    def submit(self, *submissions: Submission) -> None:
        """Hand over requests that the engine gets before its next step; what becomes of each goes to its sink."""
        with self._starting:
            self._post(Submit(submissions))
            self._coming += len(submissions)

    def cancel(self, request_id: str) -> None:
        """Abort a request before the next step; nothing happens if it is over."""
        self._post(Cancel(request_id))

    def stop(self) -> Reply:
        """Abort all requests. Answers how many there were."""
        reply = Reply()
        self._post(Stop(reply))
        return reply

    def ask(self, question: Callable[[Engine], Any]) -> Reply:
        """Run a short question on the engine between two steps."""
        reply = Reply()
        self._post(Ask(question, reply))
        return reply

    def unload(self) -> Reply:
        """Abort what runs, close the engine and end the thread."""
        reply = Reply()
        self._post(Unload(reply))
        return reply

    def dismiss(self) -> None:
        """Unload, and wait for nothing: what the collector calls when nobody has the session any more."""
        if sys.is_finalizing():  # a thread that is started now never runs, and whoever starts it waits for ever
            return
        if self._thread is not None:
            self.unload()

    # What runs on the worker's thread.

    def _post(self, message: ToWorker) -> None:
        with self._starting:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="jupyter-infer-engine", daemon=True)
                try:
                    self._thread.start()
                except (RuntimeError, MemoryError) as error:  # before the message is in: nobody gets it later
                    raise NotEnoughMemory(f"no thread for the engine ({error}); end what else runs here") from error
            self._inbox.put(message)

    def _run(self) -> None:
        while True:
            try:
                if not self._turn():
                    return
            except BaseException as error:  # of the engine, or ours: nobody may wait for ever, also after `sys.exit()`
                with contextlib.suppress(BaseException):
                    self._fail(error)

    def _turn(self) -> bool:
        """Handle what came in and run a step; return False, at the end of the thread, if there is nothing to own."""
        # An aborted request's step can still be in flight: stepping on until the engine is empty ends it in time.
        if not (self._engine is not None and (self._sinks or self._engine.has_unfinished())):
            self._hurry(False)
            # Nothing to step: end the thread with the engine, so that an unloaded session leaves none behind.
            with self._starting:
                if self._engine is None and self._inbox.empty():
                    self._thread = None
                    return False
            self._handle(self._inbox.get())
        while not self._inbox.empty():
            self._handle(self._inbox.get())
        if self._engine is not None and (self._sinks or self._engine.has_unfinished()):
            self._hurry(True)
            self._step()
        return True

    def _hurry(self, wanted: bool) -> None:
        """Ask for a larger share of the interpreter while there is something to step."""
        if wanted is not self._hurrying:
            (gil.hurry if wanted else gil.relax)()
            self._hurrying = wanted

    def _handle(self, message: ToWorker) -> None:
        match message:
            case Load():
                self._load(message)
            case Submit(submissions):
                for submission in submissions:
                    self._submit(submission)
            case Cancel():
                self._abort([message.request_id])
            case Stop(reply):
                self._answer(reply, self._stop)
            case Ask(question, reply):
                self._answer(reply, lambda: question(self._need()))
            case Unload(reply):
                self._answer(reply, self._close)

    def _load(self, message: Load) -> None:
        def build() -> Engine:
            if self._sinks:
                raise EngineBusy(f"{len(self._sinks)} requests still run; type %infer stop, or wait, then load again")
            build_engine = message.prepare(message.progress)
            self._close()
            self.steps = deque(maxlen=STEPS_KEPT)  # a step's index means something within one engine
            engine = build_engine(message.progress)
            self._ledger, self._engine = Ledger(engine.info.model), engine
            self._publish()
            message.progress(LoadStage("ready", time_ns=self._clock()))
            return engine

        def count() -> Engine:
            try:
                return build()
            finally:
                with self._starting:
                    self._loads -= 1

        self._answer(message.reply, count)

    def _submit(self, new: Submission) -> None:
        refused: BaseException | None = None
        try:
            if new.engine is not None and new.engine is not self._engine:
                what = "the engine went" if self._engine is None else "another model was loaded"
                raise EngineBusy(f"{what} meanwhile; run it again")
            self._need().add(new.request)
        except BaseException as error:
            refused = error
        with self._starting:
            self._coming -= 1
            if refused is None:
                self._sinks[new.request.request_id] = new.sink
        if refused is not None:
            new.sink.failed(_raisable(refused))
            return
        assert self._ledger is not None
        self._ledger.open(new.request, arrival_ns=new.arrival_ns, enqueued_ns=self._clock(), load_ns=new.load_ns)

    def _step(self) -> None:
        assert self._engine is not None
        assert self._ledger is not None
        result = self._engine.step()
        self._publish()
        self.steps.extend(step for step in result.steps if step.work or step.preempted)  # idle ones would fill it
        events, ended = self._ledger.book(result)
        for event in events:
            self._sinks[event.request_id].event(event)
        self._end(ended)
        self._watch(further=any(work.tokens > work.recomputed_tokens for step in result.steps for work in step.work))

    def _end(self, records: Sequence[RequestRecord]) -> None:
        """Tell whose requests are over; after the last one's end, the process is as it was before the first."""
        sinks = [self._sinks.pop(record.request_id) for record in records]
        if records and not self._sinks:
            self._hurry(False)
        for sink, record in zip(sinks, records, strict=True):
            if "error" in {sample.finish_reason for sample in record.samples}:
                sink.failed(_no_way_on(record))
            else:
                sink.finished(record)

    def _watch(self, *, further: bool) -> None:
        """End requests that can never be scheduled, instead of stepping for ever."""
        self._idle_steps = 0 if further else self._idle_steps + 1
        if self._idle_steps > STUCK_AFTER:
            self._idle_steps = 0
            if oldest := next(iter(self._sinks), None):  # it may be what keeps the others waiting
                self._give_up(oldest, "the scheduler finds no place for it; shorten it, or load a larger KV pool")
        elif self._idle_steps > 2:  # an asynchronous scheduler fills its queue first
            time.sleep(IDLE_S)

    def _give_up(self, request_id: str, reason: str) -> None:
        assert self._engine is not None
        assert self._ledger is not None
        if sink := self._sinks.pop(request_id, None):
            self._engine.abort([request_id])
            self._publish()
            self._ledger.close(request_id, self._clock(), reason="error", error=reason)
            if not self._sinks:
                self._hurry(False)
            sink.failed(PromptError(f"this request cannot run: {reason}"))

    def _abort(self, request_ids: list[str]) -> int:
        known = [request_id for request_id in request_ids if request_id in self._sinks]
        if not known:
            return 0
        assert self._engine is not None
        assert self._ledger is not None
        self._engine.abort(known)
        self._publish()
        self._end([self._ledger.close(request_id, self._clock()) for request_id in known])
        return len(known)

    def _fail(self, error: BaseException) -> None:
        """Tell everybody that the engine broke, and drop it."""
        _let_go_of_frames(error)
        sinks, self._sinks = self._sinks, {}
        with contextlib.suppress(BaseException):
            self._close()
        self._hurry(False)
        _tell(sinks.values(), error)

    def _stop(self) -> int:
        count = len(self._sinks)
        try:
            self._abort(list(self._sinks))
        except BaseException as error:  # they are over all the same
            self._fail(error)
        return count

    def _close(self) -> None:
        try:
            self._abort(list(self._sinks))
        except BaseException as error:  # an engine that cannot even do that goes all the same
            sinks, self._sinks = self._sinks, {}
            _tell(sinks.values(), error)
        engine, self._closing = self._engine, self._engine is not None
        self._engine, self._ledger = None, None
        self._idle_steps, self.kv_blocks_free = 0, None
        try:
            if engine is not None:
                engine.close()
        finally:
            self._closing = False

    def _publish(self) -> None:
        """Let others read the pool without touching the engine; before anybody is told that a request is over."""
        self.kv_blocks_free = self._engine.kv_blocks_free() if self._engine is not None else None

    def _need(self) -> Engine:
        if self._engine is None:
            raise EngineNotLoaded("no model is loaded; type %infer load")
        return self._engine

    def _answer(self, reply: Reply, work: Callable[[], Any]) -> None:
        try:
            reply.put(work())
        except BaseException as error:  # the thread must live on, and the caller must know
            _let_go_of_frames(error)
            reply.put(error=error.with_traceback(None) if isinstance(error, InferError) else _raisable(error))


def _raisable(error: BaseException) -> Exception:
    """Return what a caller can be told: `SystemExit`, raised on another thread, would end the caller's program."""
    return error if isinstance(error, Exception) else _failed(error)


def _tell(sinks: Iterable[Sink], error: BaseException) -> None:
    """Tell requests that the engine broke; nobody may be left out."""
    failed = _failed(error)
    for sink in sinks:
        with contextlib.suppress(BaseException):
            sink.failed(failed)


def _failed(error: BaseException) -> EngineFailed:
    reason = type(error).__name__
    with contextlib.suppress(Exception):  # of an error that cannot say what it is
        reason = f"{reason}: {error}".splitlines()[0]
    failed = EngineFailed(f"the engine stopped: {reason}; the next request loads it again, %infer logs says more")
    failed.__cause__ = error
    return failed


def _no_way_on(record: RequestRecord) -> ConfigError:
    """Return why vLLM ended a request with an error: it does where no token fits the form that was asked for."""
    what = " or ".join(FORMS[kind] for kind in record.sampling.get("structured_outputs") or ())
    why = f"the model can write nothing that fits the {what}" if what else "the engine ended this request"
    return ConfigError(f"{why}; %infer logs says more")


def _let_go_of_frames(error: BaseException | None) -> None:
    """Clear the frames of an error and of those behind it: whoever keeps it would keep a half-built engine alive."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        error = waiting.pop()
        if error is not None and id(error) not in seen:
            seen.add(id(error))
            traceback.clear_frames(error.__traceback__)
            waiting += [error.__cause__, error.__context__]
