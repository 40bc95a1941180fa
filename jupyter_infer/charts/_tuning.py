"""What to try next, where a run supports it: one sentence that names an option of a load. All charts ask here.

A chart looks for different things, so that one may speak of seats and another of the pool. But of each option there is
one sentence a run, whoever asks: where a larger and a smaller budget both help somebody, it names both sides. A run
that lacks steps gets no advice on sizes, and one whose limits were changed without a load none on these.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from itertools import pairwise

from jupyter_infer.gaps import Key, StepFacts
from jupyter_infer.numbers import format_count, format_times
from jupyter_infer.pool import block_bytes
from jupyter_infer.run import Run

__all__ = ["MIB", "POOL", "bytes_of", "is_mixed", "mixed_ns", "pool_bytes", "tune_itl", "tune_pool", "tune_steps"]

MIB = 2**20
POOL = "%infer load --kv-cache-memory-bytes"
BUDGET = "%infer load --max-num-batched-tokens"
ENOUGH = 3  # gaps or steps of a kind that a median is taken of
STRETCH = 2  # times that others' prompts make the ITL longer, from which a smaller budget is worth a try
FULL = 0.8  # part of the steps in which requests waited, from which a full budget is what they waited for


def is_mixed(facts: StepFacts, key: Key) -> bool:
    """Return whether the step computed prompt tokens of others than this sample."""
    return len(facts.prefill) > (key in facts.prefill)


def mixed_ns(run: Run, facts: Mapping[int, StepFacts]) -> tuple[float | None, float | None]:
    """Return the median ITL in steps that computed others' prompt tokens, too, and in all other steps."""
    mixed: list[int] = []
    pure: list[int] = []
    for record in run.requests:
        for sample in record.samples:
            key = record.request_id, sample.index
            for before, event in pairwise([event for event in sample.events if event.token_ids]):
                if (step := facts.get(event.step)) is not None:
                    (mixed if step.prefill and is_mixed(step, key) else pure).append(event.time_ns - before.time_ns)
    return (
        statistics.median(mixed) if len(mixed) >= ENOUGH else None,
        statistics.median(pure) if len(pure) >= ENOUGH else None,
    )


def tune_itl(run: Run, facts: Mapping[int, StepFacts], *, complete: bool) -> str | None:
    """Return what to try against late tokens: a larger pool or another budget; None if neither is the reason."""
    if not complete:
        return None
    if _lost(run):
        return tune_pool(run)
    times = _stretched(run, facts)
    return _budget(run, facts, times) if times else None


def tune_steps(run: Run, facts: Mapping[int, StepFacts], *, complete: bool) -> str | None:
    """Return what to try after looking at the steps: a larger pool, more seats, or another budget."""
    if not complete:
        return None
    if _lost(run):  # more at once would only be more that are preempted
        return tune_pool(run)
    return _seats(run) or _budget(run, facts, _stretched(run, facts))


def tune_pool(run: Run) -> str | None:
    """Return the pool to try after preemptions: one that holds all at once; None if the machine cannot give it."""
    if run.engine is None:
        return None
    needed, most = _demand(run)
    size = pool_bytes(run, needed)
    if size is None or needed <= run.engine.kv_blocks_total:
        return None
    requests = f"{format_count(most)} request{'' if most == 1 else 's'}"
    return (
        f"{POOL} {size} ({format_count(needed)} blocks) holds {requests} of this length at once, without preemptions."
    )


def bytes_of(blocks: int, each: float) -> int:
    """Return the bytes of a pool of so many blocks of `each` bytes and vLLM's null block, in whole MiB."""
    return -(-round((blocks + 1) * each) // MIB) * MIB


def pool_bytes(run: Run, blocks: int) -> int | None:
    """Return the bytes of a pool of so many blocks; None if a block's bytes are not known, or the pool would be more
    than half of the machine's memory.
    """
    each = block_bytes(run.engine) if run.engine else None
    if each is None:
        return None
    size = bytes_of(blocks, each)
    machine = run.header.machine
    return None if machine is not None and size > machine.memory_bytes // 2 else size


def _lost(run: Run) -> bool:
    return any(step.preempted for step in run.steps) or any(record.preemptions for record in run.requests)


def _demand(run: Run) -> tuple[int, int]:
    """Return the blocks that all open requests would have held at once, each at its full length, and how many these
    are; what neighbours held at most is added.
    """
    size = max(run.engine.block_size, 1) if run.engine else 1
    changes = []
    for record in run.requests:
        lengths = [record.prompt_tokens + len(sample.token_ids) for sample in record.samples]
        blocks = sum(-(-length // size) for length in lengths)
        changes += [(record.arrival_ns, 1, blocks, 1), (record.finished_ns, 0, -blocks, -1)]
    now = most = opened = together = 0
    for _, _, blocks, one in sorted(changes):
        now, opened = now + blocks, opened + one
        most, together = max(most, now), max(together, opened)
    ours = {record.request_id for record in run.requests}
    beside = [
        sum(-(-work.kv_tokens // size) for work in step.work if work.request_id not in ours) for step in run.steps
    ]
    return most + max(beside, default=0), together


def _changed(run: Run) -> bool:
    return any(step.limits is not None for step in run.steps)


def _seats(run: Run) -> str | None:
    if run.engine is None or _changed(run):
        return None
    limit = run.engine.max_num_seqs
    full = [step for step in run.steps if step.waiting and step.running >= limit]
    more = min(2 * limit, run.engine.max_num_batched_tokens)  # vLLM refuses more sequences than tokens a step
    if len(full) < ENOUGH or more <= limit:
        return None
    most = max(step.waiting for step in full)
    return (
        f"In {format_count(len(full))} steps all {format_count(limit)} places were taken while up to "
        f"{format_count(most)} waited: try %infer load --max-num-seqs {more}."
    )


def _budget(run: Run, facts: Mapping[int, StepFacts], times: float | None) -> str | None:
    """Return the sentence on the budget: a larger one for those who waited, a smaller one for those who decoded."""
    if run.engine is None or _changed(run):
        return None
    budget = run.engine.max_num_batched_tokens
    # vLLM refuses fewer tokens than sequences, and a budget that no step exceeds changes nothing.
    smaller = max(budget // 2, run.engine.max_num_seqs)
    helps = times is not None and smaller < budget
    helps = helps and any(one.prefill and one.tokens > smaller for one in facts.values())
    longer = format_times(times)
    waited = [step for step in run.steps if step.waiting]
    full = [step for step in waited if facts[step.index].tokens >= budget]
    if len(full) < ENOUGH or len(full) < FULL * len(waited):
        return (
            f"Beside others' prompts the median ITL was {longer} times as long: try {BUDGET} {smaller}, for shorter "
            "but more steps a prompt."
            if helps
            else None
        )
    some = "all" if len(full) == len(waited) else f"{format_count(len(full))} of the"
    said = f"The budget was full in {some} {format_count(len(waited))} steps in which requests waited"
    if times is None:
        return f"{said}: try {BUDGET} {2 * budget}."
    said += f", and beside others' prompts the median ITL was {longer} times as long"
    if not helps:
        return f"{said}: {BUDGET} {2 * budget} shortens the wait and makes those steps longer."
    return f"{said}: {BUDGET} {2 * budget} shortens the wait, {smaller} shortens those steps."


def _stretched(run: Run, facts: Mapping[int, StepFacts]) -> float | None:
    """Return how many times longer others' prompts made the ITL, if it is worth a word."""
    mixed, pure = mixed_ns(run, facts)
    return mixed / pure if mixed and pure and mixed >= STRETCH * pure else None
