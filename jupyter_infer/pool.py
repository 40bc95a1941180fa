"""The pool of KV blocks over time: which blocks each sample's table held at any moment, and which were shared.

`jupyter_infer.pool_rebuild` makes it of steps. What began before the first step is not known here: it has no owner,
and is the difference between what was measured and what was rebuilt.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from jupyter_infer.records import EngineInfo, RequestRecord, StepRecord

__all__ = ["Moment", "Owner", "Pool", "PoolState", "Tenure", "block_bytes", "contiguous_blocks"]

Owner = tuple[str, int]  # request id, sample


@dataclass(frozen=True, slots=True)
class Moment:
    """The pool from a moment on, in numbers of blocks."""

    time_ns: int
    position: int  # of the step that was planned last, in the steps
    planned: bool  # that plan is what changed it; else blocks were given back
    held: int  # distinct blocks that are in a table
    shared: int  # of these, in several tables
    cached: int  # free, with content that a prefix of the same tokens would find again
    used: int | None  # held blocks as measured; None where a step's end did not measure it

    @property
    def unknown(self) -> int | None:
        """Blocks that were in use and not in a table that was seen: of samples that began before the first step."""
        return None if self.used is None else self.used - self.held


@dataclass(frozen=True, slots=True)
class PoolState:
    """Every block at one moment."""

    moment: Moment
    block_size: int
    tables: Mapping[Owner, tuple[int, ...]]  # block ids in the order of the tokens
    tokens: Mapping[Owner, int]  # whose KV the table holds, while a step runs those that it computes included
    partial: frozenset[Owner]  # that began before the first step: the beginning of their table is missing
    cached_free: frozenset[int]

    @property
    def refs(self) -> dict[int, int]:
        """Tables that each held block is in; more than one is a shared prefix."""
        counts: dict[int, int] = {}
        for block in itertools.chain.from_iterable(map(set, self.tables.values())):
            counts[block] = counts.get(block, 0) + 1
        return counts

    def fill(self, owner: Owner) -> int:
        """Return the tokens in the last block that holds any of a sample's."""
        return (self.tokens[owner] - 1) % self.block_size + 1 if self.tokens[owner] else 0


@dataclass(slots=True)
class Tenure:
    """A table from the entry of its sample to its end; blocks are only ever added to it."""

    owner: Owner
    begun: int  # moment
    since: int  # position of the step that it entered in
    offset: int = 0  # blocks of it that are not known, since they came before the first step
    ended: int | None = None
    blocks: list[int] = field(default_factory=list)
    grown: list[tuple[int, int]] = field(default_factory=list)  # moment, and length from then on
    partial: bool = False

    def at(self, moment: int) -> tuple[int, ...] | None:
        """Return the table at a moment; None if there is none."""
        if moment < self.begun or (self.ended is not None and moment >= self.ended):
            return None
        place = bisect.bisect_right(self.grown, moment, key=lambda entry: entry[0])
        return tuple(self.blocks[: self.grown[place - 1][1]]) if place else ()


