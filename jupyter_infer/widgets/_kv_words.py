"""What the map of the KV pool says: a sentence, a row a request, and a picture of signs where no script runs."""

from __future__ import annotations

from collections.abc import Iterable

from jupyter_infer.charts.template import CARD, FONT, INK, MUTED
from jupyter_infer.numbers import NOT_KNOWN, format_count
from jupyter_infer.pool import block_bytes
from jupyter_infer.widgets._kv_shown import Shown

__all__ = ["HEAD", "SIGNS", "format_binary", "picture", "picture_html", "reading", "rows"]

HEAD = ("request", "blocks", "tokens", "last block", "shared")
SIGNS = {"in use": "█", "shared": "▓", "cached, free": "▒", "not recorded": "?", "free": "·"}
CELLS = 2048  # of the picture
WIDTH = 64


def format_binary(count: float | None) -> str:
    """Return bytes in binary units: ``344 MiB``, ``1.4 GiB``."""
    if count is None:
        return NOT_KNOWN
    for unit in ("B", "KiB", "MiB"):
        if float(f"{count:.3g}") < 1000:
            return f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:,.0f} GiB" if count >= 100 else f"{count:.2g} GiB"


def reading(shown: Shown) -> str:
    """Return the sentence that reads it: what is in use and shared, and what contiguous reservations would take."""
    moment, info = shown.state.moment, shown.info
    parts = [f"{_count(shown.used)} of {_count(shown.total)} blocks in use"]
    if moment.shared:
        requests, samples = shown.sharers
        by = _few(requests, "request") if requests > 1 else _few(samples, "sample")
        parts.append(f"{_count(moment.shared)} shared by {by}")
    if shown.unknown:
        parts.append(f"of {_count(shown.unknown)} the owner is not recorded")
    if moment.cached:
        parts.append(f"{_count(moment.cached)} free with cached content")
    said = ", ".join(parts)
    if shown.preempted:
        names = list(dict.fromkeys(name for name, _ in shown.preempted))
        several = f"{', '.join(names[:3])}{' …' if len(names) > 3 else ''}"
        said += f"; {several} lost {'its' if len(names) == 1 else 'their'} blocks (preempted)"
    if not shown.state.tables:
        return f"{said}."
    each = block_bytes(info)
    what = "the context" if len(shown.state.tables) == 1 else "the context for each"
    said += f"; reserving {what} would take {_blocks(shown.whole, each)}"
    more = shown.whole - shown.used
    if more > 0:
        said += f", {format_binary(more * each) if each else format_count(more)} more"
    if shown.asked is not None and shown.asked < shown.whole:
        said += f"; for prompt + max_tokens alone, {_blocks(shown.asked, each)}"
    return f"{said}."


def rows(shown: Shown) -> list[tuple[str, ...]]:
    """Return a row a table: who, blocks, tokens, fill of the last block, and how many of its blocks are shared."""
    state, refs, names = shown.state, shown.state.refs, shown.names()
    made: list[tuple[str, ...]] = []
    for owner, table in state.tables.items():
        missing = shown.missing(owner)
        blocks = f"{_count(len(table))} of {_count(len(table) + missing)} known" if missing else _count(len(table))
        shared = sum(refs[block] > 1 for block in table)
        fill = f"{state.fill(owner)} of {state.block_size}"
        made.append((names[owner], blocks, _count(state.tokens[owner]), fill, _count(shared)))
    return made


def picture(shown: Shown) -> tuple[list[str], int]:
    """Return lines of a sign a block, and how many blocks a sign stands for: for the fullest of several."""
    each = max(1, -(-shown.total // CELLS))
    free, cached, unseen, used, shared = 0, 1, 2, 3, 4
    states = [free] * (shown.total + 1)

    def mark(blocks: Iterable[int], state: int) -> None:
        for block in blocks:
            if 0 < block <= shown.total:
                states[block] = state

    mark(shown.unseen, unseen)
    mark(shown.state.cached_free, cached)
    refs = shown.state.refs
    mark(refs, used)
    mark((block for block, count in refs.items() if count > 1), shared)
    signs = [SIGNS[name] for name in ("free", "cached, free", "not recorded", "in use", "shared")]
    cells = [signs[max(states[place : place + each])] for place in range(1, shown.total + 1, each)]
    return ["".join(cells[place : place + WIDTH]) for place in range(0, len(cells), WIDTH)], each


def picture_html(shown: Shown) -> str:
    """Return the picture and its legend as HTML, for below a card."""
    lines, each = picture(shown)
    legend = " &nbsp; ".join(f"{sign}&nbsp;{name}" for name, sign in SIGNS.items())
    one = f"A sign is {_few(each, 'block')}, from 1 on" + ("; it says the fullest state of them" if each > 1 else "")
    mono = "font-family:'DejaVu Sans Mono',monospace;white-space:pre;line-height:1.15;font-size:10px;overflow-x:auto"
    return (
        f'<div style="background-color:{CARD};color:{INK};padding:2px 14px 6px">'
        f'<div style="{mono}">{"<br>".join(lines)}</div>'
        f'<div style="color:{MUTED};font-family:{FONT};font-size:11px">{legend} &nbsp; {one}.</div></div>'
    )


def _blocks(count: int, each: float | None) -> str:
    return f"{_count(count)} blocks" + (f" = {format_binary(count * each)}" if each else "")


def _few(count: int, what: str) -> str:
    return f"{_count(count)} {what}{'' if count == 1 else 's'}"


def _count(count: int) -> str:
    return format_count(count)
