"""The map of the KV pool as a person sees it: live while a batch runs, over a recorded trace, with the keyboard alone.

The tests share one notebook and run in the order of its cells, because the first load takes a while.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import nbformat
import pytest

from tests.browser.conftest import ANSWER_MS, Lab, Notebook
from tests.browser.looks import CONTRASTS, LIGHTNESS, assert_accessible, choose_theme, restart_kernel

TEXTS = CONTRASTS.replace(
    ".ji-label, .ji-value",
    ".ji-reading, .ji-row > span, .ji-scale, .ji-about, .ji-entry, .ji-step, .ji-key, .ji-button:not(:disabled)",
)
CELLS = [
    "%load_ext jupyter_infer\nimport jupyter_infer as ji\n"
    "session = ji.current_session()\n"
    "session.load(kv_cache_memory_bytes=18_000_000, max_model_len=512)\n"
    "pool = ji.KVCacheMap()\npool",
    'intro = "You are a careful assistant, and you answer in one short sentence. " * 8\n'
    'ask = [intro + f"What is {n} plus {n}?" for n in range(6)]\n'
    "first = session.generate(ask[0], max_tokens=4, ignore_eos=True, temperature=0)\n"
    "batch = session.generate(ask, max_tokens=90, ignore_eos=True, temperature=0)",
    "pool",
    "trace = ji.KVCacheMap(batch)\ntrace",
    "trace.position = min(p for p, step in enumerate(batch.runs.data[0].steps) if step.preempted)\n"
    "print(trace.position, len(trace.state.tables), trace.following)",
    "print('again')",
]


@pytest.fixture(scope="module")
def notebook(open_notebook: Callable[..., Notebook]) -> Notebook:
    return open_notebook("kv-map", CELLS)


def widget(notebook: Notebook, index: int) -> Any:
    return notebook.output(index).locator(".ji-kv-map")


def reads(notebook: Notebook, index: int) -> str:
    return str(widget(notebook, index).locator(".ji-reading").inner_text())


def wait_for(notebook: Notebook, index: int, condition: str) -> None:
    """Wait until `condition`, JavaScript over `map`, holds for a cell's map."""
    notebook.page.wait_for_function(
        "([i, condition]) => { const map = document.querySelectorAll('.jp-Notebook .jp-CodeCell')[i]"
        ".querySelector('.ji-kv-map'); return map && Function('map', 'return ' + condition)(map) }",
        arg=[index, condition],
        timeout=ANSWER_MS,
    )


def test_an_empty_pool_is_drawn_block_by_block(notebook: Notebook) -> None:
    notebook.run(0)
    notebook.finished(0)
    wait_for(notebook, 0, "/^0 of \\d+ blocks in use/.test(map.innerText)")
    assert "No request holds a block." in notebook.text(0)
    assert widget(notebook, 0).locator("svg.ji-picture").get_attribute("data-kind") == "cells"
    assert_accessible(notebook, widget(notebook, 0))


def test_it_follows_a_batch_while_its_cell_runs_and_shows_the_shared_prefix(notebook: Notebook) -> None:
    notebook.run(1)
    wait_for(notebook, 0, "/shared by [3-6] requests; reserving the context/.test(map.innerText)")
    assert notebook.prompt(1) == "[*]:"
    wait_for(notebook, 0, "map.querySelectorAll('[role=option]').length >= 3")
    notebook.screenshot("kv-map-live")
    assert widget(notebook, 0).get_by_role("button", name="Following live").get_attribute("aria-pressed") == "true"
    notebook.finished(1)
    wait_for(notebook, 0, "/^0 of \\d+ blocks in use, \\d+ free with cached content/.test(map.innerText)")


def test_a_second_view_says_the_same(notebook: Notebook) -> None:
    notebook.run(2)
    notebook.finished(2)
    wait_for(notebook, 2, "/^0 of \\d+ blocks in use, \\d+ free/.test(map.innerText)")
    assert reads(notebook, 2) == reads(notebook, 0)
    assert_accessible(notebook, widget(notebook, 2))


def test_the_slider_of_a_live_map_stops_it_and_both_views_go_with_it(notebook: Notebook) -> None:
    slider = widget(notebook, 2).get_by_role("slider")
    slider.focus()
    notebook.page.keyboard.press("Home")
    for view in (0, 2):
        wait_for(notebook, view, "map.innerText.includes('step 1 of ')")
        wait_for(notebook, view, "map.querySelectorAll('[role=option]').length === 1")
    notebook.page.keyboard.press("ArrowRight")
    wait_for(notebook, 0, "map.innerText.includes('step 2 of ')")
    assert "step 2 of" in slider.get_attribute("aria-valuetext")
    widget(notebook, 2).get_by_role("button", name="Play").press("Enter")
    wait_for(notebook, 2, "!/step [1-9] of/.test(map.innerText)")
    widget(notebook, 2).get_by_role("button", name="Pause").press("Enter")
    widget(notebook, 2).get_by_role("button", name="Follow live").press("Enter")
    wait_for(notebook, 0, "/^0 of \\d+ blocks in use, \\d+ free/.test(map.innerText)")