@dataclass(frozen=True, slots=True)
class Pool:
    """The pool over all steps. `moments` are in order; any of them can be seen in full with `at`."""

    block_size: int
    total: int | None
    steps: Sequence[StepRecord]
    moments: Sequence[Moment]
    _own: Mapping[str, Sequence[tuple[int, int]]]
    _tenures: Sequence[Tenure]
    _stays: Sequence[tuple[int, int, int | None]]  # a cached block, and the moments at which it became so and ended

    def __len__(self) -> int:
        return len(self.moments)

    def __iter__(self) -> Iterator[PoolState]:
        return map(self.at, range(len(self.moments)))

    @property
    def requests(self) -> list[str]:
        """Request ids whose tables were seen, in the order of their entry."""
        return list(self._own)

    @property
    def begins_inside(self) -> bool:
        """Whether a sample that ran had a table before the first step."""
        return any(tenure.partial for tenure in self._tenures)

    def at(self, index: int) -> PoolState:
        """Return every block at a moment."""
        moment = self.moments[index]
        tenures = [(tenure, table) for tenure in self._tenures if (table := tenure.at(index)) is not None]
        tables = {tenure.owner: table for tenure, table in tenures}
        return PoolState(
            moment=moment,
            block_size=self.block_size,
            tables=tables,
            tokens=_tokens(self.steps, moment, set(tables)),
            partial=frozenset(tenure.owner for tenure, _ in tenures if tenure.partial),
            cached_free=frozenset(
                block for block, begun, ended in self._stays if begun <= index and (ended is None or index < ended)
            ),
        )

    def during(self, position: int) -> int:
        """Return the index of the moment from which on the step at `position` was planned."""
        found = bisect.bisect_left(self.moments, position, key=lambda moment: moment.position)
        if not 0 <= position < len(self.steps):
            raise IndexError(f"there are {len(self.steps)} steps")
        return found

    def own(self, *request_ids: str) -> list[int]:
        """Return at each moment the blocks that only one table held, one of a sample of these requests."""
        steps = [0] * len(self.moments)  # by how much the count changes at a moment
        for name in request_ids:
            before = 0
            for begun, count in self._own.get(name, ()):
                steps[begun] += count - before
                before = count
        return list(itertools.accumulate(steps))

    def most_own(self, request_id: str) -> int:
        """Return the most blocks that only a sample of this request held at any moment."""
        return max((count for _, count in self._own.get(request_id, ())), default=0)

    def changes(self) -> dict[int, list[tuple[str, int]]]:
        """Return by moment whose table came (1) or went (−1) then, by request id."""
        made: dict[int, list[tuple[str, int]]] = {}
        for tenure in self._tenures:
            made.setdefault(tenure.begun, []).append((tenure.owner[0], 1))
            if tenure.ended is not None:
                made.setdefault(tenure.ended, []).append((tenure.owner[0], -1))
        return made


def block_bytes(info: EngineInfo) -> float | None:
    """Return the bytes of a block, or None; vLLM's null block is in `kv_bytes` and not in `kv_blocks_total`."""
    return info.kv_bytes / (info.kv_blocks_total + 1) if info.kv_bytes else None


def contiguous_blocks(
    pool: Pool, info: EngineInfo, requests: Sequence[RequestRecord]
) -> tuple[list[int], list[int | None]]:
    """Return what contiguous reservations would have held at each moment for the same tables, in blocks.

    The first list reserves the whole context for each of them, the second the prompt and `max_tokens`; a moment at
    which one is not known (a neighbour's, one without a limit) is None in it.
    """
    context = -(-info.max_model_len // pool.block_size)
    exact: dict[str, int] = {}
    for record in requests:
        limit = record.sampling.get("max_tokens")
        if isinstance(limit, int):
            exact[record.request_id] = -(-min(record.prompt_tokens + limit, info.max_model_len) // pool.block_size)
    whole: list[int] = []
    asked: list[int | None] = []
    changes = pool.changes()
    tables = known = unknown = 0  # tables that are open, blocks of those with a limit, and tables without one
    for index in range(len(pool)):
        for name, by in changes.get(index, ()):
            tables += by
            known += by * exact.get(name, 0)
            unknown += by * (name not in exact)
        whole.append(tables * context)
        asked.append(None if unknown else known)
    return whole, asked


def _tokens(steps: Sequence[StepRecord], moment: Moment, owners: set[Owner]) -> dict[Owner, int]:
    """Return the tokens of each owner's table: of the last step that computed any of them."""
    found: dict[Owner, int] = {}
    for place in range(moment.position, -1, -1):
        if len(found) == len(owners):
            break
        for work in steps[place].work:
            owner = (work.request_id, work.sample)
            if owner in owners and owner not in found:
                runs = place == moment.position and moment.planned
                lost = 0 if runs else work.draft_tokens - work.accepted_tokens
                found[owner] = work.kv_tokens - lost
    return found
