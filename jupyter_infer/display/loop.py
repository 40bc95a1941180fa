"""Reading requests while they run, at the pace of a screen and not of the tokens."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from jupyter_infer.handle import RequestHandle
from jupyter_infer.interrupts import Latch
from jupyter_infer.records import LoadStage
from jupyter_infer.result import Refused

__all__ = ["POLL_S", "STOPPED_WAIT_S", "Answers", "View", "follow", "wait_for"]

POLL_S = 1 / 20
"""How often the texts are looked at: on two cores each look takes time from the engine."""
STOPPED_WAIT_S = 0.15
"""After an interrupt the prompt is back within this time, whether or not the step that runs has ended."""


class View(Protocol):
    """Where an answer is shown."""

    def progress(self, stage: LoadStage) -> None:
        """Show where a load is."""

    def waiting(self, tokens: int, seconds: float) -> None:
        """Show, if it is time to, that so many tokens came in so long a time, and no text to show."""

    def update(self, texts: Sequence[str]) -> bool:
        """Show the texts so far, one a sample, each the last one and more, if it is time to; return whether they are on
        the screen now.
        """

    def end(self, texts: Sequence[str], *, plain: bool = False) -> None:
        """Show the final texts, as plain ones where there is no time for more."""

    def amend(self, texts: Sequence[str]) -> None:
        """Show the final texts where others were shown as final, if that can be done from another thread."""

    def clear(self) -> None:
        """Show nothing more of a load that came to nothing."""

    def note(self, text: str) -> None:
        """Show a line to the user that is no part of the answer."""

    def later(self, make: Callable[[], Any], waiting: str) -> None:
        """Show what `make` returns, and `waiting` until it does; where it can be, on a thread of its own."""


def follow(handles: Sequence[RequestHandle | Refused], view: View, *, stream: bool = True) -> None:
    """Show events until all requests are over; if not `stream`, only their end.

    Raises
    ------
    KeyboardInterrupt
        After the requests were told to stop, and their texts so far were shown.
    """
    answers = [Answers(handle) for handle in handles]
    begun = time.monotonic()

    def read() -> list[str]:
        return [text for answer in answers for text in answer.read()]

    def mark() -> None:
        for answer in answers:
            answer.mark()

    def look() -> None:
        texts = read()
        if stream and any(texts):
            if view.update(texts):
                mark()
        else:
            view.waiting(sum(answer.tokens for answer in answers), time.monotonic() - begun)

    try:
        wait_for(handles, look)
    except KeyboardInterrupt:
        view.end(read(), plain=True)
        mark()
        raise
    view.end(read())
    mark()


def wait_for(handles: Sequence[RequestHandle | Refused], look: Callable[[], object] = lambda: None) -> None:
    """Wait until all requests are over, and `look` now and then: tokens cost no wake-ups.

    Raises
    ------
    KeyboardInterrupt
        After the requests were told to stop; one that is in the middle of a step may end a little later.
    """
    running = [handle for handle in handles if isinstance(handle, RequestHandle)]
    over, ended = Latch(), itertools.count(1)

    def one_is_done() -> None:
        if next(ended) == len(running):
            over.set()

    if not running:
        over.set()
    try:
        for handle in running:
            handle.when_done(one_is_done)
        while not _wait(over, POLL_S):
            look()
    except BaseException as error:  # a fault of a display, too, must leave nothing running
        for handle in running:
            handle.cancel()
        if isinstance(error, KeyboardInterrupt):
            _wait(over, STOPPED_WAIT_S)
        raise


def _wait(over: Latch, seconds: float) -> bool:
    return over.wait(seconds)


class Answers:
    """The texts of a request so far, one a sample."""

    def __init__(self, handle: RequestHandle | Refused) -> None:
        self._handle = handle if isinstance(handle, RequestHandle) else None
        self._texts = (
            [""] * handle.samples
            if isinstance(handle, RequestHandle)
            else [f"{type(handle.error).__name__}: {handle.error}"]
        )
        self.tokens = 0
        self._seen = 0

    def read(self) -> Sequence[str]:
        """Return the texts, with what came since the last look."""
        events = self._handle.events_after(self._seen) if self._handle is not None else []
        if not events:
            return self._texts
        self._seen += len(events)
        new: list[list[str]] = [[] for _ in self._texts]
        for event in events:
            new[event.sample].append(event.text)
            self.tokens += len(event.token_ids)
        for sample, pieces in enumerate(new):
            added = "".join(pieces)
            # A text that has no other name is lengthened where it is, and not copied as a whole at each look.
            text, self._texts[sample] = self._texts[sample], ""
            text += added
            self._texts[sample] = text
        return self._texts

    def mark(self) -> None:
        """Note that what was read is on a screen."""
        if self._handle is not None and any(self._texts):
            self._handle.shown()
