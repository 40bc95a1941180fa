"""What is drawn of the KV pool: areas, lines and marks, and what hovering over them says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jupyter_infer.charts._kv_bands import Band, Usage
from jupyter_infer.charts._kv_words import MIB
from jupyter_infer.charts.labels import cut, escape, in_template, wrap_html
from jupyter_infer.charts.packed import pack
from jupyter_infer.charts.template import INK, MUTED, PLOT, SMALL
from jupyter_infer.numbers import NOT_KNOWN, format_count, format_share

__all__ = ["EVICTED", "PREEMPTED", "SIGNS", "area", "colors_of", "line", "marks", "outline"]

HOVER_WIDTH = 330
OWNERS = ("#0072b2", "#e69f00", "#56b4e9", "#009e73", "#cc79a7", "#f0e442", "#d55e00", "#4d4d4d")
SIGNS = {"": "■", "x": "▩", "\\": "▧", "+": "▦", "/": "▨"}  # of hatches, in a key
AREAS = {  # colour and hatch of what is no single request's
    "shared": ("#b8bfc7", "x"),
    "others": ("#8c959f", ""),
    "neighbours": ("#dfe3e8", "\\"),
    "unknown": ("#dfe3e8", "+"),
    "cached": ("#eef1f4", "/"),
}
PREEMPTED, EVICTED = "preemption", "eviction of cached blocks"
MARKS = 200  # of a kind, at most


def colors_of(bands: Sequence[Band]) -> list[tuple[str, str]]:
    """Return the colour and the hatch of each band."""
    owners = iter(OWNERS)
    return [(next(owners), "") if band.kind == "request" else AREAS[band.kind] for band in bands]


def area(band: Band, times: Sequence[float], color: str, hatch: str) -> dict[str, Any]:
    trace: dict[str, Any] = {
        "type": "scatter",
        "mode": "lines",
        "name": escape(band.name),
        "stackgroup": "blocks",
        "x": pack(times),
        "y": pack([*band.blocks, band.blocks[-1]]),
        "line": {"shape": "hv", "width": 0.5, "color": PLOT},  # so that two areas of one grey stay apart
        "fillcolor": color,
        "hoverinfo": "skip",
    }
    if hatch:
        pattern = {"shape": hatch, "size": 7, "solidity": 0.14, "fgcolor": MUTED, "bgcolor": color}
        trace["fillpattern"] = pattern | {"fillmode": "replace"}
    return trace


def line(name: str, dash: str, counts: Sequence[int | None], usage: Usage, times: Sequence[float]) -> dict[str, Any]:
    picked = [counts[index] for index in usage.picks]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": pack(times),
        "y": pack([*picked, picked[-1]]),
        "line": {"shape": "hv", "width": 1.5, "color": MUTED, "dash": dash},
        "hoverinfo": "skip",
    }


def outline(usage: Usage, times: Sequence[float], unit: str, each: float | None) -> dict[str, Any]:
    """Return the upper edge of what is in use, which says on hovering what was whose."""
    levels = [usage.level[index] for index in usage.picks]
    happened = _happened(usage)
    columns: list[Sequence[Any]] = [[format_share(level, usage.info.kv_blocks_total) for level in levels]]
    lines = [f"<b>%{{x:.4~g}} {unit}: %{{y}} blocks in use</b>, %{{customdata[0]}} of the pool"]
    if each is not None:
        columns.append([f"{level * each / MIB:,.3g}" for level in levels])
        lines[0] += ", %{customdata[1]} MiB"
    # The lowest area is the last line, as in the picture.
    for band in reversed(usage.bands):
        lines.append(f"{in_template(escape(band.name))}: %{{customdata[{len(columns)}]}}")
        columns.append(list(band.blocks))
    lines.append(
        f"contiguous: %{{customdata[{len(columns)}]:,d}} of context, %{{customdata[{len(columns) + 1}]}} of limits"
    )
    columns += [
        [usage.whole[index] for index in usage.picks],
        [NOT_KNOWN if usage.asked[index] is None else usage.asked[index] for index in usage.picks],
    ]
    lines.append(f"%{{customdata[{len(columns)}]}}")
    columns.append(happened)
    rows = [list(row) for row in zip(*columns, strict=True)]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "",
        "x": pack(times),
        "y": pack([*levels, levels[-1]]),
        "line": {"shape": "hv", "width": 1.5, "color": INK},
        "customdata": [*rows, rows[-1]],
        "hovertemplate": "<br>".join(lines) + "<extra></extra>",
    }


def marks(name: str, moments: Sequence[int], usage: Usage, origin: int, size: float) -> dict[str, Any] | None:
    if not moments:
        return None
    shown = moments[:: -(-len(moments) // MARKS)]
    symbol = "triangle-down" if name == PREEMPTED else "circle-open"
    trace = {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": pack([(usage.pool.moments[index].time_ns - origin) / size for index in shown]),
        "y": pack([usage.level[index] for index in shown]),
        "hoverinfo": "skip",
        "cliponaxis": False,
    }
    marker = {"symbol": symbol, "size": 9, "color": "#d55e00" if name == PREEMPTED else INK}
    return trace | {"marker": marker | {"line": {"width": 1, "color": INK}}}


def _happened(usage: Usage) -> list[str]:
    """Return for each moment that is drawn what was preempted and evicted since the one before, for a hover text."""
    texts, before = [], -1
    for index in usage.picks:
        names = [name for at, lost in usage.preempted if before < at <= index for name in lost]
        blocks = sum(count for at, count in usage.evicted if before < at <= index)
        told = [f"preempted: {cut(', '.join(names), 60)}"] if names else []
        told += [f"evicted: {format_count(blocks)} cached blocks"] if blocks else []
        texts.append(wrap_html("; ".join(told), HOVER_WIDTH, SMALL) if told else "")
        before = index
    return texts
