"""Interrupts at chosen lines: SIGINT arrives as the main thread is about to run one for the first time."""

from __future__ import annotations

import ast
import functools
import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import jupyter_infer

Line = tuple[str, int]
"""A file, below the package, and the number of a line in it."""

PACKAGE = f"{Path(jupyter_infer.__file__).parent}/"


@functools.cache
def with_lines(path: str) -> frozenset[int]:
    """Return the lines of a file that begin a ``with``.

    They are run again as its body ends, and there Python itself lets no signal in.
    """
    tree = ast.parse(Path(path).read_text())
    return frozenset(node.lineno for node in ast.walk(tree) if isinstance(node, (ast.With, ast.AsyncWith)))


class Interrupter:
    """Runs its body with SIGINT at a line, and notes which lines of ours were run, in order of their first time.

    Parameters
    ----------
    at
        The line; None only notes.
    again
        So many calls and returns of ours after it, SIGINT comes again.
    """

    def __init__(self, at: Line | None = None, again: int | None = None) -> None:
        self.lines: dict[Line, None] = {}
        self.hits = 0
        self._at, self._left = at, again

    def __enter__(self) -> Interrupter:
        assert threading.current_thread() is threading.main_thread()
        if self._left is not None:
            sys.setprofile(self._profile)
        sys.settrace(self._trace)
        return self

    def __exit__(self, *error: object) -> None:
        sys.settrace(None)
        sys.setprofile(None)

    def _trace(self, frame: FrameType, event: str, arg: Any) -> Any:
        path = frame.f_code.co_filename
        if not path.startswith(PACKAGE):
            return None
        if event == "line" and frame.f_lineno not in with_lines(path):
            line = path.removeprefix(PACKAGE), frame.f_lineno
            if line not in self.lines:
                self.lines[line] = None
                if line == self._at:
                    self.hits = 1
                    sys.settrace(None)
                    signal.raise_signal(signal.SIGINT)
                    return None
        return self._trace

    def _profile(self, frame: FrameType, event: str, arg: Any) -> None:
        if self.hits != 1 or self._left is None or not frame.f_code.co_filename.startswith(PACKAGE):
            return
        self._left -= 1
        if self._left < 0:
            self.hits = 2
            signal.raise_signal(signal.SIGINT)
