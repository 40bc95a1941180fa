"""The static HTML form of a run: bars and a table, for hosts that draw no Plotly and run no script.

Everything is inline, since hosts drop style sheets, and every colour is set together with its background, since hosts
style tables for their own theme.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Sequence

from jupyter_infer.charts.labels import cut, one_line
from jupyter_infer.charts.rows import PHASES, Row, make_rows, origin_ns, span_ns
from jupyter_infer.charts.template import CARD, COLORS, FONT, GRID, INK, MUTED
from jupyter_infer.metrics import DEFINITIONS
from jupyter_infer.numbers import format_count, format_ns, format_rate
from jupyter_infer.pricing import MachinePrice, format_usd
from jupyter_infer.records import RequestRecord

__all__ = ["static_html", "table_html"]

ROWS = {32: 12, 200: 8}  # of a batch of at most so many; the figure beside it has them all, and both are saved
FEW_ROWS = 2  # of a larger one, whose figure is large
BATCH = ("in → out", "TTFT", "e2e", "decode speed", "shared cost", "wall cost", "end")
TERMS = ("queued", "prefill", "decode", "TTFT", "TPOT", "e2e", "shared cost", "wall cost")


def static_html(
    records: Sequence[RequestRecord],
    price: MachinePrice | None,
    *,
    status: str,
    labels: Sequence[str] | None = None,
) -> str:
    """Return a self-contained HTML card: the status line, a bar of phases and the figures of each request.

    Parameters
    ----------
    records
        The requests of one run; the first 12 are shown, of more than 32 the first 8, of more than 200 the first 2.
    price
        The machine's price; without one, costs are ``n/a``.
    status
        The status line, as plain text.
    labels
        What to call each request, as plain text; default: the beginning of its prompt.

    Raises
    ------
    ValueError
        If there are not as many labels as records.
    """
    rows = make_rows(records, price, labels)
    shown = rows[: next((count for size, count in ROWS.items() if len(rows) <= size), FEW_ROWS)]
    origin, span = origin_ns(shown), span_ns(shown)
    omitted = set() if any(row.times.stalled_ns for row in shown) else {"stalled"}
    omitted |= set() if any(row.times.load_ns for row in shown) else {"load before"}
    if len(shown) == 1:
        figures = _bar(shown[0], origin, span, "100%", 18) + _single_table(shown[0], omitted)
    else:
        figures = _batch_table(shown, origin, span, omitted) if shown else ""
    left_out = len(rows) - len(shown)
    more = f'<div style="padding-top:6px">… and {left_out:,} more requests, left out here.</div>' if left_out else ""
    terms = "; ".join(f"{term} = {DEFINITIONS[term]}" for term in TERMS)
    priced = "n/a" if price is None else f"{price} ({price.source})"
    notes = f"{_text(terms)}. Machine price: {_text(priced)}."
    return _card(status, f"{_key(shown)}{figures}{more}", notes)


def table_html(title: str, sentences: Sequence[str], head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a self-contained HTML card of sentences and a table of plain text, of which the first rows are shown."""
    shown = rows[: ROWS[32]]
    lines = [_line("th", head[1:], head[0])] if head else []
    lines += [_line("td", row[1:], cut(row[0], 40)) for row in shown]
    left_out = len(rows) - len(shown)
    more = f'<div style="padding-top:6px">… and {left_out:,} more rows, left out here.</div>' if left_out else ""
    words = "".join(f"<div>{_text(sentence)}</div>" for sentence in sentences)
    return _card(title, f"{words}{_table(lines) if lines else ''}{more}")


def _card(status: str, body: str, notes: str = "") -> str:
    """Return the card that holds a static form: the status line as plain text, the rest as HTML."""
    status_line = one_line(status).replace(" · ", "\u00a0· ")  # no line begins with a dot
    if notes:
        notes = f'<div style="color:{MUTED};font-size:11px;padding-top:8px">{notes}</div>'
    return (
        f'<div class="tex2jax_ignore mathjax_ignore" style="background-color:{CARD};color:{INK};font-family:{FONT};'
        f'font-size:13px;line-height:1.45;padding:12px 14px;border:1px solid {GRID};overflow-x:auto">'
        f'<div style="padding-bottom:6px">{_text(status_line)}</div>{body}{notes}</div>'
    )


