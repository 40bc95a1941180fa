"""An engine that plays a recorded run again, where no model can run: its answers, its steps and their times.

It speaks through the same `Engine` as vLLM, so cells, charts and widgets work on it, and all that they show says that
it is a replay. A request is answered by the recorded one of the same prompt. A step is played whole, with the
neighbours that it had; its time is the recorded one, and so is the wait of a request before its first step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from jupyter_infer.engine.protocol import EngineRequest, Message, Progress, Rendered, SampleOutput, StepResult
from jupyter_infer.errors import ConfigError, ModelError, PromptError, nearest
from jupyter_infer.jsonl import read_file
from jupyter_infer.records import EngineInfo, LoadStage, RequestRecord, StepRecord, StepWork, TokenEvent
from jupyter_infer.run import Run

__all__ = ["ReplayEngine", "is_recording", "prepare"]

SUFFIX = ".jsonl"
PROMPTS_SHOWN = 5


def is_recording(model: str) -> bool:
    """Whether a model's name is that of a file of recorded runs."""
    return model.endswith(SUFFIX)


def prepare(model: str, settings: Mapping[str, Any], progress: Progress) -> Callable[[Progress], ReplayEngine]:
    """Read the file that `model` names and return what builds the engine; of several runs the last is played.

    Raises
    ------
    ModelError
        If the file is not there.
    ConfigError
        If it is no recorded run, or there are settings.
    """
    if settings:
        raise ConfigError(f"a replay takes no engine settings; leave --{next(iter(settings)).replace('_', '-')} out")
    progress(LoadStage("model", model, time.monotonic_ns()))
    try:
        runs = read_file(model)
    except OSError as error:
        raise ModelError(f"{model} cannot be read: {error.strerror or error}") from None
    engine = ReplayEngine(runs[-1], name=Path(model).name)
    return lambda progress: engine


@dataclass(slots=True)
class _Playing:
    """A recorded request under its new name."""

    request_id: str
    record: RequestRecord
    steps: list[int]  # places in the run of the steps that computed something of it
    events: dict[int, list[TokenEvent]]  # by index of their step
    added_ns: int
    at: int = 0  # how many of its steps were played
    ended_ns: int = 0  # when the last of them was, in the replay and in the recording
    recorded_ns: int = 0
    given: set[int] = field(default_factory=set)  # samples that are over

    def due_ns(self, step: StepRecord) -> int:
        """Return when its next step begins: after the wait that was recorded."""
        if self.at == 0:
            return self.added_ns + max(0, step.start_ns - (self.record.enqueued_ns or self.record.arrival_ns))
        return self.ended_ns + step.start_ns - self.recorded_ns