def test_a_recorded_trace_shows_where_a_request_was_preempted(notebook: Notebook) -> None:
    notebook.run(3)
    notebook.finished(3)
    wait_for(notebook, 3, "map.querySelectorAll('[role=option]').length >= 3")
    assert "Follow" not in notebook.text(3)
    assert "lines: steps that preempted a request" in notebook.text(3)
    notebook.run(4)
    notebook.finished(4)
    assert notebook.text(4).split()[-1] == "False"
    wait_for(notebook, 3, "map.innerText.includes('(preempted)')")
    widget(notebook, 3).scroll_into_view_if_needed()
    notebook.screenshot("kv-map-preempted")
    assert_accessible(notebook, widget(notebook, 3))


def test_blocks_and_requests_are_reached_with_the_keyboard(notebook: Notebook) -> None:
    shown = widget(notebook, 3)
    grid = shown.locator(".ji-grid")
    grid.focus()
    notebook.page.keyboard.press("Home")
    for _ in range(2):
        notebook.page.keyboard.press("ArrowRight")
    wait_for(notebook, 3, "/^block 3: r/.test(map.querySelector('.ji-about').innerText)")
    wait_for(notebook, 3, "/^block 3: r/.test(map.querySelector('[role=status]').textContent)")
    assert "shared by" in shown.locator(".ji-about").inner_text()
    notebook.page.keyboard.press("Tab")
    notebook.page.keyboard.press("ArrowDown")
    option = shown.get_by_role("option").nth(1)
    assert option.evaluate("row => row === document.activeElement")
    assert option.get_attribute("aria-label").endswith("shared")
    assert shown.locator(".ji-order").get_attribute("d").count("L") >= 2
    notebook.screenshot("kv-map-keyboard")
    assert notebook.prompt(3) != "[ ]:"


@pytest.mark.parametrize(("theme", "preferred"), [("Dark", "light"), ("Light", "dark")])
def test_it_follows_the_theme_of_jupyterlab_whatever_the_system_prefers(
    notebook: Notebook, theme: str, preferred: Any
) -> None:
    notebook.page.emulate_media(color_scheme=preferred)
    choose_theme(notebook, f"JupyterLab {theme}")
    shown = widget(notebook, 3)
    shown.scroll_into_view_if_needed()
    assert (shown.evaluate(LIGHTNESS) < 100) == (theme == "Dark")
    contrasts = shown.evaluate(TEXTS)
    assert len(contrasts) >= 20
    assert min(contrasts) >= 4.5
    notebook.screenshot(f"kv-map-{theme.lower()}")


def test_on_a_narrow_page_it_wraps(notebook: Notebook) -> None:
    before = notebook.page.viewport_size
    notebook.page.set_viewport_size({"width": 520, "height": 1000})
    shown = widget(notebook, 3)
    wait_for(notebook, 3, "map.querySelector('svg').getBoundingClientRect().right <= map.getBoundingClientRect().right")
    shown.scroll_into_view_if_needed()
    notebook.screenshot("kv-map-narrow")
    assert shown.evaluate("root => root.scrollWidth <= root.clientWidth")
    notebook.page.set_viewport_size(before)


def test_the_saved_file_has_a_form_for_pages_without_widgets(notebook: Notebook, lab: Lab) -> None:
    notebook.save()
    book = nbformat.read(lab.root / "kv-map.ipynb", as_version=4)
    _, still = book.cells[3].outputs
    assert set(still.data) == {"text/plain", "text/html"}
    assert "blocks in use" in still.data["text/plain"]
    assert "█" in still.data["text/html"]
    assert len(still.data["text/html"]) < 30_000


def test_when_the_kernel_is_restarted_a_readable_map_is_left(notebook: Notebook) -> None:
    restart_kernel(notebook)
    wait_for(notebook, 3, "map.innerText.includes('kernel gone; run the cell again')")
    assert widget(notebook, 3).get_by_role("slider").is_disabled()
    notebook.screenshot("kv-map-restarted")
    assert_accessible(notebook, widget(notebook, 3))
    notebook.run(5)
    notebook.finished(5)
    assert notebook.text(5).strip() == "again"
    assert "kernel gone" in notebook.text(3)


def test_after_a_restart_its_cell_shows_a_live_one_again(notebook: Notebook) -> None:
    notebook.run(0)
    wait_for(notebook, 0, "/^0 of \\d+ blocks in use/.test(map.innerText) && !map.innerText.includes('kernel gone')")
    assert widget(notebook, 0).get_by_role("button", name="Following live").is_enabled()


def test_the_page_met_no_error(notebook: Notebook) -> None:
    assert [error for error in notebook.errors if "favicon" not in error] == []
