"""How the requests of a phases figure are drawn, by their number."""

from __future__ import annotations

from dataclasses import dataclass

from jupyter_infer.charts.card import EDGE

__all__ = ["BESIDE", "Form", "form_of"]

FULL = 2  # requests that everything is told of on hovering
LABELLED = 5  # requests that are called by their prompt, with costs in words; more are numbered, with costs as bars
TOLD = 12  # requests whose hover texts are words; of more they are made from numbers
BESIDE = 200  # requests whose costs stand beside them; of more they are told on hovering
PLOT = 384  # pixels for the bars of many requests, if a pixel a bar lets them


@dataclass(frozen=True, slots=True)
class Form:
    """Sizes and decorations. Rows are whole pixels, since blurred edges make a picture heavy."""

    row: int  # pixels a row
    bar: float  # height of a bar in rows
    left: int  # margins in pixels
    right: int
    mark: float  # size of a mark in pixels
    brief: bool  # hover texts are short
    lettered: bool  # durations stand in the bars and costs beside them in words
    told: bool  # hover texts are words
    ticked: bool  # token ticks have room
    marked: bool  # all marks have room, not only those of requests that went wrong
    costed: bool  # costs stand beside the bars as bars


def form_of(count: int) -> Form:
    """Return the form for `count` requests."""
    few, told = count <= LABELLED, count <= TOLD
    if count <= 1:
        row, bar, left, right, mark = 96, 36, EDGE, 108, 9
    elif few:
        row, bar, left, right, mark = 34, 18, 150, 84, 9
    else:
        row = min(max(PLOT // count, 1), 19 if told else 16)
        bar = row - 6 if told else row - 4 if row >= 10 else row - 2 if row >= 6 else row - 1 if row >= 4 else row
        left, right, mark = 48, EDGE + 8, 7 if row >= 10 else 5 if row >= 6 else 3
    return Form(
        row=row,
        bar=bar / row,
        left=left,
        right=right,
        mark=mark,
        brief=count > FULL,
        lettered=few,
        told=told,
        ticked=row >= 16,
        marked=row >= 6,
        costed=not few and count <= BESIDE,
    )
