"""One engine with a history and prices. Works in a plain script; the magics and the widgets stand on it."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import itertools
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, overload

from jupyter_infer import hardware
from jupyter_infer.batch import BatchHandle
from jupyter_infer.config import field_name
from jupyter_infer.engine.messages import Submission
from jupyter_infer.engine.protocol import STAGES, Engine, EngineRequest, Message, Progress
from jupyter_infer.engine.replay import is_recording
from jupyter_infer.engine.replay import prepare as replay
from jupyter_infer.engine.worker import EngineWorker
from jupyter_infer.errors import ConfigError, EngineBusy, PromptError
from jupyter_infer.handle import RequestHandle
from jupyter_infer.interrupts import check, held
from jupyter_infer.loading import Loading, begin
from jupyter_infer.models import canonical_name, default_model_here
from jupyter_infer.pricing import DEFAULT_PRICE, ApiPrice, MachinePrice
from jupyter_infer.recorded import Recorded, Runs
from jupyter_infer.records import EngineInfo, Limits, LoadStage, RequestRecord, StepRecord
from jupyter_infer.result import Refused, Result, runs_of
from jupyter_infer.results import Results
from jupyter_infer.structured import constraint

__all__ = ["HISTORY_KEPT", "Session", "Status", "current_session"]

HISTORY_KEPT = 1000
"""Results that a session remembers; older ones are dropped."""

LABEL_CHARS = 200
"""Characters of what was asked that a record keeps to be told apart by."""

Prompt = str | Sequence[Message]
Factory = Callable[[str, Mapping[str, Any], Progress], Callable[[Progress], Engine]]
"""Checks a model name and engine settings, and returns what builds the engine on the worker's thread."""

_current: Session | None = None
_current_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Status:
    """A session at one moment."""

    state: str  # "unloaded", "loading", "idle" or "busy"
    info: EngineInfo | None
    open_requests: int
    kv_blocks_free: int | None
    busy_ns: int  # since the load
    rss_bytes: int
    stage: LoadStage | None = None  # of the load that runs
    model: str | None = None  # that is loaded, or on its way


