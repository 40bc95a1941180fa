"""What the KV chart draws: the blocks of each owner at the moments that have room, and what happened between them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from jupyter_infer.charts.labels import cut
from jupyter_infer.pool import Pool, contiguous_blocks
from jupyter_infer.pool_rebuild import rebuild
from jupyter_infer.records import REPLAY_OF, EngineInfo
from jupyter_infer.run import Run

__all__ = ["APART", "Band", "Usage", "usage_of"]

APART = 8  # requests with an area of their own
SEEN = 0.03  # of what was held at most, from which on one of many requests has one
POINTS = 360  # moments that are drawn; of more, the fullest of each stretch of time


@dataclass(frozen=True, slots=True)
class Band:
    """An owner's blocks at each moment that is drawn."""

    kind: str  # "shared", "request", "others", "neighbours", "unknown" or "cached"
    name: str  # plain text
    blocks: Sequence[int]
    most: int  # at any moment, drawn or not


@dataclass(frozen=True, slots=True)
class Usage:
    """The pool over time, as it is drawn and told."""

    info: EngineInfo
    pool: Pool
    complete: bool  # whether all steps of the requests are there
    picks: Sequence[int]  # moments that are drawn
    level: Sequence[int]  # blocks in use at every moment, those of unknown owners included
    bands: Sequence[Band]  # from the lowest up
    whole: Sequence[int]  # contiguous reservations of the context, at every moment
    asked: Sequence[int | None]  # of prompt and max_tokens
    fullest: int  # moment
    preempted: Sequence[tuple[int, tuple[str, ...]]]  # moment, and request ids
    evicted: Sequence[tuple[int, int]]  # moment, and number of blocks
    missing: int  # most blocks that were rebuilt and not measured; 0 if the two agree

    @property
    def known(self) -> bool:
        """Whether anything is known of the blocks: their owners, or how many were free."""
        return any(self.level) or any(moment.used is not None for moment in self.pool.moments)

    @property
    def owned(self) -> bool:
        """Whether a block's owner was ever seen."""
        return any(moment.held for moment in self.pool.moments)


def usage_of(run: Run) -> Usage | None:
    """Return what is to be drawn of a run; None without an engine or steps."""
    info = run.engine
    if info is None or not run.steps or info.block_size < 1:
        return None
    # The scripted engine plays a cache of prompts, which has no blocks; a replay has those of what it plays again.
    engine = info.engine.removeprefix(REPLAY_OF)
    caching = engine.startswith("vllm") and info.settings.get("enable_prefix_caching") is not False
    complete, seen_ns = run.complete, run.steps[-1].end_ns
    pool = rebuild(
        run.steps,
        block_size=info.block_size,
        total=info.kv_blocks_total,
        caching=caching,
        ended={
            record.request_id: record.finished_ns
            for record in run.requests
            # What it held is given back then, but of how much after the last step that is remembered nothing is known.
            if complete or record.finished_ns <= seen_ns
        },
    )
    unknown = _unknown(pool)
    level = [moment.held + more for moment, more in zip(pool.moments, unknown, strict=True)]
    picks = _picks(pool, level)
    whole, asked = contiguous_blocks(pool, info, run.requests)
    return Usage(
        info=info,
        pool=pool,
        complete=complete,
        picks=picks,
        level=level,
        bands=_bands(run, pool, picks, unknown),
        whole=whole,
        asked=asked,
        fullest=max(range(len(level)), key=lambda index: (level[index], pool.moments[index].shared)),
        preempted=[
            (pool.during(place), tuple(name for name, _ in step.preempted))
            for place, step in enumerate(run.steps)
            if step.preempted
        ],
        evicted=[(pool.during(place), len(step.evicted)) for place, step in enumerate(run.steps) if step.evicted],
        missing=-min([0, *(moment.unknown for moment in pool.moments if moment.unknown is not None)]),
    )


def _unknown(pool: Pool) -> list[int]:
    """Return at each moment the blocks in use that had no owner when it was last measured."""
    measured = [moment.unknown for moment in pool.moments]
    last = next((count for count in measured if count is not None), 0)
    filled = []
    for count in measured:
        last = last if count is None else count
        filled.append(max(0, last))
    return filled


def _picks(pool: Pool, level: Sequence[int]) -> list[int]:
    """Return the moments that are drawn: all, or of each stretch of time the fullest, and the first and last one."""
    count = len(level)
    if count <= POINTS:
        return list(range(count))
    begun, ended = pool.moments[0].time_ns, pool.moments[-1].time_ns
    stretch = max(1, -(-(ended - begun + 1) // (POINTS - 2)))
    groups = itertools.groupby(range(count), key=lambda index: (pool.moments[index].time_ns - begun) // stretch)
    fullest = {max(group, key=lambda index: level[index]) for _, group in groups}
    return sorted(fullest | {0, count - 1})


def _bands(run: Run, pool: Pool, picks: Sequence[int], unknown: Sequence[int]) -> list[Band]:
    numbers = {record.request_id: number for number, record in enumerate(run.requests, 1)}
    labels = {record.request_id: record.label for record in run.requests}
    most = {name: pool.most_own(name) for name in pool.requests}  # the blocks at all moments only of what is drawn
    ours = sorted((name for name in most if name in numbers), key=lambda name: (-most[name], numbers[name]))
    least = 1 if len(ours) <= APART else SEEN * max((moment.held for moment in pool.moments), default=0)
    apart = [name for name in ours[:APART] if most[name] >= least]
    rest = [name for name in ours if name not in apart]
    other = "other" if apart else "request"
    apart.sort(key=lambda name: numbers[name])
    shared = [moment.shared for moment in pool.moments]
    bands = [_band("shared", "shared prefix", shared, picks)]
    width = 26 if len(apart) <= 4 else 17  # letters of a label, so that the key has a line or two
    for name in apart:
        bands.append(_band("request", cut(f"{numbers[name]} · {labels[name]}", width), pool.own(name), picks))
    bands.append(_band("others", f"{len(rest)} {other}{'' if len(rest) == 1 else 's'}", pool.own(*rest), picks))
    neighbours = [name for name in most if name not in numbers]
    bands.append(_band("neighbours", "not in this run", pool.own(*neighbours), picks))
    bands.append(_band("unknown", "in use, owner not recorded", unknown, picks))
    bands.append(_band("cached", "cached, free", [moment.cached for moment in pool.moments], picks))
    return [band for band in bands if band.most]


def _band(kind: str, name: str, blocks: Sequence[int], picks: Sequence[int]) -> Band:
    return Band(kind, name, [blocks[index] for index in picks], max(blocks, default=0))
