"""What an answer could do to the page, and does not. The engine plays scripts: no model can be made to say this."""

from __future__ import annotations

import json
from collections.abc import Callable

import nbformat
import pytest

from tests.browser.conftest import Lab, Notebook

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
script = Script(answer=lambda prompt: ANSWERS[prompt], step_ns=lambda tokens: 1_000_000, max_model_len=8192)
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
]


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
    whole = "".join(FLOOD).split()
    assert notebook.outputs(index).first.inner_text().split() == whole
    notebook.save()
    book = nbformat.read(lab.root / "output.ipynb", as_version=4)
    (answer, *_) = book.cells[index].outputs
    assert len(json.dumps(answer)) <= 3 * len("".join(FLOOD))