class Session(Recorded):
    """An engine, loaded on first use, and everything that was asked of it.

    Parameters
    ----------
    model
        A short name, a hub id, a folder or a `.gguf` file; a `.jsonl` file of recorded runs, of which the last one is
        played again; None for this machine's default.
    price
        What the machine costs.
    factory
        Makes the engine; vLLM in this process if None.
    **settings
        vLLM `EngineArgs`, with underscores.
    """

    def __init__(
        self,
        model: str | None = None,
        *,
        price: MachinePrice = DEFAULT_PRICE,
        factory: Factory | None = None,
        **settings: Any,
    ) -> None:
        self.price = price
        self.api_price: ApiPrice | None = None
        self.history: deque[Result] = deque(maxlen=HISTORY_KEPT)
        self._model, self._settings = model, settings
        self._factory = factory
        self._worker = EngineWorker()
        self._ids = itertools.count(1)
        self._loading: Loading | None = None
        self._loaded: tuple[str, dict[str, Any]] | None = None
        self._lock, self._keeping = threading.RLock(), threading.Lock()
        # A session that nobody has any more takes its engine with it; at exit the end of the engine is waited for.
        weakref.finalize(self, self._worker.dismiss).atexit = False
        atexit.register(_unload_at_exit, weakref.ref(self._worker))

    # Loading.

    @held()
    def load(
        self, model: str | None = None, *, progress: Progress | None = None, take_over: bool = False, **settings: Any
    ) -> EngineInfo:
        """Load a model, or return at once if it is loaded with the same settings.

        Parameters
        ----------
        model
            As in `Session`; None keeps the present one.
        progress
            Called on the calling thread as each stage begins, and about once a second while it lasts.
        take_over
            Unload the session of this process that holds the engine, if another one does.
        **settings
            vLLM `EngineArgs`; they replace the ones given before.

        Raises
        ------
        EngineBusy
            If another session of this process holds the engine, or requests run and the model would change.
        EngineNotInstalled, ModelError, ConfigError, NotEnoughMemory
            If the model cannot be loaded.
        """
        named = {field_name(name): value for name, value in settings.items()}
        with self._lock:
            if model is None and not named:
                wanted = (self._model or default_model_here(), self._settings)
            else:
                wanted = (model or self._model or default_model_here(), named)
            if self._loading is not None and self._loading.reply.answered:  # nobody waited for its end
                self._loading = None
            loaded = self._worker.engine if self._loading is None and self._loaded == wanted else None
            again = named.get("compile") and loaded is not None and loaded.info.not_compiled
            if loaded is not None and not again:
                return loaded.info
            if self._loading is None or self._loading.wanted != wanted:
                owner = self if self._factory is None and not is_recording(wanted[0]) else None
                prepare = partial(self._prepare_load, wanted)
                self._loading = begin(self._worker, wanted, prepare, owner=owner, take_over=take_over)
            loading = self._loading
        if progress is not None:  # now, and not when the worker gets to it: its first imports keep others waiting
            progress(LoadStage(STAGES[0], time_ns=time.monotonic_ns()))
        try:
            engine: Engine = loading.wait(progress)
        finally:
            with self._lock:
                if self._loading is loading and loading.reply.answered:
                    self._loading = None
        return engine.info

    def unload(self) -> None:
        """Abort what runs, free the engine's memory, and let another session have the process."""
        self._worker.unload().wait()

    @property
    def model(self) -> str:
        """The name of the model that is loaded, or that the next request loads."""
        loaded = self._loaded
        return loaded[0] if loaded and self._worker.engine is not None else self._model or default_model_here()

    @property
    def info(self) -> EngineInfo | None:
        """What is loaded, or None."""
        engine = self._worker.engine
        return engine.info if engine else None

    def status(self) -> Status:
        """Return the state of engine, pool and process at this moment."""
        engine, open_requests, loading = self._worker.engine, self._worker.open_requests, self._loading
        if loading is not None and loading.reply.answered:  # nobody waited for its end
            loading = None
        state = "loading" if loading else "unloaded" if engine is None else "busy" if open_requests else "idle"
        return Status(
            state=state,
            info=engine.info if engine else None,
            open_requests=open_requests,
            kv_blocks_free=self._worker.kv_blocks_free,
            busy_ns=self._worker.busy_ns,
            rss_bytes=hardware.rss_bytes(),
            stage=loading.stages[-1] if loading and loading.stages else None,
            model=loading.wanted[0] if loading else engine.info.model if engine else None,
        )

    # Asking.

    def submit(
        self,
        prompt: Prompt,
        *,
        system: str | None = None,
        template: bool = True,
        model: str | None = None,
        progress: Progress | None = None,
        **sampling: Any,
    ) -> RequestHandle:
        r"""Queue a request and return its handle at once; loads the model first if need be.

        Parameters
        ----------
        prompt
            A text, or chat messages.
        system
            A system message before it.
        template
            False for a raw completion, without the model's chat template.
        model
            Load this model first if another one is loaded.
        progress
            Told about a load that this request waits for.
        **sampling
            vLLM `SamplingParams`: ``max_tokens=64, temperature=0, seed=1, stop=["\n"], n=3``, …;
            ``structured_outputs={"json": schema}`` as `jupyter_infer.structured.constraint` takes it.

        Raises
        ------
        PromptError, ConfigError
            If the request can never run. Also all that `load` raises.
        """
        values = _values(sampling)  # a mistake is told before anything is loaded
        with held() as interrupt:
            load_ns = self._ready(progress, model)
            submission = self._prepare(prompt, system, template, values, load_ns)
            handle = submission.sink
            assert isinstance(handle, RequestHandle)
            check()
            self._worker.submit(submission)
            interrupt.undo = handle.cancel
        return handle

    @overload
    def generate(self, prompt: str, **options: Any) -> Result: ...
    @overload
    def generate(self, prompt: Sequence[str], **options: Any) -> Results: ...
    @held()
    def generate(self, prompt: str | Sequence[str], **options: Any) -> Result | Results:
        """Return the answer to a prompt, or the answers to a list of prompts that run as one batch.

        Options are those of `submit`. A prompt of a batch that cannot run becomes `Refused`; the others run. An
        interrupt aborts what runs.
        """
        if isinstance(prompt, str):
            return self.result(self.submit(prompt, **options))
        if any(isinstance(item, Mapping) for item in prompt):
            raise PromptError("these are messages of one conversation; type session.chat(messages)")
        return self.result(self.submit_batch(prompt, **options))

    @held()
    def chat(self, messages: Sequence[Message], **options: Any) -> Result:
        """Return the answer to a conversation. Options are those of `submit`."""
        return self.result(self.submit(messages, **options))

    async def agenerate(self, prompt: Prompt, **options: Any) -> Result:
        """Return the answer without blocking the event loop; cancelling the task aborts the request."""
        loop, done = asyncio.get_running_loop(), asyncio.Event()
        handles: list[RequestHandle] = []
        gone = threading.Event()

        def submit() -> None:  # goes on, loading a model perhaps, when the task is cancelled
            handles.append(self.submit(prompt, **options))
            if gone.is_set():
                handles[0].cancel()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(done.set)

        try:
            await asyncio.to_thread(submit)
            handles[0].when_done(wake)
            await done.wait()
        except asyncio.CancelledError:
            gone.set()
            for handle in handles:
                handle.cancel()
            raise
        return self.result(handles[0])

    def submit_batch(self, prompts: Sequence[Prompt], **options: Any) -> BatchHandle:
        """Queue prompts so that the engine sees all of them before its next step. Options are those of `submit`."""
        system, template = options.pop("system", None), options.pop("template", True)
        progress, model = options.pop("progress", None), options.pop("model", None)
        values = _values(options)
        handles: list[RequestHandle | Refused] = []
        submissions = []
        with held() as interrupt:
            load_ns = self._ready(progress, model)
            for prompt in prompts:
                check()
                try:
                    submissions.append(self._prepare(prompt, system, template, values, load_ns))
                    handles.append(submissions[-1].sink)  # type: ignore[arg-type]
                except PromptError as error:  # what is wrong with the options is wrong for all of them
                    handles.append(Refused(prompt, error))
            batch = BatchHandle(handles)
            check()
            self._worker.submit(*submissions)
            interrupt.undo = batch.cancel
        return batch

    @overload
    def result(self, handle: RequestHandle) -> Result: ...
    @overload
    def result(self, handle: BatchHandle) -> Results: ...
    @held()
    def result(self, handle: RequestHandle | BatchHandle) -> Result | Results:
        """Wait for a request or a batch and return what it gave; an interrupt aborts it and goes on as an interrupt."""
        try:
            result: Result | Results = handle.result()
            return result
        except BaseException:
            handle.cancel()
            raise

    # Looking back.

    @property
    def steps(self) -> tuple[StepRecord, ...]:
        """The last steps of the engine, oldest first (see `jupyter_infer.engine.worker.STEPS_KEPT`)."""
        return tuple(self._worker.steps)

    @property
    def runs(self) -> Runs:
        """The history as runs, one for each engine, at the prices that are set now; charts show the last one."""
        return runs_of(tuple(self.history), (self.price, self.api_price))

    def tokens(self, text: str, *, progress: Progress | None = None) -> Sequence[tuple[int, str]]:
        """Return the tokens of a text, without a template: id and the part of the text that it stands for."""
        _check_text(text)
        self._ready(progress)
        return self._engine().tokens(text)

    def set_limits(self, *, max_num_seqs: int | None = None, max_num_batched_tokens: int | None = None) -> Limits:
        """Change what the scheduler admits from its next step on, and return it: no reload, and what runs goes on.

        Parameters
        ----------
        max_num_seqs
            Requests (samples) in the running batch; None is what was loaded, which is also the most.
        max_num_batched_tokens
            Token budget of a step; None is what was loaded, which is also the most.

        Raises
        ------
        ConfigError
            If a value is below 1 or above what was loaded, or a replay is asked.
        EngineNotLoaded
            If no model is loaded.
        """

        def change(engine: Engine) -> Limits:
            loaded = engine.info.limits
            limits = Limits(
                _within("max_num_seqs", max_num_seqs, loaded.max_num_seqs),
                _within("max_num_batched_tokens", max_num_batched_tokens, loaded.max_num_batched_tokens),
            )
            engine.set_limits(None if limits == loaded else limits)
            return limits

        limits: Limits = self._worker.ask(change).wait()
        return limits

    def bandwidth(self) -> float | None:
        """Return how many bytes a second this machine reads, measured once a load over as many as the weights have.

        It takes a fraction of a second between two steps. None of an engine that computes nothing.
        """
        bandwidth: float | None = self._worker.ask(lambda engine: engine.bandwidth()).wait()
        return bandwidth

    def clear_cache(self) -> bool:
        """Forget cached prefixes; False if running requests hold some."""
        return bool(self._worker.ask(lambda engine: engine.reset_prefix_cache()).wait())

    def stop(self) -> int:
        """Abort all requests; return how many there were."""
        return int(self._worker.stop().wait())

    def __repr__(self) -> str:
        info = self.info
        return f"Session({info.model if info else self._model or 'default model'}, {self.status().state})"

    # How.

    def _ready(self, progress: Progress | None, model: str | None = None) -> int | None:
        """Load if need be; return how long this took, or None if nothing was to load."""
        loading = self._loading
        other = model is not None and canonical_name(model) != canonical_name(self.model)
        if not other and self._worker.engine is not None and (loading is None or loading.reply.answered):
            return None
        begun = time.monotonic_ns()
        self.load(model if other else None, progress=progress)
        return time.monotonic_ns() - begun

    def _engine(self) -> Engine:
        """Return the engine that was just loaded."""
        if (engine := self._worker.engine) is None:
            raise EngineBusy("the model was unloaded meanwhile; run it again")
        return engine

    def _prepare_load(self, wanted: tuple[str, dict[str, Any]], progress: Progress) -> Callable[[Progress], Engine]:
        """Fetch and check on the worker's thread, where no interrupt can part an engine from the note of what it is."""
        build = (self._factory or _engine)(*wanted, progress)

        def noted(progress: Progress) -> Engine:
            self._loaded = None
            engine = build(progress)
            self._loaded = wanted
            self._model, self._settings = wanted  # a load that failed is not tried again
            return engine

        return noted

    def _prepare(
        self, prompt: Prompt, system: str | None, template: bool, sampling: Mapping[str, Any], load_ns: int | None
    ) -> Submission:
        arrival_ns, asked = time.monotonic_ns(), prompt
        _check_text(prompt, system)
        engine = self._engine()
        label = prompt if isinstance(prompt, str) else str(prompt[-1].get("content", "")) if prompt else ""
        if system is not None:
            if not template:
                raise ConfigError("a system message needs the chat template; leave out template=False, or the message")
            messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
            prompt = [{"role": "system", "content": system}, *messages]
        try:
            rendered = engine.render(prompt, template=template)
            values = engine.admit(rendered, sampling)
        except AttributeError:
            if self._worker.engine is not engine:  # it was closed under our hands
                raise EngineBusy("the model was unloaded meanwhile; run it again") from None
            raise
        request_id = f"r{next(self._ids)}"
        samples = int(values.get("n") or 1)
        request = EngineRequest(request_id, label[:LABEL_CHARS], rendered, values, samples)
        keep = partial(self._keep, engine.info)
        handle = RequestHandle(request_id, lambda: self._worker.cancel(request_id), keep, asked, samples)
        return Submission(request, arrival_ns, load_ns, handle, engine)

    def _keep(self, engine: EngineInfo, handle: RequestHandle, record: RequestRecord) -> Result:
        """Put a request into the history as it ends, whether somebody asks for its result or not."""
        with self._keeping:
            if handle.kept is None:
                handle.kept = Result(
                    record,
                    self.price,
                    engine_steps=self._worker.steps,
                    engine=engine,
                    api_price=self.api_price,
                )
                self.history.append(handle.kept)
            result: Result = handle.kept
        result.first_shown_ns = handle.first_shown_ns
        return result


