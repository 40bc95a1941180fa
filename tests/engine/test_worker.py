"""The owner of the engine: each event reaches its own request; no error, cancel or unload leaves anybody waiting."""

from __future__ import annotations

import asyncio
import gc
import itertools
import random
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from gate import WAIT, Gate

from jupyter_infer.engine import worker as worker_module
from jupyter_infer.engine.messages import Submission
from jupyter_infer.engine.protocol import EngineRequest, StepResult
from jupyter_infer.engine.scripted import Script, ScriptedEngine
from jupyter_infer.engine.worker import EngineWorker
from jupyter_infer.errors import EngineBusy, EngineFailed, EngineNotLoaded, ModelError, PromptError
from jupyter_infer.handle import RequestHandle
from jupyter_infer.records import LoadStage


def prepared(build: Callable[[Any], ScriptedEngine]) -> Callable[[Any], Callable[[Any], ScriptedEngine]]:
    """Return what fetches nothing and builds with `build`."""
    return lambda progress: build


class Desk:
    """A worker with a scripted engine, and the handles of what was handed to it."""

    def __init__(self) -> None:
        self.worker = EngineWorker()
        self.engines: list[ScriptedEngine] = []
        self.ids = itertools.count(1)

    def load(self, script: Script | None = None, *, sleep: Callable[[int], None] = lambda ns: None) -> ScriptedEngine:
        def build(progress: Callable[[LoadStage], None]) -> ScriptedEngine:
            for stage in ("import", "config", "weights"):
                progress(LoadStage(stage))
            self.engines.append(ScriptedEngine(script or Script(), sleep=sleep))
            return self.engines[-1]

        return self.worker.load(prepared(build), lambda stage: None).wait(WAIT)

    def prepare(self, prompt: str = "Hi", **sampling: Any) -> Submission:
        request_id = f"r{next(self.ids)}"
        rendered = self.engines[-1].render(prompt)
        request = EngineRequest(
            request_id, rendered.text, rendered, {"max_tokens": 256, **sampling}, int(sampling.get("n", 1))
        )
        return Submission(request, 0, None, RequestHandle(request_id, lambda: self.worker.cancel(request_id)))

    def submit(self, prompt: str = "Hi", **sampling: Any) -> RequestHandle:
        submission = self.prepare(prompt, **sampling)
        self.worker.submit(submission)
        return submission.sink


@pytest.fixture
def desk(no_engine_threads: None) -> Iterator[Desk]:
    made = Desk()
    yield made
    made.worker.unload().wait(WAIT)


def count(prompt: str) -> list[str]:
    return [f"{prompt}:{number} " for number in range(100)]


LONG = Script(answer=count)


# Loading.


def test_a_load_tells_its_stages_in_order_on_the_owners_thread(desk: Desk) -> None:
    seen: list[tuple[str, str]] = []

    def build(progress: Callable[[LoadStage], None]) -> ScriptedEngine:
        for stage in ("import", "config", "weights", "KV pool", "warm-up"):
            progress(LoadStage(stage))
        return ScriptedEngine()

    engine = desk.worker.load(
        prepared(build), lambda stage: seen.append((stage.stage, threading.current_thread().name))
    ).wait(WAIT)
    assert [stage for stage, _ in seen] == ["import", "config", "weights", "KV pool", "warm-up", "ready"]
    assert {thread for _, thread in seen} == {"jupyter-infer-engine"}
    assert desk.worker.engine is engine


def test_a_second_load_closes_the_first_engine_before_it_builds(desk: Desk) -> None:
    first = desk.load()
    closed: list[bool] = []

    def build(progress: object) -> ScriptedEngine:
        closed.append(first.closed)  # memory for two is not there
        return ScriptedEngine()

    second = desk.worker.load(prepared(build), lambda stage: None).wait(WAIT)
    assert closed == [True]
    assert desk.worker.engine is second


def test_a_load_that_fails_says_why_and_leaves_no_engine(desk: Desk) -> None:
    def build(progress: object) -> ScriptedEngine:
        raise ModelError("the weights are broken")

    with pytest.raises(ModelError, match="the weights are broken"):
        desk.worker.load(prepared(build), lambda stage: None).wait(WAIT)
    assert desk.worker.engine is None
    desk.load()
    assert desk.submit().record(WAIT).finish_reason == "stop"


