"""An answer as text on a stream: in a terminal, and in a notebook's cell where plain text was asked for."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, TextIO

from jupyter_infer.display.cell import BYTES_PER_S, UPDATES_PER_S, CellView
from jupyter_infer.display.place import draw_later
from jupyter_infer.display.text import joined, printable
from jupyter_infer.errors import InferError
from jupyter_infer.records import LoadStage

__all__ = ["CellStreamView", "TerminalView"]


class TerminalView:
    """Text on a stream; progress goes to stderr, so that stdout is the answer alone."""

    def __init__(self, stream: TextIO | None = None, progress: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._progress_stream = progress
        self._read = self._written = 0  # characters of the text, and of what was made of them
        self._stage: str | None = None

    @property
    def _progress(self) -> TextIO:
        """Where progress goes now: while an engine loads, descriptor 2 is its log, and `sys.stderr` goes round it."""
        return self._progress_stream or sys.stderr

    def progress(self, stage: LoadStage) -> None:
        """Show each stage once."""
        line = stage.detail or stage.stage if stage.stage == "model" else stage.stage
        if line == self._stage or stage.stage == "ready":
            return
        self._stage = line
        if self._progress.isatty():
            self._progress.write(f"\r\x1b[Kloading · {stage.stage}{f' · {stage.detail}' if stage.detail else ''}")
        elif not line[:1].isdigit() and "%" not in line:
            self._progress.write(f"loading · {line}\n")
        self._progress.flush()

    def waiting(self, tokens: int, seconds: float) -> None:
        """Do nothing: the cursor waits."""

    def update(self, texts: Sequence[str]) -> bool:
        """Write what is new of a single text; several texts are written at the end."""
        if len(texts) != 1:
            return False
        self._clear_progress()
        new = printable(texts[0][self._read :])
        self._stream.write(new)
        self._stream.flush()
        self._read, self._written = len(texts[0]), self._written + len(new)
        return True

    def end(self, texts: Sequence[str], *, plain: bool = False) -> None:
        """Write the rest and end the line."""
        self._clear_progress()
        text = printable(texts[0][self._read :]) if len(texts) == 1 else joined(texts)
        self._stream.write(text + "\n")
        self._stream.flush()

    def note(self, text: str) -> None:
        """Write a line to the user beside the answer."""
        self._progress.write(f"{text}\n")

    def amend(self, texts: Sequence[str]) -> None:
        """Do nothing: what is written is written."""

    def clear(self) -> None:
        """Show nothing more of a load that came to nothing."""
        self._clear_progress()

    def later(self, make: Callable[[], Any], waiting: str) -> None:
        """Wait for `make`: a terminal cannot be written to above the next prompt."""
        try:
            self._stream.write(f"{make()!r}\n")
        except InferError as error:
            self._stream.write(f"{type(error).__name__}: {error}\n")

    def _clear_progress(self) -> None:
        if self._stage is not None and self._progress.isatty():
            self._progress.write("\r\x1b[K")
            self._progress.flush()
        self._stage = None


class CellStreamView(TerminalView):
    """Text on the cell's stdout; progress is a display, which goes when the text comes."""

    def __init__(self, stream: TextIO | None = None) -> None:
        super().__init__(stream)
        self._cell = CellView(markdown=False)
        self._next = 0.0

    def progress(self, stage: LoadStage) -> None:
        """Show the stage of a load, in place of the one before."""
        self._stage = stage.stage
        self._cell.progress(stage)

    def update(self, texts: Sequence[str]) -> bool:
        """Write what is new of a single text, if the budget allows it now."""
        if time.monotonic() < self._next:
            return False
        before = self._written
        shown = super().update(texts)
        size = 3 * (self._written - before)  # bytes, at most, of most scripts
        self._next = time.monotonic() + max(1 / UPDATES_PER_S, size / BYTES_PER_S)
        return shown

    def note(self, text: str) -> None:
        """Show a line to the user in a display of its own."""
        self._cell.note(text)

    def later(self, make: Callable[[], Any], waiting: str) -> None:
        """Show what `make` returns, which is called on a thread of its own."""
        draw_later(make, waiting)

    def _clear_progress(self) -> None:
        # Not by clearing the cell's output: what else it printed stays.
        if self._stage is not None:
            self._cell.clear()
        self._stage = None
