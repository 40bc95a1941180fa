"""Many tokens as tiles: an image for all lanes whose tokens came in the same steps, light for a browser to draw."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jupyter_infer.charts._lanes import Clock, Lane, grid, whole_grid
from jupyter_infer.charts._token_marks import Mark, Scale, quoted
from jupyter_infer.charts.labels import escape
from jupyter_infer.charts.packed import pack

__all__ = ["tile_traces"]

LETTERED = 12_000  # marks whose text is told; of more, each tile is several
TILES = 18_000  # at most, those included that are empty: 150 kB in a saved notebook
PLAIN = (":", "")  # two bytes a token less than quotes in a saved notebook, and ten thousand tokens have them
IMAGES = 64  # at most, if their lanes lie together
IMAGE = 100  # tiles that an image costs as much as


@dataclass(frozen=True, slots=True)
class _Tile:
    """A stretch of a lane, and the longest ITL that ended in it."""

    lane: Lane
    begun_ns: int
    ended_ns: int
    itl_ns: int
    step: int
    tokens: int  # of the only step in it
    text: str


def tile_traces(marks: Sequence[Mark], clock: Clock, scale: Scale, *, gap: int) -> tuple[list[dict[str, Any]], int]:
    """Return images of tiles, coloured by their ITL, and how many steps a tile is at most.

    A tile reaches from the tokens before to its own; of very many tokens it is several steps, at the same moments in
    all lanes. An image has a column between any two moments at which one of its lanes got a token, so lanes are put in
    one image as long as they got theirs in the same steps.

    Parameters
    ----------
    marks
        The marks; those without an ITL have no tile.
    clock, scale
        What makes places and colours of times.
    gap
        Pixels between two lanes.
    """
    rows: dict[int, list[Mark]] = {}
    count = 0
    for mark in marks:
        if mark.begun_ns is not None:
            rows.setdefault(mark.lane.number, []).append(mark)
            count += 1
    lettered = count <= LETTERED
    most = 2 * LETTERED if lettered else TILES // 2 if scale.log else TILES  # a tile of logarithms is twice the bytes
    moments = sorted({mark.time_ns for mark in marks})
    together = 1 if lettered else -(-count // most)
    while True:
        groups = _alike(_joined(rows, moments, together))
        size = sum(len(group) * (len(_moments(group)) - 1) for group in groups)
        if size <= most or together >= len(moments):
            break
        together = max(together + 1, together * size // most)
    lettered = lettered and together == 1
    itl = "ITL" if together == 1 else "longest ITL"
    made = [_tiles(some, clock, scale, gap=gap, lettered=lettered, count=len(rows), itl=itl) for some in groups]
    return made, together


def _joined(rows: dict[int, list[Mark]], moments: Sequence[int], together: int) -> dict[int, list[_Tile]]:
    """Return the tiles of each lane: one a mark, or one for all that ended in the same few moments."""
    if together == 1:
        return {
            number: [
                _Tile(mark.lane, mark.begun_ns or 0, mark.time_ns, mark.itl_ns or 0, mark.step, mark.tokens, mark.text)
                for mark in row
            ]
            for number, row in rows.items()
        }
    edges = [*moments[:1], *moments[together - 1 : -1 : together], moments[-1]]
    places = {moment: place // together + 1 for place, moment in enumerate(moments)}
    found: dict[int, list[_Tile]] = {}
    for number, row in rows.items():
        longest: dict[int, tuple[int, int]] = {}  # by the edge that it ended before or at
        for mark in row:
            place, itl = places[mark.time_ns], mark.time_ns - (mark.begun_ns or 0)
            known = longest.get(place)
            if known is None or itl > known[0]:
                longest[place] = itl, mark.step
        begun = min(bisect_right(edges, row[0].begun_ns or 0), *longest) - 1
        tiles = found.setdefault(number, [])
        for place, (itl, step) in longest.items():
            if place > begun:  # else a file's times run back
                tiles.append(_Tile(row[0].lane, edges[begun], edges[place], itl, step, 1, ""))
                begun = place
    return found


def _alike(rows: dict[int, list[_Tile]]) -> list[list[list[_Tile]]]:
    """Return the rows in groups of neighbours, such that few tiles of an image are empty."""
    lanes = [rows[number] for number in sorted(rows)]
    price = IMAGE
    while True:
        groups: list[list[list[_Tile]]] = []
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


def _moments(group: Sequence[Sequence[_Tile]]) -> list[int]:
    return sorted({moment for row in group for tile in row for moment in (tile.begun_ns, tile.ended_ns)})


def _tiles(
    group: Sequence[Sequence[_Tile]], clock: Clock, scale: Scale, *, gap: int, lettered: bool, count: int, itl: str
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
        for tile in row:
            text = f"{name}{quoted(tile.text, 12, PLAIN)}" if lettered else ""
            text += f" ({tile.tokens} tokens)" if tile.tokens > 1 else ""
            for place in range(column[tile.begun_ns], column[tile.ended_ns]):
                values[at][place], steps[at][place] = scale.at(tile.itl_ns), tile.step
                times[at][place], texts[at][place] = tile.itl_ns / scale.unit_ns, text
    trace: dict[str, Any] = {
        "type": "heatmap",
        "name": "ITL",
        "x": clock.pack(edges),
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
        told = f"<b>{itl} %{{customdata[1]:.3~g}} {scale.unit}</b>, step %{{customdata[0]}}"
    else:
        trace["customdata"] = whole_grid(steps)
        told = f"<b>{itl} %{{z:.3~g}} {scale.unit}</b>, step %{{customdata}}"
    return trace | {"hovertemplate": f"<b>{head}</b><br>{told}<extra></extra>"}
