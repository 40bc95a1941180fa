"""The marks on the phases figure: token ticks, first text shown, and ends that were no natural stop."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from jupyter_infer.charts._bars import hover_lines
from jupyter_infer.charts.labels import escape
from jupyter_infer.charts.packed import pack
from jupyter_infer.charts.rows import Row
from jupyter_infer.charts.template import INK
from jupyter_infer.numbers import format_ns

__all__ = ["ending_traces", "shown_trace", "sign_of", "tick_trace"]

SYMBOLS = {"aborted or failed": "x", "token limit": "triangle-right-open", "first shown": "triangle-down"}
TINY = 4  # pixels, up to which all signs look alike, and a stroke is the lightest of them
SIGNS = {"token step": "╷", "aborted or failed": "✖", "token limit": "▷", "first shown": "▼"}  # the same in a key

STROKE = "❘"

TICK_BUDGET = 160  # ticks of a figure; each is some 30 bytes of the picture that JupyterLab saves with it


def sign_of(trace: Mapping[str, Any]) -> str:
    """Return the sign that stands for a trace of marks in a key."""
    if trace["marker"]["size"] <= TINY:
        return STROKE
    return next(sign for kind, sign in SIGNS.items() if trace["name"].startswith(kind))


def tick_trace(
    rows: Sequence[Row], origin: int, *, pixel_ns: float, offset: float, apart: float
) -> dict[str, Any] | None:
    """Return a tick for each step that gave tokens; of too many, for every k-th of each sample, and says so.

    Parameters
    ----------
    rows
        The requests.
    origin
        Time zero of the axis, in nanoseconds.
    pixel_ns
        Nanoseconds a pixel on a narrow page.
    offset
        How far below the middle of its bar a tick lies, in rows.
    apart
        Pixels that ticks are to lie apart on a narrow page, on average.
    """
    times = [
        (row.number, [event.time_ns for event in sample.events if event.token_ids])
        for row in rows
        for sample in row.record.samples
    ]
    count = sum(len(own) for _, own in times)
    if not count:
        return None
    drawn = sum((own[-1] - own[0]) / pixel_ns for _, own in times if own)
    stride = max(math.ceil(count / TICK_BUDGET), math.ceil(count * apart / drawn) if drawn > apart else 1)
    points = sorted({(number, (time - origin) / 1e9) for number, own in times for time in own[::stride]})
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "token step" if stride == 1 else f"token step (1 of {stride} drawn)",
        "x": pack([x for _, x in points]),
        "y": pack([number + offset for number, _ in points]),
        "marker": {"symbol": "line-ns-open", "size": 6, "color": INK, "line": {"width": 1}},
        "hoverinfo": "skip",
    }


def shown_trace(
    rows: Sequence[Row], origin: int, shown: Mapping[str, int], *, above: float, size: float, brief: bool
) -> dict[str, Any] | None:
    """Return a mark where the first text of a request was shown, `above` its middle in rows; `None` if none was."""
    marked = [(row, shown[row.record.request_id]) for row in rows if row.record.request_id in shown]
    if not marked:
        return None
    hover = []
    for row, time in marked:
        first = row.record.first_token_ns
        late = "n/a" if first is None else format_ns(time - first)
        whole = format_ns(time - row.record.arrival_ns)
        text = f"first text shown {whole} after its arrival<br>{late} after its first token"
        hover.append(f"<b>{escape(row.label)}</b><br>{text}")
    return _mark_trace("first shown", marked, origin, None if brief else hover, size=size, above=above)


def ending_traces(rows: Sequence[Row], origin: int, *, size: float, brief: bool, limits: bool) -> list[dict[str, Any]]:
    """Return the marks of requests that were aborted, failed or were cut at their token limit.

    Parameters
    ----------
    rows
        The requests.
    origin
        Time zero of the axis, in nanoseconds.
    size
        Height of a mark in pixels.
    brief
        Say on hovering when it was and no more.
    limits
        Mark token limits, too, and draw lines to the marks.
    """
    broken = [(row, row.end_ns) for row in rows if row.broken]
    cut = [
        (row, row.end_ns)
        for row in rows
        if limits and not row.broken and any(sample.finish_reason == "length" for sample in row.record.samples)
    ]
    traces = []
    for name, marked in (("aborted or failed", broken), ("token limit", cut)):
        if marked:
            hover = None if brief else [_ending_hover(row, time) for row, time in marked]
            traces.append(_mark_trace(name, marked, origin, hover, size=size))
    if broken and limits:
        # A thin line back to the last phase that it got through, so that a mark without a bar has a beginning.
        back = [(time - max(_known_ns(row))) / 1e9 for row, time in broken]
        traces[0]["error_x"] = {
            "type": "data",
            "symmetric": False,
            "array": pack([0] * len(back)),
            "arrayminus": pack(back),
            "width": 0,
            "thickness": 1,
            "color": INK,
        }
    return traces


def _known_ns(row: Row) -> list[int]:
    record = row.record
    times = (record.arrival_ns, record.started_ns, record.first_token_ns, record.last_token_ns)
    return [time for time in times if time is not None]


def _ending_hover(row: Row, time: int) -> str:
    text = escape(f"{row.ending} {format_ns(time - row.record.arrival_ns)} after its arrival")
    return f"<b>{escape(row.label)}</b><br><b>{text}</b><br>{hover_lines(row, brief=True)}"


def _mark_trace(
    name: str,
    marked: Sequence[tuple[Row, int]],
    origin: int,
    hover: list[str] | None,
    *,
    size: float,
    above: float = 0.0,
) -> dict[str, Any]:
    trace = {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": pack([(time - origin) / 1e9 for _, time in marked]),
        "y": pack([row.number - above for row, _ in marked]),
        "marker": {
            "symbol": SYMBOLS[name] if size > TINY else "line-ns-open",
            "size": size,
            "color": INK,
            "line": {"width": size / 6, "color": INK},
        },
        "cliponaxis": False,  # the last one lies on the edge of the plot
        "hovertemplate": f"<b>request %{{y:.0f}}</b><br>{name} at %{{x:.4~s}}s<extra></extra>",
    }
    return trace if hover is None else trace | {"hovertext": hover, "hovertemplate": "%{hovertext}<extra></extra>"}
