"""A real kernel with a reader of its IOPub channel, as a front end is one."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jupyter_infer.kernelspec import kernel_env

__all__ = ["BenchKernel", "CellRun"]

CELL_S = 600
AFTERWARDS_S = 0.5  # in which a widget may still send what comes of a run's end
OUTPUTS = ("stream", "display_data", "update_display_data", "execute_result")


@dataclass(frozen=True, slots=True)
class CellRun:
    """What a front end saw of a cell."""

    seconds: float  # from sending it to the kernel's "idle"
    messages: Sequence[tuple[float, int]]  # seconds since it was sent and bytes, of each output
    stdout: str

    def peak(self) -> tuple[int, int]:
        """Return the most messages and the most bytes that came within one second."""
        most = [0, 0]
        for first, (begin, _) in enumerate(self.messages):
            within = [size for moment, size in self.messages[first:] if moment < begin + 1]
            most = [max(most[0], len(within)), max(most[1], sum(within))]
        return most[0], most[1]


class BenchKernel:
    """A kernel of this Python; use it as a context."""

    def __enter__(self) -> BenchKernel:
        from jupyter_client.manager import start_new_kernel

        silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}  # what it has to say comes by IOPub
        self._home = tempfile.TemporaryDirectory()  # the user's own configuration of the cell is not measured
        environ = {**os.environ, **kernel_env(), "IPYTHONDIR": self._home.name}
        self._manager, self._client = start_new_kernel(kernel_name="python3", env=environ, **silent)
        return self

    def __exit__(self, *exc: object) -> None:
        self._client.stop_channels()
        self._manager.shutdown_kernel(now=True)
        self._home.cleanup()

    def run(self, code: str) -> CellRun:
        """Run a cell and read what it shows until it is over.

        Raises
        ------
        RuntimeError
            If the cell raised an error.
        """
        begun = time.monotonic()
        sent = self._client.execute(code)
        messages: list[tuple[float, int]] = []
        stdout, error = "", ""
        while True:
            message = self._client.get_iopub_msg(timeout=CELL_S)
            kind, content = message["msg_type"], message["content"]
            if message["parent_header"].get("msg_id") != sent:
                continue
            if kind == "status" and content["execution_state"] == "idle":
                break
            if kind == "error":
                error = f"{content['ename']}: {content['evalue']}"
            if kind in OUTPUTS:
                messages.append((time.monotonic() - begun, _size(content)))
            if kind == "stream" and content["name"] == "stdout":
                stdout += content["text"]
        seconds = time.monotonic() - begun
        self._client.get_shell_msg(timeout=CELL_S)
        if error:
            raise RuntimeError(f"the cell {code.splitlines()[0]!r} failed: {error}")
        return CellRun(seconds, messages, stdout)

    def show(self, widget: str) -> None:
        """Count as a view of a widget, as a page does that shows it; a widget is known by its model's id."""
        self._to_widget(widget, {"method": "update", "state": {"_view_count": 1}, "buffer_paths": []})

    def press(self, widget: str, kind: str, payload: Mapping[str, Any]) -> CellRun:
        """Ask a widget for something as its view does, and read what it sends until its state is ``"done"``.

        Raises
        ------
        RuntimeError
            If it refused, or failed.
        """
        begun = time.monotonic()
        self._to_widget(widget, {"method": "custom", "content": {"kind": kind, "id": "1", "payload": dict(payload)}})
        messages: list[tuple[float, int]] = []
        seconds = None
        while True:
            try:
                message = self._client.get_iopub_msg(timeout=CELL_S if seconds is None else AFTERWARDS_S)
            except queue.Empty:
                break
            content, now = message["content"], time.monotonic() - begun
            data = content.get("data", {}) if content.get("comm_id") == widget else {}
            if data or message["msg_type"] in OUTPUTS:
                messages.append((now, _size(content)))
            error = data.get("content", {}).get("error") or data.get("state", {}).get("error")
            if error:
                raise RuntimeError(f"the widget refused or failed: {error}")
            if seconds is None and data.get("state", {}).get("state") == "done":
                seconds = now
        if seconds is None:
            raise RuntimeError(f"the widget was not done within {CELL_S} s")
        return CellRun(seconds, messages, "")

    def value(self, expression: str) -> Any:
        """Return what a Python expression is in the kernel, by way of JSON."""
        return json.loads(self.run(f"import json; print(json.dumps({expression}))").stdout)

    def _to_widget(self, widget: str, data: Mapping[str, Any]) -> None:
        message = self._client.session.msg("comm_msg", {"comm_id": widget, "data": dict(data)})
        self._client.shell_channel.send(message)


def _size(content: Mapping[str, Any]) -> int:
    return len(json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode(errors="replace"))
