"""What an engine's owner is told, and how it answers: plain values, and places for what comes later."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from jupyter_infer.engine.protocol import Engine, EngineRequest, Progress
from jupyter_infer.interrupts import Latch
from jupyter_infer.records import RequestRecord, TokenEvent

__all__ = ["Ask", "Cancel", "Load", "Reply", "Sink", "Stop", "Submission", "Submit", "ToWorker", "Unload"]


class Sink(Protocol):
    """Where a request's answers go. Called on the worker's thread; must return at once."""

    def event(self, event: TokenEvent) -> None:
        """Take a new token event."""

    def finished(self, record: RequestRecord) -> None:
        """Take the record; nothing comes after it."""

    def failed(self, error: Exception) -> None:
        """Take the reason why the request was refused by the engine; nothing comes after it."""


@dataclass(slots=True)
class Reply:
    """A slot for the answer to a message; `wait` can be interrupted, and the work goes on."""

    _done: Latch = field(default_factory=Latch)
    _value: Any = None
    _error: BaseException | None = None

    def put(self, value: Any = None, error: BaseException | None = None) -> None:
        """Answer."""
        self._value, self._error = value, error
        self._done.set()

    @property
    def answered(self) -> bool:
        """Whether the answer is there."""
        return self._done.is_set()

    def wait(self, timeout: float | None = None) -> Any:
        """Return the answer, or raise the error that was answered.

        Raises
        ------
        TimeoutError
            If there is no answer within `timeout` seconds.
        """
        if not self._done.wait(timeout):
            raise TimeoutError
        if self._error is not None:
            raise self._error
        return self._value


@dataclass(frozen=True, slots=True)
class Load:
    """Build an engine; answers it."""

    prepare: Callable[[Progress], Callable[[Progress], Engine]]
    progress: Progress
    reply: Reply


@dataclass(frozen=True, slots=True)
class Submission:
    """A request on its way to the engine."""

    request: EngineRequest
    arrival_ns: int
    load_ns: int | None  # a load that it waited for
    sink: Sink
    engine: Engine | None = None  # the one that it was rendered for; on another its tokens would mean something else


@dataclass(frozen=True, slots=True)
class Submit:
    """Requests that the engine gets before its next step."""

    submissions: tuple[Submission, ...]


@dataclass(frozen=True, slots=True)
class Cancel:
    """Abort a request."""

    request_id: str


@dataclass(frozen=True, slots=True)
class Stop:
    """Abort all; answers how many there were."""

    reply: Reply


@dataclass(frozen=True, slots=True)
class Ask:
    """A short question between two steps; answers what it returns."""

    question: Callable[[Engine], Any]
    reply: Reply


@dataclass(frozen=True, slots=True)
class Unload:
    """Close the engine; answers nothing."""

    reply: Reply


ToWorker = Load | Submit | Cancel | Stop | Ask | Unload
"""Whatever the owner of an engine is told."""
