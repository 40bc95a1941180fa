"""An answer in a notebook's cell: one display, updated in place under a budget of messages and bytes a second."""

from __future__ import annotations

import html
import time
from collections.abc import Callable, Sequence
from typing import Any

from jupyter_infer.display.place import Place, draw_later
from jupyter_infer.display.text import Growth, joined, printable, tail, utf8_size
from jupyter_infer.markdown import markdown_html
from jupyter_infer.numbers import format_ns
from jupyter_infer.records import LoadStage

__all__ = ["BYTES_PER_S", "UPDATES_PER_S", "CellView"]

UPDATES_PER_S = 12
BYTES_PER_S = 100_000
TAIL_CHARS = 6_000
"""A longer text is shown by its end while it grows: each update carries all that it shows."""
LONG_BYTES_PER_S = 200_000
"""Bytes of a text for which its next update is put off by a second, so that its end finds room in the budget."""
MARKDOWN_BYTES = 40_000
"""A longer answer stays plain text, because HTML beside it would go over the budget."""
WAITING_S = 0.5
"""After this time without a text the cell says that it waits."""


class CellView:
    """One display of a notebook cell.

    Parameters
    ----------
    markdown
        Whether the final text is rendered as Markdown; until then it is plain text.
    """

    def __init__(self, *, markdown: bool = True) -> None:
        self._place = Place()
        self._markdown = markdown
        self._next = 0.0
        self._growth = Growth()
        self._last: str | None = None  # the plain text that stands there
        self._stage: str | None = None
        self._begun = time.monotonic_ns()

    def progress(self, stage: LoadStage) -> None:
        """Show a stage as it begins, and its details and the time since the first one as the budget allows."""
        if stage.stage != "ready" and (stage.stage != self._stage or time.monotonic() >= self._next):
            self._stage = stage.stage
            self._show(f"loading · {stage.stage}{f' · {stage.detail}' if stage.detail else ''} · {self._elapsed()}")

    def waiting(self, tokens: int, seconds: float) -> None:
        """Say how far it is, if that lasts."""
        if seconds >= WAITING_S and time.monotonic() >= self._next:
            what = f"{tokens:,} tokens so far" if tokens else "waiting for the first token"
            self._show(f"{what} · {format_ns(round(seconds * 1e9, -8))}")

    def update(self, texts: Sequence[str]) -> bool:
        """Show the texts so far, if the budget allows it now."""
        if time.monotonic() < self._next:
            return False
        chars, size = self._growth.look(texts)
        self._show(tail(texts, chars, TAIL_CHARS))
        self._next = max(self._next, time.monotonic() + size / LONG_BYTES_PER_S)
        return True

    def end(self, texts: Sequence[str], *, plain: bool = False) -> None:
        """Show the final texts; `plain` spares the time that Markdown takes."""
        text = joined(texts)
        rendered = _html(texts) if self._markdown and not plain else None
        if rendered is None:
            self._show(text)
        else:
            self._place.show({"text/plain": text, "text/html": rendered})
            self._last = None

    def amend(self, texts: Sequence[str]) -> None:
        """Show the final texts though others were shown as final; from any thread."""
        self.end(texts)

    def clear(self) -> None:
        """Show nothing more of a load that came to nothing."""
        if self._place.made:
            self._show("")

    def note(self, text: str) -> None:
        """Show a line to the user in a place of its own."""
        Place().show_text(text)

    def later(self, make: Callable[[], Any], waiting: str) -> None:
        """Show what `make` returns, which is called on a thread of its own."""
        draw_later(make, waiting)

    def _elapsed(self) -> str:
        return format_ns(round(time.monotonic_ns() - self._begun, -8))

    def _show(self, text: str) -> None:
        if self._place.made and text == self._last:
            return
        self._place.show_text(text)
        self._last = text
        self._next = time.monotonic() + max(1 / UPDATES_PER_S, utf8_size(text) / BYTES_PER_S)


def _html(texts: Sequence[str]) -> str | None:
    """Return all texts as HTML, each rendered if it can be, or None if that is no use."""
    if sum(map(utf8_size, texts)) > MARKDOWN_BYTES:
        return None
    rendered = [markdown_html(printable(text)) for text in texts]
    if not any(rendered):
        return None
    parts = [
        part or f'<pre style="white-space:pre-wrap">{html.escape(printable(text))}</pre>'
        for part, text in zip(rendered, texts, strict=True)
    ]
    if len(parts) == 1:
        return parts[0]
    return "".join(
        f'<div style="opacity:.65;margin-top:.4em">[{number}]</div>{part}' for number, part in enumerate(parts, 1)
    )
