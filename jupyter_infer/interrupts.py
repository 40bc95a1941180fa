"""Where an interrupt may strike: while the main thread waits, and not in the middle of what must stay whole.

Python raises `KeyboardInterrupt` between any two calls of the main thread: when a request was handed over and nobody
has its handle yet, or inside `threading.Condition`, whose lock then stays taken and keeps the engine waiting for ever
(https://github.com/python/cpython/issues/74174). So `held` keeps an interrupt back until its body waits, and a `Bell`
is waited for without a lock of Python's.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue
from typing import Any

__all__ = ["PATIENCE_S", "Bell", "Held", "Latch", "check", "held"]

PATIENCE_S = 1.0
"""An interrupt that was kept back for so long strikes wherever it is as soon as there is another one."""


class Held:
    """Interrupts of the main thread, kept back; see `held`."""

    def __init__(self, before: Callable[[int, Any], Any] | None = None) -> None:
        self.undo: Callable[[], object] = lambda: None
        """Called first if an interrupt is kept back at the end of the body."""
        self._before = before
        self.ending = False
        """At the end of the body an interrupt is only kept back."""
        self._since: float | None = None  # one is kept back since
        self._waiting = False

    def take(self, signum: int, frame: Any) -> None:
        """Handle the signal."""
        now = time.monotonic()
        impatient = self._since is not None and now - self._since > PATIENCE_S
        if (self._waiting or impatient) and not self.ending:
            self._since = now
            self.deliver(frame)
        elif self._since is None:
            self._since = now

    def deliver(self, frame: Any = None) -> None:
        """Raise the interrupt that is kept back, if there is one."""
        if self._since is not None and self._before is not None:
            waiting, self._since, self._waiting = self._waiting, None, False
            self._before(signal.SIGINT, frame)
            self._waiting = waiting  # a handler of the user's may not raise

    def get(self, waiter: SimpleQueue[None], timeout: float | None) -> None:
        """Wait for something in a queue; an interrupt strikes here."""
        self._waiting = True
        try:
            self.deliver()
            waiter.get(timeout=timeout)
        finally:
            self._waiting = False

    @property
    def pending(self) -> bool:
        """Whether an interrupt is kept back."""
        return self._since is not None


@contextlib.contextmanager
def held() -> Iterator[Held]:
    """Run the body so that an interrupt strikes where it waits for a `Bell`, at a `check`, or at its end.

    Two interrupts, the second one a second after the first or later, strike anywhere: a body that computes for ever can
    be ended. Inside another `held`, and on other threads, it does nothing.
    """
    before = signal.getsignal(signal.SIGINT) if threading.current_thread() is threading.main_thread() else None
    if not callable(before) or _current() is not None:
        yield Held()
        return
    mine = Held(before)
    struck = False
    try:
        signal.signal(signal.SIGINT, mine.take)
        yield mine
    except KeyboardInterrupt:
        struck = True
        raise
    finally:
        mine.ending = True
        try:
            if mine.pending:
                mine.undo()
        finally:
            if _current() is mine:
                signal.signal(signal.SIGINT, before)
        if mine.pending:  # again: it may have come between the two lines above
            mine.undo()
        if not struck:
            mine.deliver()


def check() -> None:
    """Let an interrupt strike that a `held` keeps back."""
    if (current := _current()) is not None:
        current.deliver()


def _current() -> Held | None:
    if threading.current_thread() is not threading.main_thread():
        return None
    handler = getattr(signal.getsignal(signal.SIGINT), "__self__", None)
    return handler if isinstance(handler, Held) else None


class Bell:
    """Wakes whoever waits for something to come true, on any thread."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[SimpleQueue[None]] = []

    def ring(self) -> None:
        """Let everybody look again; after what they wait for has come true."""
        for waiter in tuple(self._waiting):
            waiter.put(None)

    def wait(self, until: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait until `until()` is true, for `timeout` seconds at most; return whether it is."""
        deadline = None if timeout is None else time.monotonic() + timeout
        waiter: SimpleQueue[None] = SimpleQueue()
        self._waiting.append(waiter)  # before the first look, so that no ring is missed
        try:
            while not until():
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return until()
                with contextlib.suppress(Empty):
                    current = _current()
                    waiter.get(timeout=left) if current is None else current.get(waiter, left)
            return True
        finally:
            self._waiting.remove(waiter)


class Latch:
    """Something that comes true once: a `threading.Event` that an interrupt of whoever waits does not harm."""

    __slots__ = ("_bell", "_set")

    def __init__(self) -> None:
        self._bell, self._set = Bell(), False

    def set(self) -> None:
        """Let it be true from now on."""
        self._set = True
        self._bell.ring()

    def is_set(self) -> bool:
        """Whether it is true."""
        return self._set

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is true, for `timeout` seconds at most; return whether it is."""
        return self._bell.wait(self.is_set, timeout)
