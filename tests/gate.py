"""A gate in front of the end of every step, so that a test decides what happens while one runs."""

from __future__ import annotations

import threading

WAIT = 30  # seconds after which a test that would hang fails


class Gate:
    """The `sleep` of a scripted engine. It is closed at first: the first step stands at it until `let` or `open`."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._left = 0
        self._opened = False
        self._standing = False

    def sleep(self, duration_ns: int) -> None:
        """Wait until the step may end; called on the engine's thread."""
        with self._changed:
            self._standing = True
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: self._opened or self._left > 0, WAIT), "nobody opened the gate"
            self._left -= not self._opened
            self._standing = False

    def wait(self) -> None:
        """Wait until a step stands at the gate."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._standing and self._left == 0, WAIT), "no step came to the gate"

    def let(self, count: int) -> None:
        """Let so many steps end, and wait until the one after them stands at the gate."""
        with self._changed:
            self._left += count
            self._changed.notify_all()
        self.wait()

    def open(self) -> None:
        """Let all steps end from now on."""
        with self._changed:
            self._opened = True
            self._changed.notify_all()


def wait_for_drawing() -> None:
    """Wait for the threads that draw what comes later."""
    for thread in threading.enumerate():
        if thread.name == "jupyter-infer-display":
            thread.join(WAIT)
