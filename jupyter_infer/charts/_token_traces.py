"""The traces of the tokens chart: bars for the tokens of some requests, heights for those of one, and what is beside.

Every bar is an element of the page, so of more than `FULL` marks they are tiles of an image (`_token_tiles`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jupyter_infer.charts._lanes import Clock, grid
from jupyter_infer.charts._token_marks import Mark, Scale, describe, step_lines
from jupyter_infer.charts.packed import pack
from jupyter_infer.charts.template import COLORS, INK
from jupyter_infer.gaps import StepFacts
from jupyter_infer.outliers import Outlier

__all__ = [
    "FULL",
    "PIXELS",
    "Told",
    "bar_trace",
    "first_trace",
    "height_traces",
    "scale_trace",
    "step_strip",
    "wait_trace",
]

FULL = 1200  # marks that everything is told of on hovering
BRIEF = 60  # first tokens, of more less is told
BOX = 16  # pixels of a mark that a number stands in
PIXELS = 500  # of the time axis on a narrow page

Told = Mapping[tuple[str, int, int], Outlier]  # outliers by request, sample and step


def height_traces(
    marks: Sequence[Mark], clock: Clock, scale: Scale, facts: Mapping[int, StepFacts], told: Told
) -> list[dict[str, Any]]:
    """Return the marks of one lane at the height of their ITL; several tokens of a step are a box with their number."""
    gaps = [mark for mark in marks if mark.itl_ns is not None]
    trace: dict[str, Any] = {
        "type": "scatter",
        "name": "tokens of a step",
        "x": clock.pack(mark.time_ns for mark in gaps),
        "y": pack([(mark.itl_ns or 0) / scale.unit_ns for mark in gaps]),
        "cliponaxis": False,
    }
    if len(gaps) > FULL:
        template = f"%{{x:.4~g}} {clock.unit[0]}<br><b>ITL %{{y:.3~g}} {scale.unit}</b>, step %{{customdata}}"
        trace |= {"mode": "lines", "line": {"width": 1, "color": COLORS["prefill"]}}
        return [
            trace | {"customdata": pack([mark.step for mark in gaps]), "hovertemplate": f"{template}<extra></extra>"}
        ]
    several = [mark.tokens > 1 for mark in gaps]
    trace |= {"mode": "markers", "hovertemplate": "%{hovertext}<extra></extra>"}
    trace["hovertext"] = [_hover(mark, facts, told) for mark in gaps]
    trace["marker"] = {"size": 7, "color": COLORS["decode"], "line": {"width": 1, "color": COLORS["prefill"]}}
    if any(several):
        roomy = scale.low_ns * PIXELS / clock.span_ns >= BOX + 2
        if roomy:
            trace["mode"] = "markers+text"
            trace["text"] = [str(mark.tokens) if mark.tokens > 1 else "" for mark in gaps]
            trace["textfont"] = {"size": 10, "color": INK}
        trace["marker"] |= {"size": [(BOX if roomy else 9) if many else 7 for many in several]}
        trace["marker"] |= {"symbol": ["square" if many else "circle" for many in several]}
    return [trace]


def bar_trace(
    marks: Sequence[Mark],
    clock: Clock,
    scale: Scale,
    facts: Mapping[int, StepFacts],
    told: Told,
    *,
    width: float,
    edge: float,
) -> dict[str, Any]:
    """Return a bar a mark: from the tokens before to its own, coloured by its ITL.

    Parameters
    ----------
    marks
        The marks; those without an ITL have no bar.
    clock, scale
        What makes places and colours of times.
    facts
        The facts of the steps, by index.
    told
        The outliers, whose causes are told.
    width
        Height of a bar in lanes.
    edge
        Pixels of the line between two bars.
    """
    gaps = [
        (mark, mark.itl_ns, mark.begun_ns) for mark in marks if mark.itl_ns is not None and mark.begun_ns is not None
    ]
    trace: dict[str, Any] = {
        "type": "bar",
        "orientation": "h",
        "name": "ITL",
        "base": clock.pack(begun for _, _, begun in gaps),
        "x": pack([clock.length(itl) for _, itl, _ in gaps]),
        "y": pack([mark.lane.number for mark, _, _ in gaps]),
        "width": round(width, 4),
        # Plotly warns of each number that is a colour of a bar, so they are made here.
        "marker": {"color": [scale.color(itl) for _, itl, _ in gaps]},
        "hovertext": [_hover(mark, facts, told) for mark, _, _ in gaps],
        "hovertemplate": "%{hovertext}<extra></extra>",
    }
    trace["marker"]["line"] = {"width": edge, "color": "#ffffff"}
    if any(mark.tokens > 1 for mark, _, _ in gaps):
        trace["text"] = [str(mark.tokens) if mark.tokens > 1 else "" for mark, _, _ in gaps]
        trace |= {"textposition": "inside", "insidetextanchor": "middle", "textangle": 0}
    return trace


def scale_trace(scale: Scale) -> dict[str, Any]:
    """Return a trace that draws nothing, for the colour bar to belong to."""
    marker = {"color": list(scale.ends)[:1], "coloraxis": "coloraxis"}
    return {"type": "scatter", "mode": "markers", "x": [None], "y": [None], "marker": marker, "hoverinfo": "skip"}


def first_trace(marks: Sequence[Mark], clock: Clock, facts: Mapping[int, StepFacts], *, size: float) -> dict[str, Any]:
    """Return a sign at each first token, which has no ITL."""
    firsts = [mark for mark in marks if mark.begun_ns is None]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "first token",
        "x": clock.pack(mark.time_ns for mark in firsts),
        "y": pack([mark.lane.number for mark in firsts]),
        "marker": {"symbol": "diamond" if size > 4 else "line-ns-open", "size": size, "color": INK},
        "hovertext": [describe(mark, facts.get(mark.step), brief=len(firsts) > BRIEF) for mark in firsts],
        "hovertemplate": "%{hovertext}<extra></extra>",
        "cliponaxis": False,
    }


def wait_trace(marks: Sequence[Mark], clock: Clock, *, width: float) -> dict[str, Any]:
    """Return thin bars from the arrival to the first token."""
    firsts = [mark for mark in marks if mark.begun_ns is None]
    return {
        "type": "bar",
        "orientation": "h",
        "name": "TTFT",
        "base": clock.pack(mark.lane.record.arrival_ns for mark in firsts),
        "x": pack([clock.length(mark.time_ns - mark.lane.record.arrival_ns) for mark in firsts]),
        "y": pack([mark.lane.number for mark in firsts]),
        "width": round(width, 4),
        "marker": {"color": COLORS["load"], "line": {"width": 0}},
        "hoverinfo": "skip",
    }


def step_strip(facts: Mapping[int, StepFacts], clock: Clock) -> dict[str, Any] | None:
    """Return a strip of all steps, coloured by what they computed, which tells it; None of none or too many."""
    if not 0 < len(facts) <= FULL:
        return None
    edges: list[int] = []
    kinds: list[float | None] = []
    texts: list[str] = []
    for one in facts.values():
        begun, ended = one.step.start_ns, one.step.end_ns
        if edges and begun > edges[-1]:
            kinds.append(None)
            texts.append("")
            edges.append(begun)
        elif not edges:
            edges.append(begun)
        edges.append(ended)
        kinds.append(2 if one.recomputed else 1 if one.prefill else 0)
        texts.append("<br>".join(step_lines(one, one.step.index)))
    colors = [COLORS["decode"], COLORS["prefill"], COLORS["stalled"]]
    scale = [pair for place, color in enumerate(colors) for pair in ([place / 3, color], [(place + 1) / 3, color])]
    return {
        "type": "heatmap",
        "name": "steps",
        "x": clock.pack(edges),
        "y": [0, 1],
        "z": grid([kinds]),
        "zmin": 0,
        "zmax": 2,
        "colorscale": scale,
        "showscale": False,
        "hoverongaps": False,
        "text": [texts],
        "hovertemplate": "%{text}<extra></extra>",
        "yaxis": "y2",
    }


def _hover(mark: Mark, facts: Mapping[int, StepFacts], told: Told) -> str:
    return describe(mark, facts.get(mark.step), told.get((*mark.lane.key, mark.step)))
