"""The chart of the KV pool: whose blocks were in use when, which were shared, and what was only cached.

Areas have edges along the axes and few points, because JupyterLab saves a picture of the drawn chart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jupyter_infer.charts import _kv_areas as areas
from jupyter_infer.charts._kv_areas import EVICTED, PREEMPTED
from jupyter_infer.charts._kv_bands import POINTS, Usage, usage_of
from jupyter_infer.charts._kv_words import MIB, kv_advice, kv_reading
from jupyter_infer.charts._lanes import Clock
from jupyter_infer.charts.card import EDGE, KeyEntry, card_layout
from jupyter_infer.charts.chart import Chart, Table
from jupyter_infer.charts.labels import escape
from jupyter_infer.charts.template import GRID, INK, MUTED, SMALL
from jupyter_infer.numbers import NOT_KNOWN, format_count, format_share
from jupyter_infer.pool import block_bytes
from jupyter_infer.run import Run

if TYPE_CHECKING:
    import plotly.graph_objects as go

__all__ = ["kv_chart"]

HEIGHT = 280  # pixels of the plot, so that a hover text with all owners has room
WORDED = 0.3  # of the axis, a time without steps in which words have room
CAPTION = (
    "in use = in the block table of a sample · shared prefix = in several tables, counted once · cached = free, but "
    "found again by a prompt that begins alike, as far as this run filled it"
)


def kv_chart(run: Run, *, title: str = "") -> Chart:
    """Return the KV pool over time by owner: blocks in use, shared, cached and free, and what reservations would take.

    Parameters
    ----------
    run
        A run with its steps; of those that are not there, the chart says that nothing is known.
    title
        The status line, as plain text.
    """
    usage = usage_of(run)
    drawn = usage if usage is not None and usage.known else None
    reading, advice = kv_reading(run, usage), kv_advice(run, usage)
    figure = _figure(run, drawn, title, reading, advice)
    return Chart(figure, title, reading, advice, Table() if drawn is None else _table(drawn))


def _figure(run: Run, usage: Usage | None, title: str, reading: str, advice: str | None) -> go.Figure:
    import plotly.graph_objects as go

    if usage is None:
        layout = card_layout(
            plot=60, left=EDGE, right=EDGE, title=title, key=[], caption="", reading=reading, advice=advice
        )
        layout["annotations"].append(_note(NOT_KNOWN, 0.5, "middle", "left"))
        hidden = {"visible": False, "range": [0, 1], "fixedrange": True}
        return go.Figure({"data": [], "layout": layout | {"xaxis": hidden, "yaxis": hidden}})
    origin = min((record.arrival_ns for record in run.requests), default=run.steps[0].planned_ns)
    seen = max(usage.pool.steps[-1].end_ns, usage.pool.moments[-1].time_ns)
    end = max(run.span_ns[1], seen)
    clock = Clock(origin, max(1, end - origin))
    unit, size = clock.unit
    times = [clock.at(usage.pool.moments[index].time_ns) for index in usage.picks]
    # What was left stays so to the end, as far as it is known.
    times.append(clock.at(end if usage.complete else seen))
    colors = areas.colors_of(usage.bands)
    traces = [areas.area(band, times, color, hatch) for band, (color, hatch) in zip(usage.bands, colors, strict=True)]
    each = block_bytes(usage.info)
    top, lines, above = _scale(usage)
    traces += [areas.line(name, dash, counts, usage, times) for name, dash, counts in lines]
    traces.append(areas.outline(usage, times, unit, each))
    marks = [
        areas.marks(EVICTED, [index for index, _ in usage.evicted], usage, origin, size),
        areas.marks(PREEMPTED, [index for index, _ in usage.preempted], usage, origin, size),
    ]
    traces += [mark for mark in marks if mark is not None]
    if each is not None:  # an axis without a trace is not drawn
        traces.append({"type": "scatter", "x": [None], "y": [None], "yaxis": "y2", "hoverinfo": "skip"})
    layout = card_layout(
        plot=HEIGHT,
        left=54,
        right=EDGE + 8 if each is None else 58,
        title=title,
        key=_key(usage, colors, [name for name, *_ in lines], traces),
        caption=_caption(usage, each),
        reading=reading,
        advice=advice,
    )
    layout |= _axes(clock, top, each)
    layout["shapes"] = [] if usage.complete else [_blank(0, times[0], clock), _blank(times[-1], clock.at(end), clock)]
    total = usage.info.kv_blocks_total
    if 0 < total <= top:
        layout["shapes"].append(_total_line(total))
        layout["annotations"].append(_note(f"pool: {format_count(total)} blocks", total, "bottom", "left"))
    if above:
        layout["annotations"].append(_note(f"above this axis: {', '.join(above)}", top, "top", "right"))
    return go.Figure({"data": traces, "layout": layout})


def _scale(usage: Usage) -> tuple[float, list[tuple[str, str, Sequence[int | None]]], list[str]]:
    """Return the top of the axis, the lines that are below it, and in words what is above."""
    total = usage.info.kv_blocks_total
    cached = [moment.cached for moment in usage.pool.moments]
    most = max(1, *(level + more for level, more in zip(usage.level, cached, strict=True)))
    near = 0 < total <= 4 * most
    top = 1.12 * max(total, most) if near else 1.35 * most
    above = [] if near or total <= 0 else [f"the pool's {format_count(total)} blocks"]
    lines: list[tuple[str, str, Sequence[int | None]]] = []
    reservations: list[tuple[str, str, Sequence[int | None]]] = [
        ("contiguous: prompt + max_tokens", "dot", usage.asked),
        ("contiguous: whole context", "dash", usage.whole),
    ]
    base = top
    for name, dash, counts in reservations if usage.owned else ():
        highest = max((count for count in counts if count is not None), default=0)
        if not highest:
            continue
        if highest <= 1.5 * base:
            top = max(top, 1.08 * highest)
            lines.append((name, dash, counts))
        else:
            above.append(f"{name} {format_count(highest)}")
    return top, lines, above


def _key(
    usage: Usage, colors: Sequence[tuple[str, str]], lines: Sequence[str], traces: Sequence[dict[str, Any]]
) -> list[KeyEntry]:
    key = [
        KeyEntry(areas.SIGNS[hatch], MUTED if hatch else color, band.name)
        for band, (color, hatch) in zip(usage.bands, colors, strict=True)
    ]
    signs = {"contiguous: prompt + max_tokens": "┈", "contiguous: whole context": "╌"}
    key += [KeyEntry(signs[name], MUTED, name) for name in lines]
    drawn = {trace.get("name") for trace in traces}
    key += [KeyEntry("▼", "#d55e00", PREEMPTED)] if PREEMPTED in drawn else []
    return key + ([KeyEntry("○", INK, EVICTED)] if EVICTED in drawn else [])


def _caption(usage: Usage, each: float | None) -> str:
    size = f"block = {format_count(usage.info.block_size)} tokens"
    if each is not None:
        size += f" = {each / MIB:.3g} MiB, {each / usage.info.block_size / 1024:.3g} KiB a token"
    parts = [size, CAPTION]
    if not usage.complete:
        parts.append(
            "not all steps of this run are remembered: before the first and after the last one nothing is known"
        )
    if usage.owned and usage.pool.begins_inside:
        parts.append("samples ran before the first step: the blocks that they had are of no recorded owner")
    if len(usage.pool) > POINTS:
        parts.append("drawn: the fullest moment of each stretch")
    if usage.missing:
        parts.append(f"up to {_blocks(usage.missing)} were counted that the engine did not hold")
    return " · ".join(parts)


def _blocks(count: int) -> str:
    return f"{format_count(count)} block{'' if count == 1 else 's'}"


def _axes(clock: Clock, top: float, each: float | None) -> dict[str, Any]:
    axes: dict[str, Any] = {
        "hovermode": "x",
        "hoverdistance": -1,
        "xaxis": clock.axis(range=[0, 1.01 * clock.length(clock.span_ns)], nticks=7),
        "yaxis": {
            "title": {"text": "KV blocks"},
            "range": [0, top],
            "fixedrange": True,
            "tickformat": ",d",
            "nticks": 6,
            "rangemode": "tozero",
        },
    }
    if each is not None:
        axes["yaxis2"] = {
            "title": {"text": "MiB"},
            "overlaying": "y",
            "side": "right",
            "range": [0, top * each / MIB],
            "fixedrange": True,
            "showgrid": False,
            "nticks": 6,
            "tickmode": "auto",  # round numbers of its own
        }
    return axes


def _blank(begun: float, ended: float, clock: Clock) -> dict[str, Any]:
    """Return a time of which no step is remembered, which is no time in which nothing was held."""
    shape = {"type": "rect", "layer": "below", "xref": "x", "x0": begun, "x1": ended, "yref": "paper", "y0": 0, "y1": 1}
    roomy = ended - begun >= WORDED * clock.length(clock.span_ns)
    label: dict[str, Any] = {"text": "steps not remembered" if roomy else "", "font": {"size": SMALL, "color": MUTED}}
    label |= {"textposition": "bottom center", "padding": 4}  # between the lines of the grid
    return shape | {"fillcolor": GRID, "line": {"width": 0}, "label": label}


def _total_line(total: int) -> dict[str, Any]:
    line = {"color": INK, "width": 1}
    return {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "yref": "y", "y0": total, "y1": total, "line": line}


def _note(text: str, y: float, anchor: str, side: str) -> dict[str, Any]:
    """Return words at one end of a height of the plot."""
    return {
        "text": escape(text),
        "font": {"size": SMALL, "color": MUTED},
        "showarrow": False,
        "xref": "paper",
        "x": 1 if side == "right" else 0,
        "xanchor": side,
        "yref": "y",
        "y": y,
        "yanchor": anchor,
    }


def _table(usage: Usage) -> Table:
    most = "at most" if usage.complete else f"at most, of {format_count(len(usage.pool.steps))} steps remembered"
    each, fullest = block_bytes(usage.info), usage.fullest
    asked = [count for count in usage.asked if count is not None]

    def row(name: str, blocks: int | None) -> list[str]:
        size = NOT_KNOWN if each is None or blocks is None else f"{blocks * each / MIB:,.3g}"
        return [name, format_count(blocks), size, format_share(blocks, usage.info.kv_blocks_total)]

    rows = [row("pool", usage.info.kv_blocks_total), row("in use", usage.level[fullest])]
    rows += [row(band.name, band.most) for band in usage.bands if band.kind != "request"]
    rows += [row("contiguous: whole context", max(usage.whole)), row("contiguous: limit", max(asked, default=None))]
    rows += [row(band.name, band.most) for band in usage.bands if band.kind == "request"]
    return Table(head=("KV blocks", most, "MiB", "of the pool"), rows=rows)
