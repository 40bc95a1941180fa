"""The panels under the lanes of the steps chart: tokens of each step, blocks of the pool, and the ITL of a victim."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jupyter_infer.charts._lanes import Clock
from jupyter_infer.charts._token_marks import Mark, Scale, describe, step_lines
from jupyter_infer.charts._tuning import is_mixed
from jupyter_infer.charts.packed import pack
from jupyter_infer.charts.template import COLORS, INK
from jupyter_infer.gaps import StepFacts
from jupyter_infer.run import Run

__all__ = ["Stretch", "budget_trace", "pool_traces", "stretches_of", "token_traces", "told_of", "victim_trace"]

TOLD = 1000  # steps that are told in words
DRAWN = 1500  # stretches; of more, neighbours are joined as the largest of them
POINTS = 3000  # of the pool, and steps that are told; of more, the largest of neighbours
POOL = "#009e73"
DRAFTS = "#cc79a7"


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive steps that computed the same numbers of tokens."""

    begun_ns: int
    ended_ns: int
    counts: tuple[int, int, int, int]  # decode, drafts, recomputed, prefill

    @property
    def tokens(self) -> int:
        """Tokens of each of the steps."""
        return sum(self.counts)


def told_of(facts: Sequence[StepFacts], clock: Clock) -> Sequence[StepFacts]:
    """Return the steps that hovering tells: all, or of very many the largest of each short time."""
    if len(facts) <= POINTS:
        return facts
    width = clock.span_ns // POINTS + 1
    largest: dict[int, StepFacts] = {}
    for one in facts:
        place = (one.step.start_ns - clock.origin_ns) // width
        if place not in largest or one.tokens > largest[place].tokens:
            largest[place] = one
    return list(largest.values())


def stretches_of(facts: Sequence[StepFacts], clock: Clock) -> tuple[list[Stretch], bool]:
    """Return the stretches in order, and whether there were so many that only the largest of neighbours are there."""
    found: list[Stretch] = []
    for one in facts:
        prefill, recomputed = sum(one.prefill.values()), sum(one.recomputed.values())
        counts = (one.tokens - prefill - recomputed - one.drafts, one.drafts, recomputed, prefill)
        step = one.step
        if found and found[-1].counts == counts and step.start_ns - found[-1].ended_ns <= clock.span_ns // 2000:
            found[-1] = Stretch(found[-1].begun_ns, step.end_ns, counts)
        else:
            found.append(Stretch(step.start_ns, step.end_ns, counts))
    if len(found) <= DRAWN:
        return found, False
    width = clock.span_ns // DRAWN + 1
    bins: dict[int, Stretch] = {}
    for stretch in found:
        place = (stretch.begun_ns - clock.origin_ns) // width
        known = bins.get(place)
        most = stretch.counts if known is None or stretch.tokens > known.tokens else known.counts
        bins[place] = Stretch(stretch.begun_ns if known is None else known.begun_ns, stretch.ended_ns, most)
    return list(bins.values()), True


def token_traces(
    facts: Sequence[StepFacts], stretches: Sequence[Stretch], clock: Clock, *, axis: str
) -> list[dict[str, Any]]:
    """Return the tokens of each step as areas on each other, and invisible points that tell a step on hovering."""
    made: list[dict[str, Any]] = []
    layers = (
        ("decode", COLORS["decode"]),
        ("drafts", DRAFTS),
        ("recomputed", COLORS["stalled"]),
        ("prefill", COLORS["prefill"]),
    )
    # From the top layer down, each from zero on: what stays to be seen of one is what the next ones leave of it.
    for depth in range(len(layers), 0, -1):
        name, color = layers[depth - 1]
        if any(stretch.counts[depth - 1] for stretch in stretches):
            made.append(_area(stretches, depth, clock, name, color, axis))
    facts = told_of(facts, clock)
    points: dict[str, Any] = {
        "type": "scatter",
        "mode": "markers",
        "name": "step",
        "marker": {"size": 1, "opacity": 0},
        "x": clock.pack((one.step.start_ns + one.step.end_ns) / 2 for one in facts),
        "y": pack([one.tokens for one in facts]),
        "yaxis": axis,
    }
    if len(facts) <= TOLD:
        points["hovertext"] = [_told(one) for one in facts]
        return [*made, points | {"hovertemplate": "%{hovertext}<extra></extra>"}]
    numbers = [value for one in facts for value in (one.step.index, one.step.running, one.step.waiting)]
    points["customdata"] = pack(numbers) | {"shape": f"{len(facts)}, 3"}
    told = "<b>step %{customdata[0]}</b>: %{y} tokens<br>%{customdata[1]} running, %{customdata[2]} waiting"
    return [*made, points | {"hovertemplate": f"{told}<extra></extra>"}]


