"""The bars of the steps chart: a trace a kind of segment, and what hovering over them says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jupyter_infer.charts._lanes import Clock
from jupyter_infer.charts._segments import Segment
from jupyter_infer.charts.card import KeyEntry
from jupyter_infer.charts.labels import escape, text_width
from jupyter_infer.charts.packed import pack
from jupyter_infer.charts.template import COLORS, HATCH, INK, SMALL
from jupyter_infer.numbers import format_count, format_ns, format_share

__all__ = ["lane_traces"]

PIXELS = 460  # of the time axis on a narrow page
ACCEPTED, REJECTED = "#009e73", "#cc79a7"
STYLE = {  # colour, part of the bar's height, hatch, name in the key
    "queued": (COLORS["queued"], 0.4, "", "queued"),
    "prefill": (COLORS["prefill"], 1.0, "", "prefill"),
    "decode": (COLORS["decode"], 1.0, "", "decode"),
    "recomputed": (COLORS["stalled"], 1.0, "", "lost KV computed again"),
    "preempted": (COLORS["stalled"], 0.4, HATCH["stalled"], "preempted"),
    "forgotten": (COLORS["load"], 0.6, HATCH["load"], "from the record, steps not remembered"),
}


def lane_traces(
    segments: Sequence[Segment], names: Mapping[int, str], clock: Clock, *, width: float, lettered: bool
) -> tuple[list[dict[str, Any]], list[KeyEntry]]:
    """Return the bars of all lanes, and their entries of the key.

    Parameters
    ----------
    segments
        What is drawn.
    names
        What lanes are called, by number, as plain text.
    clock
        The time axis.
    width
        Height of a bar in lanes.
    lettered
        Whether prefill chunks say their tokens, where they have the room.
    """
    made, key = [], []
    for kind, (color, part, hatch, name) in STYLE.items():
        own = [segment for segment in segments if segment.kind == kind]
        if own:
            trace = _bars(own, names, clock, name, color, width * part)
            if hatch and width * part > 0.1:
                trace["marker"]["pattern"] = {"shape": hatch, "fillmode": "overlay", "size": 5, "solidity": 0.25}
                trace["marker"]["pattern"] |= {"fgcolor": INK, "fgopacity": 0.6}
            if kind == "prefill" and lettered:
                trace |= _letters(own, clock)
                trace["marker"]["line"] = {"width": 1, "color": "#ffffff"}
            made.append(trace)
            key.append(KeyEntry("▨" if hatch else "━" if part < 1 else "■", color, name))
    drafted = [segment for segment in segments if segment.kind == "drafts"]
    if drafted:
        made += _draft_bars(drafted, names, clock, width)
        key += [KeyEntry("■", ACCEPTED, "decode, drafts accepted"), KeyEntry("■", REJECTED, "drafts rejected")]
    return made, key


def _bars(
    segments: Sequence[Segment], names: Mapping[int, str], clock: Clock, name: str, color: str, width: float
) -> dict[str, Any]:
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "base": clock.pack(segment.begun_ns for segment in segments),
        "x": pack([clock.length(segment.ended_ns - segment.begun_ns) for segment in segments]),
        "y": pack([segment.lane for segment in segments]),
        "width": round(width, 4),
        "marker": {"color": color, "line": {"width": 0}},
        "hovertext": [_hover(segment, names[segment.lane]) for segment in segments],
        "hovertemplate": "%{hovertext}<extra></extra>",
    }


def _draft_bars(
    segments: Sequence[Segment], names: Mapping[int, str], clock: Clock, width: float
) -> list[dict[str, Any]]:
    """Return steps with drafts as bars of two parts, as high as the drafts that were accepted and rejected."""
    made = []
    parts = [segment.accepted / segment.drafts for segment in segments]
    for name, color, heights, top in (
        ("drafts accepted", ACCEPTED, parts, 0.5),
        ("drafts rejected", REJECTED, [1 - part for part in parts], -0.5),
    ):
        some = [(segment, height) for segment, height in zip(segments, heights, strict=True) if height > 0]
        if some:
            trace = _bars([segment for segment, _ in some], names, clock, name, color, width)
            # The axis runs down, so that accepted ones, which stand on the lane's floor, lie at the larger numbers.
            places = [segment.lane + width * (top - height * (0.5 if top > 0 else -0.5)) for segment, height in some]
            trace |= {"y": pack(places), "width": pack([width * height for _, height in some])}
            made.append(trace)
    return made


def _letters(segments: Sequence[Segment], clock: Clock) -> dict[str, Any]:
    pixel_ns = clock.span_ns / PIXELS
    texts = []
    for segment in segments:
        text = format_count(segment.tokens)
        room = (segment.ended_ns - segment.begun_ns) / pixel_ns
        texts.append(text if text_width(text, SMALL) + 4 < room else "")
    shown: dict[str, Any] = {"text": texts, "textposition": "inside", "insidetextanchor": "middle", "textangle": 0}
    return shown | {"constraintext": "none", "textfont": {"size": SMALL, "color": "#ffffff"}}


def _hover(segment: Segment, name: str) -> str:
    length = format_ns(segment.ended_ns - segment.begun_ns)
    head = f"<b>{escape(name)}</b> "
    if segment.kind == "queued":
        return f"{head}queued {length}"
    if segment.kind == "preempted":
        return f"{head}preempted in step {segment.first}, for {length}"
    if segment.kind == "forgotten":
        return f"{head}{segment.phase} {length}, from the record"
    one = segment.first == segment.last
    steps = f"step {segment.first}" if one else f"steps {segment.first}–{segment.last}"
    what = "lost KV computed again" if segment.kind == "recomputed" else segment.kind
    what = "decode with drafts" if segment.kind == "drafts" else what
    tokens = f"{format_count(segment.tokens)} token{'' if segment.tokens == 1 else 's'}"
    text = f"{head}{what}, {steps}, {tokens}<br>{length}"
    if not one:
        text += f", {format_ns((segment.ended_ns - segment.begun_ns) / segment.steps)} a step"
    if segment.drafts:
        share = format_share(segment.accepted, segment.drafts)
        text += f"<br>{format_count(segment.accepted)} of {format_count(segment.drafts)} drafts accepted ({share})"
    return text
