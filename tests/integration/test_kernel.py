"""A kernel as a front end sees it: what comes to which cell, and what the process keeps.

The cells run in the order of the tests.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Iterator
from itertools import pairwise
from queue import Empty
from typing import Any

import pytest
from conftest import REAL_CACHE
from jupyter_client.blocking import BlockingKernelClient
from jupyter_client.manager import KernelManager

ANSWER_S = 400  # a limit on a machine with busy neighbours, not an expectation


@pytest.fixture(autouse=True)
def nothing_leaks() -> None:
    """The kernel is a process of its own; the shared engine is not loaded for it."""


class Kernel:
    """A kernel, and every message that it sent, by the cell that it belongs to."""

    def __init__(self, manager: KernelManager, client: BlockingKernelClient) -> None:
        self.manager, self._client = manager, client
        self._messages: list[tuple[str, str, dict[str, Any]]] = []

    def begin(self, code: str) -> str:
        """Run a cell; return its name at once."""
        return str(self._client.execute(code))

    def run(self, code: str) -> str:
        """Run a cell to its end; return its name."""
        cell = self.begin(code)
        self.wait(lambda: ("status", {"execution_state": "idle"}) in self.messages(cell))
        return cell

    def value(self, expression: str) -> Any:
        """Return a value of the kernel that Python can write down."""
        return ast.literal_eval(self.stream(self.run(f"print(repr({expression}))"), "stdout"))

    def wait(self, until: Callable[[], bool]) -> None:
        """Read messages until a condition holds."""
        while not until():
            try:
                message = self._client.get_iopub_msg(timeout=ANSWER_S)
            except Empty:
                raise AssertionError(f"nothing more came; the last was {self._messages[-1:]}") from None
            cell = message["parent_header"].get("msg_id", "")
            self._messages.append((cell, message["msg_type"], message["content"]))

    def messages(self, cell: str) -> list[tuple[str, dict[str, Any]]]:
        return [(kind, content) for of, kind, content in self._messages if of == cell]

    def stream(self, cell: str, name: str) -> str:
        found = [content for kind, content in self.messages(cell) if kind == "stream"]
        return "".join(content["text"] for content in found if content["name"] == name)

    def displays(self, cell: str) -> list[str]:
        """Return the plain texts of a cell's displays and of their updates, which come by the display's name."""
        made = [content for kind, content in self.messages(cell) if kind == "display_data"]
        names = {content["transient"].get("display_id") for content in made}
        return [
            content["data"].get("text/plain", "")
            for _, kind, content in self._messages
            if kind in ("display_data", "update_display_data") and content["transient"].get("display_id") in names
        ]

    def outputs(self, cell: str) -> list[tuple[str, dict[str, Any]]]:
        """Return the messages of a cell that a front end adds to its output."""
        others = ("status", "execute_input", "update_display_data")
        return [message for message in self.messages(cell) if message[0] not in others]


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    home = tmp_path_factory.mktemp("home")
    places = {"HOME": str(home), "IPYTHONDIR": str(home / "ipython"), "JUPYTER_INFER_CACHE": str(REAL_CACHE)}
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(env={**os.environ, **places}, cwd=str(home))
    client = manager.client()
    client.start_channels()
    client.wait_for_ready(timeout=ANSWER_S)
    yield Kernel(manager, client)
    client.stop_channels()
    manager.shutdown_kernel(now=True)


BEFORE = """
import logging
own = logging.StreamHandler()
logging.getLogger().addHandler(own)
def users():
    root = logging.getLogger()
    return [id(handler) for handler in root.handlers], root.level, own.level, logging.raiseExceptions, id(own.stream)
