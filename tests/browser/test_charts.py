"""Every chart as a person sees it: drawn from a run of the real engine, and again from the saved file, in the dark."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable

import pytest

from tests.browser.conftest import Lab, Notebook

CELLS = [
    "%load_ext jupyter_infer\nimport jupyter_infer as ji\n"
    'intro = "You are a careful assistant, and you answer in one short sentence. " * 6\n'
    'questions = [f"{intro} What is {n} plus {n}?" for n in range(3)] + ["apple pear plum cherry " * 200]',
    "%%infer --prompts questions -t 0 --max-tokens 24 --ignore-eos -o batch",
    "%infer chart tokens",
    "%infer chart steps --victim r1",
    "%infer price --api 2,0.5,8;\nbatch.chart('cost')",
    "%infer chart kv",
    "ask = lambda prompt: ji.current_session().generate(prompt, max_tokens=8, temperature=0, ignore_eos=True)\n"
    'ji.compare([ask("One word?") for _ in range(3)], [ask(["One word?"] * 4) for _ in range(3)])',
    "%infer unload",
]
SAYS = {
    "phases": (1, ("4 requests", "median TTFT", "shared cost")),
    "tokens": (2, ("median ITL", "ITL", "first token")),
    "steps": (3, ("the budget of 512 tokens", "tokens of each step", "KV blocks in use", "r1")),
    "cost": (4, ("Shared cost of 4 requests", "idle", "wall cost")),
    "kv": (5, ("blocks", "shared prefix", "contiguous")),
    "compare": (6, ("TTFT", "95 % interval", "lower is better")),
}


@pytest.fixture(scope="module")
def notebook(open_notebook: Callable[..., Notebook]) -> Notebook:
    opened = open_notebook("charts", CELLS)
    for index in range(len(CELLS)):
        opened.run(index)
        opened.finished(index)
    return opened


def shown(notebook: Notebook, kind: str) -> str:
    """Bring a chart on the screen, wait until it is drawn, and return the words on it."""
    index, _ = SAYS[kind]
    notebook.cell(index).scroll_into_view_if_needed()
    plot = notebook.output(index).locator(".js-plotly-plot .main-svg").first
    plot.wait_for(timeout=60_000)
    plot.scroll_into_view_if_needed()
    return " ".join(notebook.output(index).locator(".js-plotly-plot text").all_text_contents())


@pytest.mark.parametrize("kind", SAYS)
def test_a_chart_is_drawn_and_says_how_to_read_it(notebook: Notebook, kind: str) -> None:
    words = shown(notebook, kind)
    for word in SAYS[kind][1]:
        assert word in words
    notebook.page.mouse.move(5, 5)
    notebook.screenshot(f"chart-{kind}-light")


def test_the_saved_file_has_every_chart_in_three_forms_and_is_small(notebook: Notebook, lab: Lab) -> None:
    notebook.save()
    saved = (lab.root / "charts.ipynb").read_text()
    cells = [cell for cell in json.loads(saved)["cells"] if cell["cell_type"] == "code"]
    for kind, (index, _) in SAYS.items():
        bundles = [output["data"] for output in cells[index]["outputs"] if "data" in output]
        (bundle,) = [data for data in bundles if "application/vnd.plotly.v1+json" in data]
        html = "".join(bundle["text/html"])
        assert "<table" in html, kind
        assert "<script" not in html
        assert "".join(bundle["text/plain"]).strip()
        assert len(json.dumps(bundle)) < 300_000, kind  # with that picture


@pytest.mark.parametrize("kind", SAYS)
def test_a_reopened_notebook_shows_it_on_a_dark_page_with_no_kernel(reopened: Notebook, kind: str) -> None:
    index, _ = SAYS[kind]
    reopened.cell(index).scroll_into_view_if_needed()
    # Plotly's renderer saves a picture with the notebook, and shows it until the mouse comes.
    picture = reopened.output(index).locator("img.plot-img")
    picture.wait_for(timeout=60_000)
    picture.scroll_into_view_if_needed()
    assert picture.evaluate("image => image.naturalWidth") > 300
    reopened.screenshot(f"chart-{kind}-dark")


@pytest.fixture(scope="module")
def reopened(notebook: Notebook, open_notebook: Callable[..., Notebook], lab: Lab) -> Notebook:
    notebook.save()
    shutil.copy(lab.root / "charts.ipynb", lab.root / "charts-again.ipynb")
    return open_notebook("charts-again", theme="dark")
