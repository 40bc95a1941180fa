"""What is to be read from the tokens chart: its sentence, its caption, and its numbers as a table."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from jupyter_infer.charts._lanes import short
from jupyter_infer.charts._token_marks import TOP, pick, whose
from jupyter_infer.charts.chart import Table
from jupyter_infer.metrics import phases
from jupyter_infer.numbers import format_count, format_ns
from jupyter_infer.outliers import NOTHING, Outlier
from jupyter_infer.run import Run

__all__ = ["joined", "tokens_caption", "tokens_reading", "tokens_table"]


def tokens_caption(late: Sequence[Outlier], *, steps: bool, complete: bool) -> str:
    """Return the worst outliers with all that explains them, and what steps are missing for it."""
    parts = []
    for number, some in enumerate(pick(late)[:TOP], 1):
        most = "up to " if len(some) > 1 else ""
        parts.append(f"{number}: {most}{format_ns(some[0].gap.ns)} for {whose(some)}, {some[0].text}")
    missing = "" if complete else "some steps are no longer remembered, so not all is explained"
    return joined(*parts, missing if steps else "no step is remembered, so nothing is explained")


def joined(*parts: str) -> str:
    """Return parts of a caption as one."""
    return " · ".join(part for part in parts if part)


def tokens_reading(run: Run, itls: Sequence[int], late: Sequence[Outlier]) -> str:
    """Return one sentence on the gaps that stand out, or on all if none does."""
    if not itls:
        given = any(record.output_tokens for record in run.requests)
        return "No step gave a second token, so there is no ITL." if given else "No token was given."
    median = format_ns(statistics.median(itls))
    if not late:
        tpot = phases(run.requests[0]).tpot_ns if len(run.requests) == 1 else None
        pace = f", TPOT {format_ns(tpot)}" if tpot is not None else ""
        return f"No gap between tokens stands out: median ITL {median}{pace}, the longest {format_ns(max(itls))}."
    worst = late[0]
    share = f"{format_count(len(late))} of {format_count(len(itls))} gaps between tokens stand out"
    if len(late) == 1:
        share = f"1 of {format_count(len(itls))} gaps between tokens stands out"
    why = worst.causes[0].text if worst.causes else NOTHING
    longest = f"the longest, {format_ns(worst.gap.ns)} in {short(worst.gap.request_id, worst.gap.part)}"
    return f"{share} (median ITL {median}); {longest}: {why}."


def tokens_table(late: Sequence[Outlier], run: Run) -> Table:
    """Return the worst outliers, or the ITL of the first requests if none stands out."""
    if late:
        rows = [
            (f"step {one.gap.step}", format_ns(one.gap.ns), format_ns(one.median_ns), whose(some), one.text)
            for some in pick(late)[:12]
            for one in some[:1]
        ]
        return Table(("late token", "ITL", "median ITL", "of", "why"), rows)
    told = [(record, phases(record)) for record in run.requests[:12]]
    cells = [
        (record.request_id, format_count(record.output_tokens), format_ns(times.ttft_ns), format_ns(times.tpot_ns))
        for record, times in told
    ]
    return Table(("request", "output tokens", "TTFT", "TPOT"), cells)
