"""The same cell in Notebook 7."""

from __future__ import annotations

from collections.abc import Callable

from tests.browser.conftest import Notebook

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
