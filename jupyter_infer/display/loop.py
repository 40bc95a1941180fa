"""Reading requests while they run, at the pace of a screen and not of the tokens."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from jupyter_infer.handle import RequestHandle
from jupyter_infer.interrupts import Latch
from jupyter_infer.records import LoadStage
from jupyter_infer.result import Refused

__all__ = ["POLL_S", "STOPPED_WAIT_S", "View", "follow", "wait_for"]

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
        """Show the texts so far, one a sample, if it is time to; return whether they are on the screen now."""

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
    answers = [
        _Answer(handle, sample)
        for handle in handles
        for sample in range(handle.samples if isinstance(handle, RequestHandle) else 1)
    ]
    begun = time.monotonic()

    def mark() -> None:
        for answer in answers:
            if answer.handle is not None and answer.text:
                answer.handle.shown()

    def look() -> None:
        texts = [answer.read() for answer in answers]
        if stream and any(texts):
            if view.update(texts):
                mark()
        else:
            view.waiting(sum(answer.tokens for answer in answers), time.monotonic() - begun)

    try:
        wait_for(handles, look)
    except KeyboardInterrupt:
        view.end([answer.read() for answer in answers], plain=True)
        mark()
        raise
    view.end([answer.read() for answer in answers])
    mark()


def wait_for(handles: Sequence[RequestHandle | Refused], look: Callable[[], object] = lambda: None) -> None:
    """Wait until all requests are over, and `look` now and then: tokens cost no wake-ups.

    Raises
    ------
    KeyboardInterrupt
        After the requests were told to stop; one that is in the middle of a step may end a little later.
    """
    running = [handle for handle in handles if isinstance(handle, RequestHandle)]
    over = Latch()

    def one_is_done() -> None:
        if all(handle.done for handle in running):
            over.set()

    try:
        for handle in running:
            handle.when_done(one_is_done)
        one_is_done()
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


class _Answer:
    """The text of one sample of a request so far."""

    def __init__(self, handle: RequestHandle | Refused, sample: int) -> None:
        self.sample = sample
        self.handle = handle if isinstance(handle, RequestHandle) else None
        self.text = "" if isinstance(handle, RequestHandle) else f"{type(handle.error).__name__}: {handle.error}"
        self.tokens = 0
        self._seen = 0

    def read(self) -> str:
        if self.handle is not None:
            events = self.handle.events_after(self._seen)
            self._seen += len(events)
            own = [event for event in events if event.sample == self.sample]
            self.text += "".join(event.text for event in own)
            self.tokens += sum(len(event.token_ids) for event in own)
        return self.text
