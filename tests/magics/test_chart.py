"""``%infer chart``: of the last cell, of what a name stands for, and a line for each mistake."""

from __future__ import annotations

import sys
import types
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest
from conftest import use_session
from gate import wait_for_drawing

from jupyter_infer.charts import Chart
from jupyter_infer.errors import ConfigError
from jupyter_infer.recorded import Recording, Runs, read_runs
from jupyter_infer.run import Run
from jupyter_infer.session import Session, current_session

from .conftest import ask
from .test_complete import completions

Calls = list[tuple[str, Any, dict[str, Any]]]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """What the charts "steps" and "compare" were asked to draw: labels of the requests of each run, and options."""
    calls: Calls = []

    def labels_of(run: Run) -> list[str]:
        return [record.label for record in run.requests]

    def steps_chart(run: Run, *, title: str = "", victim: Any = None) -> Chart:
        calls.append(("steps", labels_of(run), {"title": title, "victim": victim}))
        return Chart(go.Figure(), title, "It reads.")

    def compare_chart(runs: Any, *, title: str = "", labels: Any = None) -> Chart:
        calls.append(("compare", [labels_of(run) for run in runs], {"title": title, "labels": labels}))
        return Chart(go.Figure(), title, "They differ.")

    for made in (steps_chart, compare_chart):
        name = f"jupyter_infer.charts.{made.__name__.removesuffix('_chart')}"
        monkeypatch.setitem(sys.modules, name, module := types.ModuleType(name))
        setattr(module, made.__name__, made)
    return calls


@pytest.fixture
def asked(shell: Any) -> Any:
    """A shell in which two things were asked: `a`, then the batch `b`."""
    ask(shell, "%%infer --out a\none")
    ask(shell, "%%infer --split --out b\ntwo\n---\nthree")
    return shell


# What is shown.


