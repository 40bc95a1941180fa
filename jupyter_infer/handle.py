"""A request in flight: its events as they come, a way to cancel it, and its record at the end."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from jupyter_infer.interrupts import Bell
from jupyter_infer.records import RequestRecord, TokenEvent

__all__ = ["RequestHandle"]


class RequestHandle:
    """What `Session.submit` returns. Iterate over it for the events; several readers each get all of them.

    Parameters
    ----------
    request_id
        Id of the request, unique in its session.
    cancel
        Called by `cancel`, from any thread.
    keep
        Makes the result of the record, once.
    prompt
        What was asked: a text or chat messages.
    samples
        Answers that were asked for.
    """

    def __init__(
        self,
        request_id: str,
        cancel: Callable[[], None],
        keep: Callable[[RequestHandle, RequestRecord], Any] = lambda handle, record: record,
        prompt: Any = None,
        samples: int = 1,
    ) -> None:
        self.request_id = request_id
        self.prompt = prompt
        self.samples = samples
        self.first_shown_ns: int | None = None
        """When its first text was shown to somebody, if a display said so."""
        self.kept: Any = None
        """The result, once somebody or the session made it."""
        self._cancel, self._keep = cancel, keep
        self._events: list[TokenEvent] = []
        self._record: RequestRecord | None = None
        self._error: Exception | None = None
        self._bell, self._end_bell = Bell(), Bell()  # for every event, and for the end alone
        self._telling = threading.Lock()
        self._listeners: list[Callable[[], object]] = []

    def __iter__(self) -> Iterator[TokenEvent]:
        """Yield every event, waiting for the next one until the request is over.

        Raises
        ------
        EngineFailed
            If the engine broke, after the events that came before.
        """
        seen = 0
        while True:
            self._bell.wait(lambda: len(self._events) > seen or self._over)  # noqa: B023 - called while it waits
            over, new = self._over, self._events[seen:]  # in this order: nothing comes after the end
            yield from new
            seen += len(new)
            if over and not new:
                if self._error is not None:
                    raise self._error
                return

    def events_after(self, seen: int) -> list[TokenEvent]:
        """Return the events after the first `seen`, without waiting."""
        return self._events[seen:]

    def cancel(self) -> None:
        """Abort the request before the engine's next step. It ends with what it has; twice does no harm."""
        self._cancel()

    def record(self, timeout: float | None = None) -> RequestRecord:
        """Return the record once the request is over.

        Raises
        ------
        TimeoutError
            If it is not over within `timeout` seconds.
        """
        if not self._end_bell.wait(lambda: self._over, timeout):  # a token wakes nobody who waits for the last
            raise TimeoutError(f"request {self.request_id} is still running after {timeout} s")
        if self._error is not None:
            raise self._error
        assert self._record is not None
        return self._record

    def result(self, timeout: float | None = None) -> Any:
        """Return the `Result` once the request is over; raises what `record` raises."""
        return self._keep(self, self.record(timeout))

    @property
    def done(self) -> bool:
        """Whether the request is over."""
        return self._over

    def shown(self) -> None:
        """Note that its text is on a screen now; only the first call counts."""
        if self.first_shown_ns is None:
            self.first_shown_ns = time.monotonic_ns()

    def when_done(self, listener: Callable[[], object]) -> None:
        """Call `listener` once when the request is over, on whatever thread ends it, or now if it is."""
        with self._telling:
            if not self._over:
                self._listeners.append(listener)
                return
        self._tell(listener)

    def __repr__(self) -> str:
        state = "done" if self.done else "running"
        return f"RequestHandle({self.request_id}, {state}; .result() waits, .cancel() stops)"

    # The worker's side (`jupyter_infer.engine.worker.Sink`).

    def event(self, event: TokenEvent) -> None:
        """Take a new event."""
        self._events.append(event)
        self._bell.ring()

    def finished(self, record: RequestRecord) -> None:
        """Take the record; the request is over, and its result is kept before anybody is told."""
        self._tell(lambda: self._keep(self, record))
        self._end(record, None)

    def failed(self, error: Exception) -> None:
        """Take the error; the request is over."""
        self._end(None, error)

    @property
    def _over(self) -> bool:
        return self._record is not None or self._error is not None

    def _end(self, record: RequestRecord | None, error: Exception | None) -> None:
        with self._telling:
            self._record, self._error = record, error
            listeners, self._listeners = self._listeners, []
        self._bell.ring()
        self._end_bell.ring()
        for listener in listeners:
            self._tell(listener)

    def _tell(self, listener: Callable[[], object]) -> None:
        """Call a listener; one that fails must not take the engine's thread with it."""
        try:
            listener()
        except BaseException:  # `exit()` in a listener, too, or a cancelled task
            logging.getLogger(__name__).exception("a listener of request %s failed", self.request_id)
