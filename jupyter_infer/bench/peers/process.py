"""A process that answers questions (`serve` is its own side), seen from outside; and one that is only busy."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["LIMIT_S", "PeerFailed", "PeerProcess", "busy_process"]

LIMIT_S = 900.0
"""How long one answer may take; a compile takes some minutes."""

GRACE_S = 20.0
"""How long a peer may take to end after its last question, before it is ended."""

BUSY = """
import os, sys, threading
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()  # ends with who started it
print(flush=True)
while True: pass
"""


class PeerFailed(RuntimeError):
    """A peer died or did not answer; its message ends with what it printed last."""

    def __init__(self, what: str, log: str) -> None:
        super().__init__(f"{what}:\n{log}")
        last = next((line.strip() for line in reversed(log.splitlines()) if line.strip()), "")
        self.line = f"{what}: {last}"[:300] if last else what


class PeerProcess:
    """The process; use it as a context. `ready` is what it answered to the load.

    Parameters
    ----------
    name
        What to call it in messages.
    command
        What starts it.
    load
        The first question.
    environ
        All of its environment; None for that of this process.
    limit_s
        How long one answer may take.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        load: Mapping[str, Any],
        *,
        environ: Mapping[str, str] | None = None,
        limit_s: float = LIMIT_S,
    ) -> None:
        self.ready: dict[str, Any] = {}
        self._name, self._command, self._load = name, command, load
        self._environ, self._limit_s = environ, limit_s

    def __enter__(self) -> PeerProcess:
        self._log = tempfile.TemporaryFile("w+", errors="replace")
        self._process = subprocess.Popen(
            self._command,
            env=self._environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            start_new_session=True,  # a peer may have processes of its own, and all of them have to end
        )
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, name="bench-peer", daemon=True)
        self._reader.start()
        try:
            self.ready = self.ask(self._load)
        except BaseException:
            self._kill()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        assert self._process.stdin is not None
        if kind is None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()  # no more questions
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(GRACE_S)
        self._kill()

    def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to a question.

        Raises
        ------
        PeerFailed
            If the process died, or did not answer in time.
        """
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # what it died of is said below
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
        try:
            line = self._lines.get(timeout=self._limit_s)
        except queue.Empty:
            raise PeerFailed(f"{self._name} did not answer within {self._limit_s:g} s", self._logged()) from None
        if not line:
            status = self._process.wait()
            raise PeerFailed(f"{self._name} ended with status {status}", self._logged())
        answer: dict[str, Any] = json.loads(line)
        return answer

    def run(self, question: Mapping[str, Any], tokens: int) -> float:
        """Return the seconds of a run, from the first request to the last token.

        Raises
        ------
        PeerFailed
            If it failed, or gave another number of output tokens than it should.
        """
        answer = self.ask(question)
        if answer["tokens"] != tokens:
            raise PeerFailed(f"{self._name} gave {answer['tokens']} tokens, and {tokens} were asked for", "")
        return float(answer["seconds"])

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as answers:
            for line in answers:
                self._lines.put(line)
        self._lines.put("")

    def _logged(self) -> str:
        self._log.seek(0)
        return self._log.read()[-2000:]

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # all of it is gone
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join(GRACE_S)
        with contextlib.suppress(OSError):  # a question that nobody read
            assert self._process.stdin is not None
            self._process.stdin.close()
        self._log.close()


@contextlib.contextmanager
def busy_process() -> Iterator[subprocess.Popen[bytes]]:
    """Keep one CPU busy with pure Python, in a process of its own, for the length of the context."""
    with subprocess.Popen([sys.executable, "-c", BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield process
        finally:
            process.kill()
