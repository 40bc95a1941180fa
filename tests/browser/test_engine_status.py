"""The line about the engine as a person sees it: states as they come, both themes, two views, a kernel that goes.

The tests share one notebook and run in the order of its cells, because the first load takes a while.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import nbformat
import pytest

from tests.browser.conftest import ANSWER_MS, Lab, Notebook
from tests.browser.looks import CONTRASTS, LIGHTNESS, assert_accessible, choose_theme, restart_kernel

CELLS = [
    "%load_ext jupyter_infer\nimport jupyter_infer as ji\nstatus = ji.EngineStatus()\nstatus",
    "mine = ji.EngineStatus()\ndisplay(mine)\n"
    "result = ji.current_session().generate('Write a story about a fox.', max_tokens=120, ignore_eos=True)",
    "status",
    "handle = ji.current_session().submit('Write a long story about a fox.', max_tokens=1500, ignore_eos=True)",
    "import time\nprint('x')\ntime.sleep(2)\nprint('y')",
    "handle.cancel()\nhandle.result().record.finish_reason",
]
IDLE = r"text.includes('idle') && /\b0 of /.test(text) && /(^|\s)0 tok/.test(text)"


@pytest.fixture(scope="module")
def notebook(open_notebook: Callable[..., Notebook]) -> Notebook:
    return open_notebook("engine-status", CELLS)


def widget(notebook: Notebook, index: int) -> Any:
    return notebook.output(index).locator(".ji-engine-status")


def test_before_a_load_it_says_so(notebook: Notebook) -> None:
    notebook.run(0)
    notebook.finished(0)
    notebook.wait_for_text(0, "text.includes('unloaded') && text.includes('n/a tok/s')")
    assert "smollm2-135m" in notebook.text(0)
    notebook.screenshot("engine-status-unloaded")
    assert_accessible(notebook, widget(notebook, 0))


def test_it_follows_a_load_and_a_request_while_their_cell_runs(notebook: Notebook) -> None:
    """The second view is of the very cell that runs, whose end its host's messages wait for."""
    notebook.run(1)
    for view in (0, 1):
        notebook.wait_for_text(view, "text.includes('loading: ')")
    notebook.screenshot("engine-status-loading")
    busy = "text.includes('busy') && /running\\s1\\b/.test(text) && /[1-9][\\d.]* tok/.test(text)"
    notebook.page.wait_for_function(
        "() => [...document.querySelectorAll('.ji-engine-status')].every(line => { const text = line.innerText;"
        f" return {busy} }})",
        timeout=ANSWER_MS,
    )
    assert notebook.prompt(1) == "[*]:"
    assert "blocks" in notebook.text(0)
    notebook.finished(1)
    for view in (0, 1):
        notebook.wait_for_text(view, IDLE)
    assert_accessible(notebook, widget(notebook, 1))


def test_a_second_view_says_the_same(notebook: Notebook) -> None:
    notebook.run(2)
    notebook.finished(2)
    notebook.wait_for_text(2, IDLE)
    assert widget(notebook, 2).count() == 1


def test_in_the_background_it_goes_on_and_writes_into_no_other_cell(notebook: Notebook) -> None:
    notebook.run(3)
    notebook.finished(3)
    for view in (0, 2):
        notebook.wait_for_text(view, "text.includes('busy') && /[1-9][\\d.]* tok/.test(text)")
    assert_accessible(notebook, widget(notebook, 2))
    notebook.run(4)
    notebook.finished(4)
    assert "busy" in notebook.text(2)
    assert notebook.text(4).split() == ["x", "y"]
    assert notebook.text(3) == ""


@pytest.mark.parametrize(("theme", "preferred"), [("Dark", "light"), ("Light", "dark")])
def test_it_follows_the_theme_of_jupyterlab_whatever_the_system_prefers(
    notebook: Notebook, theme: str, preferred: Any
) -> None:
    notebook.page.emulate_media(color_scheme=preferred)
    choose_theme(notebook, f"JupyterLab {theme}")
    line = widget(notebook, 2)
    assert (line.evaluate(LIGHTNESS) < 100) == (theme == "Dark")
    contrasts = line.evaluate(CONTRASTS)
    assert len(contrasts) >= 10
    assert min(contrasts) >= 4.5
    notebook.screenshot(f"engine-status-{theme.lower()}")


def test_when_the_engine_is_done_all_views_say_so(notebook: Notebook) -> None:
    notebook.run(5)
    notebook.finished(5)
    for view in (0, 2):
        notebook.wait_for_text(view, IDLE)
    spoken = widget(notebook, 2).get_by_role("status")
    assert spoken.get_attribute("aria-live") == "polite"
    assert spoken.text_content() == "Engine idle"


def test_the_saved_file_has_a_form_for_pages_without_widgets(notebook: Notebook, lab: Lab) -> None:
    notebook.save()
    book = nbformat.read(lab.root / "engine-status.ipynb", as_version=4)
    _, still = book.cells[2].outputs
    assert set(still.data) == {"text/plain", "text/html"}
    assert "smollm2-135m · idle" in still.data["text/plain"]
    assert "For the live widget, run the cell in JupyterLab" in still.data["text/html"]


def test_on_a_narrow_page_it_wraps(notebook: Notebook) -> None:
    before = notebook.page.viewport_size
    notebook.page.set_viewport_size({"width": 520, "height": 1000})
    line = widget(notebook, 2)
    line.scroll_into_view_if_needed()
    notebook.screenshot("engine-status-narrow")
    assert line.evaluate("root => root.scrollWidth <= root.clientWidth")
    notebook.page.set_viewport_size(before)


def test_when_the_kernel_is_restarted_a_readable_line_is_left(notebook: Notebook) -> None:
    restart_kernel(notebook)
    notebook.wait_for_text(2, "text.includes('kernel gone; run the cell again')")
    assert "smollm2-135m" in notebook.text(2)
    assert "n/a tok/s" in notebook.text(2)
    notebook.screenshot("engine-status-restarted")
    assert_accessible(notebook, widget(notebook, 2))
    notebook.run(4)
    notebook.finished(4)
    notebook.wait_for_text(4, "text.trim() === 'x\\ny'")
    assert "kernel gone" in notebook.text(2)


def test_after_a_restart_its_cell_shows_a_live_one_again(notebook: Notebook) -> None:
    notebook.run(0)
    notebook.wait_for_text(0, "text.includes('unloaded') && !text.includes('kernel gone')")
    assert widget(notebook, 0).count() == 1


def test_the_page_met_no_error(notebook: Notebook) -> None:
    assert [error for error in notebook.errors if "favicon" not in error] == []
