"""A run as a trace for Perfetto: valid JSON, slices that nest, a track a request, and not a nanosecond lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import make_record, make_sample, make_step, make_work

from jupyter_infer.chrome_trace import ENGINE, REQUESTS, trace_events
from jupyter_infer.engine.scripted import Script, ScriptedEngine
from jupyter_infer.errors import ConfigError
from jupyter_infer.metrics import phases
from jupyter_infer.recorded import Recording, Runs
from jupyter_infer.run import Run, RunHeader
from jupyter_infer.session import Session

BEGUN = 7_000_000_000_123
HEADER = RunHeader("now", ScriptedEngine().info, None)

Events = list[dict[str, Any]]


def ns(value: float) -> int:
    """Return the nanoseconds of a time in microseconds, which has to hold them exactly."""
    assert abs(value * 1000 - round(value * 1000)) < 1e-3
    return round(value * 1000)


def slices(events: Events, process: int, *names: str) -> Events:
    return [event for event in events if event["ph"] == "X" and event["pid"] == process and event["name"] in names]


def a_run(**facts: Any) -> Run:
    times = [BEGUN + 333_333, BEGUN + 412_347]
    values = {"arrival_ns": BEGUN, "started_ns": BEGUN + 100_001, "finished_ns": times[-1]}
    record = make_record(make_sample(times), **(values | facts))
    step = make_step(
        make_work(tokens=10, prefill_tokens=10, kv_tokens=10, new_blocks=(3,), cached_tokens=0),
        start=BEGUN + 100_001,
        end=BEGUN + 333_333,
        index=4,
        preempted=[("r9", 1)],
        evicted=[8],
        running=1,
        waiting=2,
        free=250,
    )
    last = make_step(make_work(), start=BEGUN + 333_333, end=BEGUN + 412_347, index=5, running=1)
    return Run(HEADER, (record,), (step, last))


def test_a_step_is_a_slice_with_its_parts_exactly_within_it() -> None:
    run = a_run()
    events = trace_events(run)
    assert [event["name"] for event in slices(events, ENGINE, "step 4", "step 5")] == ["step 4", "step 5"]
    for step in run.steps:
        [whole] = slices(events, ENGINE, f"step {step.index}")
        place = events.index(whole)
        parts = events[place + 1 : place + 4]  # the one that encloses first: at equal times the viewers go by the order
        assert [part["name"] for part in parts] == ["schedule", "forward", "update"]
        assert ns(whole["ts"]) == step.start_ns - BEGUN
        assert ns(whole["dur"]) == step.duration_ns
        at = ns(whole["ts"])
        for part in parts:
            assert (ns(part["ts"]), part["tid"], part["pid"]) == (at, whole["tid"], ENGINE)
            at += ns(part["dur"])
        assert at == ns(whole["ts"]) + ns(whole["dur"])


def test_a_step_tells_what_it_computed() -> None:
    [step] = slices(trace_events(a_run()), ENGINE, "step 4")
    assert step["args"]["preempted"] == ["r9/1"]
    assert step["args"]["evicted"] == [8]
    assert step["args"]["tokens"] == 10
    assert step["args"]["work"] == [{"request": "r1/0", "prefill": 10, "new_blocks": [3]}]


def test_requests_are_counted_when_a_step_is_planned_and_blocks_at_its_end() -> None:
    counters = [event for event in trace_events(a_run()) if event["ph"] == "C"]
    told = [(event["name"], ns(event["ts"]), event["args"]) for event in counters]
    assert told == [
        ("requests", 123_334, {"running": 1, "waiting": 2}),
        ("KV blocks", 333_333, {"held": 6}),  # 250 of 256 are free
        ("requests", 341_234, {"running": 1, "waiting": 0}),  # how many blocks were free is not known
    ]
    nobody = replace(a_run(), header=RunHeader("now", None, None))
    assert {event["name"] for event in trace_events(nobody) if event["ph"] == "C"} == {"requests"}


def test_the_phases_of_a_request_sum_to_its_time_exactly() -> None:
    run = a_run()
    parts = slices(trace_events(run), REQUESTS, "queued", "prefill", "decode")
    assert [part["name"] for part in parts] == ["queued", "prefill", "decode"]
    assert sum(ns(part["dur"]) for part in parts) == phases(run.requests[0]).e2e_ns == 412_347
    at = 0
    for part in parts:
        assert ns(part["ts"]) == at
        at += ns(part["dur"])


def test_a_token_step_is_an_instant_with_its_text() -> None:
    record = make_record(make_sample([300, 350, 400], tokens=[1, 0, 3]))
    events = trace_events(Run(HEADER, (record,), ()))
    instants = [event for event in events if event["ph"] == "i"]
    assert [(event["name"], ns(event["ts"])) for event in instants] == [("token", 300), ("token", 400)]
    assert instants[1]["args"] == {"step": 2, "text": "w2 ", "token_ids": [0, 1, 2]}


def test_every_request_and_each_of_several_samples_has_a_track_of_its_own() -> None:
    two = make_record(make_sample([300], finish="stop"), make_sample([350], index=1, finish="length"), label="Twice")
    one = make_record(make_sample([500]), request_id="r2", label="Once")
    events = trace_events(Run(HEADER, (two, one), ()))
    names = {event["tid"]: event["args"]["name"] for event in events if event["ph"] == "M" and event["pid"] == REQUESTS}
    assert {names[track] for track in names if track} == {"r1/0 Twice", "r1/1 Twice", "r2 Once"}
    assert len([event for event in events if event["name"] == "decode"]) == 3
    tokens = {(event["tid"], ns(event["ts"])) for event in events if event["name"] == "token"}
    assert tokens == {(1, 300), (2, 350), (3, 500)}
    assert {event["name"] for event in events if event["ph"] == "i"} == {"token"}  # all of them ended well


@pytest.mark.parametrize(
    ("facts", "phases_shown", "end"),
    [
        ({"started_ns": None}, [], ("abort", 900)),
        ({}, ["queued"], ("abort", 900)),
        ({"error": "it broke"}, ["queued"], ("it broke", 900)),
    ],
)
def test_a_request_that_got_no_token_shows_what_it_reached_and_its_end(
    facts: dict[str, Any], phases_shown: list[str], end: tuple[str, int]
) -> None:
    record = make_record(make_sample([], finish="abort"), finished_ns=900, **facts)
    events = trace_events(Run(HEADER, (record,), ()))
    assert [event["name"] for event in events if event["ph"] == "X"] == phases_shown
    [instant] = [event for event in events if event["ph"] == "i"]
    assert (instant["name"], ns(instant["ts"])) == end


def test_one_of_two_samples_that_was_aborted_is_told_on_its_track() -> None:
    record = make_record(make_sample([300]), make_sample([350], index=1, finish="abort"), finished_ns=900)
    ends = [event for event in trace_events(Run(HEADER, (record,), ())) if event["name"] not in ("token",)]
    assert [(event["tid"], event["name"]) for event in ends if event["ph"] == "i"] == [(2, "abort")]


def test_a_run_of_nothing_has_names_alone() -> None:
    assert {event["ph"] for event in trace_events(Run(HEADER, (), ()))} == {"M"}


def test_a_trace_of_a_session_is_whole(scripted_session: Callable[..., Session], tmp_path: Path) -> None:
    script = Script(block_size=4, blocks=16, token_budget=16, step_ns=lambda tokens: 1000)
    session = scripted_session(script)
    session.generate(["word " * 24, "a b c", "d " * 20], max_tokens=30)
    path = session.to_trace(tmp_path / "trace.json")
    events = json.loads(path.read_text())["traceEvents"]
    [run] = session.runs.data
    steps = [event for event in events if event["ph"] == "X" and event["name"].startswith("step ")]
    assert len(steps) == len(run.steps)
    for record in run.requests:
        track = next(
            event["tid"]
            for event in events
            if event["ph"] == "M" and event["args"]["name"].startswith(record.request_id)
        )
        own = [e for e in events if e["ph"] == "X" and e["pid"] == REQUESTS and e["tid"] == track]
        assert sum(ns(event["dur"]) for event in own) == phases(record).e2e_ns


def test_a_file_is_plain_json_whatever_is_in_the_texts(tmp_path: Path) -> None:
    text = '"\\ \n 🙂 \u202e <img src=x onerror=1> \u2028'
    run = a_run(label=text, prompt=text)
    path = Recording(run).to_trace(tmp_path / "x.json")
    assert path == tmp_path / "x.json"
    loaded = json.loads(path.read_text(encoding="utf-8"), parse_constant=pytest.fail)
    assert loaded["displayTimeUnit"] == "ms"
    names = [event["args"]["name"] for event in loaded["traceEvents"] if event["ph"] == "M"]
    assert f"r1 {text}" in names
    assert "scripted · scripted" in names


def test_a_trace_is_of_one_run_and_of_something(tmp_path: Path, session: Session) -> None:
    with pytest.raises(ConfigError, match="no request ran"):
        session.to_trace(tmp_path / "x.json")
    with pytest.raises(ConfigError, match=r"these are 2 runs; take one, runs\[0\]"):
        Runs([Recording(a_run()), Recording(a_run())]).to_trace(tmp_path / "x.json")
    with pytest.raises(ConfigError, match="there is no folder"):
        Recording(a_run()).to_trace(tmp_path / "missing" / "x.json")
    assert not list(tmp_path.iterdir())
