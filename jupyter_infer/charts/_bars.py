"""The bars of the phases figure: a trace a phase, a bar a request, and what hovering over them says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jupyter_infer.charts.labels import cut, escape, in_template, text_width, wrap_html
from jupyter_infer.charts.rows import PHASES, Row
from jupyter_infer.charts.template import COLORS, HATCH, INK, SMALL, TEXT_ON
from jupyter_infer.metrics import DEFINITIONS
from jupyter_infer.numbers import format_count, format_ns, format_rate, format_share
from jupyter_infer.pricing import MachinePrice, format_usd

__all__ = ["bar_trace", "define", "describe", "hover_lines", "load_trace", "phase_traces", "stalled_trace"]

HOVER_WIDTH = 370  # pixels; a wider box has no room beside a bar on a narrow page
TERMS = {  # that a phase's hover text defines beside the phase; Plotly hides a text that is taller than the chart
    "queued": ("e2e",),
    "prefill": ("TTFT", "prefill speed", "wall cost"),
    "decode": ("TPOT", "decode speed", "shared cost"),
}
MONEY = ("shared cost", "wall cost")


def phase_traces(
    rows: Sequence[Row], origin: int, *, width: float, brief: bool, pixel_ns: float | None, price: MachinePrice | None
) -> list[dict[str, Any]]:
    """Return the bar traces of queued, prefill and decode; a phase that a request did not get through has no bar.

    Parameters
    ----------
    rows
        The requests; a row's bars lie at the height of its number.
    origin
        Time zero of the axis, in nanoseconds.
    width
        Height of a bar in rows.
    brief
        Say less on hovering, for charts of so many requests that the text would outweigh the rest.
    pixel_ns
        Nanoseconds a pixel on a narrow page. Given, each bar that has room for its duration says it.
    price
        What the costs are computed from.
    """
    traces = []
    priced = f"<br>{in_template(wrap_html(describe(price), HOVER_WIDTH, SMALL))}" if brief else ""  # else no room
    for phase in PHASES:
        spans = [row.phase_ns[phase] for row in rows]
        trace = bar_trace(
            phase,
            y=[row.number for row in rows],
            base=[_seconds(start, origin) for start, _ in spans],
            x=[_seconds(length) for _, length in spans],
            width=width,
        )
        trace["customdata"] = [_phase_hover(row, phase, brief) for row in rows]
        terms = define(*TERMS[phase], named=True) + (priced if phase == "prefill" else "")
        trace["hovertemplate"] = (
            f"<b>%{{customdata[0]}}</b><br><b>{phase} %{{customdata[1]}}</b><br><i>{define(phase)}</i>"
            f"<br>%{{customdata[2]}}<br><i>{terms}</i><extra></extra>"
        )
        if pixel_ns is not None:
            # Decided here, because Plotly shrinks what does not fit, or draws it over its neighbours.
            texts = [format_ns(length) for _, length in spans]
            trace["text"] = [
                text if (text_width(text, SMALL) + 6) * pixel_ns < (length or 0) else ""
                for text, (_, length) in zip(texts, spans, strict=True)
            ]
            trace |= {"textposition": "inside", "insidetextanchor": "middle", "textangle": 0, "constraintext": "none"}
            trace["textfont"] = {"size": SMALL, "color": TEXT_ON[phase]}
        traces.append(trace)
    return traces


def stalled_trace(rows: Sequence[Row], origin: int, *, width: float) -> dict[str, Any] | None:
    """Return the bars of stalled time, drawn low inside decode; `None` if nothing stalled."""
    pieces = [(row, start, length, known) for row in rows for start, length, known in row.stalls]
    if not pieces:
        return None
    thin = width * 0.4
    trace = bar_trace(
        "stalled",
        y=[round(row.number + (width - thin) / 2, 3) for row, *_ in pieces],
        base=[_seconds(start, origin) for _, start, _, _ in pieces],
        x=[_seconds(length) for _, _, length, _ in pieces],
        width=thin,
        hatched=True,
    )
    return trace | _bar_hover("stalled", [_stalled_hover(row, known) for row, _, _, known in pieces])


def load_trace(rows: Sequence[Row], *, width: float) -> dict[str, Any] | None:
    """Return the bars of the loads that requests waited for, ending at 0 of their own axis; `None` without one."""
    loaded = [(row, row.times.load_ns) for row in rows if row.times.load_ns]
    if not loaded:
        return None
    trace = bar_trace(
        "load",
        y=[row.number for row, _ in loaded],
        x=[_seconds(load) for _, load in loaded],
        width=width,
        hatched=len(rows) == 1,
    )
    apart = "own axis, not to the scale of the request"
    hover = [[escape(row.label), escape(format_ns(load)), apart] for row, load in loaded]
    return trace | _bar_hover("load", hover) | {"xaxis": "x2"}


def bar_trace(name: str, *, x: Any, width: float, hatched: bool = False, **places: Any) -> dict[str, Any]:
    """Return horizontal bars in the colour of `name`, at `y` from `base` on, without anything to say on hovering."""
    marker: dict[str, Any] = {"color": COLORS[name], "line": {"width": 0}}
    if hatched:
        marker["pattern"] = {
            "shape": HATCH[name],
            "fillmode": "overlay",
            "size": 6,
            "solidity": 0.25,
            "fgcolor": INK,
            "fgopacity": 0.6,
        }
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "x": x,
        "width": round(width, 4),
        "marker": marker,
    } | places


def define(*terms: str, named: bool = False) -> str:
    """Return the full definitions of `terms` for a hovertemplate, each on lines of its own."""
    texts = [f"{term} = {DEFINITIONS[term]}" if named else DEFINITIONS[term] for term in terms]
    return in_template("<br>".join(wrap_html(text, HOVER_WIDTH, SMALL) for text in texts))


def describe(price: MachinePrice | None) -> str:
    """Return the machine's price and where it comes from, as plain text."""
    return f"machine price: {'n/a' if price is None else f'{price} ({price.source})'}"


