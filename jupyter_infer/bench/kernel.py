"""A real kernel with a reader of its IOPub channel, as a front end is one."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jupyter_infer.kernelspec import kernel_env

__all__ = ["BenchKernel", "CellRun"]

CELL_S = 600


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
            if kind in ("stream", "display_data", "update_display_data", "execute_result"):
                messages.append((time.monotonic() - begun, _size(content)))
            if kind == "stream" and content["name"] == "stdout":
                stdout += content["text"]
        seconds = time.monotonic() - begun
        self._client.get_shell_msg(timeout=CELL_S)
        if error:
            raise RuntimeError(f"the cell {code.splitlines()[0]!r} failed: {error}")
        return CellRun(seconds, messages, stdout)

    def value(self, expression: str) -> Any:
        """Return what a Python expression is in the kernel, by way of JSON."""
        return json.loads(self.run(f"import json; print(json.dumps({expression}))").stdout)


def _size(content: Mapping[str, Any]) -> int:
    return len(json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode(errors="replace"))
