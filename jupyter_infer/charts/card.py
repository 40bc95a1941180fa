"""The card around a plot: status line, key and caption, with margins that hold them at any width of the page.

Plotly wraps no text, and its legend moves with the width of the plot, so all three are notes at fixed pixels, wrapped
for a narrow page. Nothing moves when a chart is resized.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jupyter_infer.charts.labels import escape, one_line, text_width, wrap, wrap_parts
from jupyter_infer.charts.template import INK, MUTED, SMALL, TEMPLATE, TEXT_WIDTH, TITLE_SIZE

__all__ = ["AXIS", "EDGE", "KeyEntry", "card_layout"]

EDGE = 14  # pixels between the card's edge and text
AXIS = 46  # pixels of tick labels and axis title under a plot
CAPTION_SIZE = 10
TITLE_WIDTH = 640  # pixels: it has no hyphens to break at, and the estimate of its width is on the wide side
WORDS_WIDTH = 560  # pixels of a sentence
LINE = 1.3  # height of a line, in font sizes (Plotly's)
INDENT = 3  # pixels that Plotly puts left of a note
GAP = "\u00a0\u00a0\u00a0 "


@dataclass(frozen=True, slots=True)
class KeyEntry:
    """An entry of the key: a sign in the colour of what it stands for, and its name."""

    sign: str
    color: str
    name: str


def card_layout(
    *,
    plot: float,
    left: int,
    right: int,
    title: str,
    key: Sequence[KeyEntry],
    caption: str,
    reading: str = "",
    advice: str | None = None,
) -> dict[str, Any]:
    """Return a layout with a plot of `plot` pixels' height between a status line, sentences, a key and a caption.

    Parameters
    ----------
    plot
        Height of the plot itself, in pixels.
    left, right
        Margins for tick labels, in pixels.
    title, caption
        Plain text of any length; parts between `` · `` are kept whole.
    key
        What the signs and colours mean.
    reading
        One sentence that reads the chart, as plain text.
    advice
        One sentence that says what to try next, as plain text.
    """
    titles = wrap_parts(one_line(title), TITLE_WIDTH, TITLE_SIZE) if title.strip() else []
    keys = _key_lines(key)
    captions = wrap_parts(caption, TEXT_WIDTH, CAPTION_SIZE)
    told = [line for text in (reading, advice) if text for line in wrap(_tied(text), WORDS_WIDTH, TITLE_SIZE)]
    words = EDGE + (len(titles) * TITLE_SIZE * LINE + 8 if titles else 0)
    head = words + (len(told) * TITLE_SIZE * LINE + 8 if told else 0)
    top = head + len(keys) * SMALL * LINE + 8
    bottom = AXIS + len(captions) * CAPTION_SIZE * LINE + EDGE
    edge = EDGE - INDENT - left
    notes = [
        _note("<br>".join(map(escape, titles)), TITLE_SIZE, INK, y=1, xshift=edge, yshift=top - EDGE + 4),
        _note("<br>".join(map(escape, told)), TITLE_SIZE, INK, y=1, xshift=edge, yshift=top - words + 4),
        _note("<br>".join(keys), SMALL, INK, y=1, xshift=edge, yshift=top - head + 4),
        _note("<br>".join(map(escape, captions)), CAPTION_SIZE, MUTED, y=0, xshift=edge, yshift=-AXIS),
    ]
    return {
        "template": TEMPLATE,
        "autosize": True,
        "height": round(top + plot + bottom),
        "margin": {"l": left, "r": right, "t": round(top), "b": round(bottom), "autoexpand": False},
        "showlegend": False,
        "annotations": [note for note in notes if note["text"]],
    }


def _tied(sentence: str) -> str:
    """Return a sentence in which no line ends between a number and its unit."""
    return re.sub(r"(?<=\d) (?=(?:%|×|ns|µs|ms|s|min|h|tok/s|kB|MB|GB|MiB)(?!\w))", "\u00a0", one_line(sentence))


def _key_lines(key: Sequence[KeyEntry]) -> list[str]:
    lines: list[str] = []
    used = float(TEXT_WIDTH)
    for entry in key:
        width = text_width(f"m {entry.name}{GAP}", SMALL)
        if used + width > TEXT_WIDTH:
            lines.append("")
            used = 0.0
        gap = GAP if lines[-1] else ""
        lines[-1] += f'{gap}<span style="color:{entry.color}">{entry.sign}</span> {escape(entry.name)}'
        used += width
    return lines


def _note(text: str, size: float, color: str, *, y: float, xshift: float, yshift: float) -> dict[str, Any]:
    """Return a note whose upper left corner is at a distance in pixels from a left corner of the plot."""
    return {
        "text": text,
        "font": {"size": size, "color": color},
        "align": "left",
        "showarrow": False,
        "xref": "paper",
        "x": 0,
        "xanchor": "left",
        "xshift": xshift,
        "yref": "paper",
        "y": y,
        "yanchor": "top",
        "yshift": yshift,
    }
