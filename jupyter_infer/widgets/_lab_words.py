"""What a batch lab says of itself without a script."""

from __future__ import annotations

from collections.abc import Sequence

from jupyter_infer.charts.static import table_html
from jupyter_infer.numbers import format_count, format_ns, format_rate
from jupyter_infer.pricing import format_usd
from jupyter_infer.widgets._lab_figures import CALLED, LabFigures, Point
from jupyter_infer.widgets._lab_workload import Workload

__all__ = ["asked_line", "card_html"]

HEAD = ("requests", "throughput", "tok/s a user", "TTFT p50", "TTFT p95", "$ / 1M output tokens", "limited by")


def asked_line(workload: Workload) -> str:
    """Return a workload in a line."""
    arrivals = {
        "at once": "at once",
        "staggered": f"one each {workload.interval_s:g} s",
        "poisson": f"Poisson arrivals, {workload.interval_s:g} s apart on average, seed {workload.seed}",
    }[workload.arrivals]
    count = "1 request" if workload.requests == 1 else f"{format_count(workload.requests)} requests"
    prefix = ", a shared prefix" if workload.shared_prefix else ""
    return (
        f"{count} of {format_count(workload.prompt_tokens)} in → {format_count(workload.output_tokens)} out, "
        f"{arrivals}{prefix}"
    )


def card_html(title: str, workload: Workload, figures: LabFigures, limit: str, points: Sequence[Point]) -> str:
    """Return the workload, what came of it and the points of a sweep as HTML that needs no script."""
    lines = [asked_line(workload), *([limit] if limit else [])]
    rows = [_row(point["requests"], point, CALLED.get(point["limit"], "n/a")) for point in points]
    if not points and figures["throughput"] is not None:
        rows = [_row(workload.requests, figures)]
    return table_html(title, lines, HEAD[: 7 if points else 6] if rows else (), rows)


def _row(requests: int, of: LabFigures | Point, *limit: str) -> tuple[str, ...]:
    return (
        format_count(requests),
        format_rate(of["throughput"]),
        format_rate(of["user_tps"]),
        format_ns(of["ttft_p50_ns"]),
        format_ns(of["ttft_p95_ns"]),
        format_usd(of["usd_per_million"]),
        *limit,
    )
