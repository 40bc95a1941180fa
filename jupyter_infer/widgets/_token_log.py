"""An answer token by token in traits, so that late views have all of it and each tick sends little."""

from __future__ import annotations

from collections.abc import Iterable

from jupyter_infer.records import TokenEvent

__all__ = ["LATEST", "RECENT", "Entry", "TokenLog"]

LATEST = 128
"""Entries of the part that is sent with each tick."""
RECENT = 1_024
"""Entries of the part that is sent whenever the latest one is full."""

Entry = tuple[str, int, int, int]
"""What an engine step gave: text, µs since the first token, index of the step, number of tokens."""


class TokenLog:
    """Grows at its end; what is old moves into parts that are sent ever more rarely, and none is sent for nothing.

    An answer of 5,000 entries is so sent about ten times in all, and not a thousand times as one growing list would be.
    """

    def __init__(self) -> None:
        self.parts: tuple[list[Entry], list[Entry], list[Entry]] = ([], [], [])
        """Settled, recent and latest entries: the answer is all of them, in this order. New lists as they change."""
        self._first_ns: int | None = None

    def add(self, events: Iterable[TokenEvent]) -> None:
        """Take new events in."""
        if not (new := [self._entry(event) for event in events]):
            return
        settled, recent, latest = self.parts
        if len(latest) >= LATEST:
            recent, latest = recent + latest, []
        if len(recent) >= RECENT:
            settled, recent = settled + recent, []
        if len(new) > LATEST:  # a view came late, or a cell kept everybody waiting
            recent, latest, new = recent + latest + new, [], []
        self.parts = settled, recent, latest + new

    def _entry(self, event: TokenEvent) -> Entry:
        if self._first_ns is None and event.token_ids:
            self._first_ns = event.time_ns
        since = 0 if self._first_ns is None else event.time_ns - self._first_ns
        return event.text, since // 1000, event.step, len(event.token_ids)
