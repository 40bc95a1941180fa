"""What to try next, where the steps of a run support it: one sentence that names one option of a load."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

from jupyter_infer.numbers import format_count
from jupyter_infer.outliers import StepFacts, gaps_of
from jupyter_infer.run import Run

__all__ = ["is_mixed", "mixed_ns", "tune_itl", "tune_steps"]

ENOUGH = 3  # gaps or steps of a kind that a median is taken of
STRETCH = 2  # times that others' prompts make the ITL longer, from which a smaller budget is worth a try


def is_mixed(facts: StepFacts, request_id: str) -> bool:
    """Return whether the step computed prompt tokens of another request."""
    return any(name != request_id for name in facts.prefill)


def mixed_ns(run: Run, facts: Mapping[int, StepFacts]) -> tuple[float | None, float | None]:
    """Return the median ITL in steps that computed others' prompt tokens, too, and in all other steps."""
    mixed: list[int] = []
    pure: list[int] = []
    for record in run.requests:
        for gap in gaps_of(record):
            if gap.step in facts:
                (mixed if is_mixed(facts[gap.step], gap.request_id) else pure).append(gap.ns)
    return (
        statistics.median(mixed) if len(mixed) >= ENOUGH else None,
        statistics.median(pure) if len(pure) >= ENOUGH else None,
    )


def tune_itl(run: Run, facts: Mapping[int, StepFacts]) -> str | None:
    """Return what to try against late tokens: a larger pool or a smaller budget; None if neither is the reason."""
    return _pool(run) or _smaller(run, facts)


def tune_steps(run: Run, facts: Mapping[int, StepFacts]) -> str | None:
    """Return what to try after looking at the steps: a larger pool, more seats, a larger or a smaller budget."""
    return _pool(run) or _seats(run) or _larger(run, facts) or _smaller(run, facts)


def _pool(run: Run) -> str | None:
    lost = sum(len(step.preempted) for step in run.steps) or sum(record.preemptions for record in run.requests)
    if not lost:
        return None
    size = run.engine.kv_bytes if run.engine else None
    asked = run.engine.settings.get("kv_cache_memory_bytes") if run.engine else None
    size = asked if isinstance(asked, int) else size
    value = f" {2 * size}" if size else ""
    larger = "a pool twice as large" if size else "a larger pool"
    what = "preemption" if lost == 1 else "preemptions"
    option = f"%infer load --kv-cache-memory-bytes{value}"
    return f"{format_count(lost)} {what} for want of KV blocks: try {larger}, {option}."


def _seats(run: Run) -> str | None:
    if run.engine is None:
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


def _larger(run: Run, facts: Mapping[int, StepFacts]) -> str | None:
    if run.engine is None:
        return None
    budget = run.engine.max_num_batched_tokens
    waited = [step for step in run.steps if step.waiting]
    full = [step for step in waited if facts[step.index].tokens >= budget]
    if len(full) < ENOUGH or len(full) < 0.8 * len(waited):
        return None
    price = "; each step then takes longer, and so does the ITL beside it" if _stretched(run, facts) else ""
    return (
        f"The budget was full in {format_count(len(full))} of the {format_count(len(waited))} steps in which requests "
        f"waited: try %infer load --max-num-batched-tokens {2 * budget}{price}."
    )


def _smaller(run: Run, facts: Mapping[int, StepFacts]) -> str | None:
    if run.engine is None or not (times := _stretched(run, facts)):
        return None
    # vLLM refuses fewer tokens than sequences, and a budget that no step exceeds changes nothing.
    smaller = max(run.engine.max_num_batched_tokens // 2, run.engine.max_num_seqs)
    if smaller >= run.engine.max_num_batched_tokens or not any(
        one.prefill and one.tokens > smaller for one in facts.values()
    ):
        return None
    longer = f"{times:.0f}" if times >= 10 else f"{times:.2g}"
    return (
        f"Beside others' prompts the median ITL was {longer} times as long: try "
        f"%infer load --max-num-batched-tokens {smaller}, for shorter but more steps a prompt."
    )


def _stretched(run: Run, facts: Mapping[int, StepFacts]) -> float | None:
    """Return how many times longer others' prompts made the ITL, if it is worth a word."""
    mixed, pure = mixed_ns(run, facts)
    return mixed / pure if mixed and pure and mixed >= STRETCH * pure else None