def test_a_half_built_engine_is_not_kept_alive_by_its_error(desk: Desk) -> None:
    class Weights:
        pass

    kept: list[weakref.ref[Weights]] = []

    def allocate() -> None:
        weights = Weights()
        kept.append(weakref.ref(weights))
        raise RuntimeError("out of memory")

    def build(progress: object) -> ScriptedEngine:
        try:
            allocate()
        except RuntimeError:
            raise ModelError("it does not fit") from None  # which keeps the other one behind it all the same

    reply = desk.worker.load(prepared(build), lambda stage: None)
    with pytest.raises(ModelError) as caught:
        reply.wait(WAIT)
    gc.collect()
    assert caught.value is not None
    assert kept[0]() is None


def test_a_load_is_refused_while_requests_run_and_they_go_on(desk: Desk) -> None:
    gate = Gate()
    engine = desk.load(LONG, sleep=gate.sleep)
    handle = desk.submit()
    gate.wait()
    reply = desk.worker.load(prepared(lambda progress: ScriptedEngine()), lambda stage: None)
    gate.open()
    with pytest.raises(EngineBusy, match="1 requests still run; type %infer stop"):
        reply.wait(WAIT)
    assert desk.worker.engine is engine
    assert handle.record(WAIT).output_tokens == 100


# Steps.


def test_requests_handed_over_together_are_in_one_first_step(desk: Desk) -> None:
    desk.load(LONG)
    batch = [desk.prepare(f"p{number}", max_tokens=2) for number in range(8)]
    desk.worker.submit(*batch)
    for submission in batch:
        submission.sink.record(WAIT)
    first = next(step for step in desk.worker.steps if step.work)
    assert [work.request_id for work in first.work] == [submission.request.request_id for submission in batch]


def test_a_cancelled_request_keeps_what_it_had_and_the_next_one_sees_only_its_own(desk: Desk) -> None:
    gate = Gate()
    engine = desk.load(LONG, sleep=gate.sleep)
    first = desk.submit("first")
    gate.let(5)
    seen = list(itertools.islice(first, 5))
    first.cancel()
    gate.open()
    record = first.record(WAIT)
    assert record.finish_reason == "abort"
    assert record.samples[0].events[:5] == tuple(seen)
    assert record.output_tokens == 6  # the step that ran when it was cancelled gave the last one
    assert list(first) == list(record.samples[0].events)
    second = desk.submit("second", max_tokens=5)
    assert {event.request_id for event in second} == {second.request_id}
    assert second.record().samples[0].text == "second:0 second:1 second:2 second:3 second:4 "
    assert desk.worker.ask(lambda engine: engine.kv_blocks_free()).wait(WAIT) == 256
    assert not engine.has_unfinished()


def test_an_abort_reaches_the_engine_before_its_next_step(desk: Desk) -> None:
    gate = Gate()
    engine = desk.load(LONG, sleep=gate.sleep)
    handles = [desk.submit() for _ in range(3)]
    gate.let(1)  # all three are in now
    for handle in handles:
        handle.cancel()
    calls = len(engine.calls)  # the step at the gate is among them
    gate.open()
    for handle in handles:
        handle.record(WAIT)
    assert engine.calls[calls : calls + 3] == [("abort", (handle.request_id,)) for handle in handles]


def test_with_two_steps_in_flight_an_abort_leaves_at_most_one_to_run_out(desk: Desk) -> None:
    gate = Gate()
    engine = desk.load(Script(answer=count, in_flight=2), sleep=gate.sleep)
    handle = desk.submit()
    gate.wait()
    handle.cancel()
    calls = len(engine.calls)
    gate.open()
    handle.record(WAIT)
    desk.worker.ask(lambda engine: None).wait(WAIT)
    assert [call for call, _ in engine.calls[calls:]].count("step") <= 1
    assert engine.kv_blocks_free() == 256


def test_cancelling_what_is_over_or_unknown_does_nothing(desk: Desk) -> None:
    desk.load()
    handle = desk.submit()
    record = handle.record(WAIT)
    handle.cancel()
    desk.worker.cancel("unknown")
    assert desk.submit().record(WAIT).finish_reason == "stop"
    assert handle.record() is record


def test_stop_ends_all_and_says_how_many(desk: Desk) -> None:
    gate = Gate()
    desk.load(LONG, sleep=gate.sleep)
    handles = [desk.submit(f"p{number}") for number in range(3)]
    gate.wait()
    reply = desk.worker.stop()
    gate.open()
    assert reply.wait(WAIT) == 3
    assert {handle.record(WAIT).finish_reason for handle in handles} == {"abort"}
    assert desk.worker.open_requests == 0
    assert desk.worker.stop().wait(WAIT) == 0