def budget_trace(run: Run, clock: Clock, *, axis: str) -> dict[str, Any]:
    """Return the token budget that each step was planned within, where it was changed meanwhile."""
    known = [(step, limits.max_num_batched_tokens) for step in run.steps if (limits := run.limits_of(step))]
    ends = (0, len(known) - 1)
    kept = [(s.start_ns, b) for at, (s, b) in enumerate(known) if at in ends or b != known[at - 1][1]]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "budget",
        "x": clock.pack(time for time, _ in kept),
        "y": pack([budget for _, budget in kept]),
        "line": {"shape": "hv", "width": 1, "dash": "dash", "color": INK},
        "hovertemplate": "a budget of %{y} tokens<extra></extra>",
        "yaxis": axis,
    }


def pool_traces(facts: Sequence[StepFacts], total: int, clock: Clock, *, axis: str) -> list[dict[str, Any]]:
    """Return the blocks in use after each step, as far as they are known."""
    known = [(one.step.end_ns, total - one.step.kv_blocks_free) for one in facts if one.step.kv_blocks_free is not None]
    kept = [
        point for place, point in enumerate(known) if place in (0, len(known) - 1) or point[1] != known[place - 1][1]
    ]
    if len(kept) > POINTS:
        width = clock.span_ns // (POINTS // 2) + 1
        most: dict[int, tuple[int, int]] = {}
        for time, used in kept:
            place = (time - clock.origin_ns) // width
            most[place] = max(most.get(place, (time, used)), (time, used), key=lambda point: point[1])
        kept = list(most.values())
    if not kept:
        return []
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "name": "blocks in use",
            "x": clock.pack(time for time, _ in kept),
            "y": pack([used for _, used in kept]),
            "line": {"shape": "hv", "width": 1.5, "color": POOL},
            "fill": "tozeroy",
            "fillcolor": "rgba(0,158,115,0.25)",
            "hovertemplate": f"%{{y}} of {total:,} blocks in use<extra></extra>",
            "yaxis": axis,
        }
    ]


def victim_trace(
    marks: Sequence[Mark], facts: dict[int, StepFacts], clock: Clock, scale: Scale, *, axis: str
) -> list[dict[str, Any]]:
    """Return the ITL of one request's marks, those in steps with others' prompt tokens as squares of their own."""
    gaps = [mark for mark in marks if mark.itl_ns is not None]
    made: list[dict[str, Any]] = []
    for name, symbol, color, wanted in (
        ("ITL", "circle", COLORS["decode"], False),
        ("ITL beside others' prompts", "square", COLORS["prefill"], True),
    ):
        own = [mark for mark in gaps if (mark.step in facts and is_mixed(facts[mark.step], mark.lane.key)) == wanted]
        made.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": name,
                "x": clock.pack(mark.time_ns for mark in own),
                "y": pack([(mark.itl_ns or 0) / scale.unit_ns for mark in own]),
                "marker": {"symbol": symbol, "size": 8 if wanted else 5, "color": color},
                "hovertext": [describe(mark, facts.get(mark.step)) for mark in own],
                "hovertemplate": "%{hovertext}<extra></extra>",
                "cliponaxis": False,
                "yaxis": axis,
            }
        )
    return made


def _area(stretches: Sequence[Stretch], depth: int, clock: Clock, name: str, color: str, axis: str) -> dict[str, Any]:
    times: list[int] = []
    y: list[float | None] = []
    for place, stretch in enumerate(stretches):
        times.append(stretch.begun_ns)
        y.append(sum(stretch.counts[:depth]))
        after = stretches[place + 1].begun_ns if place + 1 < len(stretches) else None
        if after is None or after > stretch.ended_ns:  # nothing was computed until the next step
            times.append(stretch.ended_ns)
            y.append(0)
    return {
        "type": "scatter",
        "mode": "lines",
        "name": f"{name} tokens",
        "x": clock.pack(times),
        "y": pack(y),
        "line": {"shape": "hv", "width": 1, "color": color},
        "fill": "tozeroy",
        "fillcolor": color,
        "hoverinfo": "skip",
        "yaxis": axis,
    }


def _told(one: StepFacts) -> str:
    """Return what a step was, as markup."""
    lines = step_lines(one, one.step.index)
    free = one.step.kv_blocks_free
    state = f"{one.step.running:,} running, {one.step.waiting:,} waiting"
    state += "" if free is None else f", {free:,} blocks free"
    return "<br>".join([f"<b>{one.tokens:,} tokens</b>", *lines, state])
