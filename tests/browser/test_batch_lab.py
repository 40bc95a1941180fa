"""The batch lab as a person uses it, on the real engine: run, move limits while it runs, stop, sweep, look at charts.

The tests share one notebook and run in the order of its cells, because the first load takes a while.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import nbformat
import pytest

from tests.browser.conftest import ANSWER_MS, SCREENSHOTS, Lab, Notebook
from tests.browser.looks import BEYOND, CONTRASTS, LIGHTNESS, assert_accessible, choose_theme, restart_kernel

CELLS = [
    "%load_ext jupyter_infer\nimport jupyter_infer as ji\nlab = ji.BatchLab(output_tokens=24)\nlab",
    "lab",
    "def limits():\n"
    "    steps = [step for results in lab.results for step in results.run.steps]\n"
    "    return sorted({step.limits.max_num_seqs for step in steps if step.limits})  # those of the load are none\n"
    "print(lab.state, len(lab.result), limits(), lab.max_num_seqs)",
    "import time\nlab.clear()\nprint(lab.state)\nend = time.monotonic() + 120\n"
    "while lab.state != 'stopped' and time.monotonic() < end:\n    time.sleep(0.05)\nprint(lab.state)",
    "print([point['requests'] for point in lab.points], lab.state)",
    "lab.requests = 3\nlab.arrivals = 'staggered'\nlab.interval_s = 0.1\nprint(len(lab.run().result()[-1]))",
    "lab",
    "print('back')",
    "other = ji.BatchLab()\nother",
    "other.close()",
]
DETAIL = ".ji-steps .ji-detail"
FRAMES = """() => {
  window.__frames = []
  window.__counting = true
  let last = performance.now()
  const next = now => {
    window.__frames.push(now - last)
    last = now
    if (window.__counting) requestAnimationFrame(next)
  }
  requestAnimationFrame(next)
}"""
TAKEN = """() => {
  window.__counting = false
  const frames = window.__frames.slice(1).sort((one, other) => one - other)
  const at = part => Math.round(frames[Math.min(frames.length - 1, Math.floor(part * frames.length))])
  return {frames: frames.length, p50: at(0.5), p95: at(0.95), worst: at(1)}
}"""
PAINTED = """canvas => {
  const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data
  let painted = 0
  for (let at = 3; at < data.length; at += 4) painted += data[at] > 0
  return painted
}"""


@pytest.fixture(scope="module")
def notebook(open_notebook: Callable[..., Notebook]) -> Notebook:
    opened = open_notebook("batch-lab", CELLS)
    opened.page.set_viewport_size({"width": 1200, "height": 1600})
    return opened


def widget(notebook: Notebook, index: int = 0) -> Any:
    return notebook.output(index).locator(".ji-batch-lab")


def press(notebook: Notebook, name: str, index: int = 0) -> None:
    widget(notebook, index).get_by_role("button", name=name, exact=True).click()


def picture(notebook: Notebook, name: str, index: int = 0) -> None:
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    widget(notebook, index).screenshot(path=SCREENSHOTS / f"batch-lab-{name}.png")


def state(notebook: Notebook, text: str, index: int = 0) -> None:
    """Wait until a view says a state."""
    wait_for(notebook, f"lab.querySelector('.ji-now').textContent.startsWith('{text}')", index)


def wait_for(notebook: Notebook, condition: str, index: int = 0) -> None:
    """Wait until `condition`, JavaScript over `lab`, holds for a cell's view."""
    notebook.page.wait_for_function(
        "([i, condition]) => { const lab = document.querySelectorAll('.jp-Notebook .jp-CodeCell')[i]"
        ".querySelector('.ji-batch-lab'); return lab && Function('lab', 'return ' + condition)(lab) }",
        arg=[index, condition],
        timeout=ANSWER_MS,
    )


def test_it_shows_itself_before_a_model_is_loaded(notebook: Notebook) -> None:
    notebook.run(0)
    notebook.finished(0)
    state(notebook, "ready")
    notebook.wait_for_text(0, "text.includes('not loaded; the first run loads it')")
    assert "n/a tok/s" in notebook.text(0)
    assert widget(notebook).get_by_label("Max sequences, slider").is_disabled()
    picture(notebook, "empty")


