"""What charts over time share: the clock of a run, and a lane a sample with its name."""

from __future__ import annotations

import math
import struct
from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from jupyter_infer.charts.card import EDGE
from jupyter_infer.charts.labels import cut, escape, fit, text_width
from jupyter_infer.charts.packed import pack
from jupyter_infer.charts.template import INK, SMALL
from jupyter_infer.gaps import name_of
from jupyter_infer.numbers import axis_unit, format_ns
from jupyter_infer.records import RequestRecord
from jupyter_infer.run import Run

__all__ = [
    "Clock",
    "Lane",
    "clock_of",
    "ending_trace",
    "grid",
    "lane_axis",
    "lane_height",
    "lanes_of",
    "left_of",
    "note",
    "short",
    "ticks_of",
    "value_axis",
    "whole_grid",
]

NAMED = 12  # lanes that say their prompt beside the id
PLOT = 384  # pixels for many lanes, if a pixel a lane lets them
WIDEST = 170  # pixels of a lane's name
ID = 24  # characters of an id: "r1234 of the recording" is the longest that is made here
LONG_NS = 1_000_000_000_000  # a run, of which seven digits are too few to tell steps of some ms apart


@dataclass(frozen=True, slots=True)
class Clock:
    """The time axis of a run, from its first arrival on, in the unit that fits."""

    origin_ns: int
    span_ns: int

    @property
    def unit(self) -> tuple[str, float]:
        """The unit's name and its nanoseconds."""
        return axis_unit(self.span_ns)

    def at(self, time_ns: float) -> float:
        """Return a moment as a number of the axis."""
        return (time_ns - self.origin_ns) / self.unit[1]

    def pack(self, times_ns: Iterable[float]) -> dict[str, str]:
        """Return moments as an array of numbers of the axis, so exact that any two steps stay apart."""
        return pack([self.at(time) for time in times_ns], exact=self.span_ns >= LONG_NS)

    def length(self, duration_ns: float) -> float:
        """Return a duration as a number of the axis."""
        return duration_ns / self.unit[1]

    def axis(self, **facts: Any) -> dict[str, Any]:
        """Return the axis for a layout."""
        words = {"ms": "ms", "s": "seconds", "min": "minutes"}[self.unit[0]]
        base: dict[str, Any] = {"title": {"text": f"{words} from the first arrival"}, "exponentformat": "none"}
        base |= {"nticks": 8, "range": [0, 1.02 * self.length(self.span_ns)], "zeroline": False}
        return base | facts


@dataclass(frozen=True, slots=True)
class Lane:
    """A sample at its height in a chart; lanes are told apart by their number alone."""

    number: int
    name: str  # plain text: the request's id, with the sample's number if there are several
    label: str  # plain text: the same with the beginning of its prompt
    record: RequestRecord
    sample: int

    @property
    def key(self) -> tuple[str, int]:
        """What steps call it."""
        return self.record.request_id, self.sample


def clock_of(run: Run) -> Clock:
    """Return the time axis of a run."""
    begun, ended = run.span_ns
    return Clock(begun, max(1, ended - begun))


def lanes_of(run: Run) -> list[Lane]:
    """Return a lane a sample, in the order of the requests."""
    lanes: list[Lane] = []
    for record in run.requests:
        for sample in record.samples:
            name = short(record.request_id, sample.index if len(record.samples) > 1 else None)
            lanes.append(Lane(len(lanes) + 1, name, f"{name} · {cut(record.label)}", record, sample.index))
    return lanes


def short(request_id: str, sample: int | None = None) -> str:
    """Return what a request or one of its samples is called in a sentence or a hover text: bounded, not escaped."""
    return name_of(cut(request_id, ID), sample)