class ReplayEngine:
    """Plays a `Run`; see `Engine` for the contract.

    Parameters
    ----------
    run
        What to play.
    name
        What the recording is called.
    clock, sleep
        The clock in nanoseconds, and what waits on it.

    Raises
    ------
    ConfigError
        If steps of its requests are missing.
    """

    def __init__(
        self,
        run: Run,
        *,
        name: str = "a recording",
        clock: Callable[[], int] = time.monotonic_ns,
        sleep: Callable[[int], None] | None = None,
    ) -> None:
        if not run.requests or not run.steps or not run.complete:
            raise ConfigError(f"{name} does not hold all steps of its requests, so they cannot be played again")
        self._run, self._name = run, name
        self._clock, self._sleep = clock, sleep or (lambda duration_ns: time.sleep(duration_ns / 1e9))
        self._open: dict[str, _Playing] = {}
        self._used: set[str] = set()
        self._index = run.steps[0].index
        self._end_ns = 0
        self._free: int | None = None

    @property
    def info(self) -> EngineInfo:
        """What was recorded, called a replay."""
        record, engine = self._run.requests[0], self._run.engine
        notice = f"a replay of {self._name}: answers and times are those that were recorded, nothing is computed"
        if engine is None:
            engine = EngineInfo(record.model, "an engine", "n/a", "n/a", 0, 0, None, None, 0, 0, 0, None)
        return replace(
            engine,
            model=f"{engine.model} (replay)",
            engine=f"replay of {engine.engine}",
            load_ns=None,
            notices=(notice,),
        )

    def render(self, prompt: str | Sequence[Message], *, template: bool = True) -> Rendered:
        """Return the recorded prompt of what was asked; its token ids were not recorded, only how many there were."""
        text = prompt if isinstance(prompt, str) else str(prompt[-1].get("content", "")) if prompt else ""
        if not text.strip():
            raise PromptError("the prompt is empty; write the question below the %%infer line")
        for record in self._run.requests:
            if text == record.prompt or (record.label == text[: len(record.label)] and text.strip() in record.prompt):
                return Rendered(record.prompt, tuple(range(record.prompt_tokens)))
        labels = list(dict.fromkeys(record.label for record in self._run.requests))
        there = ", ".join(repr(label[:60]) for label in labels[:PROMPTS_SHOWN])
        more = f" and {len(labels) - PROMPTS_SHOWN} more" if len(labels) > PROMPTS_SHOWN else ""
        raise PromptError(f"{self._name} has no such prompt{nearest(text[:60], labels)}; it has {there}{more}")

    def tokens(self, text: str) -> list[tuple[int, str]]:
        """Refuse: a recording has no tokenizer."""
        raise ConfigError("a replay has no tokenizer; type %infer load to get a model")

    def admit(self, prompt: Rendered, sampling: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the sampling values that were recorded; refuses others."""
        matching = [record for record in self._run.requests if record.prompt == prompt.text]
        for record in matching:
            if sampling.items() <= record.sampling.items() and self._steps_of(record):
                return record.sampling
        if any(sampling.items() <= record.sampling.items() for record in matching):
            raise PromptError("this request was aborted before a step; there is nothing to play again")
        values = matching[0].sampling if matching else {}
        name, value = next((name, value) for name, value in sampling.items() if values.get(name) != value)
        raise ConfigError(f"{self._name} was recorded with {name} {values.get(name)!r}, not {value!r}; leave it out")

    def add(self, request: EngineRequest) -> None:
        """Begin to play the recorded request of the same prompt and values that was not played yet, or longest ago."""
        same = [
            record
            for record in self._run.requests
            if record.prompt == request.prompt.text and record.sampling == request.sampling and self._steps_of(record)
        ]
        if all(record.request_id in self._used for record in same):
            self._used -= {record.request_id for record in same}
        record = next(record for record in same if record.request_id not in self._used)
        self._used.add(record.request_id)
        events: dict[int, list[TokenEvent]] = {}
        for sample in record.samples:
            for event in sample.events:
                events.setdefault(event.step, []).append(event)
        steps = self._steps_of(record)
        self._open[request.request_id] = _Playing(request.request_id, record, steps, events, self._clock())

    def abort(self, request_ids: Collection[str]) -> None:
        """Drop requests."""
        for request_id in request_ids:
            self._open.pop(request_id, None)

    def step(self) -> StepResult:
        """Play the earliest recorded step that an open request has not had."""
        if not self._open:
            return StepResult()
        place = min(playing.steps[playing.at] for playing in self._open.values())
        recorded = self._run.steps[place]
        now = {p.record.request_id: p for p in self._open.values() if p.steps[p.at] == place}
        begun_ns = max(self._end_ns, *(playing.due_ns(recorded) for playing in now.values()))
        step = self._shifted(recorded, begun_ns - recorded.start_ns, now)
        if (wait_ns := step.end_ns - self._clock()) > 0:
            self._sleep(wait_ns)
        outputs = []
        for playing in now.values():
            playing.at += 1
            playing.ended_ns, playing.recorded_ns = step.end_ns, recorded.end_ns
            outputs += list(self._outputs(playing, recorded.index))
            if playing.at == len(playing.steps):
                del self._open[playing.request_id]
        self._index, self._end_ns, self._free = self._index + 1, step.end_ns, step.kv_blocks_free
        return StepResult((step,), tuple(outputs))

    def has_unfinished(self) -> bool:
        """Whether requests are open."""
        return bool(self._open)

    def kv_blocks_free(self) -> int:
        """Return the number of free blocks after the step that was played last."""
        total = self.info.kv_blocks_total
        return total if not self._open or self._free is None else self._free

    def reset_prefix_cache(self) -> bool:
        """Do nothing: what was found in the cache was recorded."""
        return not self._open

    def close(self) -> None:
        """End."""
        self._open.clear()

    def _steps_of(self, record: RequestRecord) -> list[int]:
        name = record.request_id
        return [
            place for place, step in enumerate(self._run.steps) if any(work.request_id == name for work in step.work)
        ]

    def _shifted(self, step: StepRecord, by_ns: int, now: Mapping[str, _Playing]) -> StepRecord:
        """Return a step at its time and with the names of the replay; who is not asked keeps another name."""
        open_records = {playing.record.request_id for playing in self._open.values()}

        def named(name: str) -> str:
            return now[name].request_id if name in now else f"{name} of the recording"

        def renamed(names: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
            return tuple((named(name), sample) for name, sample in names)

        # Whoever is open but had this step before has it no second time.
        work: tuple[StepWork, ...] = tuple(
            msgspec.structs.replace(item, request_id=named(item.request_id))
            for item in step.work
            if item.request_id in now or item.request_id not in open_records
        )
        return replace(
            step,
            index=self._index,
            scheduled_ns=step.scheduled_ns + by_ns,
            planned_ns=step.planned_ns + by_ns,
            start_ns=step.start_ns + by_ns,
            computed_ns=step.computed_ns + by_ns,
            end_ns=step.end_ns + by_ns,
            work=work,
            preempted=renamed(step.preempted),
            freed=renamed(step.freed),
        )

    def _outputs(self, playing: _Playing, index: int) -> Iterator[SampleOutput]:
        """Yield what the step gave, and at the request's last step the end of samples that ended otherwise."""
        record = playing.record
        for event in playing.events.get(index, ()):
            if event.finish_reason is not None:
                playing.given.add(event.sample)
            yield SampleOutput(
                playing.request_id,
                event.sample,
                event.token_ids,
                event.text,
                event.finish_reason,
                event.stop_reason,
                record.cached_tokens,
            )
        if playing.at == len(playing.steps):
            for sample in record.samples:
                if sample.index not in playing.given:
                    yield SampleOutput(playing.request_id, sample.index, finish_reason=sample.finish_reason)
