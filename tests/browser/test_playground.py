"""The playground as a person uses it, on the real engine: type, run, stop, compare; from Python, and with the keyboard.

The tests share one notebook and run in the order of its cells, because the first load takes a while.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import nbformat
import pytest

from tests.browser.conftest import ANSWER_MS, SCREENSHOTS, Lab, Notebook
from tests.browser.looks import BEYOND, CONTRASTS, LIGHTNESS, assert_accessible, choose_theme, restart_kernel

EVIL = '<img src=x onerror="window.__p=1"><script>window.__p=2</script>[a](javascript:window.__p=3)</pre><b>'

CELLS = [
    "%load_ext jupyter_infer\nimport jupyter_infer as ji\npg = ji.Playground(max_tokens=40, ignore_eos=True)\npg",
    "pg",
    "pg.prompt = 'Name three colours.'\npg.temperature = 0\npg.max_tokens = 24\nrun = pg.run()\nprint(run.done)",
    "result = run.result()\nprint(pg.result is result, len(pg.history), pg.state)",
    "times = []\nsend = pg.comm.send\nimport time\n"
    "def counted(*given, **more):\n    times.append(time.monotonic())\n    return send(*given, **more)\n"
    "pg.comm.send = counted\npg.max_tokens = 300\npg.run().result()\npg.comm.send = send\n"
    "most = max(sum(t <= other < t + 1 for other in times) for t in times)\nprint(len(times) > 5, most <= 20, most)",
    "print('x')\nend = time.monotonic() + 60\n"
    "while pg.state != 'stopped' and time.monotonic() < end:\n    time.sleep(0.05)\nprint(pg.state)",
    "from jupyter_infer.engine.scripted import Script, ScriptedEngine\n"
    f"evil = {EVIL!r}\n"
    "script = Script(lambda prompt: [evil, ' end'] if 'evil' in prompt else ['0123456789' * 4] * 5000,"
    " step_ns=lambda tokens: 1_000_000, max_model_len=20_000, blocks=2000)\n"
    "fake = ji.Session('fake', factory=lambda *given: lambda progress: ScriptedEngine(script))\n"
    "pg2 = ji.Playground(fake, prompt='evil ' + evil, max_tokens=6000)\npg2",
    "print('back')",
]


@pytest.fixture(scope="module")
def notebook(open_notebook: Callable[..., Notebook]) -> Notebook:
    return open_notebook("playground", CELLS)


def widget(notebook: Notebook, index: int = 0) -> Any:
    return notebook.output(index).locator(".ji-playground")


def answer(notebook: Notebook, index: int = 0) -> Any:
    return widget(notebook, index).get_by_role("region", name="Answer", exact=True)


def picture(notebook: Notebook, name: str, index: int = 0) -> None:
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    widget(notebook, index).screenshot(path=SCREENSHOTS / f"playground-{name}.png")


def state(notebook: Notebook, text: str, index: int = 0) -> None:
    """Wait until the widget says a state."""
    notebook.page.wait_for_function(
        "([i, text]) => document.querySelectorAll('.jp-Notebook .jp-CodeCell')[i]"
        ".querySelector('.ji-now')?.textContent.startsWith(text)",
        arg=[index, text],
        timeout=ANSWER_MS,
    )


def test_it_shows_itself_before_a_model_is_loaded(notebook: Notebook) -> None:
    notebook.run(0)
    notebook.finished(0)
    state(notebook, "ready")
    notebook.wait_for_text(0, "text.includes('not loaded; the first run loads it')")
    picture(notebook, "empty")
    assert_accessible(notebook, widget(notebook))


def test_an_empty_prompt_is_refused_in_one_line(notebook: Notebook) -> None:
    widget(notebook).get_by_role("button", name="Run", exact=True).click()
    notebook.wait_for_text(0, "text.includes('the prompt is empty; write one, then run it')")
    assert_accessible(notebook, widget(notebook))


def test_a_prompt_is_typed_and_run_with_the_keyboard_alone(notebook: Notebook) -> None:
    widget(notebook).get_by_label("Prompt", exact=True).focus()
    notebook.page.keyboard.type("Write a story about a fox.")
    notebook.page.keyboard.press("Control+Enter")
    state(notebook, "loading the model")
    assert notebook.prompt(0) == "[1]:"  # and no cell ran
    picture(notebook, "loading")
    state(notebook, "running")
    notebook.page.wait_for_function("() => document.querySelectorAll('.ji-token').length > 8", timeout=ANSWER_MS)
    picture(notebook, "running")
    state(notebook, "done")
    notebook.wait_for_text(
        0, "text.includes('40 out') && text.includes('shared ≈$') && /TTFT\\s+[\\d.]+ m?s/.test(text)"
    )
    assert widget(notebook).locator(".ji-token").count() > 20
    picture(notebook, "done")
    assert_accessible(notebook, widget(notebook))


def test_arrow_keys_say_what_is_known_of_a_token(notebook: Notebook) -> None:
    answer(notebook).focus()
    for key in ("Home", "ArrowRight", "ArrowRight"):
        notebook.page.keyboard.press(key)
    detail = widget(notebook).locator(".ji-detail").inner_text()
    assert detail.startswith("token 3 · ")
    assert " · ITL " in detail
    assert " · step " in detail
    token = widget(notebook).locator(".ji-token").filter(has_text=re.compile(r"\w")).last  # a line break has no place
    token.hover()
    number = int(token.get_attribute("data-at")) + 1
    assert widget(notebook).locator(".ji-detail").inner_text().startswith(f"token {number} · ")


def test_a_second_view_has_the_whole_answer(notebook: Notebook) -> None:
    notebook.run(1)
    notebook.finished(1)
    notebook.wait_for_text(1, "text.includes('40 out')")
    assert answer(notebook, 1).inner_text() == answer(notebook).inner_text() != ""


def test_settings_and_runs_from_python_are_seen_in_all_views(notebook: Notebook) -> None:
    notebook.run(2)
    notebook.finished(2)
    assert notebook.text(2).strip() == "False"
    notebook.run(3)
    notebook.finished(3)
    assert notebook.text(3).strip() == "True 2 done"
    for view in (0, 1):
        notebook.wait_for_text(view, "text.includes('24 out')")
        assert widget(notebook, view).get_by_label("Temperature", exact=True).input_value() == "0"
        assert widget(notebook, view).get_by_label("Prompt", exact=True).input_value() == "Name three colours."


def test_a_long_answer_sends_at_most_20_messages_a_second(notebook: Notebook) -> None:
    notebook.run(4)
    notebook.finished(4)
    print("messages a second, at most:", notebook.text(4))
    assert notebook.text(4).startswith("True True")
    notebook.wait_for_text(0, "text.includes('300 out')")
    assert answer(notebook, 1).inner_text() == answer(notebook).inner_text()


def test_it_runs_and_stops_while_a_cell_runs(notebook: Notebook) -> None:
    notebook.run(5)
    notebook.wait_for_text(5, "text.includes('x')")
    own = widget(notebook)
    own.get_by_label("Max tokens").fill("2000")
    own.get_by_role("button", name="Run", exact=True).click()
    state(notebook, "running")
    notebook.page.wait_for_function("() => document.querySelectorAll('.ji-token').length > 8", timeout=ANSWER_MS)
    own.get_by_role("button", name="Stop").click()
    state(notebook, "stopped")
    state(notebook, "stopped", 1)
    notebook.finished(5)
    assert notebook.text(5).split() == ["x", "stopped"]


def test_the_answer_and_the_prompt_can_be_cleared_and_used_again(notebook: Notebook) -> None:
    own = widget(notebook)
    own.get_by_role("button", name="Clear").press("Enter")  # a key that JupyterLab has a use for, too
    state(notebook, "ready")
    own.get_by_label("Temperature, slider").press("ArrowRight")
    assert own.get_by_label("Temperature", exact=True).input_value() == "0.05"
    notebook.page.wait_for_function("() => document.querySelectorAll('.ji-token').length === 0")
    own.get_by_role("button", name="Use run 1 again").click()
    notebook.page.wait_for_function("() => document.querySelector('.ji-text textarea').value.includes('a fox')")


def test_two_runs_stand_side_by_side(notebook: Notebook) -> None:
    own = widget(notebook)
    own.get_by_role("button", name="Pin run 1").click()
    for number in (1, 2):
        own.get_by_role("button", name=f"Compare run {number}").click()
    own.get_by_role("region", name="Answer of run 2").wait_for()
    assert own.get_by_role("region", name="Answer of run 1").count() == 1
    assert own.get_by_role("button", name="Pin run 1").get_attribute("aria-pressed") == "true"
    picture(notebook, "side-by-side")
    assert_accessible(notebook, own)


def test_the_cell_is_copied_or_shown_selected(notebook: Notebook) -> None:
    own = widget(notebook)
    own.get_by_role("button", name="Copy as %%infer cell").click()
    copied = own.get_by_label("Text of the %%infer cell")
    notebook.wait_for_text(0, "text.includes('copied: paste') || text.includes('copy the selected text')")
    notebook.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    own.get_by_role("button", name="Copy as %%infer cell").click()
    notebook.wait_for_text(0, "text.includes('copied: paste it into a cell')")
    text = notebook.page.evaluate("() => navigator.clipboard.readText()")
    assert text.startswith("%%infer --max-tokens 40 --ignore-eos\nWrite a story about a fox.")
    notebook.page.evaluate(
        "() => Object.defineProperty(navigator, 'clipboard', {value: undefined, configurable: true})"
    )
    own.get_by_role("button", name="Copy as %%infer cell").click()
    copied.wait_for()
    assert copied.evaluate("area => area.value.slice(area.selectionStart, area.selectionEnd)") == text


@pytest.mark.parametrize(("theme", "preferred"), [("Dark", "light"), ("Light", "dark")])
def test_it_follows_the_theme_of_jupyterlab_whatever_the_system_prefers(
    notebook: Notebook, theme: str, preferred: Any
) -> None:
    notebook.page.emulate_media(color_scheme=preferred)
    choose_theme(notebook, f"JupyterLab {theme}")
    own = widget(notebook)
    assert (own.evaluate(LIGHTNESS) < 100) == (theme == "Dark")
    contrasts = own.evaluate(CONTRASTS)
    assert len(contrasts) >= 10
    assert min(contrasts) >= 4.5
    picture(notebook, theme.lower())


def test_on_a_narrow_page_it_wraps(notebook: Notebook) -> None:
    before = notebook.page.viewport_size
    for page, name in ((932, "narrow"), (600, "very-narrow")):  # 500 and 230 pixels for the widget
        notebook.page.set_viewport_size({"width": page, "height": 1000})
        widget(notebook).scroll_into_view_if_needed()
        picture(notebook, name)
        assert widget(notebook).evaluate(BEYOND) == []
    notebook.page.set_viewport_size(before)


def test_markup_of_a_model_is_text_and_a_flood_of_tokens_leaves_the_page_quick(notebook: Notebook) -> None:
    notebook.run(6)
    notebook.finished(6)
    own = widget(notebook, 6)
    own.get_by_role("button", name="Run", exact=True).click()
    state(notebook, "done", 6)
    own.get_by_role("button", name="Compare run 1").click()
    own.get_by_role("region", name="Answer of run 1").wait_for()
    assert EVIL in answer(notebook, 6).inner_text()
    assert own.locator("img, script").count() == 0
    assert notebook.page.evaluate("() => window.__p") is None

    own.get_by_label("Prompt", exact=True).fill("flood")
    own.get_by_role("button", name="Run", exact=True).click()
    state(notebook, "running", 6)
    notebook.page.wait_for_function("() => document.querySelectorAll('.ji-token').length > 100", timeout=ANSWER_MS)
    own.get_by_label("System prompt").press_sequentially("typed meanwhile")  # times out if the page is frozen
    assert own.get_by_label("System prompt").input_value() == "typed meanwhile"
    state(notebook, "done", 6)
    assert answer(notebook, 6).evaluate("e => e.textContent.length") == 200_000
    assert own.locator(".ji-token").count() <= 512
    picture(notebook, "flood", 6)


def test_the_saved_file_has_a_form_for_pages_without_widgets(notebook: Notebook, lab: Lab) -> None:
    notebook.save()
    book = nbformat.read(lab.root / "playground.ipynb", as_version=4)
    _, still = book.cells[1].outputs
    data = still.data
    assert "Playground · " in data["text/plain"]
    assert "Write a story about a fox." in data["text/html"]
    assert len(data["text/html"]) < 20_000


def test_when_the_kernel_is_restarted_the_answer_stays_readable(notebook: Notebook) -> None:
    before = answer(notebook, 6).inner_text()
    restart_kernel(notebook)
    state(notebook, "kernel gone; run the cell again", 6)
    assert answer(notebook, 6).inner_text() == before
    own = widget(notebook, 6)
    assert own.get_by_role("button", name="Run", exact=True).is_disabled()
    assert own.get_by_label("Prompt", exact=True).is_disabled()
    picture(notebook, "gone", 6)
    assert_accessible(notebook, own)
    notebook.run(7)
    notebook.finished(7)
    notebook.wait_for_text(7, "text.trim() === 'back'")


def test_after_a_restart_its_cell_shows_one_that_runs_again(notebook: Notebook) -> None:
    notebook.run(0)
    state(notebook, "ready")
    own = widget(notebook)
    own.get_by_label("Prompt", exact=True).fill("Name three colours.")
    own.get_by_role("button", name="Run", exact=True).click()
    state(notebook, "done")
    notebook.wait_for_text(0, "text.includes('40 out')")


def test_the_page_met_no_error(notebook: Notebook) -> None:
    assert [error for error in notebook.errors if "favicon" not in error] == []
