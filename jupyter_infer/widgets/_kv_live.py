"""The pool as it is now, from the steps as they come: what `rebuild` says of their end, and nothing of before.

A session remembers thousands of steps of dozens of requests, and a widget looks eight times a second, so each step is
taken in once, and of most of its work nothing but that it brought no block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from jupyter_infer.pool import Moment, Owner, PoolState
from jupyter_infer.records import EngineInfo, StepRecord, StepWork
from jupyter_infer.widgets._kv_shown import Shown, caches

__all__ = ["LivePool"]

OVER_KEPT = 4096  # owners that are over; only the steps that were in flight as they ended can name them again
EVICTED_KEPT = 4096


@dataclass(slots=True)
class _Table:
    since: int  # index of the step that it was made in
    partial: bool
    offset: int  # blocks of it that came before the first step
    blocks: list[int] = field(default_factory=list)
    tokens: int = 0


class LivePool:
    """The pool of an engine, kept up with its steps.

    A step counts when it has ended, and is shown as it was while it ran until the next one is there: with asynchronous
    scheduling that was planned before the end.
    """

    def __init__(self, info: EngineInfo) -> None:
        self.info = info
        self._size, self._total, self._caching = info.block_size, info.kv_blocks_total, caches(info)
        self._clear()

    def _clear(self) -> None:
        self._tables: dict[Owner, _Table] = {}
        self._holders: dict[int, set[Owner]] = {}
        self._cached: set[int] = set()
        self._seen: set[int] = set()
        self._over: dict[Owner, None] = {}
        self._evicted: list[int] = []
        self._preempted: list[Owner] = []
        self._shared = self._unknown = self._begun_ns = 0
        self._steps: Sequence[StepRecord] = ()
        self._done = -1
        self._last: StepRecord | None = None
        self._pending: StepRecord | None = None  # planned, and its end not yet taken in
        self._overlaps = False

    def follow(self, steps: Sequence[StepRecord], *, idle: bool) -> bool:
        """Take in what came since the last time and return whether anything changed.

        Parameters
        ----------
        steps
            All that are remembered.
        idle
            Whether, after these steps were taken, no request was open: then an aborted one has given its blocks back,
            too.
        """
        place = self._first_new(steps)
        if place is None:
            had = self._last is not None
            self._clear()
            if not steps:
                return had
            place, self._begun_ns = 0, steps[0].planned_ns
        self._steps = steps
        self._done = place - (1 if self._pending is None else 2)  # place of the last step that ended
        if place < len(steps):
            self._evicted, self._preempted = [], []
            for at in range(place, len(steps)):
                self._take(at, steps[at])
            self._last = steps[-1]
            return True
        return self._settle(idle=idle)

    def shown(self) -> Shown:
        """Return every block as it is now."""
        self._count_tokens()
        last = self._last
        tables = {owner: tuple(table.blocks) for owner, table in self._tables.items()}
        planned = self._pending is not None
        moment = Moment(
            time_ns=0 if last is None else last.planned_ns if planned else last.end_ns,
            position=max(0, len(self._steps) - 1),
            planned=planned,
            held=len(self._holders),
            shared=self._shared,
            cached=len(self._cached),
            used=len(self._holders) + self._unknown,
        )
        state = PoolState(
            moment=moment,
            block_size=self._size,
            tables=tables,
            tokens={owner: table.tokens for owner, table in self._tables.items()},
            partial=frozenset(owner for owner, table in self._tables.items() if table.partial),
            cached_free=frozenset(self._cached),
        )
        return Shown(
            info=self.info,
            state=state,
            unknown=self._unknown,
            unseen=frozenset(range(1, self._total + 1)) - self._seen if self._unknown else frozenset(),
            evicted=tuple(self._evicted[-EVICTED_KEPT:]),
            preempted=tuple(self._preempted),
            step=None if last is None else last.index,
            since_ns=None if last is None else last.planned_ns - self._begun_ns,
        )

    def _first_new(self, steps: Sequence[StepRecord]) -> int | None:
        """Return the place after the last step that was taken in; None if that is no longer remembered."""
        for place in range(len(steps) - 1, -1, -1):
            if steps[place] is self._last:
                return place + 1
        return None

    def _take(self, place: int, step: StepRecord) -> None:
        pending = self._pending
        if pending is not None and step.planned_ns < pending.end_ns:
            self._overlaps = True
            self._plan(step)
            self._end(pending, place - 1)
        else:
            if pending is not None:
                self._end(pending, place - 1)
            self._plan(step)
        self._pending = step

    def _settle(self, *, idle: bool) -> bool:
        """Take in the end of the last step; what another one that runs now has got would be of no owner."""
        changed = False
        if self._pending is not None and (idle or not self._overlaps):
            self._end(self._pending, len(self._steps) - 1)
            self._pending, changed = None, True
        if idle and (self._tables or self._unknown):
            for owner in list(self._tables):
                self._release(owner)
            self._unknown, changed = 0, True
        if changed:
            self._evicted, self._preempted = [], []
        return changed

    def _plan(self, step: StepRecord) -> None:
        worked = {(work.request_id, work.sample) for work in step.work} if step.freed else set()
        for owner in step.freed:  # aborted before it was planned
            if owner not in worked:
                self._free(owner)
        for owner in step.preempted:
            self._release(owner)
            self._preempted.append(owner)
        self._cached.difference_update(step.evicted)
        self._evicted += step.evicted
        for work in step.work:
            if work.new_blocks or work.cached_tokens is not None:
                self._give((work.request_id, work.sample), work, step.index)

    def _end(self, step: StepRecord, place: int) -> None:
        self._done = place
        for owner in step.freed:
            self._free(owner)
        if step.kv_blocks_free is not None:
            self._unknown = max(0, self._total - step.kv_blocks_free - len(self._holders))

    def _give(self, owner: Owner, work: StepWork, since: int) -> None:
        if owner in self._over:  # a step that was in flight as it ended
            return
        table = self._tables.get(owner)
        if table is not None and work.cached_tokens is not None:  # an entry replaces the table
            self._release(owner)
            table = None
        if table is None:
            partial = work.cached_tokens is None
            offset = max(0, -(-work.kv_tokens // self._size) - len(work.new_blocks)) if partial else 0
            table = self._tables[owner] = _Table(since, partial, offset)
        for block in work.new_blocks:
            self._cached.discard(block)
            holders = self._holders.get(block)
            if holders is None:
                self._holders[block] = {owner}
            elif owner not in holders:
                self._shared += len(holders) == 1
                holders.add(owner)
        table.blocks += work.new_blocks
        self._seen.update(work.new_blocks)

    def _free(self, owner: Owner) -> None:
        self._release(owner)
        self._over[owner] = None
        if len(self._over) > OVER_KEPT:
            del self._over[next(iter(self._over))]

    def _release(self, owner: Owner) -> None:
        table = self._tables.pop(owner, None)
        if table is None:
            return
        full = self._full(owner, table) if self._caching else 0
        for place, block in enumerate(table.blocks, table.offset):
            holders = self._holders.get(block)
            if holders is None or owner not in holders:  # twice in one table
                continue
            holders.remove(owner)
            self._shared -= len(holders) == 1
            if not holders:
                del self._holders[block]
                if place < full:
                    self._cached.add(block)

    def _full(self, owner: Owner, table: _Table) -> int:
        """Return the blocks of a table that the last step which ended has filled, drafts not counted."""
        for place in range(self._done, -1, -1):
            step = self._steps[place]
            if step.index < table.since:
                break
            for work in step.work:
                if work.request_id == owner[0] and work.sample == owner[1]:
                    return (work.kv_tokens - work.draft_tokens) // self._size
        return 0

    def _count_tokens(self) -> None:
        """Note the tokens of each table, and who has one that brought no block since the first step."""
        left = set(self._tables)
        for place in range(len(self._steps) - 1, -1, -1):
            last = place == len(self._steps) - 1
            if not last and not left:
                break
            runs = last and self._pending is not None
            for work in self._steps[place].work:
                owner = (work.request_id, work.sample)
                if runs and owner not in self._tables and owner not in self._over:
                    offset = -(-work.kv_tokens // self._size)
                    self._tables[owner] = _Table(self._steps[place].index, True, offset)
                    left.add(owner)
                if owner in left:
                    left.discard(owner)
                    lost = 0 if runs else work.draft_tokens - work.accepted_tokens
                    self._tables[owner].tokens = work.kv_tokens - lost
