"""Foreign text made safe to draw: prompts, model names and answers are data, in a figure as in HTML.

Plotly gives meaning to tags, to ``&…;`` and, where a page has MathJax, to ``$…$``. It wraps nothing itself, so lines
are broken here by an estimate of their width that errs on the wide side.
"""

from __future__ import annotations

import html
import re
import unicodedata

__all__ = ["cut", "escape", "fit", "in_template", "one_line", "text_width", "wrap", "wrap_html", "wrap_parts"]

# Overrides of the writing direction would reorder the text around them.
_UNSAFE = re.compile("[\u202a-\u202e\u2066-\u2069\u200e\u200f\ufeff]")


def one_line(text: str) -> str:
    """Return `text` with white space and control characters folded into single spaces, and encodable as UTF-8."""
    printable = "".join(" " if unicodedata.category(char) == "Cc" else char for char in _UNSAFE.sub("", text))
    return " ".join(printable.split()).encode(errors="replace").decode()


def cut(text: str, limit: int = 40) -> str:
    """Return `text` as one line of at most `limit` characters, an ellipsis included."""
    # No label needs more of a prompt of 100,000 words than its beginning.
    line = one_line(text[: 8 * limit])
    if len(line) <= limit and len(text) <= 8 * limit:
        return line
    return line[: limit - 1].rstrip() + "…"


def escape(text: str) -> str:
    """Return `text` so that Plotly shows it as it is: no tag, no entity, no mathematics."""
    # Plotly knows no &quot;, and a quote needs no escape outside of an attribute.
    return html.escape(text, quote=False).replace("$", "&#36;")


def in_template(markup: str) -> str:
    """Return markup (of `escape` or `wrap_html`) so that as a part of a hovertemplate it says itself.

    Plotly puts a number or a text of the point where a template says ``%{…}``, also inside a prompt. What comes out of
    customdata, text and hovertext is not looked at again, and needs `escape` alone.
    """
    return markup.replace("%", "&#37;")


def text_width(text: str, size: float) -> float:
    """Return about how many pixels wide `text` is at a font size of `size` pixels, in a wide font (DejaVu Sans)."""
    return size * sum(map(_em, text))


def fit(text: str, width: float, size: float) -> str:
    """Return `text`, or as much of its beginning as is at most `width` pixels wide, an ellipsis included.

    Nothing is escaped. A `width` that has no room for an ellipsis gives an empty text.
    """
    room, used, kept = width - text_width("…", size), 0.0, 0
    for place, char in enumerate(text):
        used += size * _em(char)
        if used > width:
            begun = text[:kept].rstrip().rstrip("…").rstrip()
            return f"{begun}…" if room >= 0 else ""
        if used <= room:
            kept = place + 1
    return text


def wrap(text: str, width: float, size: float) -> list[str]:
    """Return `text` as lines of at most `width` pixels. A word that is wider than a line is broken."""

    def fits(line: str) -> bool:
        return text_width(line, size) <= width

    lines = [""]
    for word in re.split(r"[ \t\r\n]+", text.strip()):  # not at no-break spaces
        joined = f"{lines[-1]} {word}" if lines[-1] else word
        if fits(joined):
            lines[-1] = joined
            continue
        if lines[-1] and text_width(word, size) <= width:
            lines.append(word)
            continue
        lines[-1] += " " if lines[-1] else ""
        for char in word:  # it is broken anyway (or is of a script without spaces), so it begins where the line stands
            if lines[-1] and not fits(lines[-1] + char):
                lines.append("")
            lines[-1] += char
    return [line.rstrip() for line in lines]


def wrap_parts(text: str, width: float, size: float) -> list[str]:
    """Return a line of parts between `` · `` wrapped like `wrap`, but broken after a dot only.

    A part that is wider than the first line is broken between its words.
    """
    *parts, last = text.split(" · ")
    tied = [f"{part}\u00a0·" for part in parts] + [last]
    whole = [part.replace(" ", "\u00a0") if text_width(part, size) <= width else part for part in tied]
    return [line.replace("\u00a0", " ") for line in wrap(" ".join(whole), width, size)]


def wrap_html(text: str, width: float, size: float) -> str:
    """Return `text` wrapped, each line escaped, joined by ``<br>``."""
    return "<br>".join(map(escape, wrap(text, width, size)))


def _em(char: str) -> float:
    if unicodedata.east_asian_width(char) in "WF":
        return 1.05
    if unicodedata.combining(char):
        return 0.0
    if char in "mwMW@%":
        return 0.95
    if char in "ijl.,:;|!'()[] \u00a0":
        return 0.35
    if char in "frt-/":
        return 0.42
    return 0.7 if char.isupper() else 0.63
