"""A session: loads once for all who ask, answers, refuses one by one, and forgets nothing of what it measured."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import itertools
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from gate import WAIT, Gate

from jupyter_infer import loading as loading_module
from jupyter_infer import session as session_module
from jupyter_infer.engine import worker as worker_module
from jupyter_infer.engine.scripted import Script, ScriptedEngine
from jupyter_infer.errors import ConfigError, EngineBusy, EngineFailed, EngineNotLoaded, ModelError, PromptError
from jupyter_infer.handle import RequestHandle
from jupyter_infer.pricing import MachinePrice
from jupyter_infer.records import EngineInfo, Limits, LoadStage
from jupyter_infer.result import Refused, Result
from jupyter_infer.results import Results
from jupyter_infer.session import Session, current_session

Make = Callable[..., Session]


def count(prompt: str) -> list[str]:
    return [f"{prompt}:{number} " for number in range(100)]


LONG = Script(answer=count, step_ns=lambda tokens: 1000)


@pytest.fixture
def gated(scripted_session: Make) -> Iterator[tuple[Session, Gate]]:
    """A loaded session whose steps stand at a gate; opened at the end."""
    gate = Gate()
    session = scripted_session(LONG, sleep=gate.sleep)
    session.load()
    yield session, gate
    gate.open()


def handed_in(session: Session) -> None:
    """Wait until a message lies in the worker's inbox, for a worker that stands at the gate."""
    deadline = time.monotonic() + WAIT
    while session._worker._inbox.empty():
        assert time.monotonic() < deadline, "nothing was handed in"
        time.sleep(0.001)


# Asking.


def test_one_prompt_is_one_result(session: Session) -> None:
    result = session.generate("Why is the sky blue?", max_tokens=3)
    assert isinstance(result, Result)
    assert result.text == "Hello, world"
    assert result.finish_reason == "length"
    assert (result.usage.prompt_tokens, result.usage.output_tokens) == (5, 3)
    assert result.record.sampling == {"max_tokens": 3}
    assert result.record.model == "scripted"


def test_the_first_request_loads_and_says_how_long_it_waited(session: Session) -> None:
    assert session.info is None
    first, second = session.generate("Hi"), session.generate("Hi")
    assert first.record.load_ns > 0
    assert second.record.load_ns is None
    assert len(session.engines) == 1
    times = first.phases
    assert times.queued_ns + times.prefill_ns + times.decode_ns == times.e2e_ns  # the load is in none of them


