"""A chart as a cell's value: a figure, its sentences and its numbers, on every host; and the chart of a kind."""

from __future__ import annotations

import json
import sys
import types
from typing import Any

import plotly.graph_objects as go
import pytest

from jupyter_infer.charts import KINDS, PLOTLY_MIME, Chart, Table, draw
from jupyter_infer.charts.static import table_html
from jupyter_infer.errors import ConfigError
from jupyter_infer.pricing import DEFAULT_PRICE
from jupyter_infer.run import Run, RunHeader

from .samples import make_batch
from .test_static_html import EVIL, Page

HEAD = ("request", "TTFT", "end")
ROWS = (("1 · Why?", "332 ms", "stop"), ("2 · How?", "n/a", "aborted"))


def a_chart(**facts: Any) -> Chart:
    values = {"title": "✓ demo", "reading": "It was quick.", "table": Table(HEAD, ROWS)}
    return Chart(go.Figure({"data": [{"type": "bar", "x": [1.0, float("nan")], "y": [1, 2]}]}), **(values | facts))


def a_run() -> Run:
    return Run(RunHeader("now", None, DEFAULT_PRICE), tuple(make_batch(3)), ())


# The value of a cell.


def test_a_chart_has_all_three_forms() -> None:
    bundle = a_chart(advice="Load with --max-num-seqs 8.")._repr_mimebundle_()
    assert set(bundle) == {PLOTLY_MIME, "text/html", "text/plain"}
    assert json.loads(json.dumps(bundle, allow_nan=False)) == bundle
    assert bundle[PLOTLY_MIME]["data"][0]["x"] == [1.0, None]  # not a number is not 0
    assert bundle["text/plain"] == "✓ demo\nIt was quick.\nLoad with --max-num-seqs 8."
    texts = Page(bundle["text/html"]).texts
    for text in ("✓ demo", "It was quick.", "Load with --max-num-seqs 8.", *HEAD, *ROWS[0], *ROWS[1]):
        assert text in texts


def test_a_chart_in_words_leaves_out_what_it_has_not() -> None:
    assert a_chart().text == repr(a_chart()) == "✓ demo\nIt was quick."
    assert a_chart(title="").text == "It was quick."
    assert "None" not in a_chart()._repr_mimebundle_()["text/html"]


def test_a_static_form_of_its_own_is_taken_as_it_is() -> None:
    assert a_chart(html="<div>mine</div>")._repr_mimebundle_()["text/html"] == "<div>mine</div>"
    assert a_chart(html="")._repr_mimebundle_()["text/html"] == ""


def test_a_chart_without_a_table_has_its_sentences() -> None:
    html = a_chart(table=Table())._repr_mimebundle_()["text/html"]
    assert "It was quick." in html
    assert "<table" not in html


# The table.


def cells(html: str) -> list[str]:
    return [text for text in Page(html).texts if text.strip()]


def test_a_table_has_its_head_and_its_rows_in_order() -> None:
    html = table_html("title", ["One.", "Two."], HEAD, ROWS)
    assert cells(html) == ["title", "One.", "Two.", *HEAD, *ROWS[0], *ROWS[1]]
    tags = [tag for tag, _ in Page(html).tags]
    assert (tags.count("tr"), tags.count("th"), tags.count("td")) == (3, 3, 6)


@pytest.mark.parametrize(("count", "more"), [(12, None), (13, "1"), (1500, "1,488")])
def test_twelve_rows_are_shown_and_the_rest_is_counted(count: int, more: str | None) -> None:
    html = table_html("t", [], ("request", "TTFT"), [(f"row {n}", "1 ms") for n in range(count)])
    texts = cells(html)
    assert texts.count("1 ms") == 12
    assert "row 11" in texts
    assert "row 12" not in texts
    assert (f"… and {more} more rows, left out here." in texts) == (more is not None)
    assert ("left out here" in html) == (more is not None)


def test_text_is_text_and_never_markup() -> None:
    html = table_html(EVIL, [EVIL, "≈$1 of $2 & &amp;"], (EVIL, EVIL), [(EVIL, EVIL), ("\u202eabc 🙂\n2", "b")])
    page = Page(html)
    assert {tag for tag, _ in page.tags} <= {"div", "span", "table", "tr", "th", "td"}
    assert {name for _, attributes in page.tags for name in attributes} <= {"style", "class"}
    text = "".join(page.texts)
    assert text.count(EVIL) == 5  # all but the name of a row, which is cut
    assert "≈$1 of $2 & &amp;" in text
    assert "\u202e" not in text.replace(EVIL, "") or "\u202eabc" in text


def test_a_long_name_of_a_row_is_cut_and_a_figure_is_not() -> None:
    texts = cells(table_html("t", [], ("request", "TTFT"), [("long " * 20_000, "1.234567 s")]))
    assert max(map(len, texts)) < 60
    assert "1.234567 s" in texts


def test_no_script_reads_a_formula_in_a_table() -> None:
    html = table_html("$a$", ["$b$"], ("$c$",), [(r"\(d\)",)])
    assert 'class="tex2jax_ignore mathjax_ignore"' in html
    assert all(text in ("$", "\\") or not set(text) & {"$", "\\"} for text in Page(html).texts)


# The chart of a kind.


def test_the_phases_are_drawn_with_their_reading_on_the_card() -> None:
    chart = draw("phases", [a_run()], title="✓ three")
    assert chart.title == "✓ three"
    assert chart.reading.startswith("3 requests were answered in ")
    assert "3 requests were answered in" in json.dumps(
        chart.figure.to_dict()["layout"]["annotations"], default=str
    ).replace("<br>", " ")
    assert "✓ three" in chart._repr_mimebundle_()["text/html"]


def test_a_chart_of_one_run_gets_the_first_and_a_comparison_all(monkeypatch: pytest.MonkeyPatch) -> None:
    got: list[Any] = []

    def kv_chart(run: Run, *, title: str = "") -> Chart:
        got.append((run, title))
        return a_chart()

    def compare_chart(runs: Any, *, title: str = "", labels: Any = None) -> Chart:
        got.append((runs, title, labels))
        return a_chart()

    for made in (kv_chart, compare_chart):
        name = f"jupyter_infer.charts.{made.__name__.removesuffix('_chart')}"
        monkeypatch.setitem(sys.modules, name, module := types.ModuleType(name))
        setattr(module, made.__name__, made)
    run, other = a_run(), a_run().called("other")
    draw("kv", [run, other], title="t")
    draw("compare", [run, other], labels=["a", "b"])
    assert got == [(run, "t"), ([run, other], "", ["a", "b"])]


def test_an_unknown_kind_and_an_unknown_option_are_told() -> None:
    with pytest.raises(ConfigError, match=r"unknown chart 'step'; did you mean 'steps'\?; there is: phases, tokens"):
        draw("step", [a_run()])
    for name in ("run", "runs", "kind", "victim"):
        with pytest.raises(ConfigError, match=f"the chart 'phases' has no option '{name}'"):
            draw("phases", [a_run()], **{name: "x"})


def test_the_kinds_are_those_that_are_promised() -> None:
    assert list(KINDS) == ["phases", "tokens", "steps", "cost", "kv", "compare"]
    assert all(does[0].islower() and not does.endswith(".") for does in KINDS.values())
