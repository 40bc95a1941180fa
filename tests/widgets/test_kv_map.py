"""The map of the KV pool: what it shows live and step by step, what it sends, and what it says without a script."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from builders import make_record, make_request, make_step
from hypothesis import given, settings
from hypothesis import strategies as st

import jupyter_infer as ji
from jupyter_infer.engine.scripted import Script, ScriptedEngine, VirtualClock
from jupyter_infer.errors import ConfigError
from jupyter_infer.pool import PoolState, contiguous_blocks
from jupyter_infer.pool_rebuild import rebuild
from jupyter_infer.recorded import Recording
from jupyter_infer.records import EngineInfo, StepRecord
from jupyter_infer.run import Run, RunHeader
from jupyter_infer.session import Session
from jupyter_infer.widgets import KVCacheMap
from jupyter_infer.widgets._kv_frame import facts, pack
from jupyter_infer.widgets._kv_live import LivePool
from jupyter_infer.widgets._kv_trace import Trace
from jupyter_infer.widgets._kv_words import format_binary, picture, picture_html, reading, rows
from tests.gate import Gate
from tests.test_pool import SIZE, enter, make_info, more, play, sequence

Sent = Callable[[Any], list[dict[str, Any]]]
TOTAL = 24


def info(**values: Any) -> EngineInfo:
    return make_info(kv_blocks_total=TOTAL, **values)


def prefix_run() -> list[StepRecord]:
    """Three requests that share two blocks; the last one is preempted and comes again."""
    return sequence(
        {"work": [enter("r1", 10, 1, 2, 3)], "free": 21},
        {"work": [enter("r2", 10, 1, 2, 4, cached=8), enter("r3", 9, 1, 2, 5, cached=8), more("r1", 11)], "free": 19},
        {"work": [more("r1", 12), more("r2", 11)], "preempted": [("r3", 0)], "free": 20},
        {
            "work": [enter("r3", 9, 1, 2, 5, cached=8), more("r1", 13, 6), more("r2", 12)],
            "evicted": [6],
            "freed": [("r1", 0)],
            "free": 20,
        },
    )


def run_of(steps: list[StepRecord], engine: EngineInfo | None = None, **header: Any) -> Run:
    names = dict.fromkeys(work.request_id for step in steps for work in step.work)
    records = tuple(
        make_record(request_id=name, prompt_tokens=9, sampling={"max_tokens": 4}, arrival_ns=0, finished_ns=9000)
        for name in names
    )
    return Run(RunHeader("", engine or info(), None, **header), records, tuple(steps))


def unpacked(widget: KVCacheMap) -> tuple[dict[str, list[int]], list[int], list[int], list[int]]:
    """Read what the front end gets as it does."""
    said = widget._facts
    code = {2: "H", 4: "I"}[said["word"]]
    ids = list(struct.unpack(f"<{len(widget._frame) // said['word']}{code}", widget._frame))

    def take(count: int) -> list[int]:
        taken = ids[:count]
        del ids[:count]
        return taken

    tables = {name: take(blocks) for name, blocks, _, _ in said["owners"]}
    parts = take(said["cached"]), take(said["evicted"]), take(said["unseen"])
    assert ids == []
    return tables, *parts


# The pool as it is now.


def same(state: PoolState, other: PoolState) -> None:
    assert state.tables == other.tables
    assert state.tokens == other.tokens
    assert state.cached_free == other.cached_free
    assert state.partial == other.partial
    assert (state.moment.held, state.moment.shared, state.moment.cached) == (
        other.moment.held,
        other.moment.shared,
        other.moment.cached,
    )


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_live_is_what_the_rebuilt_pool_says_whenever_one_looks(data: st.DataObject) -> None:
    steps, _ = play(data.draw)
    live, place = LivePool(info()), 0
    while place < len(steps):
        place = min(len(steps), place + data.draw(st.integers(1, 3)))
        assert live.follow(steps[:place], idle=False)
        pool = rebuild(steps[:place], block_size=SIZE, total=TOTAL)
        shown = live.shown()
        same(shown.state, pool.at(pool.during(place - 1)))
        assert (shown.unknown, shown.unseen, shown.step) == (0, frozenset(), steps[place - 1].index)
        if data.draw(st.booleans()):  # nothing came meanwhile
            assert live.follow(steps[:place], idle=False)
            assert not live.follow(steps[:place], idle=False)
            same(live.shown().state, pool.at(len(pool) - 1))


def test_with_two_steps_in_flight_nothing_is_of_an_unknown_owner() -> None:
    for seed in range(20):
        random = Random(seed)
        script = Script(block_size=SIZE, blocks=12, token_budget=8, in_flight=2, answer=lambda prompt: ["w "] * 9)
        engine, steps = ScriptedEngine(script, clock=VirtualClock()), list[StepRecord]()
        live, names = LivePool(make_info(kv_blocks_total=12)), list[str]()
        for _ in range(80):
            if len(names) < 6 and random.random() < 0.3:
                names.append(f"r{len(names)}")
                engine.add(make_request(names[-1], prompt=random.randint(1, 20)))
            if engine.has_unfinished() and (came := engine.step().steps):
                steps += came
                live.follow(steps, idle=False)
                pool = rebuild(steps, block_size=SIZE, total=12)
                # While the last step ran, the one before it has ended.
                last = max(place for place, moment in enumerate(pool.moments) if moment.time_ns < steps[-1].end_ns)
                same(live.shown().state, pool.at(last))
            assert live.shown().unknown == 0


def test_what_began_before_the_remembered_steps_has_no_owner() -> None:
    steps = sequence(
        {"work": [enter("a", 3, 7), more("old", 14, 9)], "free": TOTAL - 5},
        {"work": [more("a", 4), more("old", 15), more("older", 3)], "free": TOTAL - 6},
    )
    live = LivePool(info())
    live.follow(steps, idle=False)
    live.follow(steps, idle=False)
    shown = live.shown()
    assert shown.state.tables == {("a", 0): (7,), ("old", 0): (9,)}
    assert (shown.missing(("old", 0)), shown.unknown, shown.used) == (3, 4, 6)
    assert shown.unseen == set(range(1, TOTAL + 1)) - {7, 9}
    assert "6 of 24 blocks in use, of 4 the owner is not recorded" in reading(shown)
    assert rows(shown)[1] == ("old", "1 of 4 known", "15", "3 of 4", "0")
    assert picture(shown)[0] == ["??????█?█???????????????"]
    assert live.follow(steps, idle=True)  # then nobody has any
    assert (live.shown().unknown, live.shown().used, live.shown().unseen) == (0, 0, frozenset())


def test_one_that_brought_no_block_is_listed_with_none() -> None:
    live = LivePool(info())
    live.follow(sequence({"work": [more("old", 15)], "free": TOTAL - 4}), idle=False)
    assert live.shown().state.tables == {("old", 0): ()}
    assert live.shown().missing(("old", 0)) == 4


def test_an_aborted_request_has_given_its_blocks_back_when_the_engine_is_idle() -> None:
    live, steps = LivePool(info()), sequence({"work": [enter("a", 9, 1, 2, 3)], "free": 21})
    live.follow(steps, idle=True)
    assert live.shown().used == 3  # as it was while that step ran
    assert live.follow(steps, idle=True)
    assert live.shown().state.tables == {}
    assert live.shown().state.cached_free == {1, 2}
    assert not live.follow(steps, idle=True)


def test_another_engine_begins_anew() -> None:
    live = LivePool(info())
    live.follow(sequence({"work": [enter("a", 9, 1, 2, 3)]}), idle=False)
    live.follow(sequence({"work": [enter("b", 3, 8)]}), idle=False)
    assert live.shown().state.tables == {("b", 0): (8,)}
    assert live.follow([], idle=False)
    assert (live.shown().used, live.shown().step) == (0, None)
    assert not live.follow([], idle=False)


# Words.


def test_the_sentence_says_what_is_shared_and_what_reservations_would_take() -> None:
    trace = Trace.of(run_of(prefix_run()))
    assert trace is not None
    assert reading(trace.shown(1)) == (
        "5 of 24 blocks in use, 2 shared by 3 requests; reserving the context for each would take 24 blocks = 960 B, "
        "760 B more; for prompt + max_tokens alone, 12 blocks = 480 B."
    )
    assert "; r3 lost its blocks (preempted); reserving" in reading(trace.shown(2))
    whole, asked = contiguous_blocks(trace.pool, trace.info, trace.requests)
    for place in range(len(trace)):
        shown = trace.shown(place)
        assert (shown.whole, shown.asked) == (whole[trace.pool.during(place)], asked[trace.pool.during(place)])


def test_without_bytes_it_counts_blocks() -> None:
    trace = Trace.of(run_of(prefix_run(), info(kv_bytes=None)))
    assert trace is not None
    assert "would take 24 blocks, 19 more; for prompt + max_tokens alone, 12 blocks." in reading(trace.shown(1))


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (None, "n/a"),
        (0, "0 B"),
        (960, "960 B"),
        (2**20 * 344, "344 MiB"),
        (2**30 * 1.4, "1.4 GiB"),
        (2**40, "1,024 GiB"),
    ],
)
def test_bytes_are_binary(count: float | None, text: str) -> None:
    assert format_binary(count) == text


def test_a_large_pool_is_a_small_picture() -> None:
    shown = LivePool(make_info(kv_blocks_total=100_000)).shown()
    lines, each = picture(shown)
    assert each == 49
    assert sum(map(len, lines)) <= 2048
    assert len(picture_html(shown).encode()) < 12_000
    assert "A sign is 49 blocks" in picture_html(shown)


# The frame.


def test_a_frame_has_every_block_and_names_of_samples() -> None:
    steps = sequence({"work": [enter("r1", 5, 70_000, 2), enter("r1", 5, 70_000, 3, sample=1)], "free": 69_997})
    live = LivePool(make_info(kv_blocks_total=70_000))
    live.follow(steps, idle=False)
    shown = live.shown()
    assert [owner[0] for owner in facts(shown)["owners"]] == ["r1 #1", "r1 #2"]
    assert facts(shown)["word"] == 4
    assert struct.unpack("<4I", pack(shown)) == (70_000, 2, 70_000, 3)
    assert "1 shared by 2 samples" in reading(shown)


# The widget, over what was recorded.


def test_a_recorded_run_begins_at_its_fullest_step_and_goes_to_any() -> None:
    widget = KVCacheMap(run_of(prefix_run()))
    assert (widget.position, widget.following, widget._steps, widget._recorded) == (3, False, 4, True)
    widget.position = 1
    assert widget.state is not None
    assert widget.state.tables == {("r1", 0): (1, 2, 3), ("r2", 0): (1, 2, 4), ("r3", 0): (1, 2, 5)}
    assert widget.state.refs[1] == 3
    assert unpacked(widget) == ({"r1": [1, 2, 3], "r2": [1, 2, 4], "r3": [1, 2, 5]}, [], [], [])
    widget.position = -1
    assert widget.position == 3
    assert unpacked(widget)[2] == [6]  # evicted
    assert widget._track == {"levels": [3, 5, 4, 6], "preempted": [2]}
    assert widget.tick() is False


def test_a_step_that_is_not_there_is_said() -> None:
    widget = KVCacheMap(run_of(prefix_run()), position=1)
    assert widget.position == 1
    with pytest.raises(ConfigError, match="no step 4: there are 4, from 0 on"):
        widget.position = 4
    assert widget.position == 1
    with pytest.raises(ConfigError, match="cannot be followed"):
        widget.following = True
    assert widget.following is False
    with pytest.raises(ConfigError, match="a map shows a session, a result, a batch or a recorded run, not a str"):
        KVCacheMap("run.jsonl")  # type: ignore[arg-type]


def test_views_ask_for_steps(sent: Sent) -> None:
    widget = KVCacheMap(run_of(prefix_run()))
    assert widget.handle("go", {"position": 0}) == {"position": 0}
    assert widget.handle("go", {"position": 99}) == {"position": 3}
    messages = sent(widget)
    widget.handle("go", {"position": 2})
    (message,) = messages  # all that belongs together comes together
    assert set(message["state"]) == {"position", "_sentence", "_facts"}
    assert message["buffer_paths"] == [["_frame"]]
    with pytest.raises(ConfigError, match="a step is a number"):
        widget.handle("go", {})
    with pytest.raises(ConfigError, match="cannot be followed"):
        widget.handle("follow", {})


def test_a_run_of_a_file_is_shown_and_one_without_steps_says_so(tmp_path: Path) -> None:
    Recording(run_of(prefix_run())).to_jsonl(tmp_path / "run.jsonl")
    runs = ji.read_runs(tmp_path / "run.jsonl")
    assert KVCacheMap(runs[0]).position == KVCacheMap(runs).position == 3
    widget = KVCacheMap(run=run_of([make_step()], None))
    assert widget.state is not None
    for run in (
        replace(run_of(prefix_run()), steps=()),
        replace(run_of(prefix_run()), header=RunHeader("", None, None)),
    ):
        widget.run = run
        assert widget.state is None
        assert "Nothing is known of the KV blocks of this run" in widget.static_html()
        assert widget.position is None
        with pytest.raises(ConfigError, match="no step 0: there are none"):
            widget.position = 0


def test_a_run_that_begins_inside_has_blocks_of_nobody() -> None:
    trace = Trace.of(run_of(prefix_run()[2:]))
    assert trace is not None
    shown = trace.shown(0)
    assert (shown.unknown, len(shown.unseen)) == (4, TOTAL)
    assert "of 4 the owner is not recorded" in reading(shown)


def test_the_static_form_has_the_sentence_the_requests_and_the_picture() -> None:
    widget = KVCacheMap(run_of(prefix_run()), position=1)
    html = widget.static_html()
    assert widget.summary() == f"KV cache: {widget._sentence}"
    assert "5 of 24 blocks in use" in html
    assert "▓▓███···················" in html
    assert html.count("<tr") == 4
    assert "<script" not in html
    assert len(html.encode()) < 30_000


# The widget, over a session.


def test_before_a_load_it_says_so(session: Session) -> None:
    widget = KVCacheMap(session)
    assert (widget.position, widget.following, widget.state) == (None, True, None)
    assert widget.summary() == "KV cache: No model is loaded, so there is no pool."
    assert widget.static_html()
    with pytest.raises(ConfigError, match="no step 0: there are none"):
        widget.position = 0
    session.load()
    widget.tick()
    assert widget.state is not None
    assert widget._sentence == "0 of 256 blocks in use."


def test_it_follows_a_batch_and_can_be_stopped_and_follow_again(scripted_session: Callable[..., Session]) -> None:
    gate = Gate()
    session = scripted_session(Script(blocks=8, block_size=2, answer=lambda prompt: ["w "] * 9), sleep=gate.sleep)
    widget = KVCacheMap(session)
    batch = session.submit_batch(["a b c", "d e f"], max_tokens=6)
    gate.wait()
    gate.let(2)
    assert widget.tick() is True
    assert (widget.position, widget._facts["step"]) == (1, 1)
    assert unpacked(widget)[0] == {"r1": [1, 2], "r2": [3, 4]}
    assert widget._sentence.startswith("4 of 8 blocks in use; reserving the context for each would take 4,096 blocks")
    widget.position = 0
    assert (widget.following, widget._steps, widget._track["levels"]) == (False, 2, [4, 4])
    gate.let(3)
    assert widget.tick() is False
    assert (widget.position, widget._steps) == (0, 2)
    widget.following = True
    assert (widget.position, widget._steps, widget._track) == (4, 5, None)
    widget.following = False
    assert (widget.position, widget.following) == (4, False)
    assert widget.handle("follow", {}) == {"following": True}
    gate.open()
    batch.result()
    while widget.tick():
        pass
    assert unpacked(widget)[0] == {}
    assert widget._sentence == "0 of 8 blocks in use."
    widget.position = 1  # the trace is still there
    assert len(widget.state.tables) == 2  # type: ignore[union-attr]
    assert "for prompt + max_tokens alone, 10 blocks." in widget._sentence
    session.unload()
    widget.following = True
    assert widget.state is None
    widget.position = 1
    assert widget.state is not None


def test_what_did_not_change_is_not_sent(session: Session, sent: Sent) -> None:
    session.generate("hi")
    widget = KVCacheMap(session)
    widget.tick()
    widget.tick()
    messages = sent(widget)
    for _ in range(5):
        assert widget.tick() is False
    assert messages == []


def test_after_a_large_frame_comes_a_pause(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jupyter_infer.widgets.kv_map.BYTES_A_SECOND", 1e-6)
    session.load()
    widget = KVCacheMap(session)
    session.generate("one")
    widget.tick()
    shown = widget._facts
    session.generate("two")
    assert widget.tick() is True  # there is more to show
    assert widget._facts == shown


def test_another_session_or_a_run_can_be_set(scripted_session: Callable[..., Session]) -> None:
    first, second = scripted_session(), scripted_session(Script(blocks=17))
    second.load()
    widget = KVCacheMap(first)
    widget.session = second
    assert widget._sentence == "0 of 17 blocks in use."
    widget.run = run_of(prefix_run())
    assert (widget._recorded, widget.position) == (True, 3)
    widget.run = None
    assert (widget._recorded, widget.following, widget._sentence) == (False, True, "0 of 17 blocks in use.")
    result = second.generate("hi")
    assert KVCacheMap(result).following is False
    stopped = KVCacheMap(second, following=False)
    assert (stopped.following, stopped.position, stopped._steps) == (False, 3, 4)
    assert KVCacheMap(session=second, position=1).position == 1