def test_a_moved_wall_clock_changes_nothing(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """`time.time` may jump at any moment; every figure is from the one monotonic clock."""
    jumps = itertools.count(0, 10**6)
    monkeypatch.setattr(time, "time", lambda: next(jumps))
    begun = time.monotonic_ns()
    times = session.generate("word " * 100, max_tokens=20).phases
    wall = time.monotonic_ns() - begun
    assert min(times.queued_ns, times.prefill_ns, times.decode_ns) >= 0
    assert times.e2e_ns <= wall


def test_a_list_of_prompts_is_one_batch(session: Session) -> None:
    session.load()
    results = session.generate(["a b", "c", "d e f"], max_tokens=1)
    assert isinstance(results, Results)
    assert [result.usage.prompt_tokens for result in results] == [2, 1, 3]
    first = next(step for step in session.steps if step.work)
    assert len(first.work) == 3  # the engine saw all of them before its first step


def test_an_empty_batch_is_no_result(session: Session) -> None:
    assert len(session.generate([])) == 0


def test_a_prompt_of_a_batch_that_is_too_long_is_refused_alone(scripted_session: Make) -> None:
    session = scripted_session(Script(max_model_len=8, step_ns=lambda tokens: 1000))
    long = "word " * 9
    first, refused, last = session.generate(["short one", long, "short two"], max_tokens=2)
    assert isinstance(refused, Refused)
    assert refused.prompt == long
    assert isinstance(refused.error, PromptError)
    assert "9 tokens" in str(refused.error)
    assert "8" in str(refused.error)
    assert (first.text, last.text) == ("Hello,", "Hello,")
    assert session.status().open_requests == 0
    assert len(session.history) == 2


@pytest.mark.parametrize(("tokens", "output"), [(7, 1), (6, 2)])
def test_the_limit_of_the_context_leaves_one_token(scripted_session: Make, tokens: int, output: int) -> None:
    session = scripted_session(Script(max_model_len=8, step_ns=lambda tokens: 1000))
    result = session.generate("word " * tokens)
    assert (result.usage.output_tokens, result.finish_reason) == (output, "length")
    assert "truncated at the context's end" in result.status


def test_a_request_that_the_engine_gives_up_is_refused_alone(
    scripted_session: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It passed every check, and the scheduler never finds a place for it."""
    monkeypatch.setattr(worker_module, "STUCK_AFTER", 10)
    session = scripted_session(Script(blocks=4, block_size=8, step_ns=lambda tokens: 1000))
    long = "word " * 40
    stuck, fine = session.generate([long, "Hi"])
    assert isinstance(stuck, Refused)
    assert stuck.prompt == long
    assert "cannot run" in str(stuck.error)
    assert fine.text == "Hello, world."


def test_one_prompt_that_is_refused_raises(session: Session) -> None:
    for prompt in ("", " \n"):
        with pytest.raises(PromptError, match="empty"):
            session.generate(prompt)
    with pytest.raises(ConfigError, match="did you mean 'max_tokens'"):
        session.generate("Hi", max_token=3)
    assert len(session.history) == 0
    assert session.generate("Hi").text == "Hello, world."


def test_a_conversation_is_read_as_one_prompt(session: Session) -> None:
    result = session.chat([{"role": "user", "content": "One."}, {"role": "assistant", "content": "Two."}])
    assert result.record.prompt == "One.\nTwo."


def test_a_system_message_stands_before_the_prompt(session: Session) -> None:
    assert session.generate("Hi", system="Be brief.").record.prompt == "Be brief.\nHi"
    assert session.chat([{"role": "user", "content": "Hi"}], system="Be brief.").record.prompt == "Be brief.\nHi"
    assert [r.record.prompt for r in session.generate(["a", "b"], system="S")] == ["S\na", "S\nb"]


def test_a_system_message_without_a_template_is_refused(session: Session) -> None:
    with pytest.raises(ConfigError, match="a system message needs the chat template"):
        session.generate("Hi", system="Be brief.", template=False)


def test_names_may_have_dashes(session: Session) -> None:
    assert session.generate("Hi", **{"max-tokens": 2}).usage.output_tokens == 2


def test_samples_are_one_request(session: Session) -> None:
    result = session.generate("One two three", n=3, max_tokens=2)
    assert result.texts == ("Hello,",) * 3
    assert (result.usage.prompt_tokens, result.usage.output_tokens) == (3, 6)


def test_a_handle_streams_what_the_result_has(session: Session) -> None:
    handle = session.submit("Hi")
    assert "".join(event.text for event in handle) == session.result(handle).text == "Hello, world."
    assert session.result(handle) is session.result(handle)  # in the history once
    assert len(session.history) == 1


def test_the_same_prompt_again_is_warm_in_whole_blocks(session: Session) -> None:
    prompt = " ".join(f"word{number}" for number in range(100))
    first, second = session.generate(prompt), session.generate(prompt)
    assert (first.usage.cached_tokens, second.usage.cached_tokens) == (0, 32 * (99 // 32))
    assert "warm: 96 cached" in second.status
    assert session.clear_cache()
    assert session.generate(prompt).usage.cached_tokens == 0


def test_equal_prompts_are_separate_requests(session: Session) -> None:
    results = session.generate(["Hi"] * 3)
    assert len({result.record.request_id for result in results}) == 3
    assert list(session.history) == list(results)


# The event loop.


async def test_an_answer_can_be_awaited(session: Session) -> None:
    results = await asyncio.gather(*(session.agenerate(f"p{n}", max_tokens=2) for n in range(5)))
    assert [result.record.prompt for result in results] == [f"p{n}" for n in range(5)]


async def test_a_refusal_is_raised_where_it_is_awaited(session: Session) -> None:
    with pytest.raises(PromptError):
        await session.agenerate("")


async def test_cancelling_the_task_aborts_the_request(
    gated: tuple[Session, Gate], monkeypatch: pytest.MonkeyPatch
) -> None:
    session, gate = gated
    submitted: list[RequestHandle] = []
    submit = session.submit
    monkeypatch.setattr(session, "submit", lambda *a, **o: submitted.append(submit(*a, **o)) or submitted[-1])
    task = asyncio.create_task(session.agenerate("Hi"))
    await asyncio.to_thread(gate.wait)
    while not submitted:
        await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.to_thread(handed_in, session)
    gate.open()
    record = await asyncio.to_thread(submitted[0].record, WAIT)
    assert (record.finish_reason, record.output_tokens) == ("abort", 1)


def test_cancelling_the_task_while_it_loads_aborts_the_request_when_it_comes(scripted_session: Make) -> None:
    session = scripted_session(LONG)
    loading, go = threading.Event(), threading.Event()
    build = session._factory

    def slow(*wanted: Any) -> Any:
        loading.set()
        assert go.wait(WAIT)
        return build(*wanted)

    session._factory = slow
    submitted: list[RequestHandle] = []
    submit = session.submit
    session.submit = lambda *args, **options: submitted.append(submit(*args, **options)) or submitted[-1]  # type: ignore[method-assign]

    async def main() -> None:
        task = asyncio.create_task(session.agenerate("Hi"))
        await asyncio.to_thread(loading.wait, WAIT)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go.set()

    asyncio.run(main())  # which waits for the thread that loads
    (handle,) = submitted
    assert handle.record(WAIT).finish_reason == "abort"


def test_a_loop_that_is_closed_before_the_end_harms_nobody(
    gated: tuple[Session, Gate], caplog: pytest.LogCaptureFixture
) -> None:
    session, gate = gated

    async def main() -> None:
        asyncio.create_task(session.agenerate("Hi"))  # noqa: RUF006 - nobody waits for it
        await asyncio.to_thread(gate.wait)

    asyncio.run(main())
    gate.open()
    assert session.generate("next", max_tokens=1).text == "next:0 "
    assert caplog.records == []


# Stopping.


def test_stop_ends_everything_and_counts_it(gated: tuple[Session, Gate]) -> None:
    session, gate = gated
    handles = session.submit_batch(["a", "b"])
    gate.let(3)
    with ThreadPoolExecutor(1) as pool:
        stopped = pool.submit(session.stop)
        handed_in(session)
        gate.open()
        assert stopped.result(WAIT) == 2
    results = session.result(handles)
    assert {result.finish_reason for result in results} == {"abort"}
    assert session.generate("next", max_tokens=2).text == "next:0 next:1 "


def test_an_interrupt_while_waiting_aborts_and_goes_on_as_an_interrupt(gated: tuple[Session, Gate]) -> None:
    session, gate = gated
    handle = session.submit("first")
    gate.let(5)

    class Interrupting(RequestHandle):
        """The front end interrupts while the main thread waits."""

        def record(self, timeout: float | None = None) -> Any:
            raise KeyboardInterrupt

    handle.__class__ = Interrupting
    with pytest.raises(KeyboardInterrupt):
        session.result(handle)
    gate.open()
    handle.__class__ = RequestHandle
    record = handle.record(WAIT)
    assert record.finish_reason == "abort"
    assert record.output_tokens == 6
    assert session.result(handle).status.startswith("■")
    after = session.generate("second", max_tokens=5)
    assert after.text == "second:0 second:1 second:2 second:3 second:4 "
    assert session.status().kv_blocks_free == session.info.kv_blocks_total


def test_an_interrupt_of_a_batch_aborts_all_of_it(gated: tuple[Session, Gate], monkeypatch: pytest.MonkeyPatch) -> None:
    session, gate = gated
    handles = session.submit_batch(["a", "b", "c"])
    gate.let(2)
    record = RequestHandle.record

    def interrupted(handle: RequestHandle, timeout: float | None = None) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(RequestHandle, "record", interrupted)
    with pytest.raises(KeyboardInterrupt):
        session.result(handles)
    monkeypatch.setattr(RequestHandle, "record", record)
    gate.open()
    assert {handle.record(WAIT).finish_reason for handle in handles} == {"abort"}


# Loading.


def test_a_load_is_done_once(session: Session) -> None:
    stages: list[str] = []
    info = session.load(progress=lambda stage: stages.append(stage.stage))
    assert stages == ["model", "ready"]
    assert session.load() is not None
    assert session.load("scripted") == info
    assert len(session.engines) == 1


def test_stages_are_told_on_the_callers_thread(scripted_session: Make) -> None:
    session = scripted_session()
    build = session._factory("scripted", {}, lambda stage: None)

    def slow(progress: Any) -> ScriptedEngine:
        for stage in ("import", "config", "weights"):
            progress(LoadStage(stage))
        return build(progress)

    session._factory = lambda *wanted: slow
    told: list[tuple[str, threading.Thread]] = []
    session.load(progress=lambda stage: told.append((stage.stage, threading.current_thread())))
    assert [stage for stage, _ in told] == ["model", "import", "config", "weights", "ready"]
    assert {thread for _, thread in told} == {threading.current_thread()}


def test_other_settings_load_again_and_replace_the_ones_before(session: Session) -> None:
    wanted: list[tuple[str, dict[str, Any]]] = []
    build = session._factory

    def noting(model: str, settings: dict[str, Any], progress: Any) -> Any:
        wanted.append((model, dict(settings)))
        return build(model, settings, progress)

    session._factory = noting
    session.load(max_model_len=64)
    session.load(max_model_len=64)
    session.load(block_size=32)
    session.load()  # keeps the present ones
    session.load("other")
    assert wanted == [
        ("scripted", {"max_model_len": 64}),
        ("scripted", {"block_size": 32}),
        ("other", {}),
    ]


@pytest.mark.parametrize(("notice", "loads"), [("not compiled: no g++", 2), ("compiled (torch.compile)", 1)])
def test_a_load_that_could_not_compile_is_tried_again_when_it_is_typed_again(
    session: Session, notice: str, loads: int
) -> None:
    built: list[ScriptedEngine] = []

    class Told(ScriptedEngine):
        @property
        def info(self) -> EngineInfo:
            return dataclasses.replace(super().info, notices=(notice,))

    def build(*wanted: Any) -> Any:
        return lambda on_worker: built.append(Told()) or built[-1]

    session._factory = build
    session.load(compile=True)
    session.load(compile=True)
    assert len(built) == loads
    session.load()
    session.generate("Hi")
    assert len(built) == loads  # nobody asks for it again


def test_a_load_that_is_refused_before_it_begins_keeps_the_engine(session: Session) -> None:
    session.load()
    build = session._factory

    def picky(model: str, settings: dict[str, Any], progress: Any) -> Any:
        if model != "scripted":
            raise ModelError("unknown model 'smolm2'; did you mean 'smollm2'?")
        return build(model, settings, progress)

    session._factory = picky
    with pytest.raises(ModelError, match="did you mean"):
        session.load("smolm2")
    assert session.generate("Hi").record.load_ns is None
    assert len(session.engines) == 1


def test_a_load_that_fails_on_the_way_leaves_the_model_before_to_come_back(session: Session) -> None:
    session.load()
    build = session._factory

    def broken(model: str, settings: dict[str, Any], progress: Any) -> Any:
        def fail(on_worker: Any) -> ScriptedEngine:
            raise ModelError("its weights are broken")

        return build(model, settings, progress) if model == "scripted" else fail

    session._factory = broken
    with pytest.raises(ModelError, match="broken"):
        session.load("broken")
    assert session.status().state == "unloaded"
    assert session.generate("Hi").text == "Hello, world."  # the model before, loaded again
    assert len(session.engines) == 2


def test_loads_from_two_threads_share_one(scripted_session: Make) -> None:
    session = scripted_session()
    preparing, go = threading.Event(), threading.Event()
    prepared: list[str] = []
    build = session._factory

    def slow(model: str, settings: Any, progress: Any) -> Any:
        prepared.append(model)
        preparing.set()
        assert go.wait(WAIT)  # a download, perhaps
        return build(model, settings, progress)

    session._factory = slow
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(session.load)
        assert preparing.wait(WAIT)
        others = [pool.submit(session.load), pool.submit(session.generate, "Hi")]
        go.set()
        first.result(WAIT)
        for other in others:
            other.result(WAIT)
    assert prepared == ["scripted"]
    assert len(session.engines) == 1


def test_a_load_while_a_request_runs_is_refused_and_nothing_is_forgotten(gated: tuple[Session, Gate]) -> None:
    session, gate = gated
    handle = session.submit("Hi")
    gate.wait()
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(session.load, "other")
        handed_in(session)
        gate.open()
        with pytest.raises(EngineBusy, match="requests still run"):
            other.result(WAIT)
    assert session.result(handle).usage.output_tokens == 100
    session.load()
    assert len(session.engines) == 1  # what is loaded is still known


def interrupted_load(session: Session, model: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Load, and interrupt while the worker builds; the build goes on and comes to its end."""

    class Interrupted(Exception):
        pass

    def interrupt(self: object, progress: object) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(loading_module.Loading, "wait", interrupt)
        with pytest.raises(KeyboardInterrupt):
            session.load(model)
    assert session._loading is not None
    session._loading.reply.wait(WAIT)


def test_after_an_interrupted_load_the_session_knows_what_is_there(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted: list[str] = []
    build = session._factory

    def noting(model: str, settings: Any, progress: Any) -> Any:
        wanted.append(model)
        return build(model, settings, progress)

    session._factory = noting
    session.load()
    interrupted_load(session, "other", monkeypatch)
    assert session.status().state == "idle"  # not loading for ever
    session.load("scripted")
    assert wanted == ["scripted", "other", "scripted"]  # the other one was there, and is replaced
    interrupted_load(session, "other", monkeypatch)
    session.load("other")
    assert wanted == ["scripted", "other", "scripted", "other"]  # it was loaded, and is taken as it is


def test_a_first_load_that_was_interrupted_is_used_by_the_next_request(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted_load(session, None, monkeypatch)
    assert session.generate("Hi").text == "Hello, world."
    assert len(session.engines) == 1


def test_a_load_that_failed_after_an_interrupt_is_tried_again(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = session._factory
    failures = iter([ModelError("the disk is full")])

    def failing_once(model: str, settings: Any, progress: Any) -> Any:
        def run(on_worker: Any) -> Any:
            if error := next(failures, None):
                raise error
            return build(model, settings, progress)(on_worker)

        return run

    session._factory = failing_once
    with pytest.raises(ModelError):
        interrupted_load(session, None, monkeypatch)
    assert session.generate("Hi").text == "Hello, world."


def test_an_engine_that_broke_is_loaded_again_by_the_next_request(scripted_session: Make) -> None:
    scripts = iter([Script(fail_at_step=2, step_ns=lambda tokens: 0), LONG])
    session = scripted_session()
    session._factory = lambda *wanted: lambda on_worker: ScriptedEngine(next(scripts))
    with pytest.raises(EngineFailed, match="scripted failure"):
        session.generate("Hi")
    assert session.status().state == "unloaded"
    again = session.generate("Hi", max_tokens=1)
    assert again.text == "Hi:0 "
    assert again.record.load_ns > 0


def test_unload_ends_what_runs_and_the_next_request_loads(gated: tuple[Session, Gate]) -> None:
    session, gate = gated
    handle = session.submit("Hi")
    gate.let(2)
    with ThreadPoolExecutor(1) as pool:
        unloading = pool.submit(session.unload)
        handed_in(session)
        gate.open()
        unloading.result(WAIT)
    assert session.result(handle).finish_reason == "abort"
    assert session.info is None
    assert session.engines[0].closed
    assert session.generate("Hi", max_tokens=1).text == "Hi:0 "


def test_a_session_that_nobody_holds_does_not_stay(scripted_session: Make) -> None:
    session = Session("scripted", factory=lambda *wanted: lambda on_worker: ScriptedEngine())
    session.generate("Hi")
    engine = weakref.ref(session._worker.engine)
    session.unload()
    gc.collect()
    assert engine() is None


# Looking on.


def test_the_states_of_a_session(scripted_session: Make) -> None:
    gate, building = Gate(), Gate()
    session = scripted_session(LONG, sleep=gate.sleep)
    build = session._factory("scripted", {}, lambda stage: None)

    def slow(progress: Any) -> ScriptedEngine:
        progress(LoadStage("weights"))
        building.sleep(0)
        return build(progress)

    session._factory = lambda *wanted: slow
    states = [session.status()]
    with ThreadPoolExecutor(1) as pool:
        loading = pool.submit(session.load)
        building.wait()
        states.append(session.status())
        building.open()
        loading.result(WAIT)
    states.append(session.status())
    handle = session.submit("Hi")
    gate.let(1)
    states.append(session.status())
    gate.open()
    handle.record(WAIT)
    session.unload()
    states.append(session.status())
    assert [status.state for status in states] == ["unloaded", "loading", "idle", "busy", "unloaded"]
    assert [status.open_requests for status in states] == [0, 0, 0, 1, 0]
    assert states[1].stage.stage == "weights"
    assert (states[2].kv_blocks_free, states[3].kv_blocks_free) == (256, 255)
    assert (states[2].busy_ns, states[4].busy_ns) == (0, 0)
    assert states[3].busy_ns == session.steps[0].duration_ns
    assert all(status.rss_bytes > 0 for status in states)


def test_busy_time_is_since_the_load(session: Session) -> None:
    session.generate("Hi")
    assert session.status().busy_ns > 0
    session.load("other")
    assert session.status().busy_ns == 0


def test_a_session_shows_what_it_is(session: Session) -> None:
    assert repr(session) == "Session(scripted, unloaded)"
    session.load()
    assert repr(session) == "Session(scripted, idle)"


def test_the_price_is_in_the_results_and_may_change(session: Session) -> None:
    session.price = MachinePrice(3.0)
    first = session.generate("Hi")
    session.price = MachinePrice(6.0)
    assert (first.price.usd_per_hour, session.generate("Hi").price.usd_per_hour) == (3.0, 6.0)


def test_the_history_is_kept_in_order(session: Session) -> None:
    session.generate("a")
    session.generate(["b", "c"])
    assert [result.record.prompt for result in session.history] == ["a", "b", "c"]


@pytest.mark.parametrize("in_flight", [1, 2])
def test_shares_and_the_rest_are_exactly_the_busy_time(scripted_session: Make, in_flight: int) -> None:
    script = Script(
        answer=count, step_ns=lambda tokens: 20_000 + 1_000 * tokens, blocks=48, block_size=8, in_flight=in_flight
    )
    session = scripted_session(script)
    session.load()

    def client(number: int) -> list[RequestHandle]:
        handles = []
        for turn in range(4):
            handles.append(session.submit(f"c{number} " + "word " * (7 * turn), max_tokens=5 + 9 * turn))
            if (number + turn) % 3 == 0:
                handles[-1].cancel()
        return handles

    with ThreadPoolExecutor(6) as pool:
        handles = [handle for made in pool.map(client, range(6)) for handle in made]
    records = [handle.record(WAIT) for handle in handles]
    assert session._worker.ask(lambda engine: engine.kv_blocks_free()).wait(WAIT) == 48
    worker = session._worker
    shared = [record.shared_ns or 0 for record in records]
    assert min(shared) >= 0
    assert sum(shared) + worker.unattributed_ns == worker.busy_ns == sum(step.duration_ns for step in session.steps)
    steps = session.steps
    assert all(earlier.end_ns <= later.start_ns for earlier, later in itertools.pairwise(steps))


# One engine a process.


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch, no_engine_threads: None) -> Iterator[tuple[Session, Session]]:
    """Two sessions that would each hold vLLM, with a scripted engine in its place."""
    monkeypatch.setattr(loading_module, "_holder", None)
    monkeypatch.setattr(session_module, "_engine", lambda *wanted: lambda on_worker: ScriptedEngine())
    sessions = Session("one"), Session("two")
    yield sessions
    for session in sessions:
        session.unload()


def test_a_second_session_is_told_who_holds_the_engine(two: tuple[Session, Session]) -> None:
    first, second = two
    first.load()
    with pytest.raises(EngineBusy) as caught:
        second.load()
    assert str(caught.value) == (
        "Session(scripted, idle) holds this process's engine; type session.load(take_over=True) to unload it, "
        "or use it: ji.current_session()"
    )
    first.load(max_model_len=64)  # it may load again itself
    assert first.generate("Hi").text == "Hello, world."


def test_a_second_session_can_take_over(two: tuple[Session, Session]) -> None:
    first, second = two
    first.load()
    second.load(take_over=True)
    assert first.info is None
    assert second.generate("Hi").text == "Hello, world."
    with pytest.raises(EngineBusy):
        first.load()


def test_an_unloaded_session_lets_another_one_have_the_process(two: tuple[Session, Session]) -> None:
    first, second = two
    first.load()
    first.unload()
    second.load()
    assert second.info is not None


def test_a_session_whose_load_failed_holds_nothing(
    two: tuple[Session, Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = two

    def failing(on_worker: Any) -> ScriptedEngine:
        raise ModelError("broken")

    with monkeypatch.context() as patch:
        patch.setattr(session_module, "_engine", lambda *wanted: failing)
        with pytest.raises(ModelError):
            first.load()
    second.load()
    assert second.info is not None


def test_everybody_gets_the_same_current_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "_current", None)
    assert current_session() is current_session()
    assert current_session().info is None  # nothing is loaded before it is needed


# What many callers at once must not do to each other.


def test_a_session_that_nobody_has_any_more_closes_its_engine(scripted_session: Make) -> None:
    engines: list[ScriptedEngine] = []

    def build(progress: Any) -> ScriptedEngine:
        engines.append(ScriptedEngine())
        return engines[-1]

    lost = Session("scripted", factory=lambda model, values, progress: build)
    lost.generate("Hi")
    worker = lost._worker
    del lost
    gc.collect()
    thread = worker._thread
    if thread is not None:
        thread.join(WAIT)
    assert engines[0].closed
    assert worker.engine is None


def test_a_prompt_that_was_rendered_for_another_model_is_not_run(session: Session) -> None:
    session.load()
    submission = session._prepare("Hi", None, True, {}, None)
    session.load("other")
    session._worker.submit(submission)
    with pytest.raises(EngineBusy, match="run it again"):
        submission.sink.record(WAIT)  # type: ignore[attr-defined]


def test_results_of_many_threads_are_all_in_the_history_once(session: Session) -> None:
    session.load()
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda n: session.generate(f"Number {n}", max_tokens=1), range(80)))
    assert len(session.history) == 80
    assert {id(result) for result in results} == {id(result) for result in session.history}


def test_a_request_that_nobody_asks_about_is_in_the_history(session: Session) -> None:
    handle = session.submit("Hi")
    list(handle)
    handle.record(WAIT)
    assert handle.result(WAIT) is session.history[-1]


def test_a_request_after_an_interrupted_load_waited_for_nothing(scripted_session: Make) -> None:
    session = scripted_session()

    def interrupt(stage: LoadStage) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        session.load(progress=interrupt)
    while session._worker.engine is None:
        time.sleep(0.001)
    session.generate("Hi")
    assert session.generate("Hi").record.load_ns is None


def test_steps_are_those_of_the_engine_that_is_loaded(session: Session) -> None:
    session.generate("Hi")
    session.load("other")
    session.generate("Hi", max_tokens=1)
    assert [step.index for step in session.steps] == [0]


# Steps and tokens.


def test_a_result_has_the_steps_that_computed_it(session: Session) -> None:
    one, two = session.generate("one"), session.generate("two words")
    assert [sum(work.output_tokens for work in step.work) for step in one.steps] == [1, 1, 1, 1]
    assert [work.prefill_tokens for step in two.steps for work in step.work] == [2, 0, 0, 0]
    assert set(one.steps + two.steps) == set(session.steps)


def test_the_steps_of_a_batch_are_those_of_all_its_requests(session: Session) -> None:
    before = session.generate("before")
    batch = session.generate(["one", "two"])
    assert {work.request_id for step in batch.steps for work in step.work} == {"r2", "r3"}
    assert not set(batch.steps) & set(before.steps)


def test_steps_outlive_the_engine_that_ran_them(session: Session) -> None:
    result = session.generate("one")
    session.load("other")
    assert session.steps == ()
    assert len(result.steps) == 4


def test_tokens_of_a_text(session: Session) -> None:
    assert [piece for _, piece in session.tokens("one two")] == ["one", "two"]
    assert session.info is not None  # it was loaded for that


def test_messages_are_no_batch(session: Session) -> None:
    with pytest.raises(PromptError, match=r"session\.chat"):
        session.generate([{"role": "user", "content": "Hi"}])  # type: ignore[list-item]


@pytest.mark.parametrize("prompt", [b"Hi", [3], 3.5, {"role": "user", "content": "Hi"}])
def test_what_is_no_prompt_is_one_line(session: Session, prompt: Any) -> None:
    with pytest.raises(PromptError, match=f"not of type {type(prompt).__name__}"):
        session.submit(prompt)


def test_a_request_is_open_from_the_moment_that_it_was_asked(gated: tuple[Session, Gate]) -> None:
    session, gate = gated
    first = session.submit("one")
    gate.wait()  # the engine's thread stands in a step and looks at nothing
    session.submit_batch(["two", "three"])
    assert (session.status().state, session.status().open_requests) == ("busy", 3)
    gate.open()
    session.submit("last").record(WAIT)
    assert first.done
    assert session.status().open_requests == 0


def test_a_session_waits_for_the_engine_that_another_one_closes(
    two: tuple[Session, Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = two
    first.load()
    closing, order = threading.Event(), []
    engine = first._worker.engine
    assert isinstance(engine, ScriptedEngine)

    def close() -> None:
        closing.set()
        time.sleep(0.05)
        order.append("closed")

    monkeypatch.setattr(engine, "close", close)
    leaving = threading.Thread(target=first.unload)
    leaving.start()
    assert closing.wait(WAIT)
    second.load(progress=lambda stage: order.append(stage.stage))
    leaving.join(WAIT)
    assert order[0] == "closed"
    assert order[-1] == "ready"


def test_a_request_that_was_rendered_for_an_engine_that_went_says_so(gated: tuple[Session, Gate]) -> None:
    session, gate = gated
    session.submit("one")
    gate.wait()
    unloaded = session._worker.unload()
    late = session.submit("two")  # behind the unload in the inbox
    gate.open()
    unloaded.wait(WAIT)
    with pytest.raises(EngineBusy, match="the engine went meanwhile; run it again"):
        late.record(WAIT)


# Limits.


def test_limits_are_changed_while_requests_run_and_end_with_a_load(gated: tuple[Session, Gate]) -> None:
    session, gate = gated
    batch = session.submit_batch(["a", "b", "c"], max_tokens=4)
    gate.wait()
    with ThreadPoolExecutor() as pool:  # it is answered between two steps
        changed = pool.submit(session.set_limits, max_num_seqs=1, max_num_batched_tokens=2)
        handed_in(session)
        gate.let(1)
        assert changed.result(WAIT) == Limits(1, 2)
    gate.open()
    run = batch.result().run
    assert [step.limits for step in run.steps[:2]] == [None, Limits(1, 2)]
    assert run.limits_of(run.steps[0]) == Limits(256, 512)
    assert run.limits_of(run.steps[1]) == Limits(1, 2)
    assert session.set_limits() == Limits(256, 512)
    session.set_limits(max_num_seqs=1)
    session.unload()
    session.load()
    assert {step.limits for step in session.generate("d", max_tokens=2).run.steps} == {None}


@pytest.mark.parametrize("value", [0, -1, 513, True, 1.5, "4"])
def test_a_limit_that_nothing_was_made_room_for_is_refused_and_changes_nothing(session: Session, value: Any) -> None:
    session.load()
    with pytest.raises(ConfigError, match=r"max_num_batched_tokens can be changed between 1 and 512, .* %infer load"):
        session.set_limits(max_num_seqs=2, max_num_batched_tokens=value)
    assert {step.limits for step in session.generate("a").run.steps} == {None}


def test_limits_need_an_engine(session: Session) -> None:
    with pytest.raises(EngineNotLoaded):
        session.set_limits(max_num_seqs=2)


def test_what_computes_nothing_has_no_bandwidth(session: Session) -> None:
    session.load()
    assert session.bandwidth() is None
