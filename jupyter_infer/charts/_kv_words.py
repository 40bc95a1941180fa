"""The sentences under the KV chart: how full the pool was, and what another size of it would do."""

from __future__ import annotations

from jupyter_infer.charts._kv_bands import Usage
from jupyter_infer.charts._tuning import MIB, POOL, bytes_of, pool_bytes, tune_pool
from jupyter_infer.numbers import format_count, format_share
from jupyter_infer.pool import block_bytes
from jupyter_infer.run import Run

__all__ = ["MIB", "kv_advice", "kv_reading"]

ROOMY = 4  # times what was in use: a pool that is larger than that is nearly empty
MATTERS = 0.05  # of the machine's memory, from which on a nearly empty pool is worth a word


def kv_reading(run: Run, usage: Usage | None) -> str:
    """Return one sentence on how full the pool was and with what."""
    if usage is None:
        lacks = "The engine of this run is not recorded" if run.engine is None else "No step of this run is remembered"
        return f"{lacks}, so nothing is known of its KV blocks."
    if not usage.known:
        return "The steps of this run tell nothing of KV blocks."
    most, total = usage.level[usage.fullest], usage.info.kv_blocks_total
    held = f"At most {_count(most)} of {_count(total)} blocks ({format_share(most, total)}) were "
    if not usage.complete:  # of the other steps nothing is known, also not that they held less
        held = f"{_remembered(len(run.steps))}: {held[0].lower()}{held[1:]}"
    if not usage.owned:
        return f"{held}in use; whose they were is not recorded."
    parts = [held + "held", *_shared(usage)]
    if unknown := most - usage.pool.moments[usage.fullest].held:
        parts.append(f"of {_count(unknown)} the owner is not recorded")
    if usage.preempted:
        times = sum(len(names) for _, names in usage.preempted)
        whose = len({name for _, names in usage.preempted for name in names})
        their = "its" if whose == 1 else "their"
        parts.append(f"{_few(whose, 'request')} lost {their} blocks in {_few(times, 'preemption')}")
    parts.append(f"contiguous reservation of the context would have held {_count(max(usage.whole))}")
    return "; ".join(parts) + "."


def kv_advice(run: Run, usage: Usage | None) -> str | None:
    """Return one sentence on another size of the pool, if the run speaks for one."""
    each = None if usage is None else block_bytes(usage.info)
    if usage is None or each is None or not usage.owned or not usage.complete:
        return None
    machine = run.header.machine
    memory = machine.memory_bytes if machine else None
    total = usage.info.kv_blocks_total
    if usage.preempted:
        return tune_pool(run)
    if not usage.evicted:
        return _smaller(usage, each, memory)
    lost = sum(count for _, count in usage.evicted)
    size = pool_bytes(run, total + lost)
    what = f"also keeps the {_few(lost, 'cached block')} that were given up for new ones"
    return None if size is None else f"{POOL} {size} ({_count(total + lost)} blocks) {what}."


def _smaller(usage: Usage, each: float, memory: int | None) -> str | None:
    total, info = usage.info.kv_blocks_total, usage.info
    moments = usage.pool.moments
    most = max(level + moment.cached for level, moment in zip(usage.level, moments, strict=True))
    enough = 2 * most
    if memory is None or not info.kv_bytes or ROOMY * most > total or info.kv_bytes < MATTERS * memory:
        return None
    size = bytes_of(enough, each)
    tokens = min(enough * info.block_size, info.max_model_len)
    return (
        f"{POOL} {size} is twice what this run filled and leaves {(info.kv_bytes - size) / MIB:,.0f} MiB to others, "
        f"with a context of {_count(tokens)} tokens."
    )


def _shared(usage: Usage) -> list[str]:
    """Return what is to be said of the fullest moment's shared blocks, if it has any."""
    moment = usage.pool.moments[usage.fullest]
    if not moment.shared:
        return []
    state = usage.pool.at(usage.fullest)
    holders: dict[int, list[tuple[str, int]]] = {}
    for owner, table in state.tables.items():
        for block in dict.fromkeys(table):
            holders.setdefault(block, []).append(owner)
    groups = {tuple(owners) for owners in holders.values() if len(owners) > 1}
    several = max(groups, key=len)
    requests = len({name for name, _ in several})
    by = f"{_count(requests)} requests" if requests > 1 else f"{_count(len(several))} samples"
    what = "one prefix shared by" if len(groups) == 1 else "prefixes shared by up to"
    return [f"{_count(moment.shared)} of them were {what} {by}"]


def _remembered(steps: int) -> str:
    return "Of the one step that is remembered" if steps == 1 else f"Of the {_count(steps)} steps that are remembered"


def _few(count: int, what: str) -> str:
    return f"{_count(count)} {what}{'' if count == 1 else 's'}"


def _count(count: int) -> str:
    return format_count(count)
