"""The bars of many requests: numbers packed into one string a trace, and hover texts made from them by Plotly.

A line of text a bar would be ten times what a saved notebook may hold, so a bar says its number, its time, its dollars
and the definitions, and the costs stand beside the bars as bars.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jupyter_infer.charts._bars import HOVER_WIDTH, MONEY, TERMS, bar_trace, define, describe
from jupyter_infer.charts.labels import in_template, wrap_html
from jupyter_infer.charts.packed import pack
from jupyter_infer.charts.rows import PHASES, Row
from jupyter_infer.charts.template import SMALL
from jupyter_infer.pricing import MachinePrice

__all__ = ["cost_trace", "load_trace", "phase_traces", "stalled_trace"]

SECONDS = ".3~s}s"  # of Plotly's templates: 1.97s, 320ms
DOLLARS = ".2~g}"
REQUEST = "<b>request %{y}</b>"


def phase_traces(rows: Sequence[Row], origin: int, *, width: float, priced: bool) -> list[dict[str, Any]]:
    """Return the bar traces of queued, prefill and decode; a phase that a request did not get through has no bar."""
    # Stacked on the time before the arrival, since Plotly then needs no beginnings, and knows a bar's length by itself.
    before: dict[str, Any] = {"type": "bar", "orientation": "h", "y0": 1, "dy": 1, "hoverinfo": "skip"}
    before |= {"x": pack([(row.record.arrival_ns - origin) / 1e9 for row in rows]), "marker": {"opacity": 0}}
    traces = [before]
    for phase in PHASES:
        lengths = [row.phase_ns[phase][1] for row in rows]
        trace = _trace(phase, [None if length is None else length / 1e9 for length in lengths], width)
        dollars = "cost n/a"
        if priced:
            trace["customdata"] = pack([row.phase_usd[phase] for row in rows])
            dollars = f"&#36;%{{customdata:{DOLLARS}"
        trace["hovertemplate"] = (
            f"{REQUEST}<br><b>{phase} %{{x:{SECONDS}, {dollars}</b><br><i>{define(phase)}"
            f"<br>{define(*TERMS[phase], named=True)}</i><extra></extra>"
        )
        traces.append(trace)
    return traces


def stalled_trace(rows: Sequence[Row], origin: int, *, width: float) -> dict[str, Any] | None:
    """Return the bars of stalled time, drawn over decode; `None` if nothing stalled."""
    pieces = [(row, start, length) for row in rows for start, length, _ in row.stalls]
    if not pieces:
        return None
    lengths = [length / 1e9 for _, _, length in pieces]
    trace = bar_trace(
        "stalled",
        y=pack([row.number for row, *_ in pieces]),
        base=pack([(start - origin) / 1e9 for _, start, _ in pieces]),
        x=pack(lengths),
        width=width,
    )
    template = f"{REQUEST}<br><b>stalled %{{customdata:{SECONDS}</b><br><i>{define('stalled')}</i><extra></extra>"
    return trace | {"customdata": pack(lengths), "hovertemplate": template}


def cost_trace(rows: Sequence[Row], price: MachinePrice | None, *, width: float) -> dict[str, Any] | None:
    """Return a bar of shared dollars a request, on an axis of their own; `None` if none is known."""
    usd = [row.shared_usd for row in rows]
    if price is None or not any(usd):
        return None
    trace = _trace("shared cost", usd, width)
    trace["xaxis"] = "x3"
    priced = in_template(wrap_html(describe(price), HOVER_WIDTH, SMALL))
    trace["hovertemplate"] = (
        f"{REQUEST}<br><b>shared cost &#36;%{{x:{DOLLARS}</b>"
        f"<br><i>{define(*MONEY, named=True)}</i><br>{priced}<extra></extra>"
    )
    return trace


def load_trace(rows: Sequence[Row], *, width: float) -> dict[str, Any] | None:
    """Return the bars of the loads that requests waited for, ending at 0 of their own axis; `None` without one."""
    loads = [row.times.load_ns for row in rows]
    while loads and not loads[-1]:  # the first ones waited, and many more came later
        loads.pop()
    if not loads:
        return None
    trace = _trace("load", [load / 1e9 if load else None for load in loads], width)
    template = f"{REQUEST}<br><b>load %{{x:{SECONDS}</b><br><i>{define('load')}</i><br>own axis<extra></extra>"
    return trace | {"xaxis": "x2", "hovertemplate": template}


def _trace(name: str, x: Sequence[float | None], width: float) -> dict[str, Any]:
    return bar_trace(name, x=pack(x), width=width) | {"y0": 1, "dy": 1}
