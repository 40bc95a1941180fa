"""An engine that breaks: everybody is told in one line, nothing is left of it, and the next cell has another one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from gate import WAIT

from jupyter_infer import loading
from jupyter_infer import session as session_module
from jupyter_infer.engine.scripted import ScriptedEngine
from jupyter_infer.errors import EngineBusy, EngineFailed, NotEnoughMemory
from jupyter_infer.records import LoadStage
from jupyter_infer.session import Session

from .conftest import POOL, QUICK, Cells, on_engines, settled


def once(
    monkeypatch: pytest.MonkeyPatch,
    owner: object,
    name: str,
    error: BaseException,
    when: Callable[[], bool] = lambda: True,
) -> None:
    """Have a method raise, once, as soon as `when` is true."""
    errors, method = [error], getattr(owner, name)

    def raising(*args: Any, **options: Any) -> Any:
        if errors and when():
            raise errors.pop()
        return method(*args, **options)

    monkeypatch.setattr(owner, name, raising)


@pytest.mark.parametrize(
    ("cells", "error"),
    on_engines(RuntimeError("first\nsecond"), MemoryError(), SystemExit(3), KeyboardInterrupt()),
    indirect=["cells"],
)
def test_a_step_that_raises_ends_all_requests_in_one_line_each(
    cells: Cells, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    background = [cells.running() for _ in range(2)]
    worker = cells.session._worker
    once(monkeypatch, *cells.row.inside(worker.engine), error, lambda: len(worker._sinks) == 3)
    line = cells.line_of("%%infer --max-tokens 1900 --ignore-eos\nforeground", EngineFailed)
    assert line.startswith(f"EngineFailed: the engine stopped: {type(error).__name__}: ")
    assert line.endswith("; the next request loads it again, %infer logs says more")
    for handle in background:
        with pytest.raises(EngineFailed):
            handle.record(WAIT)
        assert len(handle.events_after(0)) >= 2  # what it had said stays
    assert cells.session.status().state == "unloaded"
    cells.well()


@pytest.mark.parametrize("error", [RuntimeError("refused"), SystemExit(3)])
def test_a_request_that_the_engine_refuses_fails_alone(
    cells: Cells, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    running = cells.running()
    owner, (add, *_) = cells.row.owned(cells.session._worker.engine)
    once(monkeypatch, owner, add, error)
    failed = cells.run("%%infer --split --max-tokens 3\none\n---\ntwo").error_in_exec
    assert isinstance(failed, RuntimeError)  # `SystemExit` would end the kernel
    assert not running.done
    running.cancel()
    cells.well()


def test_a_question_that_exits_harms_nobody(cells: Cells) -> None:
    def leave(engine: Any) -> None:
        raise SystemExit

    with pytest.raises(EngineFailed, match="SystemExit"):
        cells.session._worker.ask(leave).wait(WAIT)
    cells.well()


def test_unload_while_it_generates_ends_the_requests_with_what_they_have(cells: Cells) -> None:
    handles = [cells.running() for _ in range(2)]
    cells.run("%infer unload")
    for handle in handles:
        record = handle.record(WAIT)
        assert record.finish_reason == "abort"
        assert record.output_tokens >= 2
    assert cells.session.info is None
    cells.quiet()
    cells.well()


def test_another_model_while_a_request_runs_is_refused_and_the_request_goes_on(cells: Cells, tmp_path: Any) -> None:
    handle = cells.running()
    model = "other" if cells.name == "scripted" else cells.session.model
    for cell in (f"%infer load {model} --max-model-len 64", f"%%infer -m {model}x\nHi"):
        if cells.name != "scripted" and cell.startswith("%%"):
            continue  # there is no such model
        line = cells.line_of(cell, EngineBusy)
        assert line == "EngineBusy: 1 requests still run; type %infer stop, or wait, then load again"
    seen = len(handle.events_after(0))
    settled(lambda: len(handle.events_after(0)) > seen, "the request stands still")
    cells.run("%infer stop")
    assert handle.record(WAIT).finish_reason == "abort"
    cells.well()


def test_the_extension_can_be_loaded_again_while_a_request_runs(cells: Cells) -> None:
    handle = cells.running()
    cells.run("%load_ext jupyter_infer")
    from jupyter_infer import load_ipython_extension

    load_ipython_extension(cells.shell)  # IPython itself does it once
    assert not handle.done
    cells.answers_right()
    handle.cancel()
    cells.well()


@pytest.mark.parametrize("cells", QUICK, indirect=True)
def test_an_extension_that_is_unloaded_and_loaded_again_ends_what_runs(cells: Cells) -> None:
    handle = cells.running()
    cells.run("%reload_ext jupyter_infer")
    assert handle.record(WAIT).finish_reason == "abort"
    cells.well()


# Loads.


@pytest.mark.parametrize(
    ("cells", "case"),
    on_engines(
        (SystemExit(3), EngineFailed, "the engine stopped: SystemExit: 3"),
        (RuntimeError("first\nsecond"), RuntimeError, "first"),
        (NotEnoughMemory("no room"), NotEnoughMemory, "no room"),
    ),
    indirect=["cells"],
)
def test_a_load_that_fails_half_way_leaves_nothing_and_the_next_cell_loads(
    cells: Cells, monkeypatch: pytest.MonkeyPatch, case: tuple[BaseException, type[Exception], str]
) -> None:
    error, kind, says = case

    def fail() -> None:
        raise error

    cells.session.unload()
    with monkeypatch.context() as patch:
        cells.row.stages(patch, "KV pool", fail)
        outcome = cells.run("%%infer\nHi")
    assert isinstance(outcome.error_in_exec, kind)
    assert says in str(outcome.error_in_exec)
    assert cells.session.status().state == "unloaded"
    cells.quiet()
    cells.well()


@pytest.mark.parametrize("cells", QUICK, indirect=True)
def test_everybody_who_waits_for_a_load_learns_that_it_failed(cells: Cells, monkeypatch: pytest.MonkeyPatch) -> None:
    cells.session.unload()
    begun, go = threading.Event(), threading.Event()

    def fail() -> None:
        begun.set()
        assert go.wait(WAIT)
        raise SystemExit

    told: list[BaseException] = []

    def wait() -> None:
        try:
            cells.session.load()
        except BaseException as error:
            told.append(error)

    with monkeypatch.context() as patch:
        cells.row.stages(patch, "weights", fail)
        waiting = [threading.Thread(target=wait) for _ in range(3)]
        for thread in waiting:
            thread.start()
        assert begun.wait(WAIT)
        go.set()
        for thread in waiting:
            thread.join(WAIT)
    assert [type(error) for error in told] == [EngineFailed] * 3
    cells.well()


@pytest.mark.integration
@pytest.mark.parametrize("cells", ["vllm"], indirect=True)
def test_a_second_session_is_told_who_has_the_engine_and_the_first_one_goes_on(cells: Cells) -> None:
    handle = cells.running()
    with pytest.raises(EngineBusy, match=r"holds this process's engine; type session.load\(take_over=True\)"):
        Session(**POOL).generate("Hi")
    assert not handle.done
    handle.cancel()
    cells.well()


# Threads.


@pytest.mark.parametrize("cells", QUICK, indirect=True)
def test_a_process_that_can_start_no_thread_says_so_and_nobody_gets_the_request_later(
    cells: Cells, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells.session.unload()
    settled(lambda: cells.session._worker._thread is None, "the thread stays")

    def full(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", full)
        line = cells.line_of("%%infer\nHi", NotEnoughMemory)
    assert line == "NotEnoughMemory: no thread for the engine (can't start new thread); end what else runs here"
    asked = len(cells.session.history)
    cells.well()
    assert len(cells.session.history) == asked + 1


def test_a_load_that_was_interrupted_and_then_failed_holds_nothing(
    monkeypatch: pytest.MonkeyPatch, no_engine_threads: None
) -> None:
    """Nobody waited for its end, and another session has the process all the same."""
    monkeypatch.setattr(loading, "_holder", None)

    def interrupt(stage: LoadStage) -> None:
        raise KeyboardInterrupt

    def fail(on_worker: Any) -> ScriptedEngine:
        raise NotEnoughMemory("no room")

    first, second = Session("one"), Session("two")
    with monkeypatch.context() as patch:
        patch.setattr(session_module, "_engine", lambda *wanted: fail)
        with pytest.raises(KeyboardInterrupt):
            first.load(progress=interrupt)
        settled(lambda: not first._worker.occupied, "it is never over")
    monkeypatch.setattr(session_module, "_engine", lambda *wanted: lambda on_worker: ScriptedEngine())
    assert second.generate("Hi").text == "Hello, world."
    with pytest.raises(EngineBusy, match=r"Session\(scripted, idle\) holds this process's engine"):
        first.load()
    second.unload()