def current_session() -> Session:
    """Return the session that cells, widgets and scripts share; made on first use."""
    global _current
    with _current_lock:  # two cells at once must not get one each
        if _current is None:
            _current = Session()
        return _current


def _values(sampling: Mapping[str, Any]) -> dict[str, Any]:
    """Return sampling values under vLLM's names, with what the answer has to look like checked."""
    values = {field_name(name): value for name, value in sampling.items()}
    if values.get("structured_outputs") is not None:
        values["structured_outputs"] = constraint(values["structured_outputs"])
    return values


def _within(name: str, value: int | None, loaded: int) -> int:
    """Return a limit, or what was loaded for None; refuse what the engine has made no room for."""
    if value is None:
        return loaded
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= loaded:
        option = name.replace("_", "-")
        raise ConfigError(
            f"{name} can be changed between 1 and {loaded:,}, which was loaded, and not to {value!r}; for more, type "
            f"%infer load --{option} N"
        )
    return value


def _check_text(prompt: Prompt, system: str | None = None) -> None:
    """Refuse what is no text and no messages, and halves of surrogate pairs, which no tokenizer takes."""
    if not isinstance(prompt, str) and not (
        isinstance(prompt, Sequence) and all(isinstance(message, Mapping) for message in prompt)  # bytes are numbers
    ):
        raise PromptError(f"a prompt is a text, or a list of chat messages, and not of type {type(prompt).__name__}")
    contents = [prompt] if isinstance(prompt, str) else [str(message.get("content", "")) for message in prompt]
    for text in (*contents, system or ""):
        try:
            text.encode()
        except UnicodeEncodeError as error:
            half = f"\\u{ord(text[error.start]):04x}"
            raise PromptError(f"the text holds half of a surrogate pair ({half}), which is no character") from None


def _engine(model: str, settings: Mapping[str, Any], progress: Progress) -> Callable[[Progress], Engine]:
    """Check what a session loads when nobody makes its engines: vLLM, or the replay of a file."""
    if is_recording(model):
        return replay(model, settings, progress)
    from jupyter_infer.warm import prepare

    return prepare(model, settings, progress)


def _unload_at_exit(worker: weakref.ref[EngineWorker]) -> None:
    """Close the engine before the interpreter goes: a thread inside PyTorch at exit can crash the process."""
    if (found := worker()) is not None:
        with contextlib.suppress(BaseException):
            found.unload().wait(timeout=10)
