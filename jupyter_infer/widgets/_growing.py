"""A list that grows at its end, in three traits: late views have all of it, and each tick sends little."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

__all__ = ["Growing"]

T = TypeVar("T")


class Growing(Generic[T]):
    """What is old moves into parts that are sent ever more rarely, and none is sent for nothing.

    A list of 5,000 entries is so sent about ten times in all, and not a thousand times as one that grows would be.

    Parameters
    ----------
    latest
        Entries of the part that is sent with each tick.
    recent
        Entries of the part that is sent whenever the latest one is full.
    most
        Entries that are kept, and at most `recent` more; the oldest are forgotten.
    """

    def __init__(self, latest: int = 128, recent: int = 1_024, most: int | None = None) -> None:
        self.parts: tuple[list[T], list[T], list[T]] = ([], [], [])
        """Settled, recent and latest entries, which in this order are all. New lists as they change."""
        self.forgotten = 0
        """Entries that are no longer kept."""
        self._latest, self._recent, self._most = latest, recent, most

    def add(self, new: Sequence[T]) -> None:
        """Take new entries in."""
        if not new:
            return
        settled, recent, latest = self.parts
        if len(latest) >= self._latest:
            recent, latest = recent + latest, []
        if len(recent) >= self._recent:
            settled, recent = settled + recent, []
        if len(new) > self._latest:  # a view came late, or a cell kept everybody waiting
            recent, latest, new = recent + latest + list(new), [], []
        self.parts = settled, recent, latest + list(new)
        if self._most is not None:
            self._trim(self._most)

    def _trim(self, most: int) -> None:
        """Forget the oldest entries; not each time, since what is cut is sent anew."""
        settled, recent, latest = self.parts
        over = len(settled) + len(recent) + len(latest) - most
        if over >= self._recent or (over > 0 and not settled):
            kept = (settled + recent)[over:]
            self.parts, self.forgotten = (kept, [], latest), self.forgotten + over
