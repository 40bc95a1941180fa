"""Charts, frames and files of what was recorded: which run is shown, what is compared, and what is told instead."""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest
from builders import make_record, make_sample, make_step, make_work

import jupyter_infer as ji
from jupyter_infer.charts import Chart
from jupyter_infer.engine.scripted import ScriptedEngine
from jupyter_infer.errors import ConfigError, PromptError
from jupyter_infer.pricing import DEFAULT_PRICE, MachinePrice
from jupyter_infer.recorded import Recording, Runs, compare, describe, read_runs
from jupyter_infer.result import Refused, Result
from jupyter_infer.results import Results
from jupyter_infer.run import Run, RunHeader
from jupyter_infer.session import Session

MS = 1_000_000


def a_run(name: str | None = None, **facts: Any) -> Run:
    record = make_record(make_sample([300 * MS, 400 * MS]), started_ns=100 * MS, **facts)
    steps = (
        make_step(make_work(tokens=10, prefill_tokens=10), start=100 * MS, end=300 * MS, index=0),
        make_step(make_work(), start=300 * MS, end=400 * MS, index=1),
    )
    return Run(RunHeader("now", ScriptedEngine().info, MachinePrice(3.6)), (record,), steps, name=name)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, str, dict[str, Any]]]:
    """What the charts "steps" and "compare" were asked to draw: runs, title and options."""
    calls: list[tuple[Any, str, dict[str, Any]]] = []

    def chart_of(shown: Any, title: str, options: dict[str, Any]) -> Chart:
        calls.append((shown, title, options))
        return Chart(go.Figure(), title, "It reads.")

    def steps_chart(run: Run, *, title: str = "", victim: str | None = None) -> Chart:
        return chart_of(run, title, {"victim": victim})

    def compare_chart(runs: Any, *, title: str = "", labels: Any = None) -> Chart:
        return chart_of(runs, title, {"labels": labels})

    for made in (steps_chart, compare_chart):
        module = types.ModuleType(name := f"jupyter_infer.charts.{made.__name__.removesuffix('_chart')}")
        setattr(module, made.__name__, made)
        monkeypatch.setitem(sys.modules, name, module)
    return calls


# Charts of one run.


def test_a_chart_has_what_was_run_as_its_title() -> None:
    chart = Recording(a_run("base")).chart()
    assert chart.title == "base · scripted · 1 request · 10 in → 2 out · throughput 5 tok/s · 400 ms"
    assert Recording(a_run()).chart("phases").title.startswith("scripted · 1 request")
    assert Recording(a_run()).figure() == Recording(a_run()).chart().figure
    assert chart.reading == "The first token came after 300 ms, then one every 100 ms; prefill took 50 % of 400 ms."


def test_a_chart_can_have_another_title(drawn: list[Any]) -> None:
    Recording(a_run()).chart("steps", title="For the talk")
    assert drawn[0][1] == "For the talk"


def test_an_option_reaches_its_chart(drawn: list[Any]) -> None:
    Recording(a_run()).chart("steps", victim="r3")
    assert drawn[0][0] == a_run()
    assert drawn[0][2] == {"victim": "r3"}


def test_an_unknown_kind_names_a_near_one_and_all() -> None:
    with pytest.raises(ConfigError) as caught:
        Recording(a_run()).chart("phase")
    assert str(caught.value) == (
        "unknown chart 'phase'; did you mean 'phases'?; there is: phases, tokens, steps, cost, kv, compare"
    )
    with pytest.raises(ConfigError, match="unknown chart 'zzz'; there is:"):
        Recording(a_run()).figure("zzz")


