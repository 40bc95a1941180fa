"""How a widget looks to those who use it: contrasts, themes of the host, and what axe-core finds wrong."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

from tests.browser.conftest import Notebook

ROOT = Path(__file__).resolve().parents[2]
AXE = ROOT / "js" / "node_modules" / "axe-core" / "axe.min.js"
WRONG = ("serious", "critical")

CONTRASTS = """root => {
  const context = Object.assign(document.createElement('canvas'), {width: 1, height: 1})
    .getContext('2d', {willReadFrequently: true})
  const over = (...colors) => {
    for (const color of colors) { context.fillStyle = color; context.fillRect(0, 0, 1, 1) }
    return [...context.getImageData(0, 0, 1, 1).data].slice(0, 3)
  }
  const light = rgb => rgb.map(c => c / 255).map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0)
  const ground = getComputedStyle(root).backgroundColor
  return [...root.querySelectorAll('.ji-label, .ji-value')].filter(e => e.textContent).map(e => {
    const [a, b] = [light(over('white', ground)), light(over('white', ground, getComputedStyle(e).color))]
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)
  })
}"""
"""The contrasts of the texts of a widget."""

LIGHTNESS = """root => {
  const numbers = getComputedStyle(root).backgroundColor.match(/[\\d.]+/g).map(Number)
  return numbers.slice(0, 3).reduce((sum, part) => sum + part, 0) / 3
}"""
"""How light its ground is, from 0 to 255."""

BEYOND = """root => [root, ...root.querySelectorAll('*')]
  .filter(e => e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflowX === 'visible' && e.clientWidth)
  .map(e => `${e.getAttribute('class')}: ${e.scrollWidth} > ${e.clientWidth}`)"""
"""What of a widget is wider than its place."""

FINDINGS = """async (root, wrong) => {
  const found = await axe.run(root, {resultTypes: ['violations']})
  return found.violations.filter(({impact}) => wrong.includes(impact)).flatMap(({id, impact, help, nodes}) =>
    nodes.map(({html, any}) => `${impact} ${id}: ${help}: ${any.map(a => a.message).join('; ')} in ${html}`))
}"""


def choose(notebook: Notebook, menu: str, *items: str) -> None:
    """Choose an item of a menu, or of a menu in it."""
    notebook.page.locator(".lm-MenuBar-itemLabel").get_by_text(menu, exact=True).click()
    for item in items:
        notebook.page.locator(".lm-Menu-itemLabel").get_by_text(item, exact=True).click()


def choose_theme(notebook: Notebook, name: str) -> None:
    choose(notebook, "Settings", "Theme", name)
    light = "false" if name.endswith("Dark") else "true"
    notebook.page.wait_for_function(f"() => document.body.dataset.jpThemeLight === '{light}'")
    notebook.page.wait_for_selector("#jupyterlab-splash", state="detached")


def restart_kernel(notebook: Notebook) -> None:
    choose(notebook, "Kernel", "Restart Kernel…")
    notebook.page.locator(".jp-Dialog button.jp-mod-accept").click()


def findings(widget: Any) -> list[str]:
    """What axe-core finds that keeps people from using a widget as it is now: a line each, serious and critical."""
    page = widget.page
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(_axe())
    return [str(line) for line in widget.evaluate(FINDINGS, list(WRONG))]


def assert_accessible(notebook: Notebook, widget: Any) -> None:
    """Check a widget as it is now in JupyterLab's dark and light theme; leave the light one."""
    for theme in ("Dark", "Light"):
        choose_theme(notebook, f"JupyterLab {theme}")
        assert findings(widget) == [], theme


@cache
def _axe() -> str:
    """The source of axe-core, which npm brings; installed here if nobody did before."""
    subprocess.run([sys.executable, str(ROOT / "tools" / "front_end.py"), "packages"], check=True)
    return AXE.read_text(encoding="utf-8")
