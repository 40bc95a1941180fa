"""What a batch lab says in lines, and of itself without a script."""

from __future__ import annotations

from collections.abc import Sequence

from jupyter_infer.charts.static import table_html
from jupyter_infer.metrics import throughput, wall_ns
from jupyter_infer.numbers import format_count, format_ns, format_rate
from jupyter_infer.pricing import format_usd
from jupyter_infer.results import Results
from jupyter_infer.widgets._lab_figures import CALLED, LabFigures, Point
from jupyter_infer.widgets._lab_run import LabRun
from jupyter_infer.widgets._lab_workload import Workload

__all__ = ["asked_line", "card_html", "progress_line", "status_line"]

HEAD = ("requests", "throughput", "tok/s a user", "TTFT p50", "TTFT p95", "$ / 1M output tokens")


def asked_line(workload: Workload, *, several: bool = False) -> str:
    """Return a workload in a line; of a sweep, the number of requests is left open."""
    arrivals = {
        "at once": "at once",
        "staggered": f"one each {workload.interval_s:g} s",
        "poisson": f"Poisson arrivals, {workload.interval_s:g} s apart on average, seed {workload.seed}",
    }[workload.arrivals]
    prefix = ", a shared prefix" if workload.shared_prefix else ""
    return (
        f"{'requests' if several else _requests(workload.requests)} of {format_count(workload.prompt_tokens)} in → "
        f"{format_count(workload.output_tokens)} out, {arrivals}{prefix}"
    )


def progress_line(run: LabRun) -> str:
    """Return how far a run is, where there is more than one workload."""
    asked, count = run.asked, len(run.workloads)
    warms_up = asked is not None and asked.workload not in run.workloads
    if run.done and warms_up:
        return "stopped while warming up" if run.stopping else ""
    if run.done:
        if not run.is_sweep or run.measured == count:
            return ""
        cut = run.stopping and asked is not None and run.workloads.index(asked.workload) == run.measured
        shown = f"; shown is the one that was stopped, of {_requests(asked.workload.requests)}" if cut and asked else ""
        return f"sweep: {run.measured} of {count} sizes{shown}"
    if run.info is None:
        return ""
    if asked is None:
        return "preparing the prompts"
    if warms_up:
        return "warming up; not counted"
    if not run.is_sweep:
        return ""
    return f"sweep: {_requests(asked.workload.requests)}, {run.workloads.index(asked.workload) + 1} of {count}"


def status_line(results: Results) -> str:
    """Return what a workload gave; its answers end where they were asked to, which is no truncation."""
    records = [item.record for item in results.done]
    aborted = sum("abort" in record.finish_reason for record in records)
    refused = len(results) - len(records)
    parts = [
        f"{'■' if aborted else '✓'} {_requests(len(records))}",
        f"{format_count(sum(record.prompt_tokens for record in records))} in → "
        f"{format_count(sum(record.output_tokens for record in records))} out",
        f"throughput {format_rate(throughput(records))}",
        format_ns(wall_ns(records)),
        *([f"{aborted} stopped"] if aborted else []),
        *([f"{refused} refused"] if refused else []),
    ]
    return " · ".join(parts)


def card_html(
    title: str,
    workload: Workload,
    figures: LabFigures,
    limit: str,
    sweep: Workload | None,
    points: Sequence[Point],
) -> str:
    """Return a workload with what came of it, and a sweep with its points, as HTML that needs no script."""
    measured = figures["throughput"] is not None
    lines = [asked_line(workload), *([limit] if limit else [])]
    html = table_html(title, lines, HEAD if measured else (), [_row(workload.requests, figures)] if measured else ())
    if sweep is None or not points:
        return html
    rows = [_row(point["requests"], point, CALLED.get(point["limit"], "n/a")) for point in points]
    return html + table_html(f"Sweep: {asked_line(sweep, several=True)}", (), (*HEAD, "limited by"), rows)


def _requests(count: int) -> str:
    return "1 request" if count == 1 else f"{format_count(count)} requests"


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
