"""The axes of the phases figure: time, requests, and at their sides the load before and the costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jupyter_infer.charts._form import BESIDE, Form
from jupyter_infer.charts.card import EDGE
from jupyter_infer.charts.labels import escape, fit
from jupyter_infer.charts.rows import Row
from jupyter_infer.charts.template import SMALL
from jupyter_infer.numbers import format_ns
from jupyter_infer.pricing import format_usd

__all__ = ["LOAD_PART", "add_axes"]

LOAD_PART = 0.16  # of the plot's width, where a load is drawn
COST_PART = 0.12  # of the plot's width, where costs are bars


def add_axes(layout: dict[str, Any], rows: Sequence[Row], form: Form, *, span_s: float) -> None:
    """Add the axes of `rows` to a layout, time up to `span_s` seconds."""
    loads = [row.times.load_ns for row in rows if row.times.load_ns]
    costs = [row.shared_usd for row in rows if row.shared_usd] if form.costed else []
    layout |= {
        "barmode": "overlay" if form.told else "stack",
        "bargap": 0,  # what makes Plotly draw bars with sharp edges; their widths are given
        "hovermode": "closest",
        "xaxis": {
            "title": {
                "text": "seconds from arrival"
                if len(rows) <= 1
                else "seconds from the first arrival"
                if form.told
                else "seconds"
            },
            "exponentformat": "none",
            "nticks": 6,
            "showgrid": len(rows) <= BESIDE,  # a line between bars of a pixel is a crumb a bar
            "range": [0, 1.02 * span_s],
            "domain": [LOAD_PART if loads else 0, 1 - COST_PART if costs else 1],
        },
        "yaxis": _request_axis(rows, form),
    }
    if loads:
        text = ("" if len(set(loads)) == 1 else "≤ ") + format_ns(max(loads))
        layout["xaxis2"] = _side_axis([0, LOAD_PART - 0.03], [max(loads) / 1e9, 0], max(loads) / 2e9, text)
    if costs:
        text = escape(f"≤ {format_usd(max(costs))}")
        layout["xaxis3"] = _side_axis([1.02 - COST_PART, 1], [0, max(costs)], max(costs) / 2, text)
    if form.lettered:
        layout["yaxis2"] = _cost_axis(rows, form)


def _side_axis(domain: list[float], ends: list[float], middle: float, text: str) -> dict[str, Any]:
    """Return an axis of its own scale, which says its whole length and no more."""
    return {
        "domain": domain,
        "range": ends,
        "fixedrange": True,
        "showgrid": False,
        "zeroline": False,
        "tickvals": [middle],
        "ticktext": [text],
        "anchor": "y",
    }


def _request_axis(rows: Sequence[Row], form: Form) -> dict[str, Any]:
    axis: dict[str, Any] = {"range": _ends(rows), "showgrid": False, "zeroline": False}
    axis |= {"anchor": "free", "position": 0}  # left of a load, if one is drawn
    if len(rows) > 1 and form.lettered:
        axis |= {"tickvals": [row.number for row in rows], "ticktext": [_label(row, form) for row in rows]}
        return axis | {"fixedrange": True}
    if len(rows) <= 1:
        return axis | {"showticklabels": False, "fixedrange": True}
    step = next(step for step in (1, 5, 10, 20, 50, 100, 1000) if step * 8 >= len(rows) or step == 1000)
    return axis | {
        "tickvals": [row.number for row in rows if row.number % step == 0 or row.number == 1],
        "title": {"text": "request"},
    }


def _cost_axis(rows: Sequence[Row], form: Form) -> dict[str, Any]:
    """Return the right axis, whose tick labels are the costs: a column that no width of the page can clip."""
    texts = []
    for row in rows:
        shared, wall = escape(format_usd(row.shared_usd)), escape(format_usd(row.wall_usd))
        texts.append(f"{shared} shared<br>{wall} wall" if len(rows) <= 1 else shared)
    return {
        "title": {"text": "" if len(rows) <= 1 else "shared cost"},
        "overlaying": "y",
        "side": "right",
        "range": _ends(rows),
        "fixedrange": True,
        "showgrid": False,
        "zeroline": False,
        "tickvals": [row.number for row in rows],
        "ticktext": texts,
        "tickfont": {"size": SMALL if len(rows) <= 1 else SMALL - 1},
    }


def _ends(rows: Sequence[Row]) -> list[float]:
    return [max(len(rows), 1) + 0.5, 0.5]


def _label(row: Row, form: Form) -> str:
    return escape(fit(row.label, form.left - EDGE - 8, SMALL))
