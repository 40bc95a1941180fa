"""Why a token came late: gaps between the tokens of a request that stand out, and what shared their steps.

A cause is a fact of the trace, never a guess. What was measured in nanoseconds (time off a CPU, time between steps) is
named first where it is at least half of what the gap lasted too long.
"""

from __future__ import annotations

import statistics
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jupyter_infer.gaps import Gap, Key, StepFacts, facts_of, gaps_of, name_of
from jupyter_infer.numbers import format_count, format_ns, format_share
from jupyter_infer.run import Run

__all__ = ["NOTHING", "Cause", "Outlier", "explain", "names", "outliers"]

NOTHING = "nothing in the trace explains it"
TIMES = 2  # a gap stands out if it is more than so many medians of its request long …
ABOVE_NS = 5_000_000  # … and at least so much longer than one
OFF_CPU = 0.3  # part of a step's time, from which the thread was kept off the CPU: it takes part in computing
NOTABLE = 0.25  # part of a step's tokens, from which somebody's prompt explains a step


@dataclass(frozen=True, slots=True)
class Cause:
    """A fact that explains a gap."""

    kind: (
        str  # "preempted", "prefill", "recomputed", "left out", "joined", "threads", "machine", "between", "forgotten"
    )
    text: str
    ns: int | None = None  # how much of the gap it is, where that was measured


@dataclass(frozen=True, slots=True)
class Outlier:
    """A gap that stands out from those of its request, and its causes, the main one first."""

    gap: Gap
    median_ns: float
    causes: tuple[Cause, ...]

    @property
    def text(self) -> str:
        """The causes in words."""
        return "; ".join(cause.text for cause in self.causes) or NOTHING


def outliers(run: Run, facts: Mapping[int, StepFacts] | None = None) -> list[Outlier]:
    """Return the gaps that stand out from their request's median, the longest first."""
    facts = facts_of(run.steps) if facts is None else facts
    threads = Counter(step.threads for step in run.steps if step.threads)
    usual = threads.most_common(1)[0][0] if threads else None
    on_cpu = run.engine is None or run.engine.device != "cuda"  # there, the thread waits for the GPU by design
    indices = sorted(facts)
    found = []
    for record in run.requests:
        gaps = gaps_of(record)
        median = statistics.median(gap.ns for gap in gaps) if gaps else 0
        late = [gap for gap in gaps if gap.ns > TIMES * median and gap.ns - median >= ABOVE_NS]
        if not late:
            continue
        known = [facts[gap.step].requests for gap in gaps if gap.step in facts]
        beside = statistics.median(known) if known else None
        for gap in late:
            causes = explain(gap, facts, indices, median_ns=median, beside=beside, threads=usual, on_cpu=on_cpu)
            found.append(Outlier(gap, median, causes))
    return sorted(found, key=lambda outlier: -outlier.gap.ns)


def explain(
    gap: Gap,
    facts: Mapping[int, StepFacts],
    indices: Sequence[int],
    *,
    median_ns: float,
    beside: float | None = None,
    threads: int | None = None,
    on_cpu: bool = True,
) -> tuple[Cause, ...]:
    """Return what explains a gap, the main cause first; empty if nothing in the trace does.

    Parameters
    ----------
    gap
        The gap.
    facts
        The facts of the steps, by index.
    indices
        Their indices in order.
    median_ns
        The median ITL of its request.
    beside
        Requests that its request's steps usually have, itself included.
    threads
        Threads that steps usually have.
    on_cpu
        Whether the worker's thread takes part in computing, so that its time off a CPU is time lost.
    """
    if gap.step not in facts:
        return (Cause("forgotten", f"step {gap.step} is no longer remembered"),)
    # Not by counting: between two numbers of a file there may be any number of others.
    begun = min(bisect_right(indices, gap.after), bisect_left(indices, gap.step))
    within = [facts[index] for index in indices[begun : bisect_right(indices, gap.step)]]
    preempted = _preempted(within, gap)
    causes = preempted or _left_out(within, gap)
    causes += (computed := _computed(within, gap))
    if beside and not computed and (crowd := within[-1].requests) >= max(2 * beside, beside + 2):
        causes.append(
            Cause("joined", f"step {gap.step} computed {crowd} requests at once, the others mostly {beside:g}")
        )
    fewer = [one for one in within if threads and one.step.threads and one.step.threads < threads]
    if fewer:
        causes.append(Cause("threads", f"fewer threads ({fewer[0].step.threads} instead of {threads})"))
    measured = _machine(within) if on_cpu else []
    measured += _between(within, gap) if len(within) == gap.step - gap.after else []
    excess = gap.ns - median_ns
    first = [cause for cause in measured if not preempted and (cause.ns or 0) >= excess / 2]
    return (*first, *causes, *(cause for cause in measured if cause not in first))


