"""The tokens of a run as a chart draws them: one mark a step that gave some, with its ITL and what shared the step."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import msgspec

from jupyter_infer.charts._lanes import Lane, short
from jupyter_infer.charts.labels import escape, one_line, wrap_html
from jupyter_infer.charts.template import SMALL
from jupyter_infer.gaps import Key, StepFacts
from jupyter_infer.metrics import DEFINITIONS
from jupyter_infer.numbers import format_count, format_ns
from jupyter_infer.outliers import Outlier, names

__all__ = [
    "RAMP",
    "TOP",
    "Mark",
    "Scale",
    "besides",
    "describe",
    "marks_of",
    "pick",
    "quoted",
    "ring_hover",
    "scale_of",
    "whose",
]

HOVER = 360  # pixels of a hover text
TEXT = 24  # characters of a token
SPREAD = 20  # times between the shortest and the longest ITL, from which the scale is one of logarithms
MEDIANS = 3  # that are dark at least, so that noise is not made to look like trouble
RAMP = ((0.0, "#d3eaf8"), (0.3, "#56b4e9"), (0.65, "#0072b2"), (1.0, "#0a1a4a"))  # one hue, ever darker: for all eyes
TOP = 3  # outliers that are marked and listed


class Mark(msgspec.Struct, frozen=True, gc=False):
    """What one step gave to one sample; a struct like the event that it is made of, since there are as many."""

    lane: Lane
    first: int  # which token of the answer it begins with, from 1
    tokens: int
    text: str
    step: int
    begun_ns: int | None  # when the tokens before came; None for the first token, which has no ITL
    time_ns: int

    @property
    def itl_ns(self) -> int | None:
        """Its ITL."""
        return None if self.begun_ns is None else self.time_ns - self.begun_ns


@dataclass(frozen=True, slots=True)
class Scale:
    """How an ITL is a colour or a height: linear, or of logarithms if the spread is large."""

    low_ns: float
    high_ns: float
    dark_ns: float  # from which on a colour is the darkest
    log: bool
    unit: str
    unit_ns: float

    @property
    def ends(self) -> tuple[float, float]:
        """The ends of the colour axis."""
        return self.at(self.low_ns) if self.log else 0, self.at(self.dark_ns)

    def at(self, itl_ns: float) -> float:
        """Return an ITL as a number of a colour axis."""
        value = itl_ns / self.unit_ns
        return math.log10(max(value, 1e-9)) if self.log else value

    def color(self, itl_ns: float) -> str:
        """Return an ITL as a colour."""
        low, high = self.ends
        part = min(max((self.at(itl_ns) - low) / (high - low), 0), 1)
        (begin, light), (end, dark) = next(pair for pair in pairwise(RAMP) if part <= pair[1][0])
        share = (part - begin) / (end - begin)
        mixed = [round(a + share * (b - a)) for a, b in zip(*map(_rgb, (light, dark)), strict=True)]
        return f"#{mixed[0]:02x}{mixed[1]:02x}{mixed[2]:02x}"


def marks_of(lanes: Sequence[Lane]) -> list[Mark]:
    """Return the marks of all lanes, those of a lane in order."""
    marks = []
    for lane in lanes:
        before, number = None, 1
        for event in lane.record.samples[_place(lane)].events:
            if event.token_ids:
                count = len(event.token_ids)
                marks.append(Mark(lane, number, count, event.text, event.step, before, event.time_ns))
                before, number = event.time_ns, number + count
    return marks


def scale_of(itls: Sequence[int]) -> Scale:
    """Return the scale for some ITLs, in ms if the longest is under 10 s."""
    low, high = min(itls, default=1), max(itls, default=1)
    low = max(low, 1)
    unit, size = ("ms", 1e6) if high < 10e9 else ("s", 1e9)
    high = max(high, low)
    dark = max(high, MEDIANS * statistics.median(itls)) if itls else high
    return Scale(low, high, dark, high > SPREAD * low, unit, size)


def quoted(text: str, limit: int = TEXT, marks: Sequence[str] = "“”") -> str:
    """Return a token's text so that its white space can be seen, bounded and escaped."""
    if not text:
        return "<i>no text yet</i>"
    seen = text[: 4 * limit].replace("\r\n", "↵").replace("\n", "↵").replace("\t", "⇥")
    inner = one_line(seen)
    inner = (" " if seen[0] == " " else "") + inner + (" " if inner and seen[-1] == " " else "")
    shown = inner if len(inner) <= limit and len(text) <= 4 * limit else f"{inner[: limit - 1]}…"
    return f"{marks[0]}{escape(shown)}{marks[1]}"