def test_a_request_that_the_engine_refuses_fails_alone(desk: Desk) -> None:
    engine = desk.load(LONG)

    def add(request: EngineRequest, add: Callable[[EngineRequest], None] = engine.add) -> None:
        if request.request_id == "r2":
            raise PromptError("not this one")
        add(request)

    engine.add = add  # type: ignore[method-assign]
    batch = [desk.prepare(max_tokens=2) for _ in range(3)]
    desk.worker.submit(*batch)
    first, second, third = (submission.sink for submission in batch)
    with pytest.raises(PromptError, match="not this one"):
        second.record(WAIT)
    assert first.record(WAIT).output_tokens == third.record(WAIT).output_tokens == 2


def test_text_that_an_async_scheduler_has_not_given_yet_is_waited_for(desk: Desk) -> None:
    desk.load(Script(answer=count, in_flight=2))
    assert desk.submit(max_tokens=7).record(WAIT).samples[0].text == "".join(count("Hi")[:7])


# The watchdog.


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "STUCK_AFTER", 20)
    monkeypatch.setattr(worker_module, "IDLE_S", 0)


@pytest.mark.usefixtures("impatient")
def test_a_request_that_never_fits_is_ended_in_one_line_and_those_behind_it_run(desk: Desk) -> None:
    """A pool of 40 blocks of 32 tokens, a context above it and a prompt between the two."""
    desk.load(Script(answer=count, blocks=40, block_size=32, max_model_len=4096))
    stuck, behind = desk.prepare("word " * 2000), desk.prepare("Hi", max_tokens=2)
    desk.worker.submit(stuck, behind)
    with pytest.raises(PromptError) as caught:
        stuck.sink.record(WAIT)
    assert str(caught.value) == (
        "this request cannot run: the scheduler finds no place for it; shorten it, or load a larger KV pool"
    )
    assert behind.sink.record(WAIT).output_tokens == 2
    assert desk.worker.ask(lambda engine: engine.kv_blocks_free()).wait(WAIT) == 40


@pytest.mark.usefixtures("impatient")
def test_an_answer_that_outgrows_the_pool_is_ended(desk: Desk) -> None:
    desk.load(Script(answer=count, blocks=4, block_size=8))
    handle = desk.submit("word " * 10)
    with pytest.raises(PromptError, match="cannot run"):
        handle.record(WAIT)
    assert handle.events_after(0)  # what it had said until then stays
    assert desk.submit(max_tokens=3).record(WAIT).output_tokens == 3


