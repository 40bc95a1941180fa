"""The benchmark of our own path: what it says, when it fails, and that what it runs leaves nothing to grow."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jupyter_infer.bench import path
from jupyter_infer.bench.path import _Recorded, _Traced, as_it_must_be, measure_path, path_text
from jupyter_infer.cli import main

STEPS = {"1": 10.0, "16": 60.0, "32": 100.0}
GOOD: dict[str, Any] = {
    "tracing_us_a_step": STEPS,
    "recording_us_a_step": STEPS,
    "display_us_an_update": {"100": 100.0, "10000": 300.0, "100000": 300.0},
    "old_session": {"steps": 10_000, "requests": 500, "tracing_us_a_step": STEPS, "recording_us_a_step": STEPS},
    "steps_a_round": 400,
    "updates_a_round": 40,
    "rounds": 5,
}


def test_every_figure_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(path, "UPDATES", 2)
    said: list[str] = []
    found = measure_path(steps=3, rounds=2, old_steps=40, old_requests=20, say=said.append)
    assert found.keys() == GOOD.keys()
    assert found["old_session"].keys() == GOOD["old_session"].keys()
    for place in (found, found["old_session"]):
        for name in ("tracing_us_a_step", "recording_us_a_step"):
            assert place[name].keys() == STEPS.keys()
            assert all(type(us) is float for us in place[name].values())
    assert found["display_us_an_update"].keys() == GOOD["display_us_an_update"].keys()
    assert json.loads(json.dumps(found)) == found
    assert said == [
        "tracing and recording",
        "20 requests, 40 steps",
        "tracing and recording after them",
        "updating a cell",
    ]


@pytest.mark.parametrize("place", ["tracing_us_a_step", "recording_us_a_step"])
@pytest.mark.parametrize("count", ["1", "16", "32"])
def test_a_step_that_costs_more_in_an_old_session_is_not_as_it_must_be(place: str, count: str) -> None:
    found = json.loads(json.dumps(GOOD))
    assert as_it_must_be(found)
    assert path_text(found).endswith("✓ nothing grows")
    found["old_session"][place][count] += 120.0
    assert not as_it_must_be(found)
    last = path_text(found).splitlines()[-1]
    assert last.startswith(f"✗ {place.partition('_')[0]} a step of {count} takes ")


def test_an_update_that_costs_more_for_a_longer_text_is_not_as_it_must_be() -> None:
    found = json.loads(json.dumps(GOOD))
    found["display_us_an_update"]["100000"] = 7_000.0
    assert not as_it_must_be(found)
    assert path_text(found).endswith("✗ an update takes 7,000 µs at 100,000 characters, and 300 µs before")


def test_the_text_has_a_row_for_each_figure() -> None:
    lines = path_text(GOOD).splitlines()
    rows = [line.split() for line in lines]
    assert ["32", "100", "0.17%", "100"] in rows
    assert ["100,000", "300", "0.36%"] in rows
    assert "after 500 requests, 10,000 steps" in "\n".join(lines)


@pytest.mark.parametrize(("us", "status"), [(300.0, 0), (7_000.0, 1)])
def test_the_command_fails_if_something_grows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], us: float, status: int
) -> None:
    found = json.loads(json.dumps(GOOD))
    found["display_us_an_update"]["100000"] = us
    asked: list[int] = []

    def measured(*, steps: int, say: Any) -> dict[str, Any]:
        asked.append(steps)
        say("measuring")
        return found

    monkeypatch.setattr(path, "measure_path", measured)
    assert main(["bench", "path", "--json", "--steps", "7"]) == status
    out, err = capsys.readouterr()
    assert json.loads(out) == found
    assert (err, asked) == ("measuring\n", [7])
    assert main(["bench", "path"]) == status
    assert capsys.readouterr().out == path_text(found) + "\n"


def test_traced_steps_are_those_that_were_asked_for_and_nothing_of_them_stays() -> None:
    traced = _Traced()
    for _ in range(3):
        assert type(traced.us_a_step(4, 5)) is float
    tracer = traced._traced.tracer
    assert tracer._index == 15
    assert not any((tracer.names, tracer._high, tracer._lost, tracer._open, tracer._done))


def test_recorded_steps_are_those_that_were_asked_for_and_only_the_history_stays() -> None:
    recorded = _Recorded(6)
    for _ in range(3):
        recorded.us_a_step(4, 6)
    assert recorded._engine.gaps == 5  # between the six steps of the last run
    assert [result.usage.output_tokens for result in recorded.session.history] == [6] * 12
    ledger, tracer = recorded.session._worker._ledger, recorded._engine._tracer
    assert ledger is not None
    assert not any((ledger._open, tracer.names, tracer._high, tracer._lost, tracer._open, tracer._done))
    assert not recorded.session._worker._sinks
    recorded.session.unload()