def names(request_ids: Sequence[str]) -> str:
    """Return ids as people list them: ``r1``, ``r1 and r2``, ``14 requests``."""
    return " and ".join(request_ids) if len(request_ids) <= 2 else f"{format_count(len(request_ids))} requests"


def _preempted(within: Sequence[StepFacts], gap: Gap) -> list[Cause]:
    lost = [one.step.index for one in within if gap.key in one.step.preempted]
    if not lost:
        return []
    again = sum(one.recomputed.get(gap.key, 0) for one in within)
    tail = f" and computed {format_count(again)} tokens again" if again else ""
    return [Cause("preempted", f"{gap.name} was preempted in step {lost[0]}{tail}")]


def _left_out(within: Sequence[StepFacts], gap: Gap) -> list[Cause]:
    without = [one.step.index for one in within if gap.key not in one.keys]
    return [Cause("left out", f"{gap.name} was not in {_steps(without)}")] if without else []


def _computed(within: Sequence[StepFacts], gap: Gap) -> list[Cause]:
    """Return what the steps computed besides: prompts of others, and what others had lost."""

    def called(key: Key) -> str:
        return name_of(*key) if key[0] == gap.request_id else key[0]

    causes = []
    for kind, what in (("prefill", "prompt tokens"), ("recomputed", "lost tokens")):
        tokens: Counter[str] = Counter()
        steps = []
        for one in within:
            table = one.prefill if kind == "prefill" else one.recomputed
            others = {key: count for key, count in table.items() if key != gap.key}
            if others and sum(others.values()) >= NOTABLE * one.tokens:
                for key, own in others.items():
                    tokens[called(key)] += own
                steps.append(one)
        if not steps:
            continue
        again = " again" if kind == "recomputed" else ""
        whose = names(list(tokens))
        joined = {called(key) for one in steps for key in one.joined}
        if kind == "prefill" and len(tokens) > 1 and joined >= set(tokens):
            whose += ", which joined"
        count = format_count(tokens.total())
        text = f"{_steps([one.step.index for one in steps])} also computed {count} {what} of {whose}{again}"
        causes.append(Cause(kind, text))
    return causes


def _machine(within: Sequence[StepFacts]) -> list[Cause]:
    known = [one.step for one in within if one.on_cpu is not None]
    total = sum(step.duration_ns for step in known)
    off = total - sum(step.cpu_ns or 0 for step in known)
    if not total or off <= OFF_CPU * total:
        return []
    whose = "the step's time" if len(known) == 1 else "the time of its steps"
    text = f"the machine: {format_share(off, total)} of {whose} the worker's thread was not on a CPU"
    return [Cause("machine", text, off)]


def _between(within: Sequence[StepFacts], gap: Gap) -> list[Cause]:
    idle = gap.ns - sum(one.step.end_ns - max(one.step.start_ns, gap.begun_ns) for one in within)
    if idle < max(OFF_CPU * gap.ns, ABOVE_NS):
        return []
    return [Cause("between", f"{format_ns(idle)} passed between two steps", idle)]


def _steps(indices: Sequence[int]) -> str:
    if len(indices) == 1:
        return f"step {indices[0]}"
    whole = len(indices) == indices[-1] - indices[0] + 1
    return f"steps {indices[0]} to {indices[-1]}" if whole else f"{format_count(len(indices))} steps"
