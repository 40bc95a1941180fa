"""How likely each token was, in the playground as a person uses it, on the real engine.

The tests share one notebook and run in the order of its cells, because the first load takes a while.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.browser.conftest import ANSWER_MS, Notebook
from tests.browser.looks import BEYOND, CONTRASTS, assert_accessible, choose_theme
from tests.browser.test_playground import answer, picture, state, widget

CELLS = [
    "%load_ext jupyter_infer\nimport jupyter_infer as ji\n"
    "pg = ji.Playground(prompt='Write a story about a fox.', temperature=1, seed=4)\n"
    "pg.max_tokens, pg.ignore_eos = 60, True\npg",
    "events = pg.result.record.samples[0].events\n"
    "print(len(events), {len(event.logprobs) for event in events}, pg.shade, pg.logprobs)",
    "%%infer --logprobs 3 -t 0 --max-tokens 8 -o kept\nName three colours.",
    "print([len(event.logprobs) for event in kept.record.samples[0].events],"
    " kept.to_pandas('tokens').logprob.max() <= 0)",
    "import time\nsent = []\nsend = pg.comm.send\n"
    "def counted(data=None, *given, **more):\n"
    "    sent.append((time.monotonic(), len(str(data))))\n    return send(data, *given, **more)\n"
    "pg.comm.send = counted\npg.logprobs, pg.max_tokens = 20, 300\nresult = pg.run().result()\npg.comm.send = send\n"
    "most = max(sum(t <= other < t + 1 for other, _ in sent) for t, _ in sent)\n"
    "print(len(sent) > 5, most <= 20, most, sum(size for _, size in sent) // 300, 'bytes a token')",
    "from jupyter_infer.engine.scripted import Script, ScriptedEngine\n"
    "script = Script(lambda prompt: [f'word{n} ' for n in range(5000)], step_ns=lambda tokens: 1_000_000,"
    " max_model_len=20_000, blocks=2000)\n"
    "fake = ji.Session('fake', factory=lambda *given: lambda progress: ScriptedEngine(script))\n"
    "pg2 = ji.Playground(fake, prompt='flood', max_tokens=6000, logprobs=5, shade='logprob')\npg2",
]


@pytest.fixture(scope="module")
def notebook(open_notebook: Callable[..., Notebook]) -> Notebook:
    return open_notebook("playground-logprobs", CELLS)


def odds(notebook: Notebook, index: int = 0) -> Any:
    return widget(notebook, index).locator(".ji-odds-of")


def shade(notebook: Notebook, name: str, index: int = 0) -> Any:
    group = widget(notebook, index).get_by_role("group", name="Shade by")
    return group.get_by_role("button", name=name, exact=True)


def done(notebook: Notebook, number: int, index: int = 0) -> None:
    """Wait until a run is in the history."""
    widget(notebook, index).get_by_role("button", name=f"Use run {number} again").wait_for(timeout=ANSWER_MS)


def test_without_alternatives_the_shade_cannot_be_chosen_and_says_why(notebook: Notebook) -> None:
    notebook.run(0)
    notebook.finished(0)
    state(notebook, "ready")
    widget(notebook).get_by_role("button", name="Run", exact=True).click()
    done(notebook, 1)
    other = shade(notebook, "log-probability")
    assert other.get_attribute("aria-disabled") == "true"
    other.press("Enter")
    notebook.wait_for_text(0, "text.includes('This answer has none: set Alternatives, and run again')")
    assert shade(notebook, "ITL").get_attribute("aria-pressed") == "true"
    answer(notebook).focus()
    notebook.page.keyboard.press("Home")
    assert odds(notebook).count() == 0


def test_with_alternatives_a_token_tells_them_by_the_keyboard_alone(notebook: Notebook) -> None:
    own = widget(notebook)
    own.get_by_label("Alternatives").fill("5")
    own.get_by_label("Prompt", exact=True).press("Control+Enter")
    done(notebook, 2)
    answer(notebook).focus()
    for key in ("Home", "ArrowRight", "ArrowRight"):
        notebook.page.keyboard.press(key)
    assert own.locator(".ji-detail").inner_text().startswith("token 3 · ")
    line = odds(notebook).inner_text().replace("\n", " ")
    assert re.match(r'^".*" (over )?[\d.]+ %, (the likeliest|rank [\d,]+) others ', line)
    assert line.count("%") >= 5
    picture(notebook, "alternatives")


def test_shades_tell_how_likely_tokens_were_and_what_is_below_stays_where_it_is(notebook: Notebook) -> None:
    own = widget(notebook)
    shade(notebook, "log-probability").click()
    notebook.wait_for_text(0, "text.includes('surprising (less)')")
    assert shade(notebook, "log-probability").get_attribute("aria-pressed") == "true"
    levels = {token.get_attribute("data-level") for token in own.locator(".ji-token").all()}
    assert len(levels - {None}) >= 3
    surprising = own.locator(".ji-token[data-level='4'], .ji-token[data-level='3']").first
    surprising.hover()
    share = re.search(r"([\d.]+) %", odds(notebook).inner_text())
    assert share is not None
    assert float(share[1]) < 20
    tokens, highest = own.locator(".ji-token"), 0.0
    for at in range(20):
        tokens.nth(at).hover()
        place = own.locator(".ji-gauges").bounding_box()["y"] - own.bounding_box()["y"]
        assert place >= highest
        highest = place
    picture(notebook, "log-probability")
    notebook.run(1)
    notebook.finished(1)
    assert notebook.text(1).strip() == "60 {1} logprob 5"


@pytest.mark.parametrize("theme", ["Dark", "Light"])
def test_it_can_be_read_in_both_themes(notebook: Notebook, theme: str) -> None:
    choose_theme(notebook, f"JupyterLab {theme}")
    own = widget(notebook)
    own.locator(".ji-token").nth(5).hover()
    assert min(own.evaluate(CONTRASTS)) >= 4.5
    picture(notebook, f"log-probability-{theme.lower()}")


def test_nothing_keeps_people_from_it(notebook: Notebook) -> None:
    assert_accessible(notebook, widget(notebook))


def test_the_cell_that_asks_the_same_says_it_and_a_record_of_a_cell_has_them(notebook: Notebook) -> None:
    own = widget(notebook)
    notebook.page.evaluate(
        "() => Object.defineProperty(navigator, 'clipboard', {value: undefined, configurable: true})"
    )
    own.get_by_role("button", name="Copy as %%infer cell").click()
    copied = own.get_by_label("Text of the %%infer cell")
    copied.wait_for()
    assert copied.input_value().startswith(
        "%%infer --temperature 1.0 --max-tokens 60 --seed 4 --logprobs 5 --ignore-eos"
    )
    notebook.run(2)
    notebook.finished(2)
    notebook.run(3)
    notebook.finished(3)
    assert notebook.text(3).strip() == f"{[1] * 8} True"


def test_with_20_alternatives_a_long_answer_sends_at_most_20_messages_a_second(notebook: Notebook) -> None:
    notebook.run(4)
    notebook.finished(4)
    print("messages a second, at most:", notebook.text(4))
    assert notebook.text(4).startswith("True True")
    done(notebook, 3)
    widget(notebook).locator(".ji-token").last.hover()
    assert odds(notebook).locator(".ji-odd").count() in (20, 21)
    picture(notebook, "20-alternatives")
    before = notebook.page.viewport_size
    notebook.page.set_viewport_size({"width": 600, "height": 1000})
    widget(notebook).scroll_into_view_if_needed()
    picture(notebook, "20-alternatives-narrow")
    assert widget(notebook).evaluate(BEYOND) == []
    notebook.page.set_viewport_size(before)


def test_5000_tokens_with_theirs_leave_the_page_quick(notebook: Notebook) -> None:
    notebook.run(5)
    notebook.finished(5)
    own = widget(notebook, 5)
    own.get_by_role("button", name="Run", exact=True).click()
    state(notebook, "running", 5)
    notebook.page.wait_for_function("() => document.querySelectorAll('.ji-token').length > 400", timeout=ANSWER_MS)
    own.get_by_label("System prompt").press_sequentially("typed meanwhile")  # times out if the page is frozen
    assert own.get_by_label("System prompt").input_value() == "typed meanwhile"
    done(notebook, 1, 5)
    answer(notebook, 5).press("End")
    assert own.locator(".ji-detail").inner_text().startswith("token 5,000 · ")
    assert odds(notebook, 5).inner_text().startswith('"word4999 "')
    assert shade(notebook, "log-probability", 5).get_attribute("aria-pressed") == "true"


def test_the_page_met_no_error(notebook: Notebook) -> None:
    assert [error for error in notebook.errors if "favicon" not in error] == []