@pytest.mark.usefixtures("impatient")
def test_an_engine_that_computes_the_same_again_and_again_gets_nobody_further(desk: Desk) -> None:
    """Work that only makes up for lost KV is no progress."""
    engine = desk.load(Script(answer=count, blocks=4, block_size=8, token_budget=16))
    # A scheduler that starts what does not fit, loses it, and starts again.
    engine._blocks = lambda tokens: min(4, -(-tokens // 8)) if tokens > 32 else -(-tokens // 8)  # type: ignore[method-assign]
    reserve = engine._reserve
    engine._reserve = lambda sequence, tokens: (  # type: ignore[method-assign]
        reserve(sequence, tokens) if sequence.computed + tokens <= 32 else None
    )
    with pytest.raises(PromptError, match="cannot run"):
        desk.submit("word " * 40).record(WAIT)


def test_a_request_that_waits_for_its_turn_is_not_given_up(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "STUCK_AFTER", 20)
    desk.load(Script(answer=count, blocks=4, block_size=32))
    first, second = desk.submit("word " * 20), desk.submit("word " * 100, max_tokens=2)
    assert second.record(WAIT).output_tokens == 2
    assert first.record(WAIT).output_tokens == 100


# Failures.


def test_an_engine_that_breaks_tells_everybody_and_the_next_load_works(desk: Desk) -> None:
    desk.load(Script(answer=count, fail_at_step=3))
    batch = [desk.prepare(f"p{number}") for number in range(3)]
    desk.worker.submit(*batch)
    for submission in batch:
        with pytest.raises(EngineFailed) as caught:
            submission.sink.record(WAIT)
        assert "\n" not in str(caught.value)
        assert "the engine stopped: RuntimeError: scripted failure" in str(caught.value)
        assert isinstance(caught.value.__cause__, RuntimeError)  # a fault of ours keeps its traceback
        assert len(submission.sink.events_after(0)) == 3
    assert desk.worker.engine is None
    assert desk.engines[0].closed
    desk.load()
    assert desk.submit().record(WAIT).finish_reason == "stop"


def test_a_broken_engine_is_not_kept_alive_by_its_error(desk: Desk) -> None:
    class Tensors:
        pass

    kept: list[weakref.ref[Tensors]] = []
    engine = desk.load(LONG)

    def breaking() -> StepResult:
        tensors = Tensors()
        kept.append(weakref.ref(tensors))
        raise RuntimeError("kernel died")

    engine.step = breaking  # type: ignore[method-assign]
    handle = desk.submit()
    with pytest.raises(EngineFailed) as caught:
        handle.record(WAIT)
    gc.collect()
    assert caught.value.__cause__.__traceback__ is not None  # the lines are there to read, without what they held
    assert kept[0]() is None


def test_an_engine_that_breaks_in_an_abort_tells_everybody_too(desk: Desk) -> None:
    gate = Gate()
    engine = desk.load(LONG, sleep=gate.sleep)
    first, second = desk.submit(), desk.submit()
    gate.wait()

    def breaking(request_ids: object) -> None:
        raise RuntimeError("cannot abort")

    engine.abort = breaking  # type: ignore[method-assign]
    first.cancel()
    gate.open()
    for handle in (first, second):
        with pytest.raises(EngineFailed, match="cannot abort"):
            handle.record(WAIT)
    desk.load()
    assert desk.submit().record(WAIT).finish_reason == "stop"


def test_an_engine_that_cannot_be_closed_is_dropped(desk: Desk) -> None:
    engine = desk.load(Script(fail_at_step=0))

    def breaking() -> None:
        raise RuntimeError("cannot close")

    engine.close = breaking  # type: ignore[method-assign]
    with pytest.raises(EngineFailed, match="scripted failure"):
        desk.submit().record(WAIT)
    assert desk.worker.engine is None


def test_without_an_engine_a_request_and_a_question_are_refused(desk: Desk) -> None:
    desk.engines.append(ScriptedEngine())
    with pytest.raises(EngineNotLoaded, match="type %infer load"):
        desk.submit().record(WAIT)
    with pytest.raises(EngineNotLoaded):
        desk.worker.ask(lambda engine: engine.info).wait(WAIT)
    assert (desk.worker.busy_ns, desk.worker.unattributed_ns) == (0, 0)


def test_a_question_that_fails_is_answered_with_its_error(desk: Desk) -> None:
    desk.load()
    with pytest.raises(ZeroDivisionError):
        desk.worker.ask(lambda engine: 1 / 0).wait(WAIT)
    assert desk.submit().record(WAIT).finish_reason == "stop"


def test_a_reply_can_be_waited_for_in_pieces(desk: Desk) -> None:
    gate = Gate()
    desk.load(LONG, sleep=gate.sleep)
    desk.submit()
    gate.wait()
    reply = desk.worker.ask(lambda engine: 7)
    with pytest.raises(TimeoutError):
        reply.wait(0)
    assert not reply.answered
    gate.open()
    assert reply.wait(WAIT) == 7
    assert reply.answered


# Unloading.


def test_unload_while_it_generates_ends_the_requests_and_the_thread(desk: Desk) -> None:
    gate = Gate()
    engine = desk.load(LONG, sleep=gate.sleep)
    handles = [desk.submit(f"p{number}") for number in range(3)]
    gate.wait()
    thread = desk.worker._thread
    reply = desk.worker.unload()
    gate.open()
    reply.wait(WAIT)
    assert {handle.record(WAIT).finish_reason for handle in handles} == {"abort"}
    assert engine.closed
    assert desk.worker.engine is None
    thread.join(WAIT)
    assert not thread.is_alive()


def test_after_an_unload_everything_can_begin_again(desk: Desk) -> None:
    for _ in range(3):
        desk.load()
        assert desk.submit().record(WAIT).finish_reason == "stop"
        desk.worker.unload().wait(WAIT)
    desk.worker.unload().wait(WAIT)  # nothing is there, and nothing is wrong
    assert all(engine.closed for engine in desk.engines)


# All at once.


@pytest.mark.parametrize("in_flight", [1, 2])
def test_every_event_reaches_its_own_request_whoever_cancels_what(desk: Desk, in_flight: int) -> None:
    """64 requests from 8 threads, a third of them cancelled at a random moment, in a pool that is too small for all.

    The scripted engine asserts that one thread owns it.
    """
    desk.load(Script(answer=count, blocks=40, block_size=8, token_budget=64, in_flight=in_flight))
    start = threading.Barrier(8)
    done: list[tuple[str, int, RequestHandle, bool]] = []

    def client(number: int) -> None:
        draw = random.Random(number)
        start.wait()
        for turn in range(8):
            prompt, limit = f"c{number}t{turn}", draw.randint(1, 40)
            cancelled = draw.random() < 1 / 3
            handle = desk.submit(prompt, max_tokens=limit)
            if cancelled:
                list(itertools.islice(handle, draw.randint(0, 10)))
                handle.cancel()
            done.append((prompt, limit, handle, cancelled))

    clients = [threading.Thread(target=client, args=(number,)) for number in range(8)]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join(WAIT)
    assert len(done) == 64
    shared = 0
    for prompt, limit, handle, cancelled in done:
        record = handle.record(WAIT)
        (sample,) = record.samples
        assert record.request_id == handle.request_id
        assert list(handle) == list(sample.events)  # none lost, none twice, in order
        assert sample.text == "".join(count(prompt)[: record.output_tokens])
        assert [event.time_ns for event in sample.events] == sorted(event.time_ns for event in sample.events)
        assert record.output_tokens == limit or (cancelled and record.finish_reason == "abort")
        shared += record.shared_ns or 0
    worker = desk.worker
    worker.ask(lambda engine: None).wait(WAIT)
    assert shared + worker.unattributed_ns == worker.busy_ns == sum(step.duration_ns for step in worker.steps)
    assert worker.open_requests == 0
    assert worker.ask(lambda engine: engine.kv_blocks_free()).wait(WAIT) == 40


def test_a_listener_that_fails_does_not_take_the_engine_with_it(desk: Desk) -> None:
    desk.load()
    handle = desk.submit()
    handle.when_done(lambda: 1 / 0)
    handle.record(WAIT)
    assert desk.submit().record(WAIT).finish_reason == "stop"


def test_a_worker_without_an_engine_is_dismissed_without_a_thread() -> None:
    worker = EngineWorker()
    worker.dismiss()
    assert worker._thread is None


def test_nothing_is_started_while_the_interpreter_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = EngineWorker()
    worker._thread = threading.Thread()  # it had one
    monkeypatch.setattr(sys, "is_finalizing", lambda: True)
    worker.dismiss()
    assert worker._inbox.empty()


@pytest.mark.parametrize("how", ["stop", "unload"])
def test_an_engine_that_cannot_abort_is_dropped_and_everybody_is_told(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    gate = Gate()
    engine = desk.load(LONG, sleep=gate.sleep)
    handles = [desk.submit(), desk.submit()]
    gate.wait()

    def breaking(request_ids: object) -> None:
        raise RuntimeError("cannot abort")

    monkeypatch.setattr(engine, "abort", breaking)
    reply = getattr(desk.worker, how)()
    gate.open()
    assert reply.wait(WAIT) == (2 if how == "stop" else None)
    for handle in handles:
        with pytest.raises(EngineFailed, match="cannot abort"):
            handle.record(WAIT)
    assert not desk.worker.occupied
    desk.load()
    assert desk.submit().record(WAIT).finish_reason == "stop"


def test_an_error_that_cannot_say_what_it_is_leaves_nobody_waiting(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    def step() -> None:
        raise Silent

    engine = desk.load(LONG)
    monkeypatch.setattr(engine, "step", step)
    with pytest.raises(EngineFailed, match="the engine stopped: Silent;"):
        desk.submit().record(WAIT)


def test_a_listener_whatever_it_raises_keeps_nobody_else_from_its_end(desk: Desk) -> None:
    gate = Gate()
    desk.load(sleep=gate.sleep)
    submissions = [desk.prepare(), desk.prepare()]

    def cancelled() -> None:
        raise asyncio.CancelledError

    submissions[0].sink.when_done(cancelled)  # type: ignore[attr-defined]
    desk.worker.submit(*submissions)
    gate.open()
    for submission in submissions:
        assert submission.sink.record(WAIT).finish_reason == "stop"  # type: ignore[attr-defined]
    assert desk.worker.engine is not None


def test_an_engine_is_there_until_it_is_closed(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, closing, go = desk.load(), threading.Event(), threading.Event()

    def close() -> None:
        closing.set()
        assert go.wait(WAIT)

    monkeypatch.setattr(engine, "close", close)
    reply = desk.worker.unload()
    assert closing.wait(WAIT)
    assert (desk.worker.engine, desk.worker.occupied, desk.worker.leaving) == (None, True, True)
    go.set()
    reply.wait(WAIT)
    assert (desk.worker.occupied, desk.worker.leaving) == (False, False)
