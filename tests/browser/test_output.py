"""What an answer could do to the page, and does not. The engine plays scripts: no model can be made to say this."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from playwright.sync_api import Browser, Page

from tests.browser.conftest import ANSWER_MS, Lab, Notebook

HOSTILE = (
    '<img src=x onerror="window.__p=1"><script>window.__p=2</script>[a](javascript:window.__p=3) '
    "![pixel](http://192.0.2.1/p.png) </pre><b>bold</b>"
)
PRICES = "It costs $5, then $6. Also \\(x^2\\), $$y$$ and code `[$]\\d+`"
RICH = """# Title

Some **bold** text, a list:

* one
* two

| a | b |
|---|---|
| 1 | 2 |

```python
print('$5')
```"""
FLOOD = [f"word{number} " for number in range(5000)]

SETUP = f"""
import jupyter_infer.session as ours
from jupyter_infer.engine.scripted import Script, ScriptedEngine
ANSWERS = {{"hostile": [{HOSTILE!r}], "prices": [{PRICES!r}], "rich": [{RICH!r}], "flood": {FLOOD!r}}}
answer = lambda prompt: ANSWERS.get(prompt, [prompt])
script = Script(answer=answer, step_ns=lambda tokens: 1_000_000, max_model_len=8192)
ours._current = ours.Session("scripted", factory=lambda *wanted: lambda progress: ScriptedEngine(script))
"""
CELLS = [
    "%load_ext jupyter_infer",
    SETUP,
    "%%infer\nhostile",
    "%%infer -f text\nhostile",
    "%%infer\nprices",
    "%%infer -f text\nprices",
    "%%infer\nrich",
    "%%infer -f text --max-tokens 5000\nflood",
    "%%infer -b --max-tokens 5000\nflood",
    "pass",
    f"%%infer\n{HOSTILE}",
    f"%%infer --split\n{HOSTILE}\n---\n{HOSTILE} $5 and $6",
    "%infer history",
]
ECHOED = (10, 11, 12)  # cells that show a prompt


@pytest.fixture(scope="module")
def notebook(open_notebook: Callable[..., Notebook]) -> Notebook:
    notebook = open_notebook("output", CELLS)
    for index in range(7):
        notebook.run(index)
        notebook.finished(index)
    return notebook


@pytest.mark.parametrize("index", [2, 3])
def test_an_answer_does_not_run_and_fetches_nothing(notebook: Notebook, index: int) -> None:
    asked: list[str] = []
    notebook.page.on("request", lambda request: asked.append(request.url))
    for part in ("<img src=x onerror=", "<script>window.__p=2</script>", "</pre><b>bold</b>"):
        assert part in notebook.outputs(index).first.inner_text()
    for link in notebook.outputs(index).first.locator("a").all():
        link.click()
    notebook.outputs(index).first.hover()
    assert notebook.page.evaluate("window.__p") is None
    assert notebook.outputs(index).first.locator("img, script, iframe, b").count() == 0
    assert not [url for url in asked if "127.0.0.1" not in url]


def test_prices_are_no_formulas_and_formulas_are(notebook: Notebook) -> None:
    rendered, plain = notebook.outputs(4).first, notebook.outputs(5).first
    assert "It costs $5, then $6. Also " in rendered.inner_text()
    assert rendered.locator("code").inner_text() == "[$]\\d+"
    rendered.locator("mjx-container").nth(1).wait_for(timeout=60_000)
    assert rendered.locator("mjx-container").count() == 2
    assert plain.inner_text().strip() == PRICES
    assert plain.locator("mjx-container").count() == 0


def test_markdown_is_rendered(notebook: Notebook) -> None:
    answer = notebook.outputs(6).first
    assert answer.locator("h1").inner_text().startswith("Title")
    assert answer.locator("li").count() == 2
    assert answer.locator("td").count() == 2
    assert answer.locator("pre").inner_text().strip() == "print('$5')"
    notebook.cell(4).scroll_into_view_if_needed()
    notebook.screenshot("output-markdown")


@pytest.mark.parametrize("index", [7, 8])
def test_a_flood_leaves_the_page_usable_and_the_text_whole(notebook: Notebook, lab: Lab, index: int) -> None:
    notebook.run(index)
    notebook.wait_for_text(index, "text.includes('word50 ')")
    editor = notebook.cell(9).locator(".cm-content")
    editor.click()
    notebook.page.keyboard.type("typed = 1  # ")
    notebook.page.wait_for_function("text => document.body.innerText.includes(text)", arg="typed = 1  #", timeout=5_000)
    notebook.finished(index)
    notebook.wait_for_text(index, "text.includes('5,000 out')")
    notebook.page.wait_for_function(  # JupyterLab draws a text again, and for a moment none, when it is updated
        "([i, whole]) => document.querySelectorAll('.jp-Notebook .jp-CodeCell')[i]"
        ".querySelector('.jp-OutputArea-output')?.innerText.trim().replace(/\\s+/g, ' ') === whole",
        arg=[index, "".join(FLOOD).strip()],
        timeout=ANSWER_MS,
    )
    notebook.save()
    book = nbformat.read(lab.root / "output.ipynb", as_version=4)
    (answer, *_) = book.cells[index].outputs
    assert len(json.dumps(answer)) <= 1.2 * len("".join(FLOOD))
    assert len(json.dumps(book.cells[index])) <= 3 * len("".join(FLOOD))  # with the chart and its picture


def asked_by(page: Page) -> list[str]:
    """Return a list that will hold every address that a page asks for from now on."""
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    return asked


def is_harmless(page: Page, output: Any, asked: list[str]) -> None:
    """Check that nothing of `HOSTILE` became more than text in an output, and that nothing was fetched for it."""
    assert "<img src=x onerror=" in output.text_content()  # in the page, also where it is out of sight
    for link in output.locator("a[href]").all():
        assert not link.get_attribute("href").startswith("javascript")
    assert output.locator("script, iframe, [onerror], img[src='x'], mjx-container").count() == 0
    assert page.evaluate("window.__p") is None
    assert not [url for url in asked if "192.0.2.1" in url or url.endswith("/x")]


@pytest.fixture(scope="module")
def echoed(notebook: Notebook) -> Notebook:
    for index in ECHOED:
        notebook.run(index)
        notebook.finished(index)
    return notebook


@pytest.mark.parametrize("index", ECHOED)
def test_a_prompt_does_not_run_wherever_it_is_shown(echoed: Notebook, index: int) -> None:
    is_harmless(echoed.page, echoed.output(index), asked_by(echoed.page))


@pytest.mark.parametrize("index", [10, 11])
def test_the_labels_and_the_hover_text_of_a_chart_show_a_prompt_literally(echoed: Notebook, index: int) -> None:
    asked = asked_by(echoed.page)
    bars = echoed.output(index).locator(".js-plotly-plot .bars .point")
    bars.first.wait_for(timeout=60_000)
    echoed.cell(index).scroll_into_view_if_needed()
    hover = echoed.output(index).locator(".hoverlayer .hovertext")
    for bar in bars.all():
        if (box := bar.bounding_box()) and box["width"] > 4:
            echoed.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
            hover.first.wait_for(timeout=60_000)
            assert "<img src=x" in hover.first.text_content()
            break
    else:
        raise AssertionError("no bar is wide enough to point at")
    assert hover.locator("img, script, a").count() == 0
    if index == 11:
        assert "1 · <img src=x" in echoed.output(index).locator(".yaxislayer-above").first.text_content()
    is_harmless(echoed.page, echoed.output(index), asked)
    echoed.screenshot(f"output-hover-{index}")


def test_a_reopened_notebook_runs_nothing(echoed: Notebook, open_notebook: Callable[..., Notebook], lab: Lab) -> None:
    echoed.save()
    shutil.copy(lab.root / "output.ipynb", lab.root / "output-again.ipynb")
    again = open_notebook("output-again", theme="dark")
    asked = asked_by(again.page)
    for index in (2, 3, *ECHOED):
        again.cell(index).scroll_into_view_if_needed()
        again.wait_for_text(index, "text.includes('<img src=x onerror=')")  # JupyterLab draws a cell when it is seen
        is_harmless(again.page, again.output(index), asked)


def test_a_page_made_of_the_notebook_runs_nothing(echoed: Notebook, lab: Lab, browser: Browser, tmp_path: Path) -> None:
    """`nbconvert` puts the static form of a chart and the HTML of an answer into its page as they are."""
    echoed.save()
    command = ["-m", "nbconvert", "--to", "html", "--output-dir", str(tmp_path), str(lab.root / "output.ipynb")]
    subprocess.run([sys.executable, *command], check=True, capture_output=True)
    context = browser.new_context(offline=True)
    page = context.new_page()
    asked = asked_by(page)
    page.goto((tmp_path / "output.html").as_uri())
    for index in (2, 3, *ECHOED):
        cell = page.locator(".jp-CodeCell").nth(index)
        is_harmless(page, cell.locator(".jp-OutputArea").first, asked)
    chart = page.locator(".jp-CodeCell").nth(11).locator(".jp-OutputArea table")
    assert "1 · <img src=x" in chart.first.inner_text()
    context.close()
