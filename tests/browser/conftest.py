"""JupyterLab in a headless Chromium, with a kernel that runs the real engine."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from playwright.sync_api import Browser, Page, TimeoutError, sync_playwright

from jupyter_infer.models import cache_dir

REAL_CACHE = cache_dir()
SCREENSHOTS = Path(os.environ.get("JUPYTER_INFER_SCREENSHOTS", "screenshots"))
CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}
ANSWER_MS = 240_000  # a limit on a machine with busy neighbours, not an expectation


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/browser/" in item.path.as_posix():
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    found = next((path for name in CHROMIUM if (path := shutil.which(name))), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=list(FLAGS))
        yield browser
        browser.close()


class Lab:
    """A JupyterLab server with a folder and settings of its own."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "notebooks"
        self.settings = folder / "settings"
        self.root.mkdir()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        home = folder / "home"
        home.mkdir()
        environ = {
            **os.environ,
            "HOME": str(home),
            "JUPYTERLAB_SETTINGS_DIR": str(self.settings),
            "JUPYTER_INFER_CACHE": str(REAL_CACHE),
            "GOMP_SPINCOUNT": "10000",
        }
        self._log = (folder / "lab.log").open("w")
        command = [sys.executable, "-m", "jupyterlab", "--no-browser", f"--port={port}", "--ServerApp.ip=127.0.0.1"]
        command += ["--IdentityProvider.token=", "--allow-root", f"--ServerApp.root_dir={self.root}"]
        command += ["--LabApp.news_url="]
        self._server = subprocess.Popen(command, env=environ, stdout=self._log, stderr=subprocess.STDOUT)
        self._wait_until_it_answers()

    def theme(self, name: str) -> None:
        """Choose the theme of pages that are opened from now on."""
        place = self.settings / "@jupyterlab" / "apputils-extension"
        place.mkdir(parents=True, exist_ok=True)
        (place / "themes.jupyterlab-settings").write_text(json.dumps({"theme": THEMES[name]}))
        (place / "notification.jupyterlab-settings").write_text(json.dumps({"fetchNews": "false"}))

    def stop(self) -> None:
        self._server.terminate()
        self._server.wait(60)
        self._log.close()

    def _wait_until_it_answers(self) -> None:
        for _ in range(240):
            try:
                urllib.request.urlopen(f"{self.url}/api", timeout=5).read()
                return
            except OSError:
                assert self._server.poll() is None, "JupyterLab did not start"
                time.sleep(0.5)
        raise AssertionError("JupyterLab does not answer")


class Notebook:
    """A notebook that is open in the browser."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.errors: list[str] = []  # that the page met since
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)

    def cell(self, index: int) -> Any:
        return self.page.locator(".jp-Notebook .jp-CodeCell").nth(index)

    def output(self, index: int) -> Any:
        return self.cell(index).locator(".jp-OutputArea").first

    def outputs(self, index: int) -> Any:
        return self.cell(index).locator(".jp-OutputArea-output")

    def text(self, index: int) -> str:
        """The text of a cell's output; empty when it has none."""
        return "\n".join(self.outputs(index).all_inner_texts())

    def prompt(self, index: int) -> str:
        return self.cell(index).locator(".jp-InputPrompt").inner_text().strip()

    def run(self, index: int) -> None:
        """Run a cell without waiting for its end; JupyterLab ignores this until the kernel is connected."""
        for _ in range(30):
            self.accept_dialogs()
            try:
                self.cell(index).locator(".cm-content").click(timeout=5_000)
                self.page.keyboard.press("Shift+Enter")
                self.page.wait_for_function(
                    "i => !/^\\[ ?\\]:/.test(document.querySelectorAll('.jp-Notebook .jp-CodeCell')[i]"
                    ".querySelector('.jp-InputPrompt').textContent.trim())",
                    arg=index,
                    timeout=4_000,
                )
                return
            except Exception:
                continue
        raise AssertionError("the kernel did not take the cell")

    def accept_dialogs(self) -> None:
        """Close what JupyterLab asks on a slow machine, such as which kernel to take."""
        for dialog in self.page.locator(".jp-Dialog").all():
            print("JupyterLab asked:", dialog.inner_text())
            dialog.locator("button.jp-mod-accept").first.click()

    def finished(self, index: int) -> None:
        """Wait until a cell has run."""
        self.page.wait_for_function(
            "i => /^\\[\\d+\\]:$/.test(document.querySelectorAll('.jp-Notebook .jp-CodeCell')[i]"
            ".querySelector('.jp-InputPrompt').textContent.trim())",
            arg=index,
            timeout=ANSWER_MS,
        )

    def wait_for_text(self, index: int, condition: str) -> None:
        """Wait until `condition`, JavaScript over `text`, holds for a cell's output."""
        self.page.wait_for_function(
            "([i, condition]) => { const text = document.querySelectorAll('.jp-Notebook .jp-CodeCell')[i]"
            ".querySelector('.jp-OutputArea')?.innerText ?? ''; return Function('text', 'return ' + condition)(text) }",
            arg=[index, condition],
            timeout=ANSWER_MS,
        )

    def interrupt(self) -> None:
        self.page.get_by_role("button", name="Interrupt the kernel").first.click()

    def save(self) -> None:
        self.page.keyboard.press("Escape")
        for _ in range(10):  # an output that comes meanwhile is another change
            self.page.keyboard.press("Control+s")
            try:
                self.page.wait_for_selector(".jp-mod-dirty", state="detached", timeout=6_000)
                return
            except TimeoutError:
                continue
        raise AssertionError("the notebook was not saved")

    def screenshot(self, name: str) -> None:
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SCREENSHOTS / f"{name}.png")


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    server = Lab(tmp_path_factory.mktemp("lab"))
    server.theme("light")
    yield server
    server.stop()


@pytest.fixture(scope="session")
def open_notebook(lab: Lab, browser: Browser) -> Iterator[Callable[..., Notebook]]:
    """Return a function that writes a notebook, opens it in a page of its own, and returns it."""
    contexts = []

    def opened(name: str, cells: list[str] | None = None, theme: str = "light", app: str = "lab") -> Notebook:
        if cells is not None:
            book = nbformat.v4.new_notebook()
            book.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
            book.cells = [nbformat.v4.new_code_cell(source) for source in cells]
            nbformat.write(book, lab.root / f"{name}.ipynb")
        lab.theme(theme)
        context = browser.new_context(viewport={"width": 1200, "height": 1000})
        contexts.append(context)
        page = context.new_page()
        place = f"lab/workspaces/{name}-{theme}/tree/{name}.ipynb?reset" if app == "lab" else f"notebooks/{name}.ipynb"
        page.goto(f"{lab.url}/{place}", timeout=ANSWER_MS)
        page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=ANSWER_MS)
        return Notebook(page)

    yield opened
    for context in contexts:
        context.close()
