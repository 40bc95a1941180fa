"""The sentences under the KV chart: how full the pool was, and what another size of it would do."""

from __future__ import annotations

from jupyter_infer.charts._kv_bands import Usage
from jupyter_infer.numbers import format_count, format_share
from jupyter_infer.pool import block_bytes
from jupyter_infer.run import Run

__all__ = ["MIB", "kv_advice", "kv_reading"]

MIB = 2**20
ROOMY = 4  # times what was in use: a pool that is larger than that is nearly empty
MATTERS = 0.05  # of the machine's memory, from which on a nearly empty pool is worth a word
OPTION = "%infer load --kv-cache-memory-bytes"


def kv_reading(run: Run, usage: Usage | None) -> str:
    """Return one sentence on how full the pool was and with what."""
    if usage is None:
        lacks = "The engine of this run is not recorded" if run.engine is None else "No step of this run is remembered"
        return f"{lacks}, so nothing is known of its KV blocks."
    if not usage.known:
        return "The steps of this run tell nothing of KV blocks."
    most, total = usage.level[usage.fullest], usage.info.kv_blocks_total
    held = f"At most {_count(most)} of {_count(total)} blocks ({format_share(most, total)}) were "
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
    if usage is None or each is None or not usage.owned:
        return None
    machine = run.header.machine
    memory = machine.memory_bytes if machine else None
    total = usage.info.kv_blocks_total
    if usage.preempted:
        needed = _demand(run, usage)
        what = f"holds {_few(len(run.requests), 'request')} of this length at once, without preemptions"
    elif usage.evicted:
        lost = sum(count for _, count in usage.evicted)
        needed = total + lost
        what = f"also keeps the {_few(lost, 'cached block')} that were given up for new ones"
    else:
        return _smaller(usage, each, memory)
    size = _bytes(needed, each)
    if needed <= total or (memory is not None and size > memory // 2):
        return None
    return f"{OPTION} {size} ({_count(needed)} blocks) {what}."


def _smaller(usage: Usage, each: float, memory: int | None) -> str | None:
    total, info = usage.info.kv_blocks_total, usage.info
    moments = usage.pool.moments
    most = max(level + moment.cached for level, moment in zip(usage.level, moments, strict=True))
    enough = 2 * most
    if memory is None or not info.kv_bytes or ROOMY * most > total or info.kv_bytes < MATTERS * memory:
        return None
    size = _bytes(enough, each)
    tokens = min(enough * info.block_size, info.max_model_len)
    return (
        f"{OPTION} {size} is twice what this run filled and leaves {(info.kv_bytes - size) / MIB:,.0f} MiB to others, "
        f"with a context of {_count(tokens)} tokens."
    )


def _demand(run: Run, usage: Usage) -> int:
    """Return the blocks that all open requests would have held at once, each at its full length."""
    size = usage.info.block_size
    changes = []
    for record in run.requests:
        lengths = [record.prompt_tokens + len(sample.token_ids) for sample in record.samples]
        blocks = sum(-(-length // size) for length in lengths)
        changes += [(record.arrival_ns, 1, blocks), (record.finished_ns, 0, -blocks)]
    now = most = 0
    for _, _, blocks in sorted(changes):
        now += blocks
        most = max(most, now)
    return most + sum(band.most for band in usage.bands if band.kind in ("neighbours", "unknown"))


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


def _bytes(blocks: int, each: float) -> int:
    """Return the bytes of a pool of so many blocks and vLLM's null block, in whole MiB."""
    return -(-round((blocks + 1) * each) // MIB) * MIB


def _few(count: int, what: str) -> str:
    return f"{_count(count)} {what}{'' if count == 1 else 's'}"


def _count(count: int) -> str:
    return format_count(count)
