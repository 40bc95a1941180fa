"""Cells of a real kernel and of its subshells at once: each output goes to its own cell, and stop acts at once."""

from __future__ import annotations

import queue
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gate import WAIT
from jupyter_client.manager import start_new_kernel

SCRIPTED = """
import jupyter_infer.session as s
from jupyter_infer.engine.scripted import Script, ScriptedEngine
script = Script(answer=lambda prompt: [f"{prompt}:{n} " for n in range(2000)], step_ns=lambda tokens: 2_000_000)
s._current = s.Session("scripted", factory=lambda *wanted: lambda progress: ScriptedEngine(script))
"""
REAL = """
import jupyter_infer.session as s
s._current = s.Session(kv_cache_memory_bytes=128 << 20)
"""
PATIENCE = 10 * WAIT  # a kernel starts, and vLLM may be loaded


class Kernel:
    """A kernel, its subshells, and what each cell showed."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.outputs: defaultdict[str, list[Any]] = defaultdict(list)
        self.idle: set[str] = set()
        self.errors: dict[str, str] = {}

    def subshell(self) -> str:
        message = self.client.session.msg("create_subshell_request")
        self.client.control_channel.send(message)
        while (reply := self.client.get_control_msg(timeout=PATIENCE))["msg_type"] != "create_subshell_reply":
            continue
        return str(reply["content"]["subshell_id"])

    def run(self, code: str, subshell: str | None = None) -> str:
        """Send a cell; return its id."""
        # Not in IPython's history: cells that run at once can get one number there, which it tells in their output.
        content = {"code": code, "silent": False, "store_history": False, "user_expressions": {}, "allow_stdin": False}
        message = self.client.session.msg("execute_request", {**content, "stop_on_error": False})
        message["header"]["subshell_id"] = subshell
        self.client.shell_channel.send(message)
        return str(message["header"]["msg_id"])

    def until(self, true: Any, what: str) -> None:
        """Read what the kernel publishes until something is true."""
        deadline = time.monotonic() + PATIENCE
        while not true():
            assert time.monotonic() < deadline, f"{what}: {dict(self.outputs)} {self.errors}"
            try:
                message = self.client.get_iopub_msg(timeout=1)
            except queue.Empty:
                continue
            parent, kind, content = message["parent_header"].get("msg_id"), message["msg_type"], message["content"]
            if kind == "status" and content["execution_state"] == "idle":
                self.idle.add(parent)
            elif kind == "error":
                self.errors[parent] = f"{content['ename']}: {content['evalue']}"
            elif kind == "stream":
                self.outputs[parent].append(content["text"])
            elif kind in ("display_data", "update_display_data", "execute_result"):
                self.outputs[parent].append(content["data"]["text/plain"])

    def shown(self, cell: str) -> list[Any]:
        self.until(lambda: cell in self.idle, "a cell does not end")
        return self.outputs[cell]


@pytest.fixture(params=[SCRIPTED, pytest.param(REAL, marks=pytest.mark.integration)], ids=["scripted", "vllm"])
def kernel(request: pytest.FixtureRequest, own_home: Path) -> Iterator[Kernel]:
    startup = own_home / ".ipython/profile_default/startup"
    startup.mkdir(parents=True)
    (startup / "engine.py").write_text(request.param)
    manager, client = start_new_kernel(kernel_name="python3", startup_timeout=PATIENCE)
    made = Kernel(client)
    try:
        yield made
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def test_a_subshell_asks_and_stops_beside_a_cell(kernel: Kernel) -> None:
    setup = kernel.run("%load_ext jupyter_infer\n%infer load")
    kernel.shown(setup)
    assert setup not in kernel.errors, kernel.errors
    first, second = kernel.subshell(), kernel.subshell()
    long = kernel.run("%%infer --max-tokens 1900 --ignore-eos\nlong")
    kernel.until(lambda: kernel.outputs[long], "the long one shows nothing")
    asked = [
        kernel.run("%%infer -f text --no-chart --max-tokens 3 --ignore-eos -t 0;\none", first),
        kernel.run("%%infer -f text --no-chart --max-tokens 3 --ignore-eos -t 0;\ntwo", second),
    ]
    printed = kernel.run("print('x')", first)
    state = kernel.run("%infer status", second)
    texts = [kernel.shown(cell) for cell in asked]
    assert long not in kernel.idle  # they ran beside it
    if "scripted" in "".join(kernel.shown(state)):
        assert ["".join(shown) for shown in texts] == ["one:0 one:1 one:2 \n", "two:0 two:1 two:2 \n"]
    else:
        assert all("".join(shown).strip() for shown in texts)
    assert "".join(kernel.shown(printed)) == "x\n"
    assert "busy" in "".join(kernel.shown(state))
    assert long not in kernel.idle
    stop = kernel.run("%infer stop", first)
    assert "".join(kernel.shown(stop)) == "stopped 1 request\n"
    kernel.shown(long)
    assert "interrupted" in kernel.outputs[long][-1]  # its status line
    after = kernel.run("%%infer -f text --no-chart --max-tokens 2 --ignore-eos -t 0;\nafter")
    assert "".join(kernel.shown(after)).strip()
    assert kernel.errors == {}
