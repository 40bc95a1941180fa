"""The tokens chart: every output token at its time, how long it took, and what kept the late ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jupyter_infer.charts import _token_traces as traces
from jupyter_infer.charts._lanes import (
    Clock,
    clock_of,
    ending_trace,
    lane_axis,
    lane_height,
    lanes_of,
    left_of,
    ticks_of,
    value_axis,
)
from jupyter_infer.charts._token_marks import (
    RAMP,
    TOP,
    Mark,
    Scale,
    define,
    marks_of,
    medians,
    pick,
    ring_hover,
    scale_of,
)
from jupyter_infer.charts._token_tiles import tile_traces
from jupyter_infer.charts._token_words import joined, tokens_caption, tokens_reading, tokens_table
from jupyter_infer.charts._tuning import tune_itl
from jupyter_infer.charts.card import KeyEntry, card_layout
from jupyter_infer.charts.chart import Chart
from jupyter_infer.charts.packed import pack
from jupyter_infer.charts.template import COLORS, INK, MUTED
from jupyter_infer.gaps import StepFacts, facts_of
from jupyter_infer.outliers import Outlier, outliers
from jupyter_infer.run import Run

__all__ = ["tokens_chart"]

HEIGHT = 220  # pixels of the plot of one request
SMALLEST = 96  # pixels of a plot that a colour bar stands beside
RING = 18  # pixels that two rings need
STRIP = 14  # pixels of the strip of steps
EDGED = 4  # pixels of a token, from which a line divides it from the next
BAR = 92  # pixels right of the plot for the colour bar


def tokens_chart(run: Run, *, title: str = "") -> Chart:
    """Return each output token of a run at its time: of one request as high as its ITL, of several coloured by it.

    Parameters
    ----------
    run
        The run; without its steps, late tokens are shown and not explained.
    title
        What was run: a line of plain text.
    """
    import plotly.graph_objects as go

    lanes, clock, facts = lanes_of(run), clock_of(run), facts_of(run.steps)
    marks = marks_of(lanes)
    late = outliers(run, facts)
    itls = [itl for mark in marks if (itl := mark.itl_ns) is not None]
    scale = scale_of(itls)
    complete = not late or run.complete
    reading, advice = tokens_reading(run, itls, late), tune_itl(run, facts, complete=complete) if late else None
    words = {"title": title, "reading": reading, "advice": advice}
    caption = tokens_caption(late, steps=bool(facts), complete=complete)
    build = _one if len(lanes) == 1 else _many
    figure = build(run, marks, late, clock, scale, facts, caption, words)
    return Chart(go.Figure(figure), title, reading, advice, tokens_table(late, run))


def _one(
    run: Run,
    marks: Sequence[Mark],
    late: Sequence[Outlier],
    clock: Clock,
    scale: Scale,
    facts: Mapping[int, StepFacts],
    caption: str,
    words: dict[str, Any],
) -> dict[str, Any]:
    median = medians(marks)
    data = traces.height_traces(marks, clock, scale, facts, _told(late))
    first = traces.first_trace(marks, clock, facts, size=10)
    low = scale.low_ns / scale.unit_ns * 0.7 if scale.log else 0
    first["y"] = [low] * sum(mark.begun_ns is None for mark in marks)
    data += [first, _rings(late, clock, {}, scale)]
    key = [KeyEntry("●", COLORS["decode"], "tokens of a step")]
    if any(mark.tokens > 1 for mark in marks):
        key.append(KeyEntry("■", COLORS["decode"], "several tokens of a step"))
    key += [KeyEntry("◆", INK, "first token"), *_late_key(late)]
    terms = define("ITL", "TTFT", *([] if late else ["TPOT"]))
    caption = joined(caption, terms, "dotted: median ITL" if median else "")
    layout = card_layout(plot=HEIGHT, left=64, right=30, key=key, caption=caption, **words)
    layout |= {"hovermode": "closest", "xaxis": clock.axis()}
    layout["yaxis"] = {"title": {"text": f"ITL, {scale.unit}"}, "zeroline": False, "exponentformat": "none"}
    own = value_axis(scale.low_ns / scale.unit_ns, scale.high_ns / scale.unit_ns, log=scale.log)
    layout["yaxis"] |= own
    if median:
        at = median / scale.unit_ns
        line = {"color": MUTED, "width": 1, "dash": "dot"}
        layout["shapes"] = [{"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": at, "y1": at, "line": line}]
    return {"data": data, "layout": layout}


def _many(
    run: Run,
    marks: Sequence[Mark],
    late: Sequence[Outlier],
    clock: Clock,
    scale: Scale,
    facts: Mapping[int, StepFacts],
    caption: str,
    words: dict[str, Any],
) -> dict[str, Any]:
    lanes = lanes_of(run)
    row = lane_height(len(lanes))
    plot = max(row * len(lanes), SMALLEST)
    thick = (row - 8) / row if row >= 20 else (row - 2) / row if row >= 6 else 1.0
    tiled = len(marks) > traces.FULL
    strip = traces.step_strip(facts, clock) if tiled else None
    places = {lane.key: lane.number for lane in lanes}
    made = [traces.wait_trace(marks, clock, width=max(thick * 0.3, 1 / row))]
    together = 1
    if tiled:
        tiles, together = tile_traces(marks, clock, scale, gap=row - round(thick * row))
        made += tiles
    else:
        shortest = scale.low_ns * traces.PIXELS / clock.span_ns
        edge = 1 if shortest >= EDGED else 0.5 if shortest >= EDGED / 2 else 0
        made.append(traces.bar_trace(marks, clock, scale, facts, _told(late), width=thick, edge=edge))
        made.append(traces.scale_trace(scale))
    made.append(traces.first_trace(marks, clock, facts, size=9 if row >= 16 else 6 if row >= 8 else 3))
    ends = ending_trace(lanes, clock, size=9 if row >= 16 else 6)
    made += [trace for trace in (ends, _rings(late, clock, places, scale)) if trace]
    key = [KeyEntry("■", COLORS["decode"], "gap between tokens, darker if longer"), KeyEntry("◆", INK, "first token")]
    key += [KeyEntry("━", COLORS["load"], "TTFT"), *_late_key(late)]
    key += [KeyEntry("✖", INK, "aborted or failed")] if ends else []
    if strip:
        made.append(strip)
        key.append(KeyEntry("■", COLORS["prefill"], "step with prompt tokens"))
    below = STRIP + 8 if strip else 0
    binned = f"a tile is up to {together} steps, its ITL the longest of them" if together > 1 else ""
    told = "steps: what each computed, on hovering" if strip else ""
    caption = joined(caption, define("ITL", "TTFT"), binned, told)
    layout = card_layout(plot=plot + below, left=left_of(lanes), right=BAR, key=key, caption=caption, **words)
    floor = below / (plot + below)
    layout |= {"hovermode": "closest", "barmode": "overlay", "bargap": 0, "coloraxis": _colors(scale, plot)}
    layout["xaxis"] = clock.axis(anchor="y2" if strip else "y")
    layout["yaxis"] = lane_axis(lanes, left=left_of(lanes), domain=[floor, 1])
    if strip:
        layout["yaxis2"] = {"domain": [0, STRIP / (plot + below)], "range": [0, 1], "fixedrange": True}
        layout["yaxis2"] |= {"tickvals": [0.5], "ticktext": ["steps"], "showgrid": False, "zeroline": False}
    return {"data": made, "layout": layout}


def _told(late: Sequence[Outlier]) -> traces.Told:
    return {(one.gap.request_id, one.gap.sample, one.gap.step): one for one in late}


def _rings(
    late: Sequence[Outlier], clock: Clock, places: Mapping[tuple[str, int], int], scale: Scale
) -> dict[str, Any]:
    """Return numbered rings around the worst outliers; at the height of their ITL where no places are given."""
    times: list[float] = []
    heights: list[float] = []
    texts: list[str] = []
    apart = clock.span_ns * RING / traces.PIXELS
    for number, some in enumerate(pick(late)[:TOP]):
        gap = some[0].gap
        at = gap.ended_ns - gap.ns / 2 if places else gap.ended_ns
        if places and any(abs(at - other) < apart for other in times):  # beside the one before, on a lane further down
            gap = sorted(some, key=lambda one: places[one.gap.request_id, one.gap.sample])[
                min(number * len(some) // TOP, len(some) - 1)
            ].gap
        times.append(at)
        texts.append(ring_hover(some[0]))
        heights.append(places[gap.request_id, gap.sample] if places else gap.ns / scale.unit_ns)
    return {
        "type": "scatter",
        "mode": "markers+text",
        "name": "late",
        "x": clock.pack(times),
        "y": pack(heights),
        "text": [str(number) for number in range(1, len(times) + 1)],
        "textfont": {"size": 10, "color": INK},
        "marker": {"size": 15, "color": "#ffffff", "line": {"width": 2, "color": COLORS["stalled"]}},
        "hovertext": texts,
        "hovertemplate": "%{hovertext}<extra></extra>",
        "cliponaxis": False,
    }


def _colors(scale: Scale, plot: float) -> dict[str, Any]:
    low, high = scale.ends
    bar: dict[str, Any] = {"title": {"text": f"ITL, {scale.unit}", "side": "right", "font": {"size": 11}}}
    bar |= {"thickness": 10, "lenmode": "pixels", "len": max(plot, SMALLEST), "outlinewidth": 0, "nticks": 5}
    bar |= {"y": 1, "yanchor": "top", "xpad": 8, "ypad": 4, "tickfont": {"size": 11, "color": MUTED}}
    if scale.log:
        values = ticks_of(scale.low_ns / scale.unit_ns, scale.dark_ns / scale.unit_ns)
        bar |= {"tickvals": [scale.at(value * scale.unit_ns) for value in values]}
        bar |= {"ticktext": [f"{value:g}" for value in values]}
    return {"colorscale": [list(stop) for stop in RAMP], "cmin": low, "cmax": high, "colorbar": bar}


def _late_key(late: Sequence[Outlier]) -> list[KeyEntry]:
    return [KeyEntry("◯", COLORS["stalled"], "the longest, told below")] if late else []
