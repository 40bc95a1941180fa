"""A cell as a person sees it: progress, text that grows, status line, bars, an interrupt, a reopened file.

The tests share one notebook and run in the order of its cells, because each first load takes a while.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable

import nbformat
import pytest

from tests.browser.conftest import Lab, Notebook

CELLS = [
    "%load_ext jupyter_infer",
    "%%infer -t 0 --max-tokens 24\nWhy is the sky blue? Answer in two sentences.",
    "%%infer --max-tokens 2000 --ignore-eos\nWrite a very long story about a fox.",
    "%%infer --max-tokens 4 -t 0\nSay hi.",
    "%%infer --max-token 4\nA typing error.",
    "%infer unload",
]


@pytest.fixture(scope="module")
def notebook(open_notebook: Callable[..., Notebook]) -> Notebook:
    return open_notebook("cell", CELLS)


def test_a_first_cell_shows_progress_and_then_text_that_grows(notebook: Notebook) -> None:
    notebook.run(0)
    notebook.finished(0)
    notebook.run(1)
    notebook.wait_for_text(1, "text.includes('loading')")
    notebook.screenshot("cell-loading")
    notebook.wait_for_text(1, "text.length > 5 && !text.includes('loading')")
    first = notebook.text(1)
    notebook.wait_for_text(1, f"text.length > {len(first)}")
    notebook.finished(1)


def test_then_only_the_answer_the_status_line_and_the_bars(notebook: Notebook) -> None:
    notebook.output(1).locator(".js-plotly-plot .bars .point").first.wait_for(timeout=60_000)
    text = notebook.text(1)
    assert "loading" not in text.split("TTFT")[0]
    for word in ("smollm2-135m", "in →", "TTFT", "tok/s", "/h assumed", "queued", "prefill", "decode"):
        assert word in text
    assert notebook.output(1).locator(".js-plotly-plot .bars .point").count() >= 3
    notebook.screenshot("cell-answer")


def test_the_interrupt_button_stops_a_long_answer_and_keeps_it(notebook: Notebook) -> None:
    notebook.run(2)
    notebook.wait_for_text(2, "text.length > 40")
    notebook.interrupt()
    notebook.finished(2)
    notebook.wait_for_text(2, "text.includes('interrupted')")
    text = notebook.text(2)
    assert "Interrupted: the text so far is kept" in text
    assert "Traceback" not in text
    notebook.screenshot("cell-interrupted")


def test_the_next_cell_answers_only_itself(notebook: Notebook) -> None:
    notebook.run(3)
    notebook.finished(3)
    answer = notebook.outputs(3).first.inner_text()
    assert 0 < len(answer) < 60
    assert "→ 4 out" in notebook.text(3) or "stop" in notebook.text(3)


def test_a_typing_error_is_one_line(notebook: Notebook) -> None:
    notebook.run(4)
    notebook.finished(4)
    text = notebook.text(4).strip()
    assert "did you mean '--max-tokens'" in text
    assert "\n" not in text


def test_a_reopened_notebook_shows_everything_though_nothing_was_run(
    notebook: Notebook, open_notebook: Callable[..., Notebook], lab: Lab
) -> None:
    notebook.run(5)
    notebook.finished(5)
    notebook.save()
    shutil.copy(lab.root / "cell.ipynb", lab.root / "reopened.ipynb")  # as a colleague gets it: nothing was run here
    again = open_notebook("reopened", theme="dark")
    # Plotly's renderer saves a picture with the notebook, and shows it until the mouse comes.
    chart = again.output(1).locator("img.plot-img")
    chart.wait_for(timeout=60_000)
    assert chart.evaluate("image => image.naturalWidth") > 300
    assert "sky" in again.text(1)
    again.screenshot("cell-reopened-dark")


def test_the_saved_file_holds_text_chart_and_figures_and_is_small(notebook: Notebook, lab: Lab) -> None:
    book = nbformat.read(lab.root / "cell.ipynb", as_version=4)
    answer, chart = book.cells[1].outputs
    assert set(answer.data) == {"text/plain", "text/html"}
    assert "sky" in answer.data["text/plain"]
    assert set(chart.data) == {"application/vnd.plotly.v1+json", "text/html", "text/plain", "image/png"}
    assert len(json.dumps(chart)) <= 100_000  # with the picture that Plotly's renderer adds
