"""The marks on the phases figure: token ticks, first text shown, and ends that were no natural stop."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from jupyter_infer.charts._bars import hover_lines
from jupyter_infer.charts.labels import escape
from jupyter_infer.charts.rows import Row
from jupyter_infer.charts.template import INK
from jupyter_infer.numbers import format_ns

__all__ = ["SIGNS", "ending_traces", "shown_trace", "tick_trace"]

SYMBOLS = {"aborted or failed": "x", "token limit": "triangle-right-open", "first shown": "triangle-down"}
SIGNS = {"token step": "╷", "aborted or failed": "✖", "token limit": "▷", "first shown": "▼"}  # the same in a key

TICK_BUDGET = 2400  # ticks of a figure: about 25 kB of JSON, and more than a page has pixels for


def tick_trace(
    rows: Sequence[Row], origin: int, *, pixel_ns: float, offset: float, size: float, apart: float
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
    size
        Length of a tick in pixels.
    apart
        Pixels that ticks are to lie apart on a narrow page, on average.
    """
    times = [
        (row.index, [event.time_ns for event in sample.events if event.token_ids])
        for row in rows
        for sample in row.record.samples
    ]
    count = sum(len(own) for _, own in times)
    if not count:
        return None
    drawn = sum((own[-1] - own[0]) / pixel_ns for _, own in times if own)
    stride = max(math.ceil(count / TICK_BUDGET), math.ceil(count * apart / drawn) if drawn > apart else 1)
    digits = max(0, 10 - math.floor(math.log10(max(pixel_ns, 1))))  # a tenth of a pixel or finer
    points = sorted({(index, round((time - origin) / 1e9, digits)) for index, own in times for time in own[::stride]})
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "token step" if stride == 1 else f"token step (1 of {stride} drawn)",
        "x": [x for _, x in points],
        "y": [_place(index, offset) for index, _ in points],
        "marker": {"symbol": "line-ns-open", "size": size, "color": INK, "line": {"width": 1}},
        "hoverinfo": "skip",
    }


def shown_trace(rows: Sequence[Row], origin: int, shown: Mapping[str, int], *, above: float) -> dict[str, Any] | None:
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
    return _mark_trace("first shown", marked, origin, hover, above)


def ending_traces(rows: Sequence[Row], origin: int, *, brief: bool) -> list[dict[str, Any]]:
    """Return the marks of requests that were aborted, failed or were cut at their token limit."""
    broken = [(row, row.end_ns) for row in rows if row.broken]
    cut = [
        (row, row.end_ns)
        for row in rows
        if not row.broken and any(sample.finish_reason == "length" for sample in row.record.samples)
    ]
    traces = []
    for name, marked in (("aborted or failed", broken), ("token limit", cut)):
        if marked:
            hover = [_ending_hover(row, time, brief) for row, time in marked]
            traces.append(_mark_trace(name, marked, origin, hover))
    if broken:  # a thin line back to the last phase that it got through, so that a mark without a bar has a beginning
        back = [time - max(_known_ns(row)) for row, time in broken]
        traces[0]["error_x"] = {
            "type": "data",
            "symmetric": False,
            "array": [0] * len(back),
            "arrayminus": [length / 1e9 for length in back],
            "width": 0,
            "thickness": 1,
            "color": INK,
        }
    return traces


def _known_ns(row: Row) -> list[int]:
    record = row.record
    times = (record.arrival_ns, record.started_ns, record.first_token_ns, record.last_token_ns)
    return [time for time in times if time is not None]


def _ending_hover(row: Row, time: int, brief: bool) -> str:
    text = escape(f"{row.ending} {format_ns(time - row.record.arrival_ns)} after its arrival")
    return f"<b>{escape(row.label)}</b><br><b>{text}</b><br>{hover_lines(row, brief=brief)}"


def _mark_trace(
    name: str, marked: Sequence[tuple[Row, int]], origin: int, hover: list[str], above: float = 0.0
) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": [(time - origin) / 1e9 for _, time in marked],
        "y": [_place(row.index, -above) for row, _ in marked],
        "marker": {"symbol": SYMBOLS[name], "size": 9, "color": INK, "line": {"width": 1.5, "color": INK}},
        "cliponaxis": False,  # the last one lies on the edge of the plot
        "hovertext": hover,
        "hovertemplate": "%{hovertext}<extra></extra>",
    }


def _place(index: int, offset: float) -> float:
    return round(index + offset, 3) if offset else index