def test_a_batch_of_eight_runs_with_the_keyboard_alone(notebook: Notebook) -> None:
    field = widget(notebook).get_by_label("Requests", exact=True)
    assert field.input_value() == "8"
    field.focus()
    run = widget(notebook).get_by_role("button", name="Run", exact=True)
    for _ in range(20):  # through the form
        if run.evaluate("button => button === document.activeElement"):
            break
        notebook.page.keyboard.press("Tab")
    notebook.page.keyboard.press("Enter")
    state(notebook, "loading the model")
    state(notebook, "running")
    wait_for(notebook, "lab.querySelectorAll('.ji-lanes text').length === 8")
    picture(notebook, "running")
    state(notebook, "done")
    wait_for(notebook, "/8 requests \\(8 done\\), \\d+ steps in/.test(lab.querySelector('canvas').ariaLabel)")
    assert "output tokens 192" in " ".join(notebook.text(0).split())
    assert widget(notebook).get_by_role("group", name="What limited it").is_visible()
    assert widget(notebook).locator("canvas").evaluate(PAINTED) > 1_000
    picture(notebook, "done")


def test_arrow_keys_and_the_pointer_say_what_is_known_of_a_step(notebook: Notebook) -> None:
    own = widget(notebook)
    own.locator(".ji-gantt").focus()
    for key in ("Home", "ArrowDown"):
        notebook.page.keyboard.press(key)
    assert own.locator(DETAIL).inner_text().startswith("step 1 · request ")
    assert " running, " in own.locator(DETAIL).inner_text()
    notebook.page.keyboard.press("ArrowRight")
    assert own.locator(DETAIL).inner_text().startswith("step 2 · ")
    lanes = own.locator(".ji-lanes").bounding_box()
    notebook.page.mouse.move(lanes["x"] + 0.97 * lanes["width"], lanes["y"] + 0.9 * lanes["height"])
    assert not own.locator(DETAIL).inner_text().startswith("step 2 · ")
    assert "decode" in own.locator(DETAIL).inner_text()
    assert notebook.prompt(0) == "[1]:"  # and no cell ran
    notebook.page.keyboard.press("Escape")


def test_a_chart_is_shown_below_and_another_kind_chosen(notebook: Notebook) -> None:
    below = notebook.output(0).locator(".js-plotly-plot")
    below.first.wait_for(timeout=ANSWER_MS)
    own = widget(notebook)
    assert own.get_by_role("button", name="Steps", exact=True).get_attribute("aria-pressed") == "true"
    titles = below.first.inner_text()
    press(notebook, "Phases")
    wait_for(notebook, "lab.querySelector('[data-kind=phases][aria-pressed=true]')")
    notebook.page.wait_for_function(
        "([i, before]) => { const plot = document.querySelectorAll('.jp-Notebook .jp-CodeCell')[i]"
        ".querySelector('.js-plotly-plot'); return plot && plot.innerText !== before }",
        arg=[0, titles],
        timeout=ANSWER_MS,
    )
    notebook.screenshot("batch-lab-chart")


def test_a_limit_that_is_moved_while_it_runs_is_in_the_trace_and_in_both_views(notebook: Notebook) -> None:
    notebook.run(1)
    notebook.finished(1)
    own = widget(notebook)
    own.get_by_label("Output tokens", exact=True).fill("150")
    own.get_by_label("Max sequences", exact=True).fill("2")
    press(notebook, "Run")
    for view in (0, 1):
        wait_for(notebook, "/max sequences, now 2\\./.test(lab.innerText)", view)
        assert widget(notebook, view).get_by_label("Max sequences", exact=True).input_value() == "2"
    figures = "lab.querySelector('[aria-label=\"More figures\"]').innerText"
    wait_for(notebook, f"/running\\s*2\\s+waiting\\s*6/.test({figures})")
    press(notebook, "Max sequences as loaded")
    wait_for(notebook, f"/running\\s*8\\s+waiting\\s*0/.test({figures})")
    picture(notebook, "limit-raised")
    own.get_by_label("Max sequences, slider").focus()
    for key in ("Home", "ArrowRight", "ArrowRight"):
        notebook.page.keyboard.press(key)
    for view in (0, 1):
        wait_for(notebook, "/max sequences, now 3\\./.test(lab.innerText)", view)
    for view in (0, 1):
        state(notebook, "done", view)
    notebook.run(2)
    notebook.finished(2)
    # On its way to 3 the slider is at 1, and a step may begin there.
    assert notebook.text(2).strip() in ("done 8 [2, 3] 3", "done 8 [1, 2, 3] 3")
    path = widget(notebook).locator(".ji-limit-line").nth(1).get_attribute("d")
    assert path.count("V") >= 2  # up, and down again
    picture(notebook, "limit-trace", 1)
    press(notebook, "Max sequences as loaded")


