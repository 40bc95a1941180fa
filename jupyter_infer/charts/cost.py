"""The chart of costs: what the machine's time was spent on, and what each request cost by each way to count.

Three ways, which are never added: shared cost (its own work), wall cost (the machine kept for it) and, in bars without
a filling, what an API takes. They differ by a hundred times, so each has an axis of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jupyter_infer.charts._cost_bars import API, REST, api_panel, panel, strip
from jupyter_infer.charts._cost_parts import SHARED, Measure, Parts, parts_of, shared_ns
from jupyter_infer.charts._cost_words import api_total, cost_advice, cost_caption, cost_reading
from jupyter_infer.charts.card import EDGE, KeyEntry, card_layout
from jupyter_infer.charts.chart import Chart, Table
from jupyter_infer.charts.labels import cut, escape, fit
from jupyter_infer.charts.template import COLORS, INK, MUTED, SMALL
from jupyter_infer.metrics import phases
from jupyter_infer.numbers import format_count, format_ns, format_share
from jupyter_infer.pricing import format_usd, per_million
from jupyter_infer.run import Run

if TYPE_CHECKING:
    import plotly.graph_objects as go

__all__ = ["cost_chart"]

STRIP, GAP = 26, 44  # pixels of the bar of the whole run, and between it and the requests
PLOT_HEIGHT = 384  # pixels for the bars of many requests
LABELLED = 12  # requests that are called by their prompt
LEFT = 150


def cost_chart(run: Run, *, title: str = "") -> Chart:
    """Return where the money of a run went: the machine's whole time, and the costs of each request.

    Without a machine price, times stand for costs.

    Parameters
    ----------
    run
        A run; without all of its steps, idle time is not known.
    title
        The status line, as plain text.
    """
    parts = parts_of(run)
    reading, advice = cost_reading(run, parts), cost_advice(run, parts)
    return Chart(_figure(run, parts, title, reading, advice), title, reading, advice, _table(run, parts))


def _figure(run: Run, parts: Parts, title: str, reading: str, advice: str | None) -> go.Figure:
    import plotly.graph_objects as go

    if not run.requests:
        layout = card_layout(plot=60, left=EDGE, right=EDGE, title=title, key=[], caption="", reading=reading)
        hidden = {"visible": False, "range": [0, 1], "fixedrange": True}
        return go.Figure({"data": [], "layout": layout | {"xaxis": hidden, "yaxis": hidden}})
    count = len(run.requests)
    row = min(24 if count <= LABELLED else 16, max(PLOT_HEIGHT // count, 1))
    bar = row - 6 if row >= 16 else row - 2 if row >= 6 else row
    height = STRIP + GAP + max(row * count, 40)
    measure = Measure(run.price)
    whole, unit = strip(parts, measure)
    panels = [panel("shared", run, measure, bar / row), panel("wall", run, measure, bar / row)]
    if run.header.api_price is not None:
        panels.append(api_panel(run, bar / row))
    traces = [*whole, *(trace for made, _ in panels for trace in made)]
    layout = card_layout(
        plot=height,
        left=LEFT if count <= LABELLED else 62,
        right=EDGE + 8,
        title=title,
        key=_key(traces),
        caption=cost_caption(run, parts, {unit, *(text.rpartition(" ")[2] for _, text in panels)}),
        reading=reading,
        advice=advice,
    )
    layout |= {"barmode": "stack", "bargap": 0, "hovermode": "closest"}
    layout |= _row_axes(run, height, row * count)
    most = measure.amount(parts.drawn) or 1.0
    _, size = measure.unit([most])
    layout["xaxis9"] = _axis([0, 1], "y9", "") | {
        "ticksuffix": f" {unit}",
        "range": [0, most / size],
    }
    for number, (domain, (_, text)) in enumerate(zip(_domains(len(panels)), panels, strict=True), 1):
        layout[f"xaxis{'' if number == 1 else number}"] = _axis(domain, "y", text)
    return go.Figure({"data": traces, "layout": layout})


def _domains(count: int) -> list[list[float]]:
    return [[0, 0.55], [0.6, 1]] if count == 2 else [[0, 0.42], [0.47, 0.74], [0.79, 1]]


def _axis(domain: list[float], anchor: str, text: str) -> dict[str, Any]:
    return {
        "domain": domain,
        "anchor": anchor,
        "title": {"text": escape(text)},
        "rangemode": "tozero",
        "exponentformat": "none",
        "nticks": 5,
        "fixedrange": True,
    }


def _row_axes(run: Run, height: float, rows: float) -> dict[str, Any]:
    """Return the axes of the requests and, above them, of the whole run."""
    count = max(len(run.requests), 1)
    axis: dict[str, Any] = {
        "range": [count + 0.5, 0.5],
        "domain": [0, max(rows, 40) / height],
        "showgrid": False,
        "zeroline": False,
        "fixedrange": True,
    }
    if count <= LABELLED:
        labels = [
            escape(fit(cut(f"{number} · {record.label}"), LEFT - EDGE - 8, SMALL))
            for number, record in enumerate(run.requests, 1)
        ]
        axis |= {"tickvals": list(range(1, len(labels) + 1)), "ticktext": labels}
    else:
        step = next(step for step in (5, 10, 20, 50, 100, 1000) if step * 8 >= count or step == 1000)
        axis |= {"tickvals": [1, *range(step, count + 1, step)], "title": {"text": "request"}}
    whole = {
        "domain": [1 - STRIP / height, 1],
        "range": [0.5, 1.5],
        "anchor": "x9",
        "showgrid": False,
        "zeroline": False,
        "fixedrange": True,
        "tickvals": [1],
        "ticktext": ["the machine" if count <= LABELLED else "machine"],
    }
    return {"yaxis": axis, "yaxis9": whole}


def _key(traces: Sequence[dict[str, Any]]) -> list[KeyEntry]:
    signs = {"stalled": "▨", REST["unattributed"][2]: "▦", REST["idle"][2]: "▨", API: "□"}
    key: dict[str, KeyEntry] = {}
    for trace in traces:
        name = trace["name"]
        color = MUTED if name in (REST["idle"][2], REST["unattributed"][2]) else COLORS.get(name, INK)
        key[name] = KeyEntry(signs.get(name, "■"), color, name)
    return list(key.values())


def _table(run: Run, parts: Parts) -> Table:
    if not run.requests:
        return Table()
    measure, price = Measure(run.price), run.price
    times: list[tuple[str, int | None]] = [("the machine, in all", parts.elapsed)]
    times.append(_summed("shared cost", [record.shared_ns for record in run.requests]))
    times += [_summed(f"shared {phase}", [shared_ns(record)[phase] for record in run.requests]) for phase in SHARED]
    times += [(text, getattr(parts, name)) for name, (*_, text) in REST.items()]
    times.append(_summed("wall cost", [phases(record).e2e_ns for record in run.requests]))
    rows = [
        [
            text,
            format_usd(None if price is None else measure.amount(time_ns)),
            format_ns(time_ns),
            format_share(time_ns, parts.elapsed),
        ]
        for text, time_ns in times
    ]
    if price is not None:
        each = per_million(run.requests, price)
        for text, usd in (("in", each.input), ("out", each.output), ("blended", each.blended)):
            rows.append([f"1M tokens {text}, while busy", format_usd(usd), "", ""])
    if run.header.api_price is not None:
        rows.append([API, format_usd(api_total(run)), "", ""])
    return Table(head=("where the money went", "dollars", "time", "of the time"), rows=rows)


def _summed(name: str, times: Sequence[int | None]) -> tuple[str, int | None]:
    """Return what a sum over requests is called, with how many are in it where some are not known, and the sum."""
    known = [ns for ns in times if ns is not None]
    some = "" if len(known) in (0, len(times)) else f", of {format_count(len(known))} of {format_count(len(times))}"
    return f"{name}{some or ', of all'} requests" if len(times) > 1 else name, sum(known) if known else None
