"""A clock that is moved, and requests that answer along it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from builders import make_record, make_sample

from jupyter_infer.handle import RequestHandle
from jupyter_infer.records import TokenEvent


class Timeline:
    """A clock for `display`: its `sleep` passes the time, in which things happen."""

    def __init__(self) -> None:
        self.now = 0.0
        self.happen: Callable[[], None] = lambda: None

    def monotonic(self) -> float:
        return self.now

    def monotonic_ns(self) -> int:
        return round(self.now * 1e9)

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Pass the time, a millisecond at once, until the event comes."""
        deadline = self.now + seconds
        while not event.is_set() and self.now < deadline:
            self.sleep(0.001)
        return event.is_set()

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.happen()


def texts_of(outputs: Sequence[dict[str, Any]]) -> list[str]:
    return [message["data"]["text/plain"] for message in outputs]


class Answer:
    """A request that answers with one piece a millisecond of the timeline."""

    def __init__(self, timeline: Timeline, pieces: Sequence[str], *, request_id: str = "r1") -> None:
        self.handle = RequestHandle(request_id, self.cancel)
        self.timeline, self.pieces, self.given = timeline, pieces, 0
        timeline.happen = self.give

    def give(self) -> None:
        while not self.handle.done and self.given < min(len(self.pieces), int(self.timeline.now * 1000)):
            step = self.given
            self.handle.event(TokenEvent(self.handle.request_id, 0, step, step, (step,), self.pieces[step]))
            self.given += 1
        if self.given == len(self.pieces) and not self.handle.done:
            self.handle.finished(make_record())

    def cancel(self) -> None:
        self.handle.finished(make_record(make_sample([], finish="abort")))
