"""Widgets where there is no kernel, no script or another host: what is saved, reopened, converted and executed.

The engine plays scripts: it has to say what no model can be made to say, and here nothing depends on the model.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import nbformat
import pytest
from playwright.sync_api import Browser, Page

from tests.browser.conftest import ANSWER_MS, Lab, Notebook
from tests.browser.looks import BEYOND, choose, findings
from tests.browser.test_output import HOSTILE, asked_by, is_harmless

SETUP = f"""
import jupyter_infer as ji
from jupyter_infer.engine.scripted import Script, ScriptedEngine
hostile = {HOSTILE!r}
script = Script(answer=lambda prompt: [hostile, " end"] if "hostile" in prompt else ["word "] * 4000,
                step_ns=lambda tokens: 2_000_000, max_model_len=8192)
fake = ji.Session("fake", factory=lambda *given: lambda progress: ScriptedEngine(script))
"""
CELLS = [
    SETUP,
    "status = ji.EngineStatus(session=fake)\nstatus",
    "pool = ji.KVCacheMap(fake)\npool",
    "pg = ji.Playground(fake, prompt='hostile ' + hostile)\ndisplay(pg)\nrun = pg.run()",  # before it has a view
    "print(run.result().finish_reason, pg.state)",
]
LAB = "lab = ji.BatchLab(fake, requests=3, output_tokens=5)\ndisplay(lab)\nlab.run().result()\nprint(lab.state)"
SHOWN = {1: "scripted · idle · 0 running", 2: "KV cache: 0 of 256 blocks in use", 3: "Playground · ✓ scripted"}
NAMES = {1: "engine-status", 2: "kv-map", 3: "playground"}
HINT = "As it was when its last run ended"


@pytest.fixture(scope="module")
def notebook(open_notebook: Callable[..., Notebook]) -> Notebook:
    opened = open_notebook("hosts", CELLS)
    for index in range(len(CELLS)):
        opened.run(index)
        opened.finished(index)
    assert opened.text(4).strip() == "stop done"
    return opened


@pytest.fixture(scope="module")
def saved(notebook: Notebook, lab: Lab) -> Path:
    notebook.save()
    return lab.root / "hosts.ipynb"


@pytest.fixture(scope="module")
def saved_with_state(notebook: Notebook, saved: Path, lab: Lab) -> Path:
    """The notebook as JupyterLab saves it with "Save Widget State Automatically"."""
    plain = saved.read_bytes()
    choose(notebook, "Settings", "Save Widget State Automatically")
    notebook.run(4)
    notebook.page.wait_for_selector(".jp-mod-dirty", timeout=30_000)
    notebook.save()
    with_state = shutil.copy(saved, lab.root / "hosts-state.ipynb")
    choose(notebook, "Settings", "Save Widget State Automatically")
    saved.write_bytes(plain)
    return Path(with_state)


def still(notebook: Notebook, index: int) -> Any:
    """The static form of the widget of a cell."""
    return notebook.output(index).locator("[class^=ji-still-]")


def errors(page_errors: list[str]) -> list[str]:
    """What a page met, less what ipywidgets says of a model that no kernel has, or has no more."""
    expected = ("favicon", "widget model not found", "no comm channel defined")
    return [error for error in page_errors if not any(part in error for part in expected)]


# In JupyterLab, with a kernel.


@pytest.mark.parametrize("index", SHOWN)
def test_a_widget_has_one_view_and_its_static_form_is_out_of_sight(notebook: Notebook, index: int) -> None:
    notebook.cell(index).scroll_into_view_if_needed()
    assert notebook.output(index).locator(f".ji-{NAMES[index]}").count() == 1
    still(notebook, index).wait_for(state="hidden")
    assert still(notebook, index).count() == 1
    outputs = notebook.output(index).locator(".jp-OutputArea-child")
    assert [output.bounding_box() is None for output in outputs.all()] == [False, True]  # and it leaves no gap


def test_a_run_that_began_before_the_view_was_there_is_in_it_from_its_beginning(notebook: Notebook) -> None:
    answer = notebook.output(3).get_by_role("region", name="Answer", exact=True)
    assert answer.text_content() == f"{HOSTILE} end"


def test_runs_of_one_prompt_stay_apart(notebook: Notebook) -> None:
    own = notebook.output(3).locator(".ji-playground")
    own.get_by_role("button", name="Run", exact=True).click()
    for number in (1, 2):
        own.get_by_role("button", name=f"Compare run {number}").click(timeout=ANSWER_MS)
    for number in (1, 2):
        own.get_by_role("region", name=f"Answer of run {number}").wait_for()
    for number in (1, 2):
        own.get_by_role("button", name=f"Compare run {number}").click()


def test_widgets_on_one_page_do_not_change_each_other_s_looks(notebook: Notebook) -> None:
    slider, shown = (notebook.output(2).locator(part) for part in (".ji-slider", ".ji-kv-map"))
    assert slider.bounding_box()["width"] > 0.8 * shown.bounding_box()["width"]
    assert notebook.output(3).locator(".ji-playground").evaluate(BEYOND) == []
    spaces = "line => getComputedStyle([...line.querySelectorAll('.ji-value')].at(-1)).whiteSpace"
    assert [notebook.output(index).locator(".ji").evaluate(spaces) for index in (1, 3)] == ["nowrap", "normal"]


def test_a_closed_widget_leaves_its_static_form(open_notebook: Callable[..., Notebook]) -> None:
    notebook = open_notebook(
        "hosts-closed", [SETUP, "status = ji.EngineStatus(session=fake)\nstatus", "status.close()"]
    )
    for index in range(3):
        notebook.run(index)
        notebook.finished(index)
    still(notebook, 1).wait_for(state="visible")
    assert notebook.output(1).locator(".ji-engine-status").count() == 0
    assert errors(notebook.errors) == []


def test_playgrounds_of_two_notebooks_run_at_once(notebook: Notebook, open_notebook: Callable[..., Notebook]) -> None:
    pages = [notebook, open_notebook("hosts-other", [*CELLS[:3], "pg = ji.Playground(fake)\npg"])]
    for index in range(4):
        pages[1].run(index)
        pages[1].finished(index)
    shown = [page.output(3).locator(".ji-playground") for page in pages]
    for own in shown:
        own.get_by_label("Max tokens").fill("3000")
        own.get_by_label("Prompt", exact=True).fill("words")
        own.get_by_role("button", name="Run", exact=True).click()
    for own in shown:
        own.get_by_text("running", exact=True).first.wait_for()
    for own in shown:
        own.get_by_role("button", name="Stop").click()
        own.locator(".ji-now").get_by_text("stopped").wait_for(timeout=ANSWER_MS)
    own = shown[0]  # as the other tests want it
    own.get_by_role("button", name="Use run 1 again").click()
    notebook.page.wait_for_function("() => document.querySelector('.ji-text textarea').value.startsWith('hostile')")
    own.get_by_role("button", name="Run", exact=True).click()
    own.get_by_role("region", name="Answer", exact=True).get_by_text("<img").first.wait_for(timeout=ANSWER_MS)
    own.locator(".ji-now").get_by_text("done").wait_for(timeout=ANSWER_MS)


def test_where_its_script_does_not_come_there_is_the_static_form(
    saved: Path, lab: Lab, browser: Browser, open_notebook: Callable[..., Notebook]
) -> None:
    """A server without anywidget in its environment: JupyterLab then has no script that draws the widget."""
    context = browser.new_context(viewport={"width": 1200, "height": 1000})
    context.route("**/extensions/anywidget/**", lambda route: route.abort())
    shutil.copy(saved, lab.root / "hosts-server.ipynb")
    page = context.new_page()
    page.goto(f"{lab.url}/lab/workspaces/server/tree/hosts-server.ipynb?reset", timeout=ANSWER_MS)
    page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=ANSWER_MS)
    other = Notebook(page)
    for index in (0, 1):
        other.run(index)
        other.finished(index)
    still(other, 1).get_by_text("fake · unloaded").wait_for(timeout=ANSWER_MS)
    context.close()


# Saved, and opened again.


def test_the_saved_file_has_what_was_there_last(saved: Path) -> None:
    book = nbformat.read(saved, as_version=4)
    nbformat.validate(book)
    for index, line in SHOWN.items():
        view, static = book.cells[index].outputs
        assert view.data["text/plain"] == view.data["text/html"] == ""
        assert line in static.data["text/plain"]
        assert static.data["text/html"].count(HINT) == 1
    assert "&lt;img src=x" in static.data["text/html"]
    assert len(json.dumps(book)) < 60_000
    assert "widgets" not in book.metadata


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_reopened_notebook_shows_what_was_there_last_and_runs_nothing(
    saved: Path, lab: Lab, open_notebook: Callable[..., Notebook], theme: str
) -> None:
    shutil.copy(saved, lab.root / f"hosts-again-{theme}.ipynb")
    again = open_notebook(f"hosts-again-{theme}", theme=theme)
    asked = asked_by(again.page)
    for index, line in SHOWN.items():
        again.cell(index).scroll_into_view_if_needed()
        still(again, index).get_by_text(line.split(" · ")[0]).first.wait_for()
        assert findings(still(again, index)) == []
    is_harmless(again.page, again.output(3), asked)
    assert "end" in still(again, 3).inner_text()
    again.screenshot(f"hosts-reopened-{theme}")
    assert errors(again.errors) == []


def test_reopened_with_its_state_it_is_drawn_and_says_that_there_is_no_kernel(
    saved_with_state: Path, open_notebook: Callable[..., Notebook]
) -> None:
    again = open_notebook(saved_with_state.stem)
    asked = asked_by(again.page)
    for index, name in NAMES.items():
        again.cell(index).scroll_into_view_if_needed()
        again.output(index).locator(f".ji-{name}").get_by_text("kernel gone; run the cell again").first.wait_for()
        still(again, index).wait_for(state="hidden")
    own = again.output(3).locator(".ji-playground")
    assert own.get_by_role("region", name="Answer", exact=True).text_content() == f"{HOSTILE} end"
    assert own.get_by_role("button", name="Run", exact=True).is_disabled()
    is_harmless(again.page, own, asked)
    again.screenshot("hosts-state")
    assert errors(again.errors) == []


# Pages made of a notebook.


@pytest.fixture
def page_of(browser: Browser, tmp_path: Path) -> Iterator[Callable[[Path], Page]]:
    """Return a function that makes a page of a notebook with nbconvert and opens it, offline and with its errors."""
    contexts = []

    def opened(notebook: Path) -> Page:
        command = ["-m", "nbconvert", "--to", "html", "--output-dir", str(tmp_path), str(notebook)]
        subprocess.run([sys.executable, *command], check=True, capture_output=True)
        contexts.append(browser.new_context(offline=True))
        page = contexts[-1].new_page()
        page.met = []  # type: ignore[attr-defined]
        page.on("pageerror", lambda error: page.met.append(str(error)))  # type: ignore[attr-defined]
        page.goto((tmp_path / f"{notebook.stem}.html").as_uri())
        return page

    yield opened
    for context in contexts:
        context.close()


def shows_static_forms(page: Page, lines: Mapping[int, str] = SHOWN) -> None:
    """Check that a page shows the static form of each widget, once, and that nothing of a model runs in it."""
    for index, line in lines.items():
        cell = page.locator(".jp-CodeCell").nth(index)
        assert line.split(" · ")[0] in cell.inner_text().replace("\xa0", " ")
        assert cell.inner_text().count(HINT) == 1
    is_harmless(page, page.locator(".jp-CodeCell").nth(3).locator("[class^=ji-still-]"), [])


def test_a_page_made_of_the_notebook_shows_the_static_forms(saved: Path, page_of: Callable[[Path], Page]) -> None:
    page = page_of(saved)
    shows_static_forms(page)
    assert page.met == []  # type: ignore[attr-defined]


def test_so_does_one_made_of_a_notebook_with_widget_state_where_no_script_of_ipywidgets_comes(
    saved_with_state: Path, page_of: Callable[[Path], Page]
) -> None:
    assert "widgets" in nbformat.read(saved_with_state, as_version=4).metadata
    page = page_of(saved_with_state)
    assert page.locator("script[type='application/vnd.jupyter.widget-view+json']").count() == 3
    shows_static_forms(page)
    # The page of nbconvert uses require.js, which it wants from the net, and fails without.
    assert [error for error in page.met if "require" not in error] == []  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def executed(lab: Lab) -> Path:
    """The notebook as nbclient executes it: no page, no views, and the state of the widgets kept."""
    # nbclient passes over what comes of an earlier cell, so the run begins in the cell that waits for it.
    sources = [*CELLS[:3], CELLS[3].replace("run = pg.run()", ""), f"run = pg.run()\n{CELLS[4]}"]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    book.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    place = lab.root / "hosts-executed.ipynb"
    nbformat.write(book, place)
    command = ["-m", "nbconvert", "--to", "notebook", "--execute", "--inplace", str(place)]
    subprocess.run([sys.executable, *command], check=True, capture_output=True)
    return place


def test_executed_without_a_page_it_runs_and_keeps_its_last_static_form(
    executed: Path, page_of: Callable[[Path], Page]
) -> None:
    book = nbformat.read(executed, as_version=4)
    assert book.cells[4].outputs[0].text == "stop done\n"
    assert "Playground · ✓ scripted" in book.cells[3].outputs[1].data["text/plain"]
    assert len(book.metadata.widgets["application/vnd.jupyter.widget-state+json"]["state"]) == 6  # with their layouts
    # What follows a session says how it was when it was shown, for nothing made the kernel look again since.
    shows_static_forms(page_of(executed), {1: "fake · unloaded", 2: "No model is loaded", 3: SHOWN[3]})


def test_a_lab_keeps_its_figures_and_its_chart_in_the_file(
    lab: Lab, open_notebook: Callable[..., Notebook], page_of: Callable[[Path], Page]
) -> None:
    notebook = open_notebook("hosts-lab", [SETUP, LAB])
    for index in range(2):
        notebook.run(index)
        notebook.finished(index)
    notebook.output(1).locator(".js-plotly-plot").first.wait_for(timeout=ANSWER_MS)  # below the lab
    still(notebook, 1).wait_for(state="hidden")
    notebook.save()
    saved = lab.root / "hosts-lab.ipynb"
    outputs = nbformat.read(saved, as_version=4).cells[1].outputs
    view, static, charts, printed = outputs
    assert printed.text == "done\n"
    assert "application/vnd.jupyter.widget-view+json" in view.data
    assert "application/vnd.jupyter.widget-view+json" in charts.data
    assert "Batch lab · ✓ 3 requests · 192 in → 15 out" in static.data["text/plain"]
    for part in ("3 requests of 64 in → 5 out, at once", "imited", "steps in"):  # and the chart's own sentence
        assert part in static.data["text/html"].replace("\u00a0", " ")
    shutil.copy(saved, lab.root / "hosts-lab-again.ipynb")
    again = open_notebook("hosts-lab-again")
    again.cell(1).scroll_into_view_if_needed()
    still(again, 1).get_by_text("Batch lab").first.wait_for()
    assert findings(still(again, 1)) == []
    again.screenshot("hosts-lab-reopened")
    assert errors(again.errors) == []
    page = page_of(saved)
    assert "✓ 3 requests" in page.locator(".jp-CodeCell").nth(1).inner_text().replace("\u00a0", " ")
    assert page.met == []  # type: ignore[attr-defined]


def test_in_a_row_of_widgets_each_has_a_width_and_nothing_typed_beside_a_busy_kernel_is_lost(
    open_notebook: Callable[..., Notebook],
) -> None:
    sources = [
        f"{SETUP}\nimport ipywidgets\nlab, pg = ji.BatchLab(fake), ji.Playground(fake)",
        "ipywidgets.HBox([lab, pg])",
        "import time\nend = time.monotonic() + 30\n"
        "while pg.prompt != 'the quick brown fox jumps over the lazy dog' and time.monotonic() < end:\n"
        "    sum(range(1000))\nprint(pg.prompt)",
        "print(lab.prompt_tokens)",
    ]
    notebook = open_notebook("hosts-row", sources)
    for index in (0, 1):
        notebook.run(index)
        notebook.finished(index)
    widths = [notebook.output(1).locator(f".ji-{name}").bounding_box()["width"] for name in ("batch-lab", "playground")]
    assert min(widths) >= 320
    notebook.screenshot("hosts-row")
    notebook.run(2)
    prompt = notebook.output(1).locator(".ji-playground").get_by_label("Prompt", exact=True)
    prompt.click()
    # A pause between two keys that is about as long as typing is waited for, so that answers come in between.
    prompt.press_sequentially("the quick brown fox jumps over the lazy dog", delay=310)
    assert prompt.input_value() == "the quick brown fox jumps over the lazy dog"
    tokens = notebook.output(1).locator(".ji-batch-lab").get_by_label("Prompt tokens", exact=True)
    tokens.fill("")
    tokens.press_sequentially("12345", delay=310)
    assert tokens.input_value() == "12345"
    tokens.blur()
    notebook.finished(2)
    assert notebook.text(2).strip() == "the quick brown fox jumps over the lazy dog"
    notebook.page.wait_for_timeout(400)  # as long as typing is waited for
    notebook.run(3)
    notebook.finished(3)
    assert notebook.text(3).strip() == "12345"
