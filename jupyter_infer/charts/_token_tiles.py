"""Many tokens as tiles: an image for all lanes whose tokens came in the same steps, light for a browser to draw."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jupyter_infer.charts._lanes import Clock, grid, whole_grid
from jupyter_infer.charts._token_marks import Mark, Scale, quoted
from jupyter_infer.charts.labels import escape
from jupyter_infer.charts.packed import pack

__all__ = ["tile_traces"]

LETTERED = 12_000  # marks whose text is told
PLAIN = (":", "")  # two bytes a token less than quotes in a saved notebook, and ten thousand tokens have them
IMAGES = 64  # at most, if their lanes lie together
IMAGE = 100  # tiles that an image costs as much as


def tile_traces(marks: Sequence[Mark], clock: Clock, scale: Scale, *, gap: int) -> list[dict[str, Any]]:
    """Return images of tiles: a tile from the tokens before to its own, coloured by its ITL.

    An image has a column between any two moments at which one of its lanes got a token, so lanes are put in one image
    as long as they got theirs in the same steps.
    """
    rows: dict[int, list[Mark]] = {}
    for mark in marks:
        if mark.itl_ns is not None:
            rows.setdefault(mark.lane.number, []).append(mark)
    lettered = sum(map(len, rows.values())) <= LETTERED
    return [_tiles(some, clock, scale, gap=gap, lettered=lettered, count=len(rows)) for some in _alike(rows)]


def _alike(rows: dict[int, list[Mark]]) -> list[list[list[Mark]]]:
    """Return the rows in groups of neighbours, such that few tiles of an image are empty."""
    lanes = [rows[number] for number in sorted(rows)]
    price = IMAGE
    while True:
        groups: list[list[list[Mark]]] = []
        moments: set[int] = set()
        for lane in lanes:
            own = set(_moments([lane]))
            both = moments | own
            # Beside the others it needs columns of theirs, and they need columns of its own.
            grown = (len(groups[-1]) + 1) * len(both) - len(groups[-1]) * len(moments) if groups else 0
            apart = groups and lane[0].lane.number > groups[-1][-1][0].lane.number + 1
            if not groups or apart or grown > len(own) + price:
                groups.append([lane])
                moments = own
            else:
                groups[-1].append(lane)
                moments = both
        if len(groups) <= IMAGES or price > 1_000_000:
            return groups
        price *= 4


def _moments(group: Sequence[Sequence[Mark]]) -> list[int]:
    return sorted({moment for row in group for mark in row for moment in (mark.begun_ns or 0, mark.time_ns)})


def _tiles(
    group: Sequence[Sequence[Mark]], clock: Clock, scale: Scale, *, gap: int, lettered: bool, count: int
) -> dict[str, Any]:
    edges = _moments(group)
    first, last = group[0][0].lane.number, group[-1][0].lane.number
    width = len(edges) - 1
    values: list[list[float | None]] = [[None] * width for _ in range(first, last + 1)]
    steps: list[list[int]] = [[0] * width for _ in range(first, last + 1)]
    times: list[list[float | None]] = [[None] * width for _ in range(first, last + 1)]
    texts = [[""] * width for _ in range(first, last + 1)]
    column = {moment: place for place, moment in enumerate(edges)}
    for row in group:
        at = row[0].lane.number - first
        name = escape(row[0].lane.name)
        for mark in row:
            itl = mark.itl_ns or 0
            text = f"{name}{quoted(mark.text, 12, PLAIN)}" if lettered else ""
            text += f" ({mark.tokens} tokens)" if mark.tokens > 1 else ""
            for place in range(column[mark.begun_ns or 0], column[mark.time_ns]):
                values[at][place], steps[at][place] = scale.at(itl), mark.step
                times[at][place], texts[at][place] = itl / scale.unit_ns, text
    trace: dict[str, Any] = {
        "type": "heatmap",
        "name": "ITL",
        "x": pack([clock.at(edge) for edge in edges]),
        "y0": first,
        "dy": 1,
        "z": grid(values),
        "coloraxis": "coloraxis",
        "ygap": gap,
        "hoverongaps": False,
    }
    head = f"request %{{y:.0f}} of {count}"
    if lettered:
        trace["text"] = texts
        head = "%{text}"
    if len(values) == 1:  # without a neighbour, a row has no height of its own
        del trace["y0"], trace["dy"]
        trace["y"] = [first - 0.5, first + 0.5]
    if scale.log:
        both = [value for pair in zip(steps, times, strict=True) for two in zip(*pair, strict=True) for value in two]
        trace["customdata"] = pack(both) | {"shape": f"{len(values)}, {width}, 2"}
        told = f"<b>ITL %{{customdata[1]:.3~g}} {scale.unit}</b>, step %{{customdata[0]}}"
    else:
        trace["customdata"] = whole_grid(steps)
        told = f"<b>ITL %{{z:.3~g}} {scale.unit}</b>, step %{{customdata}}"
    return trace | {"hovertemplate": f"<b>{head}</b><br>{told}<extra></extra>"}