def besides(facts: StepFacts, own: Key | None = None) -> list[str]:
    """Return, line by line, what a step computed besides decode tokens and, if given, `own` ones."""

    def called(key: Key) -> str:
        return short(*key) if own and key[0] == own[0] else short(key[0])

    lines = []
    for what, table in (("prompt tokens", facts.prefill), ("tokens computed again", facts.recomputed)):
        others = {key: count for key, count in table.items() if key != own}
        if others:
            whose = names(list(dict.fromkeys(called(key) for key in others)))
            lines.append(f"{format_count(sum(others.values()))} {what} of {whose}")
    if facts.drafts:
        lines.append(f"{format_count(facts.drafts)} drafts, {format_count(facts.accepted)} accepted")
    if facts.step.preempted:
        lines.append(f"preempted: {names(list(dict.fromkeys(short(name) for name, _ in facts.step.preempted)))}")
    return lines


def describe(mark: Mark, facts: StepFacts | None, outlier: Outlier | None = None, *, brief: bool = False) -> str:
    """Return what hovering over a mark says, as markup; in brief without its step."""
    which = f"token {mark.first}" if mark.tokens == 1 else f"tokens {mark.first} to {mark.first + mark.tokens - 1}"
    itl = f"ITL {format_ns(mark.itl_ns)}"
    if mark.begun_ns is None:
        itl = f"first token, TTFT {format_ns(mark.time_ns - mark.lane.record.arrival_ns)}"
    many = f", {mark.tokens} tokens in one step" if mark.tokens > 1 else ""
    lines = [f"<b>{escape(mark.lane.name)} {which}</b> {quoted(mark.text)}", f"<b>{itl}</b>{many}"]
    lines += [] if brief else step_lines(facts, mark.step, mark.lane.key)
    if outlier:
        lines.append(f"<b>{wrap_html(outlier.text, HOVER, SMALL)}</b>")
    return "<br>".join(lines)


def ring_hover(outlier: Outlier) -> str:
    """Return what hovering over a marked outlier says, as markup."""
    gap = outlier.gap
    head = f"{short(gap.request_id, gap.part)}, step {gap.step}: ITL {format_ns(gap.ns)}"
    median = f"median of its request {format_ns(outlier.median_ns)}"
    return f"<b>{escape(head)}</b><br>{median}<br><b>{wrap_html(outlier.text, HOVER, SMALL)}</b>"


def step_lines(facts: StepFacts | None, step: int, own: Key | None = None) -> list[str]:
    """Return what a step was, to all or besides one's `own`, line by line as markup."""
    if facts is None:
        return [f"step {step}, no longer remembered"]
    shared = _beside(facts, own)
    cpu = "n/a" if facts.on_cpu is None else f"{100 * facts.on_cpu:.0f} %"
    threads = f", {facts.step.threads} threads" if facts.step.threads and facts.step.threads > 1 else ""
    lines = [f"step {step} {shared}: {format_ns(facts.step.duration_ns)}, {cpu} on a CPU{threads}"]
    return lines + [wrap_html(f"also {line}", HOVER, SMALL) for line in besides(facts, own)]


def pick(outliers: Sequence[Outlier]) -> list[list[Outlier]]:
    """Return the outliers by the step that they waited for, the longest first in each and over all."""
    steps: dict[int, list[Outlier]] = {}
    for outlier in outliers:
        steps.setdefault(outlier.gap.step, []).append(outlier)
    return list(steps.values())


def whose(outliers: Sequence[Outlier]) -> str:
    """Return whose outliers these are, as people list them."""
    return names(list(dict.fromkeys(short(outlier.gap.request_id, outlier.gap.part) for outlier in outliers)))


def medians(marks: Sequence[Mark]) -> float | None:
    """Return the median ITL of marks; None without one."""
    itls = [mark.itl_ns for mark in marks if mark.itl_ns is not None]
    return statistics.median(itls) if itls else None


def define(*terms: str) -> str:
    """Return definitions for a caption."""
    return " · ".join(f"{term}: {DEFINITIONS[term]}" for term in terms)


def _beside(facts: StepFacts, own: Key | None) -> str:
    """Return with how many a step was shared."""
    count = facts.requests - (own is not None)
    parts = [f"{format_count(count)} {'other ' if own else ''}request{'' if count == 1 else 's'}"] if count else []
    if own and len(facts.keys) > facts.requests:
        siblings = sum(key[0] == own[0] for key in facts.keys) - 1
        parts += [f"{format_count(siblings)} other sample{'' if siblings == 1 else 's'} of it"] if siblings > 0 else []
    return f"with {' and '.join(parts)}" if parts else "alone"


def _place(lane: Lane) -> int:
    """Return where in its record the lane's sample is."""
    return next(place for place, sample in enumerate(lane.record.samples) if sample.index == lane.sample)


def _rgb(color: str) -> tuple[int, ...]:
    return tuple(int(color[place : place + 2], 16) for place in (1, 3, 5))
