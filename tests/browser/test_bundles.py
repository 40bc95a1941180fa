"""Bundles on a page of no host in particular: they follow what the system prefers, and can be read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

import jupyter_infer
from tests.browser.looks import CONTRASTS, LIGHTNESS, findings

STATIC = Path(jupyter_infer.__file__).parent / "static"
STATE = {
    "model": "<img src=x onerror='window.ran = 1'>",
    "state": "busy",
    "stage": "",
    "running": 1,
    "waiting": 0,
    "pool_used": 3,
    "pool_total": 10,
    "tokens_per_s": 12.3,
    "memory_bytes": 2_000_000_000,
}
SHOW = """async ([source, state]) => {
  const url = URL.createObjectURL(new Blob([source], {type: 'text/javascript'}))
  const widget = (await import(url)).default
  const model = {get: name => state[name], on() {}, off() {}, send() {}, set() {}, save_changes() {}}
  window.cleanUp = widget.render({model, el: document.querySelector('#widget')})
}"""


@pytest.mark.parametrize("preferred", ["light", "dark"])
def test_without_a_theme_of_the_host_it_follows_the_system(browser: Browser, preferred: Any) -> None:
    page = browser.new_page(color_scheme=preferred)
    page.set_content("<body><div id=widget></div>")
    page.evaluate(SHOW, [(STATIC / "engine_status.js").read_text(), STATE])
    line = page.locator("#widget")
    assert (line.evaluate(LIGHTNESS) < 100) == (preferred == "dark")
    assert min(line.evaluate(CONTRASTS)) >= 4.5
    assert "3 of 10 blocks" in line.inner_text()
    assert "<img src=x" in line.inner_text()
    assert page.evaluate("[document.images.length, window.ran, typeof window.cleanUp]") == [0, None, "function"]
    assert findings(line) == []
    page.close()


def test_what_keeps_people_from_using_a_widget_is_found_in_it_and_not_around_it(browser: Browser) -> None:
    page = browser.new_page()
    page.set_content("<input><div id=widget><button></button><span style='color: #bbb'>pale</span></div>")
    page.evaluate("document.body.style.background = 'white'")
    found = findings(page.locator("#widget"))
    assert [line.split(":")[0] for line in sorted(found)] == ["critical button-name", "serious color-contrast"]
    page.close()
