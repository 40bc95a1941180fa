"""An engine that plays a recorded run again, where no model can run: its answers, its steps and their times.

It speaks through the same `Engine` as vLLM, so cells, charts and widgets work on it, and all that they show says that
it is a replay. A request is answered by a recorded one of the same prompt (`replay_answers`). A step is played whole,
with the neighbours that it had; its time is the recorded one, and so is the wait of a request before its first step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from jupyter_infer.engine.protocol import EngineRequest, Message, Progress, Rendered, SampleOutput, StepResult
from jupyter_infer.engine.replay_answers import Answers
from jupyter_infer.errors import ConfigError, ModelError
from jupyter_infer.jsonl import SUFFIX, read_file
from jupyter_infer.records import REPLAY_OF, EngineInfo, Limits, LoadStage, RequestRecord, StepRecord, TokenEvent
from jupyter_infer.run import Run

__all__ = ["ReplayEngine", "is_recording", "prepare"]

WAIT_NS = 100_000_000  # slept at a time before a step, for requests may come or be cancelled meanwhile


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
    name = Path(model).name
    engine = ReplayEngine(runs[-1], name=name if len(runs) == 1 else f"the last of the {len(runs)} runs of {name}")
    return lambda progress: engine


@dataclass(slots=True)
class _Playing:
    """A recorded request under its new name."""

    request_id: str
    record: RequestRecord
    steps: Sequence[int]  # places in the run of the steps that did something to it
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
        self._places = _places(run)
        self._open: dict[str, _Playing] = {}
        self._answers = Answers(run.requests, {name for name, places in self._places.items() if places}, name)
        self._names: dict[str, str] = {}  # what a recorded request was called in the step that had it last
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
        if not engine.is_replay:  # a replay that was recorded says so already
            engine = replace(engine, model=f"{engine.model} (replay)", engine=f"{REPLAY_OF}{engine.engine}")
        return replace(engine, load_ns=None, notices=(notice,))

    def render(self, prompt: str | Sequence[Message], *, template: bool = True) -> Rendered:
        """Return the recorded prompt of what was asked; its token ids were not recorded, only how many there were."""
        record = self._answers.find(prompt, template=template)
        return Rendered(record.prompt, tuple(range(record.prompt_tokens)))

    def tokens(self, text: str) -> list[tuple[int, str]]:
        """Refuse: a recording has no tokenizer."""
        raise ConfigError("a replay has no tokenizer; load a model: %infer load MODEL")

    def admit(self, prompt: Rendered, sampling: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the sampling values of the recorded request whose turn it is; refuses values that none had."""
        return self._answers.choose(prompt.text, sampling).sampling

    def add(self, request: EngineRequest) -> None:
        """Begin to play the recorded request that `admit` chose."""
        record = self._answers.chosen(request.prompt.text, request.sampling)
        events: dict[int, list[TokenEvent]] = {}
        for sample in record.samples:
            for event in sample.events:
                events.setdefault(event.step, []).append(event)
        steps = self._places[record.request_id]
        self._open[request.request_id] = _Playing(request.request_id, record, steps, events, self._clock())

    def abort(self, request_ids: Collection[str]) -> None:
        """Drop requests."""
        for request_id in request_ids:
            self._open.pop(request_id, None)

    def step(self) -> StepResult:
        """Play the earliest recorded step that an open request has not had, or wait for it for a while."""
        if not self._open:
            return StepResult()
        place = min(playing.steps[playing.at] for playing in self._open.values())
        recorded = self._run.steps[place]
        now: dict[str, _Playing] = {}
        for playing in self._open.values():  # the same one twice is played one after the other
            if playing.steps[playing.at] == place:
                now.setdefault(playing.record.request_id, playing)
        begun_ns = max(self._end_ns, *(playing.due_ns(recorded) for playing in now.values()))
        if (wait_ns := begun_ns - self._clock()) > 0:
            self._sleep(min(wait_ns, WAIT_NS))
            return StepResult()  # whoever came meanwhile is in it, or is gone
        step = self._shifted(recorded, begun_ns - recorded.start_ns, now)
        while (wait_ns := step.end_ns - self._clock()) > 0:
            self._sleep(min(wait_ns, WAIT_NS))
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

    def bandwidth(self) -> None:
        """Return None: nothing is computed."""

    def set_limits(self, limits: Limits | None) -> None:
        """Refuse: the steps are those that were recorded."""
        if limits is not None:
            raise ConfigError(
                "a replay plays the steps that were recorded; to change limits, load a model: %infer load"
            )

    def reset_prefix_cache(self) -> bool:
        """Do nothing: what was found in the cache was recorded."""
        return not self._open

    def close(self) -> None:
        """End."""
        self._open.clear()

    def _shifted(self, step: StepRecord, by_ns: int, now: Mapping[str, _Playing]) -> StepRecord:
        """Return a step at its time and with the names of the replay; who is not asked keeps another name."""
        elsewhere = {playing.record.request_id for playing in self._open.values()} - set(now)

        def named(name: str) -> str:
            return now[name].request_id if name in now else f"{name} of the recording"

        # Whoever is open but had this step before has it no second time.
        kept = [item for item in step.work if item.request_id not in elsewhere]
        self._names |= {item.request_id: named(item.request_id) for item in kept}
        freed = [  # also of who is over: under the name that it had
            (named(name) if name in now else self._names.get(name, named(name)), sample)
            for name, sample in step.freed
            if name not in elsewhere
        ]
        return replace(
            step,
            index=self._index,
            scheduled_ns=step.scheduled_ns + by_ns,
            planned_ns=step.planned_ns + by_ns,
            start_ns=step.start_ns + by_ns,
            computed_ns=step.computed_ns + by_ns,
            end_ns=step.end_ns + by_ns,
            work=tuple(msgspec.structs.replace(item, request_id=named(item.request_id)) for item in kept),
            preempted=tuple((named(name), sample) for name, sample in step.preempted if name not in elsewhere),
            freed=tuple(freed),
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
                event.logprobs,
            )
        if playing.at == len(playing.steps):
            for sample in record.samples:
                if sample.index not in playing.given:
                    yield SampleOutput(playing.request_id, sample.index, finish_reason=sample.finish_reason)


def _places(run: Run) -> dict[str, list[int]]:
    """Return the places of the steps that computed something of each request, gave it something or preempted it."""
    given: dict[int, set[str]] = {}
    for record in run.requests:
        for sample in record.samples:
            for event in sample.events:
                given.setdefault(event.step, set()).add(record.request_id)
    places: dict[str, list[int]] = {record.request_id: [] for record in run.requests}
    for place, step in enumerate(run.steps):
        names = {work.request_id for work in step.work} | {name for name, _ in step.preempted}
        for name in (names | given.get(step.index, set())) & places.keys():
            places[name].append(place)
    return places
