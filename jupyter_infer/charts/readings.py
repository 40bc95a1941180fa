"""The sentence that reads the phases of requests."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from jupyter_infer.charts.rows import PHASES, Row
from jupyter_infer.numbers import format_count, format_ns, format_share

__all__ = ["phases_reading"]


def phases_reading(rows: Sequence[Row]) -> str:
    """Return one sentence on where the time of some requests went."""
    answered = [row for row in rows if row.times.e2e_ns is not None]
    if not rows:
        return "No request ran."
    if not answered:
        return _unanswered(rows)
    if len(rows) == 1:
        return _one(rows[0])
    return _many(rows, answered)


def _one(row: Row) -> str:
    if row.broken:
        return f"It was {row.ending} after {format_count(row.record.output_tokens)} tokens. {_times_of(row)}"
    return _times_of(row)


def _times_of(row: Row) -> str:
    times, (phase, longest) = row.times, _longest([row])
    share = format_share(longest, times.e2e_ns)
    if row.record.output_tokens == 1 or not times.decode_ns:
        return f"The first token came after {format_ns(times.ttft_ns)}, {share} of it {phase}."
    return (
        f"The first token came after {format_ns(times.ttft_ns)}, then one every {format_ns(times.tpot_ns)}; "
        f"{phase} took {share} of {format_ns(times.e2e_ns)}."
    )


def _many(rows: Sequence[Row], answered: Sequence[Row]) -> str:
    first = min(row.record.arrival_ns for row in rows)
    last = max(row.record.last_token_ns or 0 for row in answered)
    phase, longest = _longest(answered)
    share = format_share(longest, sum(row.times.e2e_ns or 0 for row in answered))
    ttft = statistics.median(row.times.ttft_ns or 0 for row in answered)
    whole = sum(not row.broken for row in answered)
    some = "" if whole == len(rows) else f"{format_count(whole)} of "
    return (
        f"{some}{format_count(len(rows))} requests were answered in {format_ns(last - first)}; "
        f"their median TTFT was {format_ns(ttft)}, and {phase} took {share} of all their time."
    )


def _unanswered(rows: Sequence[Row]) -> str:
    ends = ", ".join(dict.fromkeys(row.ending for row in rows))
    subject = "The request" if len(rows) == 1 else f"All {format_count(len(rows))} requests"
    return f"{subject} ended without a token: {ends}."


def _longest(rows: Sequence[Row]) -> tuple[str, int]:
    """Return the phase that took most of the requests' time together, and how much."""
    sums = {phase: sum(row.phase_ns[phase][1] or 0 for row in rows) for phase in PHASES}
    return max(sums.items(), key=lambda item: item[1])