def _figures(row: Row, omitted: set[str]) -> dict[str, str]:
    """Return the figures of a request as text, by column."""
    record, times = row.record, row.times
    cells = {
        "in → out": f"{format_count(record.prompt_tokens)} → {format_count(record.output_tokens)}",
        "cached": f"{format_count(record.cached_tokens)}{' (warm)' if record.cached_tokens else ''}",
        "queued": format_ns(times.queued_ns),
        "prefill": format_ns(times.prefill_ns),
        "decode": format_ns(times.decode_ns),
        "e2e": format_ns(times.e2e_ns),
        "TTFT": format_ns(times.ttft_ns),
        "TPOT": format_ns(times.tpot_ns),
        "decode speed": format_rate(times.decode_tps),
        "shared cost": format_usd(row.shared_usd),
        "wall cost": format_usd(row.wall_usd),
        "end": row.ending,
        "stalled": format_ns(times.stalled_ns),
        "load before": format_ns(times.load_ns),
    }
    return {head: text for head, text in cells.items() if head not in omitted}


def _single_table(row: Row, omitted: set[str]) -> str:
    """Return the figures of one request in lines of six, so that a narrow page need not scroll."""
    cells = list(_figures(row, omitted).items())
    lines = [cells[start : start + 6] for start in range(0, len(cells), 6)]
    return _table(_line("th", [head for head, _ in line]) + _line("td", [value for _, value in line]) for line in lines)


def _batch_table(rows: Sequence[Row], origin: int, span: int, omitted: set[str]) -> str:
    """Return a line a request: its label, its bar on the run's time axis and its figures."""
    figures = [{head: text for head, text in _figures(row, omitted).items() if head in BATCH} for row in rows]
    lines = [_line("th", figures[0], f"request, 0 … {format_ns(span)}")]
    for row, cells in zip(rows, figures, strict=True):
        bar = _bar(row, origin, span, "150px", 8)
        lines.append(_line("td", cells.values(), cut(row.label, 26), bar))
    return _table(lines)


def _table(lines: Iterable[str]) -> str:
    style = "border-collapse:separate;border-spacing:9px 2px;font-size:12px;margin:4px 0 0 -9px"
    style += f";color:{INK};background-color:{CARD}"
    return f'<table style="{style}">{"".join(lines)}</table>'


def _line(tag: str, cells: Iterable[str], first: str | None = None, bar: str = "") -> str:
    """Return a line of a table; `first` stands to the left of the figures, over its bar."""
    head = ' style="font-weight:normal;vertical-align:bottom"' if tag == "th" else ""
    left = "" if first is None else f'<{tag} style="text-align:left;font-weight:normal">{_text(first)}{bar}</{tag}>'
    rest = "".join(f"<{tag}{head}>{_text(cell)}</{tag}>" for cell in cells)
    color = MUTED if tag == "th" else INK  # what cells inherit; a style for each would be most of a saved table
    return f'<tr style="background-color:{CARD};color:{color};text-align:right">{left}{rest}</tr>'


def _bar(row: Row, origin: int, span: int, width: str, height: int) -> str:
    """Return the phases of a request as boxes on the run's time axis; what it did not reach has no box."""
    boxes = "".join(_box(color, length, span, height) for color, length in _pieces(row, origin))
    return f'<div style="width:{width};height:{height}px;background-color:{GRID}">{boxes}</div>'


def _pieces(row: Row, origin: int) -> Iterator[tuple[str, int]]:
    """Yield colour and duration of all that is drawn of a request, from time zero on and without a gap."""
    yield "transparent", row.record.arrival_ns - origin
    for phase, (start, length) in row.phase_ns.items():
        if start is None or length is None:
            return
        at = start
        for stall, stalled, _ in row.stalls if phase == "decode" else ():
            yield COLORS[phase], stall - at
            yield COLORS["stalled"], stalled
            at = stall + stalled
        yield COLORS[phase], start + length - at


def _box(color: str, length: int, span: int, height: int) -> str:
    # Rounded down, so that the boxes of a line never sum to more than its width and break it in two.
    percent = 100_000 * length // span / 1000
    style = f"float:left;width:{percent:g}%;height:{height}px;background-color:{color}"
    return f'<div style="{style}"></div>' if percent else ""


def _key(rows: Sequence[Row]) -> str:
    """Return the legend of the bars."""
    names = [*PHASES, "stalled"] if any(row.times.stalled_ns for row in rows) else PHASES
    swatch = '<span style="background-color:{}">&nbsp;&nbsp;&nbsp;</span> {} &nbsp; '
    return f'<div style="font-size:11px;padding-bottom:4px">{"".join(swatch.format(COLORS[n], n) for n in names)}</div>'


def _text(text: str) -> str:
    """Return `text` escaped, its marks of mathematics in elements of their own, where no typesetter pairs them."""
    return re.sub(r"[$\\]", r"<span>\g<0></span>", html.escape(text))
