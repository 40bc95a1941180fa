"""What is to be read from the steps chart: its sentence, and its numbers as a table."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from jupyter_infer.charts._lanes import Lane, short
from jupyter_infer.charts._segments import Segment
from jupyter_infer.charts.chart import Table
from jupyter_infer.gaps import StepFacts
from jupyter_infer.numbers import format_count, format_ns
from jupyter_infer.outliers import names
from jupyter_infer.run import Run

__all__ = ["steps_reading", "steps_table"]


def steps_reading(
    run: Run, lanes: Sequence[Lane], facts: Mapping[int, StepFacts], *, others: bool, complete: bool
) -> str:
    """Return one sentence on what the steps computed, and who waited for them.

    Parameters
    ----------
    run
        The run.
    lanes
        Its samples.
    facts
        The facts of its steps, by index.
    others
        Whether the steps also computed something of requests that are not in the run.
    complete
        Whether all steps of the run are there.
    """
    if not run.steps:
        return f"No step of {_requests(len(run.requests))} is remembered." if run.requests else "No request ran."
    steps = run.steps
    span = format_ns(max(step.end_ns for step in steps) - min(step.start_ns for step in steps))
    count = "1 step" if len(steps) == 1 else f"{format_count(len(steps))} steps"
    parts = [_budget(run, facts)]
    if drafts := sum(one.drafts for one in facts.values()):
        accepted = sum(one.accepted for one in facts.values())
        parts.append(f"{format_count(accepted)} of {format_count(drafts)} drafts were accepted")
    if len(lanes) > 1:
        parts.append(_crowd(run, lanes, others=others))
    if lost := sum(len(step.preempted) for step in steps):
        parts.append("1 was preempted" if lost == 1 else f"{format_count(lost)} preemptions")
    told = "; ".join(part for part in parts if part)
    # Of other steps nothing is known, also not that they were smaller.
    known = "Of the one step that is" if len(steps) == 1 else f"Of the {count} that are"
    head = f"{count} in {span}; " if complete else f"{known} remembered, {span} long: "
    return f"{head}{told}."


def _crowd(run: Run, lanes: Sequence[Lane], *, others: bool) -> str:
    """Return how many ran at once, how many waited, and what for if all of these waited for the same."""
    most = max(step.running for step in run.steps)
    samples = any(len(record.samples) > 1 for record in run.requests)
    what = "samples" if samples else "requests"
    every = most == len(lanes) and not others
    ran = f"at most {format_count(most)}{'' if others else f' of {format_count(len(lanes))} {what}'}"
    if every:
        ran = f"both {what}" if most == 2 else f"all {format_count(most)} {what}"
    left = _left_out(run)
    waited = [step for step in run.steps if step.waiting]
    if not waited:
        return f"{ran} ran at once{f'; {left}' if left else ' and none waited'}"
    why = ""
    if all(limits := [run.limits_of(step) for step in waited]):
        full = [step.running >= limit.max_num_seqs for step, limit in zip(waited, limits, strict=True) if limit]
        spent = [
            step.tokens >= limit.max_num_batched_tokens for step, limit in zip(waited, limits, strict=True) if limit
        ]
        if all(full):
            why = " for a place"
        elif all(spent) and not any(full):
            why = " for room in a step"
    other = ", at other times," if every else ""
    most_waited = format_count(max(step.waiting for step in waited))
    return f"{ran} ran at once and{other} up to {most_waited} waited{why}{f'; {left}' if left else ''}"


def _left_out(run: Run) -> str:
    """Return how many of the batch got nothing in a step because its budget was spent; empty if that never was."""
    most = max(
        (
            step.running - len(step.work)
            for step in run.steps
            if (limits := run.limits_of(step)) and step.tokens >= limits.max_num_batched_tokens
        ),
        default=0,
    )
    return f"the budget left up to {format_count(most)} of them out of a step" if most > 0 else ""


def _budget(run: Run, facts: Mapping[int, StepFacts]) -> str:
    largest = max(one.tokens for one in facts.values())
    if run.engine is None:
        return f"the largest computed {format_count(largest)} tokens"
    limits = {one.step.index: run.limits_of(one.step) or run.engine.limits for one in facts.values()}
    budgets = [budget for budget, _ in itertools.groupby(limit.max_num_batched_tokens for limit in limits.values())]
    some = budgets if len(budgets) <= 3 else (min(budgets), max(budgets))
    budget = (" → " if len(budgets) <= 3 else " to ").join(map(format_count, some))
    full = [one for one in facts.values() if one.tokens >= limits[one.step.index].max_num_batched_tokens]
    if not full:
        return f"the largest computed {format_count(largest)} of the {budget} tokens of the budget"
    times = "1 step" if len(full) == 1 else f"{format_count(len(full))} steps"
    whose = [short(name) for name in dict.fromkeys(name for one in full for name, _ in one.prefill)]
    prompts = f"{names(whose)}'s prompt" if len(whose) == 1 else f"prompts of {names(whose)}"
    every = "all of them with" if len(full) > 1 else "with"
    tail = f", {every} {prompts}" if whose and all(one.prefill for one in full) else ""
    return f"the budget of {budget} tokens was reached in {times}{tail}"


def _requests(count: int) -> str:
    return "1 request" if count == 1 else f"{format_count(count)} requests"


def steps_table(lanes: Sequence[Lane], segments: Sequence[Segment]) -> Table:
    """Return what each lane waited, and how many steps computed what of it."""
    rows = []
    for lane in lanes[:50]:
        own = [segment for segment in segments if segment.lane == lane.number]

        def spent(kind: str, own: Sequence[Segment] = own) -> int:
            return sum(segment.ended_ns - segment.begun_ns for segment in own if segment.kind == kind)

        def steps(*kinds: str, own: Sequence[Segment] = own) -> str:
            forgotten = any(segment.kind == "forgotten" for segment in own)
            return "n/a" if forgotten else format_count(sum(one.steps for one in own if one.kind in kinds))

        lost = "none" if not spent("preempted") else format_ns(spent("preempted"))
        cells = (format_ns(spent("queued")), steps("prefill"), steps("decode", "drafts"), steps("recomputed"), lost)
        rows.append((lane.label, *cells))
    return Table(("request", "queued", "prefill steps", "decode steps", "recomputing steps", "preempted for"), rows)
