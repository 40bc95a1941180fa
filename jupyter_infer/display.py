"""A request's events as they come, on a screen: in a notebook's cell, or in a terminal.

In a notebook the answer is one display, updated in place and under a budget: at most `UPDATES_PER_S` messages and
`BYTES_PER_S` bytes a second, whatever the token rate. In a terminal it is text on stdout. Model output is data: it is
sent as plain text and never as markup.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from typing import Any, Protocol, TextIO

from jupyter_infer.errors import InferError
from jupyter_infer.handle import RequestHandle
from jupyter_infer.numbers import format_ns
from jupyter_infer.records import LoadStage
from jupyter_infer.result import Refused

__all__ = ["BYTES_PER_S", "UPDATES_PER_S", "CellView", "TerminalView", "View", "follow", "printable", "view_for"]

UPDATES_PER_S = 12
BYTES_PER_S = 200_000
POLL_S = 1 / 60
STOPPED_WAIT_S = 0.15
"""After an interrupt the prompt is back within this time, whether or not the step that runs has ended."""

_CONTROL = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}


def printable(text: str) -> str:
    r"""Return text with control characters as escapes (``\x1b``), so that an answer cannot move the cursor or recolour
    a page.
    """
    return text.translate(_CONTROL)


class View(Protocol):
    """Where an answer is shown."""

    def progress(self, stage: LoadStage) -> None:
        """Show where a load is."""

    def update(self, texts: Sequence[str]) -> bool:
        """Show the texts so far, one a sample, if it is time to; return whether they are on the screen now."""

    def end(self, texts: Sequence[str]) -> None:
        """Show the final texts."""

    def later(self, handles: Sequence[RequestHandle], make: Any) -> None:
        """Show `make()` once all handles are done."""


class CellView:
    """One display of a notebook cell."""

    def __init__(self) -> None:
        from IPython.display import DisplayHandle

        self._display = DisplayHandle()
        self._made = False
        self._next = 0.0
        self._last = ""
        self._stage: str | None = None
        self._begun = time.monotonic_ns()

    def progress(self, stage: LoadStage) -> None:
        """Show a stage as it begins, and its details and the time since the first one as the budget allows."""
        if stage.stage != "ready" and (stage.stage != self._stage or time.monotonic() >= self._next):
            self._stage = stage.stage
            self._show(f"loading · {stage.stage}{f' · {stage.detail}' if stage.detail else ''} · {self._elapsed()}")

    def update(self, texts: Sequence[str]) -> bool:
        """Show the texts so far, if the budget allows it now."""
        if time.monotonic() < self._next:
            return False
        self._show(_joined(texts))
        return True

    def end(self, texts: Sequence[str]) -> None:
        """Show the final texts."""
        self._show(_joined(texts))

    def later(self, handles: Sequence[RequestHandle], make: Any) -> None:
        """Show a line now and what `make` returns when the engine has let go of the requests."""
        from IPython.display import DisplayHandle, Pretty

        def shown() -> Any:
            try:
                return make()
            except InferError as error:
                return Pretty(f"{type(error).__name__}: {error}")

        place = DisplayHandle()
        if all(handle.done for handle in handles):
            place.display(shown())
            return
        place.display(Pretty("■ interrupted …"))

        def when_done() -> None:
            if all(handle.done for handle in handles):  # drawn on a thread of its own: the engine goes on meanwhile
                threading.Thread(target=lambda: place.update(shown()), name="jupyter-infer-display").start()

        for handle in handles:
            handle.when_done(when_done)

    def _elapsed(self) -> str:
        return format_ns(round(time.monotonic_ns() - self._begun, -8))

    def _show(self, text: str) -> None:
        from IPython.display import Pretty

        if self._made and text == self._last:
            return
        (self._display.update if self._made else self._display.display)(Pretty(text))
        self._made, self._last = True, text
        size = len(text.encode(errors="replace"))
        self._next = time.monotonic() + max(1 / UPDATES_PER_S, size / BYTES_PER_S)


class TerminalView:
    """Text on a stream; progress goes to stderr, so that stdout is the answer alone."""

    def __init__(self, stream: TextIO | None = None, progress: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._progress_stream = progress
        self._written = 0
        self._stage: str | None = None

    @property
    def _progress(self) -> TextIO:
        """Where progress goes now: while an engine loads, descriptor 2 is its log, and `sys.stderr` goes round it."""
        return self._progress_stream or sys.stderr

    def progress(self, stage: LoadStage) -> None:
        """Show each stage once."""
        line = stage.detail if stage.stage == "model" else stage.stage
        if line == self._stage or stage.stage == "ready":
            return
        self._stage = line
        if self._progress.isatty():
            self._progress.write(f"\r\x1b[Kloading · {stage.stage}{f' · {stage.detail}' if stage.detail else ''}")
        elif not line[:1].isdigit() and "%" not in line:
            self._progress.write(f"loading · {line}\n")
        self._progress.flush()

    def update(self, texts: Sequence[str]) -> bool:
        """Write what is new of a single text; several texts are written at the end."""
        if len(texts) != 1:
            return False
        self._clear_progress()
        text = printable(texts[0])
        self._stream.write(text[self._written :])
        self._stream.flush()
        self._written = len(text)
        return True

    def end(self, texts: Sequence[str]) -> None:
        """Write the rest and end the line."""
        self._clear_progress()
        text = printable(texts[0]) if len(texts) == 1 else _joined(texts)
        self._stream.write(text[self._written :] + "\n")
        self._stream.flush()

    def later(self, handles: Sequence[RequestHandle], make: Any) -> None:
        """Wait for the step that runs: a terminal cannot be written to above the next prompt."""
        try:
            for handle in handles:
                handle.record(timeout=30)
            self._stream.write(f"{make()!r}\n")
        except (InferError, TimeoutError) as error:
            self._stream.write(f"{type(error).__name__}: {error}\n")

    def _clear_progress(self) -> None:
        if self._stage is not None and self._progress.isatty():
            self._progress.write("\r\x1b[K")
            self._progress.flush()
        self._stage = None


def view_for(shell: Any) -> View:
    """Return the view that suits an IPython shell: a display in a kernel, text in a terminal."""
    return CellView() if getattr(shell, "kernel", None) is not None else TerminalView()


def follow(handles: Sequence[RequestHandle | Refused], view: View) -> None:
    """Show events until all requests are over.

    Raises
    ------
    KeyboardInterrupt
        After the requests were told to stop, and their texts so far were shown.
    """
    answers = [
        _Answer(handle, sample)
        for handle in handles
        for sample in range(handle.samples if isinstance(handle, RequestHandle) else 1)
    ]
    running = [handle for handle in handles if isinstance(handle, RequestHandle)]

    def collect() -> list[str]:
        return [answer.read() for answer in answers]

    def end() -> None:
        view.end(collect())
        mark()

    def mark() -> None:
        for answer in answers:
            if answer.handle is not None and answer.text:
                answer.handle.shown()

    def wait(seconds: float) -> bool:
        """Return whether all are over within the time; looked at now and then, so that tokens cost no wake-ups."""
        deadline = time.monotonic() + seconds
        while not (over := all(handle.done for handle in running)) and time.monotonic() < deadline:
            time.sleep(POLL_S)
        return over

    try:
        while not wait(POLL_S):
            texts = collect()
            if any(texts) and view.update(texts):
                mark()
        end()
    except KeyboardInterrupt:
        for handle in running:
            handle.cancel()
        wait(STOPPED_WAIT_S)
        end()
        raise


class _Answer:
    """The text of one sample of a request so far."""

    def __init__(self, handle: RequestHandle | Refused, sample: int) -> None:
        self.sample = sample
        self.handle = handle if isinstance(handle, RequestHandle) else None
        self.text = "" if self.handle else f"{type(handle.error).__name__}: {handle.error}"  # type: ignore[union-attr]
        self._seen = 0

    def read(self) -> str:
        if self.handle is not None:
            events = self.handle.events_after(self._seen)
            self._seen += len(events)
            self.text += "".join(event.text for event in events if event.sample == self.sample)
        return self.text


def _joined(texts: Sequence[str]) -> str:
    if len(texts) == 1:
        return printable(texts[0])
    return "\n\n".join(f"[{number}] {printable(text)}" for number, text in enumerate(texts, 1))