def test_64_requests_leave_the_page_quick_and_are_stopped(notebook: Notebook) -> None:
    own = widget(notebook)
    own.get_by_label("Requests", exact=True).fill("64")
    own.get_by_label("Output tokens", exact=True).fill("200")
    press(notebook, "Run")
    state(notebook, "running")
    wait_for(notebook, "lab.querySelectorAll('.ji-lanes text').length >= 32")
    notebook.page.evaluate(FRAMES)
    wait_for(notebook, "+/, (\\d+) steps/.exec(lab.querySelector('canvas').ariaLabel)?.[1] > 20")
    own.get_by_label("Prompt tokens", exact=True).fill("63")  # times out if the page is frozen
    wait_for(notebook, "+/, (\\d+) steps/.exec(lab.querySelector('canvas').ariaLabel)?.[1] > 60")
    print("frames in ms while 64 requests run, two views:", notebook.page.evaluate(TAKEN))
    picture(notebook, "64")
    press(notebook, "Stop")
    for view in (0, 1):
        state(notebook, "stopped", view)
    assert own.locator(".ji-lanes").bounding_box()["height"] == 64 * 6
    picture(notebook, "stopped")


def test_it_runs_and_stops_while_a_cell_runs(notebook: Notebook) -> None:
    notebook.run(3)
    notebook.wait_for_text(3, "text.includes('idle')")
    state(notebook, "ready")
    press(notebook, "Run")
    state(notebook, "running")
    wait_for(notebook, "/, [1-9]\\d* steps/.test(lab.querySelector('canvas').ariaLabel)")
    assert notebook.prompt(3) == "[*]:"
    press(notebook, "Stop")
    notebook.wait_for_text(3, "text.includes('stopped')")
    notebook.finished(3)


def test_a_sweep_grows_a_curve_and_a_table(notebook: Notebook) -> None:
    own = widget(notebook)
    own.get_by_label("Output tokens", exact=True).fill("16")
    own.get_by_label("Sizes of the sweep", exact=True).fill("1, 2, 4")
    press(notebook, "Sweep")
    wait_for(notebook, "lab.querySelector('.ji-progress').textContent.startsWith('sweep: ')")
    state(notebook, "running")
    wait_for(notebook, "[1, 2].includes(lab.querySelectorAll('tbody tr').length)")  # while it goes on
    for view in (0, 1):
        state(notebook, "done", view)
        wait_for(notebook, "lab.querySelectorAll('.ji-point').length === 3", view)
    assert own.get_by_role("rowheader").count() == 3
    # Whether three batches show a knee is the machine's to say.
    assert own.locator(".ji-knee").count() == own.get_by_role("rowheader", name="(knee)").count()
    row = own.get_by_role("row").nth(2)
    row.focus()
    assert own.locator(".ji-sweep .ji-detail").inner_text().startswith("2 requests: ")
    assert own.locator(".ji-point[data-on]").count() == 1
    notebook.run(4)
    notebook.finished(4)
    assert notebook.text(4).strip() == "[1, 2, 4] done"
    picture(notebook, "sweep")


