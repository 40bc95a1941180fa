"""The line about the engine: what it says in each state, and that it sends no more than what has changed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jupyter_infer.engine.protocol import Progress
from jupyter_infer.engine.scripted import Script, ScriptedEngine
from jupyter_infer.records import LoadStage, StepRecord, StepWork
from jupyter_infer.session import Session
from jupyter_infer.widgets import EngineStatus, Playground
from jupyter_infer.widgets.engine_status import output_rate
from tests.conftest import FAST
from tests.gate import WAIT, Gate

SECOND = 1_000_000_000


def a_step(start_ns: int, end_ns: int, *output_tokens: int) -> StepRecord:
    work = tuple(StepWork(f"r{n}", 0, 1, 0, 0, 1, 0, 0, tokens, 1) for n, tokens in enumerate(output_tokens))
    return StepRecord(
        index=0,
        scheduled_ns=start_ns,
        planned_ns=start_ns,
        start_ns=start_ns,
        computed_ns=end_ns,
        end_ns=end_ns,
        cpu_ns=None,
        work=work,
        running=len(work),
        waiting=0,
        preempted=(),
        freed=(),
        evicted=(),
        kv_blocks_free=None,
    )


def test_before_a_load_nothing_is_known_but_the_model_that_comes(session: Session) -> None:
    widget = EngineStatus(session=session)
    assert (widget.model, widget.state, widget.stage) == ("scripted", "unloaded", "")
    assert widget.memory_bytes > 1_000_000
    for name in ("running", "waiting", "pool_used", "pool_total", "tokens_per_s"):
        assert getattr(widget, name) is None
    assert widget.summary().startswith(
        "scripted · unloaded · n/a running · n/a waiting · KV pool n/a · n/a tok/s · memory "
    )


def test_a_replay_says_so_once(session: Session, tmp_path: Path) -> None:
    replay = Session(str(session.generate("Why?").to_jsonl(tmp_path / "run.jsonl")))
    replay.load()
    assert EngineStatus(session=replay).model == "scripted (replay)"
    assert Playground(replay)._engine[0] == ["model", "scripted (replay)"]
    replay.unload()


def test_a_load_says_its_stage_and_its_model() -> None:
    reading, go_on = threading.Event(), threading.Event()

    def build(progress: Progress) -> ScriptedEngine:
        progress(LoadStage("weights", "0.3 of 0.5 GB", time_ns=1))
        reading.set()
        assert go_on.wait(WAIT)
        return ScriptedEngine(FAST)

    session = Session("first", factory=lambda model, values, progress: build)
    widget = EngineStatus(session=session)
    load = threading.Thread(target=session.load, args=("another",))
    load.start()
    assert reading.wait(WAIT)
    assert widget.tick() is True
    assert (widget.model, widget.state, widget.stage) == ("another", "loading", "weights, 0.3 of 0.5 GB")
    assert "another · loading: weights, 0.3 of 0.5 GB · n/a running" in widget.summary()
    go_on.set()
    load.join()
    assert widget.tick() is False
    assert (widget.state, widget.stage, widget.running, widget.waiting) == ("idle", "", 0, 0)
    assert (widget.pool_used, widget.pool_total, widget.tokens_per_s) == (0, 256, 0)
    session.unload()


def test_while_requests_run_it_says_who_runs_and_who_waits(scripted_session: Callable[..., Session]) -> None:
    gate = Gate()
    session = scripted_session(Script(blocks=2), sleep=gate.sleep)
    widget = EngineStatus(session=session)
    session.load()
    widget.tick()
    batch = session.submit_batch(["one", "two", "three"], max_tokens=3)
    gate.wait()
    assert widget.tick() is True
    assert widget.state == "busy"
    assert (widget.running, widget.waiting) == (None, None)  # no step is over yet
    gate.let(1)
    widget.tick()
    assert (widget.running, widget.waiting) == (2, 1)
    assert widget.pool_used == 2
    assert widget.tokens_per_s > 0
    assert "2 running · 1 waiting · KV pool 2 of 2 blocks" in widget.summary()
    gate.open()
    batch.result()
    assert widget.tick() is True  # the rate is still that of the last two seconds
    assert (widget.state, widget.running, widget.waiting, widget.pool_used) == ("idle", 0, 0, 0)


def test_a_run_is_not_told_by_the_steps_of_the_one_before(scripted_session: Callable[..., Session]) -> None:
    gate = Gate()
    session = scripted_session(sleep=gate.sleep)
    widget = EngineStatus(session=session)
    handle = session.submit("one")
    gate.open()
    handle.result()
    widget.tick()
    session.engines[-1]._sleep = (second := Gate()).sleep  # type: ignore[attr-defined]
    handle = session.submit("two")
    second.wait()
    widget.tick()
    assert (widget.state, widget.running) == ("busy", None)
    second.open()
    handle.result()


def test_after_an_unload_the_engine_is_not_known(session: Session) -> None:
    widget = EngineStatus(session=session)
    session.generate("hi")
    session.unload()
    widget.tick()
    assert (widget.state, widget.pool_total, widget.tokens_per_s, widget.running) == ("unloaded", None, None, None)


def test_what_did_not_change_is_not_sent(
    session: Session, sent: Callable[[Any], list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jupyter_infer.hardware.rss_bytes", lambda: 812_345_678)
    session.load()
    widget = EngineStatus(session=session)
    messages = sent(widget)
    for _ in range(5):
        widget.tick()
    assert messages == []
    assert widget.memory_bytes == 812_000_000
    session.unload()
    widget.tick()
    (message,) = messages
    assert message["state"]["state"] == "unloaded"


def test_another_session_can_be_set(scripted_session: Callable[..., Session]) -> None:
    first, second = scripted_session(), scripted_session()
    second.load("second")
    widget = EngineStatus(session=first)
    widget.session = second
    widget.tick()
    assert (widget.model, widget.state) == ("scripted", "idle")  # what the scripted engine calls itself


def test_the_static_form_says_the_same_and_is_text(session: Session) -> None:
    widget = EngineStatus(session=session)
    widget.model = "<b>model</b>"
    assert "&lt;b&gt;model&lt;/b&gt;" in widget.static_html()
    assert "<b>" not in widget.static_html()


@pytest.mark.parametrize(("count", "text"), [(None, "n/a"), (812_300_000, "812 MB"), (1_924_000_000, "1.92 GB")])
def test_memory_is_written_as_the_front_end_does(session: Session, count: int | None, text: str) -> None:
    widget = EngineStatus(session=session)
    widget.memory_bytes = count
    assert widget.summary().endswith(f"memory {text}")


@pytest.mark.parametrize(
    ("steps", "rate"),
    [
        ([], 0),
        ([a_step(0, SECOND, 5)], 0),  # long ago
        ([a_step(8 * SECOND, 9 * SECOND, 10, 10)], 10),
        ([a_step(9 * SECOND, 9 * SECOND + SECOND // 2, 3), a_step(9 * SECOND + SECOND // 2, 10 * SECOND, 5)], 8),
        ([a_step(0, 9 * SECOND, 10)], 5),  # a step that began before the window counts from its beginning
        ([a_step(9 * SECOND, 10 * SECOND)], 0),
    ],
)
def test_the_rate_is_that_of_the_last_two_seconds(steps: list[StepRecord], rate: float) -> None:
    assert output_rate(steps, 10 * SECOND) == rate
