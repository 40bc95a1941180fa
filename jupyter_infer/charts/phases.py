"""The chart under an answer: where the time of each request went, and what it cost.

JupyterLab saves three forms of it in the notebook: the JSON, the static HTML, and a picture that its Plotly renderer
draws by itself. In the picture every letter is about 90 bytes, every sign 100 to 400 and every line of pixels 30, while
bars with straight edges are nearly free. So few requests are described in words, many by bars and by hovering.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jupyter_infer.charts import _bars, _many, _marks
from jupyter_infer.charts._axes import LOAD_PART, add_axes
from jupyter_infer.charts._form import Form, form_of
from jupyter_infer.charts.card import KeyEntry, card_layout
from jupyter_infer.charts.chart import Chart
from jupyter_infer.charts.readings import phases_reading
from jupyter_infer.charts.rows import Row, make_rows, origin_ns, span_ns
from jupyter_infer.charts.static import static_html
from jupyter_infer.charts.template import COLORS, INK, TEXT_WIDTH
from jupyter_infer.pricing import MachinePrice
from jupyter_infer.records import RequestRecord
from jupyter_infer.run import Run

if TYPE_CHECKING:
    import plotly.graph_objects as go

__all__ = ["phases_chart", "phases_figure"]

HATCHED = "▨"
FORMULAS = "TTFT = queued + prefill · e2e = TTFT + decode · cost = price × time"


def phases_chart(run: Run, *, title: str = "") -> Chart:
    """Return the chart of where the time of each request went, and what it cost."""
    figure = phases_figure(run.requests, run.price, title=title, first_shown_ns=run.first_shown_ns)
    html = static_html(run.requests, run.price, status=title)
    return Chart(figure, title, phases_reading(make_rows(run.requests, run.price)), html=html)


def phases_figure(
    records: Sequence[RequestRecord],
    price: MachinePrice | None,
    *,
    title: str | None = None,
    labels: Sequence[str] | None = None,
    first_shown_ns: Mapping[str, int] | None = None,
) -> go.Figure:
    """Return a bar a request: queued, prefill and decode in seconds from the first arrival, with the costs beside it.

    A phase that a request did not get through has no bar and is ``n/a`` on hovering. Bars lie at the heights 1, 2, … in
    the order of `records`, so requests with equal labels stay apart.

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
    form = form_of(len(rows))
    shown = first_shown_ns or {}
    origin = origin_ns(rows)
    last_shown = max((shown.get(row.record.request_id, origin) for row in rows), default=origin)
    span = max(span_ns(rows), last_shown - origin)
    load = (_bars if form.told else _many).load_trace(rows, width=form.bar)
    pixel_ns = span / ((TEXT_WIDTH - form.left - form.right) * (1 - LOAD_PART if load else 1))
    made = [load, *_bar_traces(rows, form, origin, pixel_ns, price)]
    made += _mark_traces(rows, form, origin, pixel_ns, shown)
    traces = [trace for trace in made if trace is not None]
    layout = card_layout(
        plot=max(form.row * len(rows), 60),
        left=form.left,
        right=form.right,
        title=title or "",
        key=[_key_entry(trace) for trace in traces if "name" in trace],
        caption=_caption(form, title or "", price),
        reading=phases_reading(rows),
    )
    add_axes(layout, rows, form, span_s=span / 1e9)
    if form.lettered:  # an axis without a trace is not drawn
        traces.append({"type": "scatter", "x": [None], "y": [None], "yaxis": "y2", "hoverinfo": "skip"})
    return go.Figure({"data": traces, "layout": layout})


def _bar_traces(
    rows: Sequence[Row], form: Form, origin: int, pixel_ns: float, price: MachinePrice | None
) -> list[dict[str, Any] | None]:
    if form.told:
        lettered = pixel_ns if form.lettered else None
        made = _bars.phase_traces(rows, origin, width=form.bar, brief=form.brief, pixel_ns=lettered, price=price)
        stalled = _bars.stalled_trace(rows, origin, width=form.bar)
    else:
        made = _many.phase_traces(rows, origin, width=form.bar, priced=price is not None)
        stalled = _many.stalled_trace(rows, origin, width=form.bar)
    return [*made, stalled, _many.cost_trace(rows, price, width=form.bar) if form.costed else None]


def _mark_traces(
    rows: Sequence[Row], form: Form, origin: int, pixel_ns: float, shown: Mapping[str, int]
) -> list[dict[str, Any] | None]:
    ends = _marks.ending_traces(rows, origin, size=form.mark, brief=not form.told, limits=form.marked)
    if not form.marked:
        return [*ends]
    below = form.bar / 2 + 5 / form.row if form.lettered else 0.0  # ticks would cross out the durations in the bars
    above = form.bar / 2 + 4 / form.row if form.lettered else 0.0
    apart = 2 if below else 5  # a rug may be dense, a bar is to keep its colour
    ticks = _marks.tick_trace(rows, origin, pixel_ns=pixel_ns, offset=below, apart=apart) if form.ticked else None
    first = _marks.shown_trace(rows, origin, shown, above=above, size=form.mark, brief=not form.told)
    return [ticks, *ends, first]


def _key_entry(trace: Mapping[str, Any]) -> KeyEntry:
    name = str(trace["name"])
    if name in COLORS:
        sign = HATCHED if "pattern" in trace["marker"] else "■"
        return KeyEntry(sign, COLORS[name], "load (own scale)" if name == "load" else name)
    return KeyEntry(_marks.sign_of(trace), INK, name)


def _caption(form: Form, title: str, price: MachinePrice | None) -> str:
    """Return the definitions in brief; hovering over a bar tells them in full."""
    if not form.brief:
        return f"{FORMULAS} · {_bars.describe(price)}"
    priced = "n/a" if price is None else str(price)
    return FORMULAS if priced in title else f"{FORMULAS} · price {priced}"
