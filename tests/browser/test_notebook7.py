"""The same cell in Notebook 7."""

from __future__ import annotations

from collections.abc import Callable

from tests.browser.conftest import ANSWER_MS, Notebook
from tests.browser.looks import findings
from tests.browser.test_widget_hosts import CELLS as WIDGETS
from tests.browser.test_widget_hosts import LAB, NAMES, errors, still

CELLS = ["%load_ext jupyter_infer", "%%infer -t 0 --max-tokens 12\nWhy is the sky blue?", "%infer unload"]


def test_a_cell_in_notebook_7(open_notebook: Callable[..., Notebook]) -> None:
    notebook = open_notebook("seven", CELLS, app="notebook")
    for index in (0, 1):
        notebook.run(index)
        notebook.finished(index)
    notebook.output(1).locator(".js-plotly-plot .bars .point").first.wait_for(timeout=60_000)
    text = notebook.text(1)
    for part in ("smollm2-135m", "→ 12 out", "TTFT", "prefill", "decode"):
        assert part in text
    notebook.screenshot("notebook7")
    notebook.run(2)
    notebook.finished(2)


def test_the_widgets_in_notebook_7(open_notebook: Callable[..., Notebook]) -> None:
    notebook = open_notebook("seven-widgets", [*WIDGETS, LAB], app="notebook")
    for index in range(len(WIDGETS) + 1):
        notebook.run(index)
        notebook.finished(index)
    for index, name in {**NAMES, len(WIDGETS): "batch-lab"}.items():
        notebook.cell(index).scroll_into_view_if_needed()
        own = notebook.output(index).locator(f".ji-{name}")
        own.get_by_role("group").first.wait_for()
        still(notebook, index).wait_for(state="hidden")
        assert findings(own) == []
    own = notebook.output(3).locator(".ji-playground")
    own.get_by_label("Prompt", exact=True).fill("words")
    own.get_by_label("Prompt", exact=True).press("Control+Enter")
    own.get_by_text("256 out").first.wait_for(timeout=ANSWER_MS)
    assert own.get_by_role("region", name="Answer", exact=True).text_content() == "word " * 256
    notebook.screenshot("notebook7-widgets")
    notebook.output(len(WIDGETS)).locator(".js-plotly-plot").first.wait_for(timeout=ANSWER_MS)
    assert errors(notebook.errors) == []