def lane_height(count: int) -> int:
    """Return the pixels of a lane, whole ones since blurred edges are hard to read."""
    if count <= 5:
        return 34
    return 22 if count <= NAMED else min(max(PLOT // count, 1), 16)


def left_of(lanes: Sequence[Lane]) -> int:
    """Return the left margin that the names of lanes need, numbers and the title of other axes included."""
    if len(lanes) > NAMED:
        return 64
    widest = max((text_width(lane.label, SMALL) for lane in lanes), default=0)
    return round(min(max(widest + EDGE + 10, 64), WIDEST))


def lane_axis(lanes: Sequence[Lane], *, left: int, below: int = 0, **facts: Any) -> dict[str, Any]:
    """Return the axis of the lanes, the first on top, with room for `below` more under them.

    Parameters
    ----------
    lanes
        The lanes.
    left
        The left margin in pixels.
    below
        Rows under the lanes.
    facts
        Further settings of the axis.
    """
    count = len(lanes)
    row = lane_height(count)
    stride = next(step for step in (1, 2, 5, 10, 20, 50, 100, 1000) if step * row >= 13 or step == 1000)
    shown = [lane for lane in lanes if (lane.number - 1) % stride == 0]
    texts = [escape(fit(lane.label if count <= NAMED else lane.name, left - EDGE - 6, SMALL)) for lane in shown]
    base: dict[str, Any] = {"range": [max(count, 1) + below + 0.5, 0.5], "showgrid": False, "zeroline": False}
    base |= {"tickvals": [lane.number for lane in shown], "ticktext": texts, "fixedrange": count <= NAMED}
    return base | facts


def grid(rows: Sequence[Sequence[float | None]]) -> dict[str, str]:
    """Return numbers in rows as a typed array of two dimensions."""
    width = len(rows[0]) if rows else 0
    return pack([value for row in rows for value in row]) | {"shape": f"{len(rows)}, {width}"}


def whole_grid(rows: Sequence[Sequence[int]]) -> dict[str, str]:
    """Return whole numbers, mostly from 0 on, in rows as a typed array of two dimensions."""
    values = [value for row in rows for value in row]
    if min(values, default=0) < 0 or max(values, default=0) >= 1 << 32:  # a file may have any
        return grid(rows)
    dtype, code = ("u2", "H") if max(values, default=0) < 1 << 16 else ("u4", "I")
    data = b64encode(struct.pack(f"<{len(values)}{code}", *values)).decode()
    return {"dtype": dtype, "bdata": data, "shape": f"{len(rows)}, {len(rows[0]) if rows else 0}"}


def ending_trace(lanes: Sequence[Lane], clock: Clock, *, size: float) -> dict[str, Any] | None:
    """Return a cross where a sample was aborted or failed; None if none was."""
    words = {"abort": "aborted", "error": "failed"}
    broken = [
        (lane, words[sample.finish_reason])
        for lane in lanes
        for sample in lane.record.samples
        if sample.index == lane.sample and sample.finish_reason in words
    ]
    if not broken:
        return None
    since = [format_ns(lane.record.finished_ns - lane.record.arrival_ns) for lane, _ in broken]
    told = zip(broken, since, strict=True)
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "aborted or failed",
        "x": clock.pack(lane.record.finished_ns for lane, _ in broken),
        "y": pack([lane.number for lane, _ in broken]),
        "marker": {"symbol": "x", "size": size, "color": INK},
        "hovertext": [f"<b>{escape(lane.name)}</b> {word} {time} after its arrival" for (lane, word), time in told],
        "hovertemplate": "%{hovertext}<extra></extra>",
        "cliponaxis": False,
    }


def note(text: str, *, x: float = 0, y: float, color: str, size: float = SMALL, **facts: Any) -> dict[str, Any]:
    """Return a note over a panel: its lower left corner at a place of the paper, `text` as markup."""
    base = {"text": text, "font": {"size": size, "color": color}, "showarrow": False, "align": "left"}
    base |= {"xref": "paper", "x": x, "xanchor": "left", "yref": "paper", "y": y, "yanchor": "bottom"}
    return base | facts


def ticks_of(low: float, high: float) -> list[float]:
    """Return 1, 2 and 5 times the powers of ten from `low` to `high`, both above 0, for an axis of logarithms."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    every = [digit * 10.0**power for power in powers for digit in (1, 2, 5)]
    found = [value for value in every if low <= value <= high]
    return found if len(found) <= 7 else [value for value in found if f"{value:e}".startswith("1")]


def value_axis(low: float, high: float, *, log: bool) -> dict[str, Any]:
    """Return an axis of values from `low` to `high`: from 0 on, or of logarithms."""
    if not log:
        return {"range": [0, 1.15 * high], "nticks": 6}
    low, high = 0.7 * low, 1.4 * high
    values = ticks_of(low, high)
    axis: dict[str, Any] = {"type": "log", "range": [math.log10(low), math.log10(high)]}
    return axis | {"tickvals": values, "ticktext": [f"{value:g}" for value in values]}
