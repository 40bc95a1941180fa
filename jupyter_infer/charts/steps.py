"""The steps chart: which scheduler step computed what of which request, against the token budget and the KV pool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jupyter_infer.charts import _step_panels as panels
from jupyter_infer.charts._lanes import (
    Clock,
    Lane,
    clock_of,
    ending_trace,
    lane_axis,
    lane_height,
    lanes_of,
    left_of,
    note,
    short,
    value_axis,
)
from jupyter_infer.charts._segments import segments_of
from jupyter_infer.charts._step_lanes import lane_traces
from jupyter_infer.charts._step_words import steps_reading, steps_table
from jupyter_infer.charts._token_marks import Scale, marks_of, scale_of
from jupyter_infer.charts._tuning import tune_steps
from jupyter_infer.charts.card import EDGE, KeyEntry, card_layout
from jupyter_infer.charts.chart import Chart
from jupyter_infer.charts.labels import escape
from jupyter_infer.charts.template import COLORS, INK, MUTED
from jupyter_infer.errors import ConfigError, nearest
from jupyter_infer.gaps import StepFacts, facts_of
from jupyter_infer.metrics import DEFINITIONS
from jupyter_infer.numbers import format_count, format_share
from jupyter_infer.run import Run

__all__ = ["steps_chart"]

GAP = 26  # pixels over a panel, for what it is
HEIGHTS = {"tokens": 90, "pool": 64, "victim": 96}
SHOWN = 0.25  # part of a limit that has to be reached for the limit to be on the axis


@dataclass(frozen=True, slots=True)
class _Panel:
    name: str
    height: float
    text: str  # what stands over it, as markup
    traces: list[dict[str, Any]]
    axis: dict[str, Any]
    limit: float | None = None  # where a dashed line lies


def steps_chart(run: Run, *, title: str = "", victim: str | None = None) -> Chart:
    """Return the scheduler's steps over time: a lane a request, tokens of each step, and blocks of the pool.

    Parameters
    ----------
    run
        The run; what steps are no longer remembered is drawn from the records, and said so.
    title
        What was run: a line of plain text.
    victim
        The id of a request whose ITL is drawn under it, with the steps in which others' prompts were computed.

    Raises
    ------
    ConfigError
        If there is no request of that id.
    """
    import plotly.graph_objects as go

    lanes, clock, facts = lanes_of(run), clock_of(run), facts_of(run.steps)
    _check(victim, run)
    segments = segments_of(lanes, run.steps, clock)
    others = any(segment.lane > len(lanes) for segment in segments)
    complete = run.complete
    reading = steps_reading(run, lanes, facts, others=others, complete=complete)
    advice = tune_steps(run, facts, complete=complete)
    row = lane_height(len(lanes) + others)
    thick = (row - 8) / row if row >= 20 else (row - 2) / row if row >= 6 else 1.0
    called = {lane.number: lane.name for lane in lanes} | {len(lanes) + 1: "others"}
    bars, key = lane_traces(segments, called, clock, width=thick, lettered=row >= 20)
    under, thinned = _panels(run, lanes, facts, clock, victim)
    if ends := ending_trace(lanes, clock, size=9 if row >= 16 else 6):
        bars.append(ends)
        key.append(KeyEntry("✖", INK, "aborted or failed"))
    if victim is not None:
        key.append(KeyEntry("■", COLORS["prefill"], "ITL beside others' prompts"))
    height = max(row * (len(lanes) + others), 40)
    total = height + sum(GAP + panel.height for panel in under)
    left = left_of(lanes)
    caption = _caption(run, victim, thinned=thinned, complete=complete)
    layout = card_layout(
        plot=total, left=left, right=EDGE + 8, title=title, reading=reading, advice=advice, key=key, caption=caption
    )
    axis = lane_axis(lanes, left=left, below=int(others), domain=[1 - height / total, 1])
    if others:
        axis |= {"tickvals": [*axis["tickvals"], len(lanes) + 1], "ticktext": [*axis["ticktext"], "others"]}
    layout |= {"barmode": "overlay", "bargap": 0, "hovermode": "closest", "yaxis": axis, "shapes": []}
    layout["xaxis"] = clock.axis(anchor=f"y{len(under) + 1}" if under else "y")
    if not bars:  # an axis without a trace is not drawn
        bars = [{"type": "scatter", "x": [None], "y": [None], "hoverinfo": "skip"}]
    _place(layout, under, height, total)
    data = bars + [trace for panel in under for trace in panel.traces]
    return Chart(go.Figure({"data": data, "layout": layout}), title, reading, advice, steps_table(lanes, segments))


def _check(victim: str | None, run: Run) -> None:
    known = [record.request_id for record in run.requests]
    if victim is not None and victim not in known:
        few = known if len(known) <= 8 else [*known[:7], "…"]
        near = nearest(victim, known, cutoff=0.5) or f"; there is: {', '.join(few) or 'none'}"
        raise ConfigError(f"no request {victim!r} in this run{near}")


def _place(layout: dict[str, Any], under: Sequence[_Panel], height: float, total: float) -> None:
    """Add the axes, notes and limits of the panels to a layout."""
    top = height
    for number, panel in enumerate(under, 2):
        top += GAP
        domain = [max(0.0, 1 - (top + panel.height) / total), 1 - top / total]
        axis: dict[str, Any] = {"domain": domain, "zeroline": False, "exponentformat": "none", "fixedrange": True}
        layout[f"yaxis{number}"] = axis | panel.axis
        layout["annotations"].append(note(panel.text, y=domain[1], color=MUTED, yshift=1))
        if panel.limit is not None:
            line = {"color": INK, "width": 1, "dash": "dash"}
            at = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "yref": f"y{number}", "line": line}
            layout["shapes"].append(at | {"y0": panel.limit, "y1": panel.limit})
        top += panel.height


def _panels(
    run: Run, lanes: Sequence[Lane], facts: dict[int, StepFacts], clock: Clock, victim: str | None
) -> tuple[list[_Panel], bool]:
    """Return the panels that there are facts for, and whether the first shows the largest of its steps only."""
    made: list[_Panel] = []
    steps = list(facts.values())
    stretches, thinned = panels.stretches_of(steps, clock)
    if steps:
        traces = panels.token_traces(steps, stretches, clock, axis="y2")
        limits = [found for step in run.steps if (found := run.limits_of(step))]
        budgets = {found.max_num_batched_tokens for found in limits}
        axis, limit, text = _limited(max(one.tokens for one in steps), max(budgets, default=None), "budget")
        if len(budgets) > 1:
            traces.append(panels.budget_trace(run, clock, axis="y2"))
            text = (
                " (budget dashed)" if limit is not None else f" (budget {format_count(max(budgets))} at most, dashed)"
            )
            limit = None
        colours = [("prefill", COLORS["prefill"]), ("decode", COLORS["decode"])]
        drawn = {trace["name"].removesuffix(" tokens") for trace in traces}
        colours += [(name, color) for name, color in (("drafts", panels.DRAFTS),) if name in drawn]
        colours += [("recomputed", COLORS["stalled"])] if "recomputed" in drawn else []
        signs = " ".join(f'<span style="color:{color}">■</span> {name}' for name, color in colours if name in drawn)
        axis["title"] = {"text": "tokens"}
        made.append(_Panel("tokens", HEIGHTS["tokens"], f"tokens of each step{text}: {signs}", traces, axis, limit))
    total = run.engine.kv_blocks_total if run.engine else None
    pool = panels.pool_traces(steps, total, clock, axis=f"y{len(made) + 2}") if total else []
    if pool and total:
        used = [total - step.kv_blocks_free for step in run.steps if step.kv_blocks_free is not None]
        axis, limit, text = _limited(max(used), total, "pool")
        axis["title"] = {"text": "blocks"}
        words = f"KV blocks in use after each step{text}; up to {format_share(max(used), total)}"
        made.append(_Panel("pool", HEIGHTS["pool"], words, pool, axis, limit))
    if victim is not None:
        made.append(_victim(victim, lanes, facts, clock, f"y{len(made) + 2}"))
    return made, thinned or len(panels.told_of(steps, clock)) < len(steps)


def _victim(victim: str, lanes: Sequence[Lane], facts: dict[int, StepFacts], clock: Clock, axis: str) -> _Panel:
    marks = marks_of([lane for lane in lanes if lane.record.request_id == victim])
    itls = [itl for mark in marks if (itl := mark.itl_ns) is not None]
    scale: Scale = scale_of(itls)
    traces = panels.victim_trace(marks, facts, clock, scale, axis=axis)
    own = value_axis(scale.low_ns / scale.unit_ns, scale.high_ns / scale.unit_ns, log=scale.log)
    own["title"] = {"text": f"ITL, {scale.unit}"}
    text = f"ITL of {escape(short(victim))}" + ("" if itls else ": it got no second token")
    return _Panel("victim", HEIGHTS["victim"], text, traces, own)


def _limited(most: int, limit: int | None, name: str) -> tuple[dict[str, Any], float | None, str]:
    """Return an axis up to `most`, where a line of the limit lies if it is in sight, and what to say of it."""
    if limit is None:
        return {"range": [0, 1.15 * max(most, 1)], "nticks": 4}, None, ""
    seen = most >= SHOWN * limit
    text = f" ({name} {format_count(limit)}, {'dashed' if seen else 'above what is drawn'})"
    high = 1.08 * max(most, limit) if seen else 1.15 * max(most, 1)
    return {"range": [0, high], "nticks": 4}, limit if seen else None, text


def _caption(run: Run, victim: str | None, *, thinned: bool, complete: bool) -> str:
    stalled = any(step.preempted for step in run.steps)
    terms = ["queued", *(["stalled"] if stalled else []), *(["ITL"] if victim is not None else [])]
    parts = [f"{term}: {DEFINITIONS[term]}" for term in terms]
    if not run.steps:
        parts.insert(0, "no step is remembered: what is drawn is from the records")
    elif not complete:
        parts.insert(0, "some steps are no longer remembered: what is hatched in grey is from the records")
    if run.engine is None:
        parts.append("budget and pool: n/a, the engine is not known")
    elif run.steps and all(step.kv_blocks_free is None for step in run.steps):
        parts.append("pool: n/a, free blocks were not recorded")
    if thinned:
        parts.append("of so many steps, the largest of each pixel is drawn and told")
    return " · ".join(parts)