def test_without_a_word_it_is_the_phases_of_the_last_cell(asked: Any) -> None:
    chart = ask(asked, "%infer chart")
    assert isinstance(chart, Chart)
    assert chart.title == asked.user_ns["b"].status
    assert chart.text == ask(asked, "%infer chart phases").text
    assert asked.user_ns["_"].text == chart.text


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("", ["two", "three"]),
        ("a", ["one"]),
        ("b", ["two", "three"]),
        ("b[0]", ["two"]),
        ("b[-1]", ["three"]),
        ("session", ["one", "two", "three"]),
        ("pair[1]", ["two", "three"]),
        ("alone", ["one"]),
        ("read", ["one"]),
        ("one.jsonl", ["one"]),
        ("*ne.jsonl", ["one"]),
    ],
)
def test_a_word_names_what_is_shown(
    asked: Any, drawn: Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, shown: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names = asked.user_ns
    path = names["a"].to_jsonl("one.jsonl")
    names |= {"pair": [names["a"], names["b"]], "alone": [names["a"]], "read": read_runs(path)}
    ask(asked, f"%infer chart steps {words}")
    assert [call[1] for call in drawn] == [shown]


def test_a_handle_of_a_cell_in_the_background_is_waited_for(shell: Any, drawn: Calls) -> None:
    ask(shell, "%%infer --background --out one\nalone")
    ask(shell, "%%infer --background --split --out many\ntwo\n---\nthree")
    ask(shell, "%infer chart steps one")
    ask(shell, "%infer chart steps many")
    ask(shell, "%infer chart steps many[1]")
    assert [call[1] for call in drawn] == [["alone"], ["two", "three"], ["three"]]
    wait_for_drawing()


def test_a_variable_comes_before_a_word_of_ours(asked: Any, drawn: Calls) -> None:
    asked.user_ns["session"] = asked.user_ns["a"]
    ask(asked, "%infer chart steps session")
    assert drawn[0][1] == ["one"]


def test_options_reach_the_chart(asked: Any, drawn: Calls) -> None:
    ask(asked, "%infer chart steps a --victim r3")
    ask(asked, "%infer chart steps --victim=r2 a --title 'For the talk'")
    assert drawn[0][2] == {"title": asked.user_ns["a"].status, "victim": "r3"}
    assert drawn[1][2] == {"title": "For the talk", "victim": "r2"}


def test_a_semicolon_keeps_the_chart_and_shows_nothing(asked: Any) -> None:
    assert ask(asked, "%infer chart phases a;") is None
    assert isinstance(asked.user_ns["_"], Chart)
    assert asked.user_ns["_"].title == asked.user_ns["a"].status


def test_the_chart_can_be_kept_under_a_name(asked: Any) -> None:
    ask(asked, "kept = %infer chart phases a")
    assert asked.user_ns["kept"].title == asked.user_ns["a"].status


# Comparing.


def test_named_things_are_compared_and_else_the_session(asked: Any, drawn: Calls) -> None:
    ask(asked, "%infer chart compare a b")
    ask(asked, "%infer chart compare")
    assert [call[1] for call in drawn] == [[["one"], ["two", "three"]]] * 2
    assert drawn[0][2] == {"title": "", "labels": None}


def test_files_and_a_list_of_repeats_are_compared(
    asked: Any, drawn: Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = asked.user_ns
    names["again"] = [names["a"], names["a"]]
    for name in "xy":
        names["a"].to_jsonl(f"{name}.jsonl")
    ask(asked, "%infer chart compare *.jsonl again --labels 'files, here'")
    assert drawn[0][1] == [["one"]] * 4
    assert drawn[0][2]["labels"] == ["files", "files", "here", "here"]


@pytest.mark.parametrize(
    ("typed", "labels"),
    [("x,y", ["x", "y"]), ("8,16", ["8", "16"]), ("'a b, c'", ["a b", "c"]), ("0.5,1.5", ["0.5", "1.5"])],
)
def test_labels_stand_with_commas_between(asked: Any, drawn: Calls, typed: str, labels: list[str]) -> None:
    ask(asked, f"%infer chart compare a b --labels {typed}")
    ask(asked, f"%infer chart compare --labels {typed}")
    assert [call[2]["labels"] for call in drawn] == [labels, labels]


# Mistakes.


def refused(shell: Any, line: str) -> str:
    with pytest.raises(ConfigError) as caught:
        ask(shell, f"%infer chart {line}")
    return str(caught.value)


def test_before_anything_was_asked_it_says_what_to_do(shell: Any) -> None:
    assert refused(shell, "") == "nothing was asked yet; write a question in a %%infer cell"
    assert refused(shell, "steps") == "nothing was asked yet; write a question in a %%infer cell"
    assert "no request ran" in refused(shell, "phases session")


def test_an_unknown_kind_names_near_ones_or_says_that_the_kind_comes_first(asked: Any) -> None:
    assert refused(asked, "step") == (
        "unknown chart 'step'; did you mean 'steps'?; there is: phases, tokens, steps, cost, kv, compare"
    )
    assert refused(asked, "b") == "the kind of the chart stands first: %infer chart phases b"
    assert refused(asked, "b[0]") == "the kind of the chart stands first: %infer chart phases b[0]"
    assert refused(asked, "x.jsonl") == "the kind of the chart stands first: %infer chart phases x.jsonl"
    assert refused(asked, "a --kind steps").startswith("the kind of the chart stands first")
    assert refused(asked, "--kind steps").startswith("unknown option '--kind': the kind of the chart stands first")
    assert refused(asked, "--self 1").startswith("unknown option '--self'")


def test_an_unknown_name_says_near_ones(asked: Any) -> None:
    asked.user_ns["baseline"] = asked.user_ns["a"]
    assert refused(asked, "phases baselin") == (
        "there is no 'baselin'; did you mean 'baseline'?; name a result, session, or a .jsonl file"
    )
    assert refused(asked, "phases sesion").startswith("there is no 'sesion'; did you mean 'session'?")
    assert refused(asked, "phases zzz") == "there is no 'zzz'; name a result, session, or a .jsonl file"
    assert refused(asked, "phases missing.jsonl") == "no file is called 'missing.jsonl'"


@pytest.mark.parametrize(
    "value", [5, "a text", [], ["a", "b"], object(), Future()], ids=lambda value: type(value).__name__
)
def test_what_is_no_result_is_refused_and_not_called(asked: Any, value: Any) -> None:
    asked.user_ns["thing"] = value
    assert refused(asked, "phases thing") == (
        "thing is no result, batch, session or recorded run; name one that %%infer --out made"
    )


def test_an_item_that_is_not_there_is_told(asked: Any) -> None:
    assert refused(asked, "phases b[2]") == "b holds 2, from b[0] on; there is no b[2]"
    assert refused(asked, "phases a[0]") == "a holds one thing; leave [0] out"


def test_one_chart_shows_one_thing(asked: Any, drawn: Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = asked.user_ns
    runs = Runs([Recording(names["a"].run), Recording(names["b"].run)])
    runs.to_jsonl("two.jsonl")
    names |= {"pair": [names["a"], names["b"]], "runs": runs}
    assert refused(asked, "steps a b") == "a chart of steps shows one thing; type %infer chart compare a b"
    assert refused(asked, "steps pair") == ("pair holds 2 runs; name one, pair[0], or type %infer chart compare pair")
    assert refused(asked, "steps runs") == ("runs holds 2 runs; name one, runs[0], or type %infer chart compare runs")
    assert refused(asked, "steps two.jsonl") == (
        "two.jsonl holds 2 runs; name one, runs = ji.read_runs('two.jsonl'), and then runs[0], "
        "or type %infer chart compare two.jsonl"
    )
    ask(asked, "%infer chart steps runs[1]")
    assert drawn == [("steps", ["two", "three"], drawn[0][2])]


def test_options_that_are_not_there_are_told(asked: Any, drawn: Calls) -> None:
    assert "no option 'victin'; did you mean 'victim'?" in refused(asked, "steps --victin r1")
    assert refused(asked, "compare a b --victim r1") == (
        "%infer chart compare A B … takes --labels alone; got --victim"
    )
    assert refused(asked, "compare a b --labels") == "--labels needs a value: --labels A,B"
    assert refused(asked, "compare a b --labels x") == "2 things to compare want as many labels; got 1"
    assert not drawn


# A replay in a cell.


def test_a_cell_on_a_replay_answers_and_says_so(
    asked: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_engine_threads: None, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    current_session().to_jsonl("x.jsonl")
    before = [result.record for result in (asked.user_ns["a"], *asked.user_ns["b"])]
    session = Session()
    use_session(session, monkeypatch)
    try:
        ask(asked, "%infer load x.jsonl")
        assert "a replay of x.jsonl: answers and times are those that were recorded" in capsys.readouterr().out
        one = ask(asked, "%%infer\none")
        many = ask(asked, "%%infer --split\ntwo\n---\nthree")
        assert one.text == asked.user_ns["a"].text
        assert one.status.startswith("✓ scripted (replay) · ")
        assert many.status.endswith(" · replay")
        after = [result.record for result in (one, *many)]
        for old, new in zip(before, after, strict=True):
            assert new.finished_ns - new.started_ns == old.finished_ns - old.started_ns
        assert ask(asked, "%infer chart").title == many.status
        with pytest.raises(ConfigError, match="a replay takes no engine settings"):
            ask(asked, "%infer load x.jsonl --max-num-seqs 4")
        with pytest.raises(ConfigError, match="no tokenizer"):
            ask(asked, "%infer tokens hello")
    finally:
        session.unload()


# Tab.


@pytest.mark.parametrize(
    ("code", "offered", "not_offered"),
    [
        ("%infer cha", {"chart"}, {"clear"}),
        ("%infer chart ", {"phases", "tokens", "steps", "cost", "kv", "compare"}, {"session", "a"}),
        ("%infer chart st", {"steps"}, {"phases"}),
        ("%infer chart steps ", {"session", "a", "b"}, {"steps", "number", "_"}),
        ("%infer chart compare a s", {"session"}, {"b"}),
    ],
)
def test_tab_offers_kinds_and_then_what_can_be_shown(
    asked: Any, code: str, offered: set[str], not_offered: set[str]
) -> None:
    asked.user_ns["number"] = 5
    found = set(completions(asked, code))
    assert offered <= found
    assert not (not_offered & found)