before = users()
"""


def test_the_first_cell_prints_the_answer_and_nothing_else(kernel: Kernel) -> None:
    kernel.run(BEFORE)
    loads = kernel.run("%load_ext jupyter_infer")
    assert kernel.outputs(loads) == []
    asked = kernel.run("%%infer -f text -t 0 --max-tokens 8 -o first\nSay hi.")
    assert kernel.stream(asked, "stdout") == kernel.value("first.text") + "\n"
    assert kernel.stream(asked, "stderr") == ""
    assert kernel.displays(asked)[0].startswith("loading · ")
    assert kernel.displays(asked)[-1] == ""  # the load is gone from the cell
    assert [kind for kind, _ in kernel.outputs(asked)][-1] == "execute_result"


def test_what_the_engine_logs_is_kept_apart_and_the_users_logging_is_as_it_was(kernel: Kernel) -> None:
    assert "vllm" in kernel.stream(kernel.run("%infer logs"), "stdout").lower()
    assert kernel.value("users() == before") is True
    shown = kernel.run("logging.getLogger('mine').warning('mine')")
    assert kernel.stream(shown, "stderr") == "mine\n"


def answers(kernel: Kernel, cell: str) -> list[str]:
    """Return what a cell showed of an answer, in order."""
    return [
        text for text in kernel.displays(cell) if text and not text.startswith(("loading", "waiting", "…", "▷", "■"))
    ]


def test_text_of_the_background_comes_to_its_own_cell(kernel: Kernel) -> None:
    begun = kernel.run("%%infer -b -o job --ignore-eos --max-tokens 1000 -t 0\nCount.")
    kernel.wait(lambda: len(answers(kernel, begun)) > 0)
    beside = kernel.run('print("x")')
    seen = len(answers(kernel, begun))
    kernel.wait(lambda: len(answers(kernel, begun)) > seen)  # it goes on
    kernel.run("job.cancel()")
    kernel.wait(lambda: kernel.displays(begun)[-1].startswith("■"))  # its status line is the last of it
    assert [content for _, content in kernel.outputs(beside)] == [{"name": "stdout", "text": "x\n"}]
    answer = kernel.value("job.result().text")
    shown = answers(kernel, begun)
    assert shown[-1] == answer
    assert all(later.startswith(earlier) for earlier, later in pairwise(shown))
    assert kernel.stream(begun, "stdout") == kernel.stream(begun, "stderr") == ""


def test_an_interrupt_leaves_nothing_to_the_next_cell(kernel: Kernel) -> None:
    begun = kernel.begin("%%infer --ignore-eos --max-tokens 1000 -t 0\nWrite a story.")
    kernel.wait(lambda: any(len(text.split()) > 5 for text in answers(kernel, begun)))
    kernel.manager.interrupt_kernel()
    kernel.wait(lambda: ("status", {"execution_state": "idle"}) in kernel.messages(begun))
    (error,) = (content for kind, content in kernel.messages(begun) if kind == "error")
    assert error["traceback"] == ["Interrupted: the text so far is kept; %infer last shows its times"]
    after = kernel.run("%%infer -f text -t 0 --max-tokens 5 -o after\nSay hi.")
    assert kernel.stream(after, "stdout") == kernel.value("after.text") + "\n"
    kernel.run("import jupyter_infer as ji; session = ji.current_session()")
    reason, tokens = kernel.value("(lambda r: (r.finish_reason, r.usage.output_tokens))(session.history[-2])")
    assert reason == "abort"
    assert 5 <= tokens < 1000
    assert kernel.value("after.usage.output_tokens <= 5")
    assert kernel.value("(session.status().open_requests, session.status().state)") == (0, "idle")
    assert kernel.value("session.status().kv_blocks_free == session.info.kv_blocks_total")


def test_results_in_out_hold_nothing_of_an_engine_that_was_unloaded(kernel: Kernel) -> None:
    kernel.run("import gc, torch")
    large = (
        "[tuple(found.shape) for found in gc.get_objects() if issubclass(type(found), torch.Tensor)"
        " and found.numel() > 1_000_000]"
    )
    assert len(kernel.value(large)) > 10  # the weights
    assert kernel.value("sum(type(value).__name__ in ('Result', 'RequestHandle') for value in Out.values())") >= 3
    kernel.run("%infer unload")
    assert kernel.value(large) == []
    assert kernel.value("Out[max(Out)].text is not None or first.figure() is not None")
