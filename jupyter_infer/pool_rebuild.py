"""The pool of KV blocks rebuilt from the steps alone.

A step's plan gives blocks to tables, and takes those of preempted samples; its end takes those of samples that are
over. With asynchronous scheduling a step is planned before the one before it has ended, so both are put in the order
in which they happened.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from jupyter_infer.pool import Moment, Owner, Pool, Tenure
from jupyter_infer.records import StepRecord, StepWork

__all__ = ["rebuild"]

PLAN, END, OVER = 0, 1, 2


def rebuild(
    steps: Sequence[StepRecord],
    *,
    block_size: int,
    total: int | None = None,
    caching: bool = True,
    ended: Mapping[str, int] | None = None,
) -> Pool:
    """Return the pool over `steps`.

    Parameters
    ----------
    steps
        Steps of one engine in order, without a gap.
    block_size
        Tokens a block.
    total
        Blocks of the pool; without it, nothing measured is known.
    caching
        Whether full blocks keep their content when they are free (prefix caching).
    ended
        When the engine was done with a request, by request id. An aborted one gave its blocks back then, which the
        steps tell only with the next one.
    """
    made = _Rebuilt(steps, block_size, total, caching)
    for time_ns, place, kind, name in sorted(_happened(steps, ended or {})):
        if kind == PLAN:
            made.plan(place, steps[place])
        elif kind == END:
            made.end(place, steps[place])
        else:
            made.over(time_ns, name)
    return Pool(block_size, total, steps, made.moments, made.own, made.tenures, made.stays)


def _happened(steps: Sequence[StepRecord], ended: Mapping[str, int]) -> Iterator[tuple[int, int, int, str]]:
    """Yield what changed the pool: when, the step's position, what it was, and whose.

    At equal times, what belongs to an earlier step comes first.
    """
    for place, step in enumerate(steps):
        yield step.planned_ns, place, PLAN, ""
        yield step.end_ns, place, END, ""
    yield from ((time_ns, len(steps), OVER, name) for name, time_ns in ended.items())


class _Rebuilt:
    """The pool as it is while the steps are gone through."""

    def __init__(self, steps: Sequence[StepRecord], block_size: int, total: int | None, caching: bool) -> None:
        self.moments: list[Moment] = []
        self.own: dict[str, list[tuple[int, int]]] = {}
        self.tenures: list[Tenure] = []
        self.stays: list[tuple[int, int, int | None]] = []
        self._steps, self._size, self._total, self._caching = steps, block_size, total, caching
        self._open: dict[Owner, Tenure] = {}
        self._over: set[Owner | str] = set()
        self._holders: dict[int, set[Owner]] = {}
        self._cached: dict[int, int] = {}  # block → place of its stay
        self._shared = 0
        self._planned = self._done = -1  # positions of the last step of which the plan was made, the end was seen

    @property
    def _next(self) -> int:
        return len(self.moments)

    def plan(self, place: int, step: StepRecord) -> None:
        worked = {(work.request_id, work.sample) for work in step.work} if step.freed else set()
        for owner in step.freed:  # aborted before it was planned
            if owner not in worked:
                self._release(owner)
                self._over.add(owner)
        for owner in step.preempted:
            self._release(owner)
        for block in step.evicted:
            self._uncache(block)
        self._planned = place
        opened, over = self._open, self._over
        for work in step.work:
            owner = (work.request_id, work.sample)
            if work.cached_tokens is None and not work.new_blocks and owner in opened:
                continue
            if owner not in over and work.request_id not in over:  # else a step that was in flight as it ended
                self._give(owner, work)
        self._note(step.planned_ns, planned=True)

    def end(self, place: int, step: StepRecord) -> None:
        self._done = place
        changed = False
        for owner in step.freed:
            changed |= self._release(owner)
            self._over.add(owner)
        if changed:
            self._note(step.end_ns)
        if self._total is not None and step.kv_blocks_free is not None:
            last = self.moments[-1]
            used = self._total - step.kv_blocks_free
            self.moments[-1] = Moment(
                last.time_ns, last.position, last.planned, last.held, last.shared, last.cached, used
            )

    def over(self, time_ns: int, name: str) -> None:
        self._over.add(name)
        mine = [owner for owner in self._open if owner[0] == name]
        for owner in mine:
            self._release(owner)
        if mine:
            self._note(time_ns)

    def _note(self, time_ns: int, *, planned: bool = False) -> None:
        held, cached = len(self._holders), len(self._cached)
        self.moments.append(Moment(time_ns, max(self._planned, 0), planned, held, self._shared, cached, None))

    def _give(self, owner: Owner, work: StepWork) -> None:
        tenure = self._open.get(owner)
        if tenure is not None and work.cached_tokens is not None:  # an entry replaces the table
            self._release(owner)
            tenure = None
        if tenure is None:
            partial = work.cached_tokens is None
            offset = max(0, -(-work.kv_tokens // self._size) - len(work.new_blocks)) if partial else 0
            tenure = self._open[owner] = Tenure(owner, self._next, self._planned, offset, partial=partial)
            self.tenures.append(tenure)
            self._count(owner[0], 0)
        for block in work.new_blocks:
            self._uncache(block)
            holders = self._holders.get(block)
            if holders is None:
                self._holders[block] = {owner}
                self._count(owner[0], 1)
            elif owner not in holders:
                if len(holders) == 1:
                    self._count(next(iter(holders))[0], -1)
                    self._shared += 1
                holders.add(owner)
        tenure.blocks.extend(work.new_blocks)
        tenure.grown.append((self._next, len(tenure.blocks)))

    def _release(self, owner: Owner) -> bool:
        """Take a sample's table away; False if it has none."""
        tenure = self._open.pop(owner, None)
        if tenure is None:
            return False
        tenure.ended = self._next
        full = self._full(tenure) if self._caching else 0
        for place, block in enumerate(tenure.blocks, tenure.offset):
            holders = self._holders.get(block)
            if holders is None or owner not in holders:  # twice in one table
                continue
            holders.remove(owner)
            if not holders:
                del self._holders[block]
                self._count(owner[0], -1)
                if place < full:
                    self._cached[block] = len(self.stays)
                    self.stays.append((block, self._next, None))
            elif len(holders) == 1:
                self._count(next(iter(holders))[0], 1)
                self._shared -= 1
        return True

    def _full(self, tenure: Tenure) -> int:
        """Return the blocks of a table that the last step which ended has filled, drafts not counted."""
        for place in range(self._done, tenure.since - 1, -1):
            for work in self._steps[place].work:
                if (work.request_id, work.sample) == tenure.owner:
                    return (work.kv_tokens - work.draft_tokens) // self._size
        return 0

    def _uncache(self, block: int) -> None:
        place = self._cached.pop(block, None)
        if place is not None:
            block, begun, _ = self.stays[place]
            self.stays[place] = (block, begun, self._next)

    def _count(self, name: str, by: int) -> None:
        changes = self.own.setdefault(name, [])
        count = by + (changes[-1][1] if changes else 0)
        if changes and changes[-1][0] == self._next:
            changes.pop()
        changes.append((self._next, count))