def test_what_python_sets_and_runs_is_seen_and_a_late_view_has_all_of_it(notebook: Notebook) -> None:
    notebook.run(5)
    notebook.finished(5)
    assert notebook.text(5).strip() == "3"
    notebook.run(6)
    notebook.finished(6)
    for view in (0, 1, 6):
        state(notebook, "done", view)
        wait_for(notebook, "/^3 requests \\(3 done\\)/.test(lab.querySelector('canvas').ariaLabel)", view)
        assert widget(notebook, view).get_by_label("Interval, s").input_value() == "0.1"
    shown, painted = set(), set()
    for view in (0, 6):
        widget(notebook, view).scroll_into_view_if_needed()  # a cell out of sight has no width
        wait_for(notebook, "lab.clientWidth && lab.querySelector('.ji-axis').clientWidth > lab.clientWidth - 60", view)
        shown.add(widget(notebook, view).locator("tbody").text_content())
        painted.add(widget(notebook, view).locator("canvas").evaluate(PAINTED))
    assert len(shown) == len(painted) == 1
    assert min(painted) > 0


@pytest.mark.parametrize(("theme", "preferred"), [("Dark", "light"), ("Light", "dark")])
def test_it_follows_the_theme_of_jupyterlab_whatever_the_system_prefers(
    notebook: Notebook, theme: str, preferred: Any
) -> None:
    notebook.page.emulate_media(color_scheme=preferred)
    choose_theme(notebook, f"JupyterLab {theme}")
    own = widget(notebook)
    assert (own.evaluate(LIGHTNESS) < 100) == (theme == "Dark")
    for texts in (".ji-label, .ji-value", ".ji-detail, .ji-key .ji-item, th, td, .ji-said"):
        contrasts = own.evaluate(CONTRASTS.replace(".ji-label, .ji-value", texts))
        assert len(contrasts) >= 10
        assert min(contrasts) >= 4.5
    ink = own.locator(".ji-limit-line").first.evaluate("line => getComputedStyle(line).stroke")
    assert ink == own.evaluate("root => getComputedStyle(root).color")
    picture(notebook, theme.lower())


def test_it_can_be_used_by_everybody(notebook: Notebook) -> None:
    assert_accessible(notebook, widget(notebook))


def test_on_a_narrow_page_it_wraps(notebook: Notebook) -> None:
    before = notebook.page.viewport_size
    for page, name in ((932, "narrow"), (600, "very-narrow")):  # 500 and 230 pixels for the widget
        notebook.page.set_viewport_size({"width": page, "height": 1600})
        widget(notebook).scroll_into_view_if_needed()
        wait_for(notebook, "lab.querySelector('.ji-axis').clientWidth <= lab.clientWidth")
        picture(notebook, name)
        assert widget(notebook).evaluate(BEYOND) == []
    notebook.page.set_viewport_size(before)


def test_a_lab_that_is_closed_takes_its_view_away_without_an_error(notebook: Notebook) -> None:
    notebook.run(8)
    notebook.finished(8)
    state(notebook, "ready", 8)
    widget(notebook, 8).get_by_label("Prompt tokens", exact=True).fill("5")  # typed, and perhaps not sent yet
    met = len(notebook.errors)
    notebook.run(9)
    notebook.finished(9)
    widget(notebook, 8).wait_for(state="detached")
    assert notebook.errors[met:] == []


def test_the_saved_file_has_a_form_for_pages_without_widgets(notebook: Notebook, lab: Lab) -> None:
    notebook.save()
    book = nbformat.read(lab.root / "batch-lab.ipynb", as_version=4)
    html = "".join(output.data.get("text/html", "") for output in book.cells[6].outputs if "data" in output)
    assert "3 requests" in html
    assert "limited by" in html


def test_when_the_kernel_is_restarted_the_run_stays_readable(notebook: Notebook) -> None:
    restart_kernel(notebook)
    own = widget(notebook)
    state(notebook, "kernel gone; run the cell again")
    assert own.get_by_role("button", name="Run", exact=True).is_disabled()
    assert own.get_by_role("rowheader").count() == 3
    own.locator(".ji-gantt").focus()
    notebook.page.keyboard.press("Home")
    assert own.locator(DETAIL).inner_text().startswith("step 1 · ")
    picture(notebook, "gone")
    notebook.run(7)
    notebook.finished(7)
    notebook.wait_for_text(7, "text.trim() === 'back'")


def test_the_page_met_no_error(notebook: Notebook) -> None:
    assert [error for error in notebook.errors if "favicon" not in error] == []
