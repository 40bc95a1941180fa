"""Two notebooks at once, the second one dark: a cell in the background, and other cells while it runs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.browser.conftest import Notebook

OTHER = ["x = 41", "print(x + 1)"]
CELLS = [
    "%load_ext jupyter_infer",
    "%infer load",
    "%%infer -b -o job --ignore-eos --max-tokens 60 -t 0\nWrite a short story about a fox.",
    "print('x')",
    "%%infer -t 0 --max-tokens 8 -f text\nSay hi.",
    "job.result().text",
    "%%infer --split --max-tokens 12 -t 0\nOne fruit?\n---\nOne colour?\n---\nOne animal?",
    "%infer unload",
]


@pytest.fixture(scope="module")
def notebook(open_notebook: Callable[..., Notebook]) -> Notebook:
    return open_notebook("background", CELLS, theme="dark")


def test_a_load_shows_where_it_is_and_then_what_was_loaded(notebook: Notebook) -> None:
    notebook.run(0)
    notebook.finished(0)
    notebook.run(1)
    notebook.wait_for_text(1, "text.includes('loading')")
    notebook.finished(1)
    assert "KV pool" in notebook.text(1)
    assert "loading" not in notebook.text(1)


def test_another_notebook_works_meanwhile(notebook: Notebook, open_notebook: Callable[..., Notebook]) -> None:
    notebook.run(2)
    notebook.finished(2)  # at once: the text comes later
    other = open_notebook("other", OTHER)
    for index in (0, 1):
        other.run(index)
        other.finished(index)
    assert other.text(1).strip() == "42"


def test_text_of_the_background_goes_to_its_own_cell(notebook: Notebook) -> None:
    notebook.run(3)
    notebook.finished(3)
    notebook.run(4)
    notebook.finished(4)
    notebook.run(5)
    notebook.finished(5)
    notebook.wait_for_text(3, "text !== ''")  # a cell is numbered before its text is drawn
    assert notebook.text(3).strip() == "x"
    notebook.wait_for_text(5, "text !== ''")
    answer = notebook.text(5).strip()[1:-1].encode().decode("unicode_escape")
    notebook.wait_for_text(2, "text.includes('TTFT')")
    first = "".join(notebook.outputs(2).first.inner_text().split())
    assert first == "".join(answer.split())  # Markdown makes paragraphs of line breaks
    assert answer[:20] not in notebook.text(4)
    notebook.output(2).locator(".js-plotly-plot .bars .point").first.wait_for(timeout=60_000)
    notebook.screenshot("background-dark")


def test_a_batch_is_a_bar_a_request(notebook: Notebook) -> None:
    notebook.run(6)
    notebook.finished(6)
    notebook.output(6).locator(".js-plotly-plot .bars .point").first.wait_for(timeout=60_000)
    text = notebook.text(6)
    for part in ("[1]", "[2]", "[3]", "3 requests", "One colour?"):
        assert part in text
    notebook.cell(6).scroll_into_view_if_needed()
    notebook.screenshot("batch-dark")
    notebook.run(7)
    notebook.finished(7)
