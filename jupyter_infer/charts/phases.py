"""The chart under an answer: where the time of each request went, and what it cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jupyter_infer.charts import _bars, _marks
from jupyter_infer.charts.card import EDGE, KeyEntry, card_layout
from jupyter_infer.charts.labels import escape, wrap
from jupyter_infer.charts.rows import Row, make_rows, origin_ns, span_ns
from jupyter_infer.charts.template import COLORS, GLYPHS, INK, MUTED, SMALL, TEXT_WIDTH
from jupyter_infer.metrics import DEFINITIONS
from jupyter_infer.numbers import format_ns
from jupyter_infer.pricing import MachinePrice, format_usd
from jupyter_infer.records import RequestRecord

if TYPE_CHECKING:
    import plotly.graph_objects as go

__all__ = ["phases_figure"]

PLOT_BOUND = 820  # pixels; with more requests the bars get thin instead
MIN_TICKED = 4  # pixels a row, below which token ticks are only noise
LOAD_PART = 0.16  # of the plot's width, where a load is drawn


@dataclass(frozen=True, slots=True)
class _Form:
    """How the rows of a figure are drawn: roomy, compact or thin, by their number."""

    row: float  # pixels a row
    bar: float  # height of a bar in rows
    left: int  # margins in pixels
    right: int
    label_lines: int
    label_size: float
    lettered: bool  # durations stand in the bars
    brief: bool  # hover texts are short


def phases_figure(
    records: Sequence[RequestRecord],
    price: MachinePrice | None,
    *,
    title: str | None = None,
    labels: Sequence[str] | None = None,
    first_shown_ns: Mapping[str, int] | None = None,
) -> go.Figure:
    """Return a bar a request: queued, prefill and decode in seconds from the first arrival, with the costs beside it.

    A phase that a request did not get through has no bar and is ``n/a`` on hovering. Bars lie at numeric heights in the
    order of `records`, so requests with equal labels stay apart.

    Parameters
    ----------
    records
        The requests of one run, from 1 to some 500.
    price
        The machine's price; without one, costs are ``n/a``.
    title
        The status line, as plain text.
    labels
        What to call each request, as plain text; default: the beginning of its prompt.
    first_shown_ns
        When the first text of a request was shown, by request id, on the clock of the records.

    Raises
    ------
    ValueError
        If there are not as many labels as records.
    """
    # Imported here, so that what draws no figure (formats, static HTML) does without Plotly's half a second.
    import plotly.graph_objects as go

    rows = make_rows(records, price, labels)
    form = _form(len(rows))
    shown = first_shown_ns or {}
    origin = origin_ns(rows)
    last_shown = max((shown.get(row.record.request_id, origin) for row in rows), default=origin)
    span = max(span_ns(rows), last_shown - origin)
    load = _bars.load_trace(rows, width=form.bar)
    pixel_ns = span / ((TEXT_WIDTH - form.left - form.right) * (1 - LOAD_PART if load else 1))
    below = form.bar / 2 + 5 / form.row if form.lettered else 0.0  # ticks would cross out the durations in the bars
    made = [
        load,
        *_bars.phase_traces(
            rows, origin, width=form.bar, brief=form.brief, pixel_ns=pixel_ns if form.lettered else None
        ),
        _bars.stalled_trace(rows, origin, width=form.bar),
        _token_ticks(rows, form, origin, pixel_ns, below),
        *_marks.ending_traces(rows, origin, brief=form.brief),
        _marks.shown_trace(rows, origin, shown, above=form.bar / 2 + 4 / form.row),
    ]
    traces = [trace for trace in made if trace is not None]
    layout = _layout(rows, form, traces, title or "", price)
    layout["xaxis"]["range"] = [0, 1.02 * span / 1e9]
    if form.right > EDGE:
        traces.append({"type": "scatter", "x": [None], "y": [None], "yaxis": "y2", "hoverinfo": "skip"})
    return go.Figure({"data": traces, "layout": layout})


def _token_ticks(rows: Sequence[Row], form: _Form, origin: int, pixel_ns: float, below: float) -> dict[str, Any] | None:
    if form.row < MIN_TICKED:
        return None
    size = 5 if below else form.bar * form.row / 2
    apart = 2 if below else 5  # a rug may be dense, a bar is to keep its colour
    return _marks.tick_trace(rows, origin, pixel_ns=pixel_ns, offset=below, size=size, apart=apart)


def _form(count: int) -> _Form:
    row = PLOT_BOUND / max(count, 1)
    if count <= 1:
        return _Form(row=72, bar=0.46, left=EDGE, right=112, label_lines=0, label_size=0, lettered=True, brief=False)
    if count <= 20:
        return _Form(row=40, bar=0.5, left=150, right=112, label_lines=2, label_size=SMALL, lettered=True, brief=False)
    if count <= 64:
        return _Form(row=row, bar=0.78, left=150, right=122, label_lines=1, label_size=9, lettered=False, brief=True)
    bar = 0.8 if row > 5 else 1.0  # a gap would be thinner than a pixel
    return _Form(row=row, bar=bar, left=48, right=EDGE, label_lines=0, label_size=0, lettered=False, brief=True)


def _layout(
    rows: Sequence[Row], form: _Form, traces: Sequence[dict[str, Any]], title: str, price: MachinePrice | None
) -> dict[str, Any]:
    loads = [row.times.load_ns for row in rows if row.times.load_ns]
    layout = card_layout(
        plot=max(form.row * len(rows), 60),
        left=form.left,
        right=form.right,
        title=title,
        key=[_key_entry(str(trace["name"])) for trace in traces],
        caption=_caption(price),
    )
    layout |= {
        "barmode": "overlay",
        "hovermode": "closest",
        "xaxis": {
            "title": {"text": "seconds from arrival" if len(rows) <= 1 else "seconds from the first arrival"},
            "exponentformat": "none",
            "domain": [LOAD_PART, 1] if loads else [0, 1],
        },
        "yaxis": _label_axis(rows, form),
    }
    if loads:
        layout["xaxis2"] = {
            "domain": [0, LOAD_PART - 0.03],
            "range": [-max(loads) / 1e9, 0],
            "fixedrange": True,
            "showgrid": False,
            "zeroline": False,
            "tickvals": [-max(loads) / 2e9],
            "ticktext": [("" if len(loads) == 1 else "≤ ") + format_ns(max(loads))],
            "anchor": "y",
        }
    if form.right > EDGE:
        layout["yaxis2"] = _cost_axis(rows, form)
    if form.label_lines == 1:
        layout["annotations"].append(
            {"text": "shared | wall cost", "font": {"size": form.label_size, "color": MUTED}, "showarrow": False}
            | {"xref": "paper", "x": 1, "xanchor": "left", "xshift": 5, "yref": "paper", "y": 1, "yanchor": "bottom"}
        )
    return layout


def _key_entry(name: str) -> KeyEntry:
    if name in COLORS:
        return KeyEntry(GLYPHS[name], COLORS[name], "load (own scale)" if name == "load" else name)
    return KeyEntry(next(sign for kind, sign in _marks.SIGNS.items() if name.startswith(kind)), INK, name)


def _label_axis(rows: Sequence[Row], form: _Form) -> dict[str, Any]:
    axis: dict[str, Any] = {"range": [max(len(rows), 1) - 0.5, -0.5], "showgrid": False, "zeroline": False}
    axis |= {"anchor": "free", "position": 0}  # left of a load, if one is drawn
    if form.label_lines:
        axis |= {"tickvals": [row.index for row in rows], "ticktext": [_label(row, form) for row in rows]}
        axis |= {"tickfont": {"size": form.label_size}, "fixedrange": True}
    elif len(rows) <= 1:
        axis |= {"showticklabels": False, "fixedrange": True}
    else:
        step = 10 if len(rows) <= 200 else 50
        numbers = [1, *range(step, len(rows) + 1, step)]
        axis |= {"tickvals": [number - 1 for number in numbers], "ticktext": [str(number) for number in numbers]}
        axis |= {"title": {"text": "request"}}
    return axis


def _cost_axis(rows: Sequence[Row], form: _Form) -> dict[str, Any]:
    """Return the right axis, whose tick labels are the costs: a column that no width of the page can clip."""
    texts = []
    for row in rows:
        shared, wall = escape(format_usd(row.shared_usd)), escape(format_usd(row.wall_usd))
        texts.append(f"{shared} shared<br>{wall} wall" if form.lettered else f"{shared} | {wall}")
    return {
        "overlaying": "y",
        "side": "right",
        "range": [max(len(rows), 1) - 0.5, -0.5],
        "fixedrange": True,
        "showgrid": False,
        "zeroline": False,
        "tickvals": [row.index for row in rows],
        "ticktext": texts,
        "tickfont": {"size": form.label_size or SMALL},
    }


def _label(row: Row, form: _Form) -> str:
    lines = wrap(row.label, form.left - EDGE - 8, form.label_size)
    if len(lines) > form.label_lines:
        lines = lines[: form.label_lines]
        lines[-1] = lines[-1].rstrip("…")[:-1] + "…"
    return "<br>".join(map(escape, lines))


def _caption(price: MachinePrice | None) -> str:
    """Return the definitions that the figure uses, since tools disagree about them."""
    terms = "; ".join(
        f"{term}\u00a0= {DEFINITIONS[term]}" for term in ("TTFT", "TPOT", "e2e", "shared cost", "wall cost")
    )
    terms = terms.replace(" − ", "\u00a0−\u00a0")  # a line does not begin within a difference
    return f"{terms}. Machine price: {'n/a' if price is None else f'{price} ({price.source})'}."
