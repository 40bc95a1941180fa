"""What is to be read from the steps chart: its sentence, and its numbers as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jupyter_infer.charts._lanes import Lane, short
from jupyter_infer.charts._segments import Segment
from jupyter_infer.charts.chart import Table
from jupyter_infer.numbers import format_count, format_ns
from jupyter_infer.outliers import StepFacts, names
from jupyter_infer.run import Run

__all__ = ["steps_reading", "steps_table"]


def steps_reading(run: Run, lanes: Sequence[Lane], facts: Mapping[int, StepFacts], others: bool) -> str:
    if not run.steps:
        return f"No step of {_requests(len(run.requests))} is remembered." if run.requests else "No request ran."
    steps = run.steps
    span = format_ns(max(step.end_ns for step in steps) - min(step.start_ns for step in steps))
    count = "1 step" if len(steps) == 1 else f"{format_count(len(steps))} steps"
    parts = [f"{count} in {span}", _budget(run, facts)]
    if drafts := sum(one.drafts for one in facts.values()):
        accepted = sum(one.accepted for one in facts.values())
        parts.append(f"{format_count(accepted)} of {format_count(drafts)} drafts were accepted")
    most, waiting = max(step.running for step in steps), max(step.waiting for step in steps)
    if len(lanes) > 1:
        samples = any(len(record.samples) > 1 for record in run.requests)
        what = "samples" if samples else "requests"
        ran = f"at most {format_count(most)}{'' if others else f' of {format_count(len(lanes))} {what}'}"
        if most == len(lanes) and not others:
            ran = f"both {what}" if most == 2 else f"all {format_count(most)} {what}"
        waited = f"up to {format_count(waiting)} waited for one" if waiting else "none waited for a place"
        parts.append(f"{ran} ran at once and {waited}")
    if lost := sum(len(step.preempted) for step in steps):
        parts.append("1 was preempted" if lost == 1 else f"{format_count(lost)} preemptions")
    return f"{'; '.join(part for part in parts if part)}."


def _budget(run: Run, facts: Mapping[int, StepFacts]) -> str:
    largest = max(one.tokens for one in facts.values())
    if run.engine is None:
        return f"the largest computed {format_count(largest)} tokens"
    budget = run.engine.max_num_batched_tokens
    full = [one for one in facts.values() if one.tokens >= budget]
    if not full:
        return f"the largest computed {format_count(largest)} of the {format_count(budget)} tokens of the budget"
    times = "1 step" if len(full) == 1 else f"{format_count(len(full))} steps"
    whose = [short(name) for name in dict.fromkeys(name for one in full for name in one.prefill)]
    prompts = f"{names(whose)}'s prompt" if len(whose) == 1 else f"prompts of {names(whose)}"
    every = "all of them with" if len(full) > 1 else "with"
    tail = f", {every} {prompts}" if whose and all(one.prefill for one in full) else ""
    return f"the budget of {format_count(budget)} tokens was reached in {times}{tail}"


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