def hover_lines(row: Row, *, brief: bool) -> str:
    """Return what every hover text of a request ends with: its tokens, all of its times and its costs."""
    record, times = row.record, row.times
    costs = f"cost: {format_usd(row.shared_usd)} shared, {format_usd(row.wall_usd)} wall"
    if brief:
        return escape(f"e2e {format_ns(times.e2e_ns)}, {row.ending}") + "<br>" + escape(costs)
    cached = f"{format_count(record.cached_tokens)} cached{', warm' if record.cached_tokens else ''}"
    share = format_share(times.stalled_ns, times.decode_ns)
    stalled = [f"stalled {format_ns(times.stalled_ns)}, {share} of decode"] if times.stalled_ns else []
    lines = [
        f"{format_count(record.prompt_tokens)} prompt tokens ({cached}) → {format_count(record.output_tokens)} output",
        ", ".join(f"{phase} {format_ns(length)}" for phase, (_, length) in row.phase_ns.items()),
        *stalled,
        f"TTFT {format_ns(times.ttft_ns)}, TPOT {format_ns(times.tpot_ns)}, e2e {format_ns(times.e2e_ns)}",
        f"prefill {format_rate(times.prefill_tps)}, decode {format_rate(times.decode_tps)}",
        costs,
        f"end: {row.ending}{f' ({cut(record.error, 80)})' if record.error else ''}",
    ]
    return "<br>".join(wrap_html(line, HOVER_WIDTH, SMALL) for line in lines)


def _bar_hover(name: str, hover: list[list[str]]) -> dict[str, Any]:
    template = f"<b>%{{customdata[0]}}</b><br><b>{name} %{{customdata[1]}}</b><br><i>{define(name)}</i>"
    return {"customdata": hover, "hovertemplate": f"{template}<br>%{{customdata[2]}}<extra></extra>"}


def _phase_hover(row: Row, phase: str, brief: bool) -> list[str] | None:
    start, length = row.phase_ns[phase]
    if start is None or length is None:
        return None
    head = f"{format_ns(length)}, {format_share(length, row.times.e2e_ns)} of e2e, {format_usd(row.phase_usd[phase])}"
    begin = start - row.record.arrival_ns
    tail = hover_lines(row, brief=brief)
    if not brief:
        tail = f"{format_ns(begin)} → {format_ns(begin + length)} after its arrival<br>{tail}"
    return [escape(row.label), escape(head), tail]


def _stalled_hover(row: Row, known: bool) -> list[str]:
    times, count = row.times, row.record.preemptions
    head = f"{format_ns(times.stalled_ns)}, {format_share(times.stalled_ns, times.decode_ns)} of decode"
    place = "drawn in the longest gaps between tokens" if known else "drawn at the end: when it was is not recorded"
    return [escape(row.label), escape(head), f"{count} preemption{'' if count == 1 else 's'}; {place}"]


def _seconds(time_ns: int | None, origin_ns: int = 0) -> float | None:
    """Nanoseconds as the nearest float of seconds, subtracted before they are rounded."""
    return None if time_ns is None else (time_ns - origin_ns) / 1e9