def test_an_unknown_option_names_those_that_there_are(drawn: list[Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        Recording(a_run()).chart("steps", victin="r3")
    assert str(caught.value) == ("the chart 'steps' has no option 'victin'; did you mean 'victim'?; it takes victim")
    with pytest.raises(ConfigError, match="the chart 'phases' has no option 'labels'; it takes none"):
        Recording(a_run()).chart(labels=["a"])
    for name in ("run", "runs"):
        with pytest.raises(ConfigError, match=f"has no option '{name}'"):
            Recording(a_run()).chart("steps", **{name: 1})
    assert not drawn


def test_without_a_request_there_is_nothing_to_draw() -> None:
    for empty in (Runs([]), Recording(replace(a_run(), requests=()))):
        with pytest.raises(ConfigError, match="no request ran, so there is nothing to draw"):
            empty.chart()


def test_a_session_shows_its_last_load(scripted_session: Callable[..., Session], drawn: list[Any]) -> None:
    session = scripted_session()
    session.generate("one")
    session.unload()
    session.generate(["two", "three"])
    session.chart("steps")
    run, title, _ = drawn[0]
    assert [record.label for record in run.requests] == ["two", "three"]
    assert title.startswith("scripted · 2 requests · 2 in → 8 out")


# Runs of files.


def test_several_runs_are_a_sequence() -> None:
    items = [Recording(a_run(name, prompt_tokens=count)) for count, name in enumerate("abc", 1)]
    runs = Runs(items)
    assert (len(runs), runs[0], runs[-1], list(runs)) == (3, items[0], items[2], items)
    assert isinstance(runs[1:], Runs)
    assert list(runs[1:]) == items[1:]
    assert runs[:0] == Runs([])
    assert runs.runs is runs
    assert repr(runs) == "Runs(3: a, b, c)"
    assert [run.name for run in runs.data] == ["a", "b", "c"]


def test_runs_are_equal_if_what_was_measured_is() -> None:
    assert Recording(a_run("a")) == Recording(a_run("b"))
    assert Recording(a_run()) != Recording(a_run(prompt_tokens=11))
    assert Recording(a_run()) != a_run()
    assert Runs([Recording(a_run("a"))]) == Runs([Recording(a_run("b"))])
    assert Runs([Recording(a_run())]) != [Recording(a_run())]
    with pytest.raises(TypeError):
        hash(Runs([]))


def test_a_recording_is_its_run_seen_from_the_outside() -> None:
    recording = Recording(a_run("base"))
    assert (recording.requests, recording.steps) == (a_run().requests, a_run().steps)
    assert recording.runs == Runs([recording])
    assert repr(recording).startswith("Recording(base · scripted · 1 request")


def test_several_runs_have_no_chart_of_one_and_say_what_to_type(drawn: list[Any]) -> None:
    runs = Runs([Recording(a_run("a")), Recording(a_run("b"))])
    with pytest.raises(ConfigError) as caught:
        runs.chart("steps")
    assert str(caught.value) == "these are 2 runs; take one, runs[0], or compare them: runs.chart('compare')"
    assert runs[:1].chart("steps").title.startswith("a · scripted")
    runs.chart("compare", labels=["x", "y"])
    assert drawn[-1] == ([run.run for run in runs], "", {"labels": ["x", "y"]})


def test_runs_are_described_by_what_was_run() -> None:
    run = a_run()
    both = replace(run, requests=(run.requests[0], replace(run.requests[0], request_id="r2", model="other")))
    assert describe(both) == "scripted, other · 2 requests · 20 in → 4 out · throughput 10 tok/s · 400 ms"
    assert describe(replace(run, requests=())) == "scripted · 0 requests · 0 in → 0 out · throughput n/a · n/a"
    assert describe(Run(RunHeader("now", None, None), (), ())).startswith("no model · 0 requests")


# Files.


def test_what_a_session_did_is_read_back_equal(session: Session, tmp_path: Path) -> None:
    results = session.generate(["a", "b"], max_tokens=2)
    single = session.generate("c", n=2)
    path = session.to_jsonl(tmp_path / "session.jsonl")
    assert path == tmp_path / "session.jsonl"
    again = read_runs(path)
    [run] = again.data
    assert run.requests == tuple(result.record for result in session.history)
    assert run.steps == session.runs.data[0].steps
    assert run.complete
    assert run.name == "session"
    # Each of them, too, with what the engine did meanwhile.
    for part in (results, single):
        assert read_runs(part.to_jsonl(tmp_path / "part.jsonl")) == part.runs


def test_files_of_several_people_are_read_together(tmp_path: Path) -> None:
    for name in ("b", "a"):
        Recording(a_run()).to_jsonl(tmp_path / f"{name}.jsonl")
    Recording(a_run()).to_jsonl(tmp_path / "b.jsonl", append=True)
    assert [run.name for run in ji.read_runs(tmp_path / "*.jsonl").data] == ["a", "b 1", "b 2"]
    with pytest.raises(ConfigError, match="no file is called"):
        read_runs(tmp_path / "c.jsonl")


def test_a_file_is_not_replaced_by_nothing(tmp_path: Path, session: Session) -> None:
    path = Recording(a_run()).to_jsonl(tmp_path / "x.jsonl")
    for nothing in (session, Runs([]), Results([Refused("long", PromptError("too long"))])):
        with pytest.raises(ConfigError, match="no request ran, so there is nothing to write"):
            nothing.to_jsonl(path)
    assert read_runs(path) == Recording(a_run()).runs


def test_a_replay_says_so_in_the_line_of_a_batch() -> None:
    info = ScriptedEngine().info
    replayed = replace(info, engine="replay of vllm 0.11.0")
    record = make_record()
    for engine, said in ((replayed, True), (info, False), (None, False)):
        results = Results([Result(record, DEFAULT_PRICE, engine=engine)])
        assert results.status.split(" · ")[-1] == ("replay" if said else "≈$2.1e-12 @ $0.05/h assumed")


# Comparing.


def test_all_that_was_recorded_can_be_compared(session: Session, drawn: list[Any]) -> None:
    first, second = session.generate("one"), session.generate(["two", "three"])
    read = Recording(a_run("base"))
    compare(first, second, Runs([read, read]))
    runs, title, options = drawn[0]
    assert [[record.label for record in run.requests] for run in runs] == [
        ["one"],
        ["two", "three"],
        ["Why?"],
        ["Why?"],
    ]
    assert (title, options) == ("", {"labels": None})


def test_of_a_session_each_burst_is_a_run_of_its_own(session: Session, drawn: list[Any]) -> None:
    session.generate("one")
    session.generate(["two", "three"])
    session.chart("compare")
    runs, title, _ = drawn[0]
    assert [len(run.requests) for run in runs] == [1, 2]
    assert title == ""  # a line about one of them would be wrong


def test_a_label_is_for_all_runs_of_an_argument(drawn: list[Any]) -> None:
    one = Recording(a_run())
    compare([one, one], Runs([one, one]), one, labels=["base", "int8", "base"])
    assert drawn[0][2] == {"labels": ["base", "base", "int8", "int8", "base"]}


def test_what_cannot_be_compared_is_told(drawn: list[Any]) -> None:
    one = Recording(a_run())
    with pytest.raises(ConfigError, match="2 things to compare want as many labels; got 1"):
        compare(one, one, labels=["a"])
    for wrong, said in (
        ("a.jsonl", r"not a str; read the file first: read_runs\('a\.jsonl'\)"),
        (a_run(), "not a Run$"),
        ([one, 5], "not a list with a int in it"),
        ([], "not an empty list"),
        (None, "not a NoneType"),
    ):
        with pytest.raises(ConfigError, match=said):
            compare(one, wrong)  # type: ignore[arg-type]
    assert not drawn


def test_a_comparison_takes_two() -> None:
    with pytest.raises(ConfigError, match="two runs or more"):
        compare(Recording(a_run()))
    with pytest.raises(ConfigError, match="two runs or more"):
        compare()


def test_a_chart_is_json_that_a_notebook_can_keep(session: Session) -> None:
    bundle = session.generate("a").chart()._repr_mimebundle_()
    assert json.loads(json.dumps(bundle, allow_nan=False)) == bundle


def test_a_run_is_the_same_each_time(scripted_session: Callable[..., Session], tmp_path: Path) -> None:
    session = scripted_session()
    first, second = session.generate("one", seed=1), session.generate("two", seed=2)
    assert first.run == first.run
    assert read_runs(first.to_jsonl(tmp_path / "first.jsonl")) == first.runs
    # The session has both, and the second once more is no repeat of it.
    arms_of = compare(session, second).table.rows
    assert compare(session).table.rows == arms_of


def test_a_session_is_priced_as_is_set_now_and_a_result_as_it_was(scripted_session: Callable[..., Session]) -> None:
    session = scripted_session()
    first = session.generate("one")
    session.price = MachinePrice(50)
    second = session.generate("two")
    assert first.run.price == DEFAULT_PRICE
    assert session.runs[0].run.price == MachinePrice(50)
    both = Results([first, second])
    assert both.run.price is None  # each has its own
    assert "@ several prices" in both.status


def test_read_runs_wants_a_name() -> None:
    with pytest.raises(ConfigError, match=r'read_runs\("run.jsonl"\)'):
        read_runs()


def test_a_frame_without_rows_has_its_columns() -> None:
    empty = Results([])
    assert "ttft_s" in empty.to_pandas().columns
    assert "duration_s" in empty.to_pandas("steps").columns
