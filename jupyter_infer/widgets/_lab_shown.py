"""What a batch lab shows of its runs: values of its traits while one goes on, at its end, and without a script."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from jupyter_infer.bottleneck import bottleneck
from jupyter_infer.pricing import MachinePrice
from jupyter_infer.results import Results
from jupyter_infer.run import Run
from jupyter_infer.session import Session
from jupyter_infer.widgets._job_words import error_line, stage_line
from jupyter_infer.widgets._lab_figures import NO_FIGURES, Point, final_figures, knee, live_figures, points_of, why
from jupyter_infer.widgets._lab_run import Asked, LabRun
from jupyter_infer.widgets._lab_trace import LabTrace
from jupyter_infer.widgets._lab_words import asked_line, card_html, progress_line, status_line
from jupyter_infer.widgets._lab_workload import Workload

__all__ = ["LabShown", "nothing_shown"]

Values = dict[str, Any]
"""Values of traits by their names."""


class LabShown:
    """Follows one run after another. Not from two threads at once."""

    def __init__(self) -> None:
        self.measured: list[Results] = []
        """What the workloads of the last run gave."""
        self._trace: LabTrace | None = None
        self._traces = 0  # that were shown
        self._taken: Asked | None = None  # whose final figures are shown
        self._swept: list[tuple[int, Run]] = []
        self._sweep: Workload | None = None
        self._over: LabRun | None = None  # whose end is shown, and after which nothing of it changes

    def begin(self, run: LabRun) -> Values:
        """Return what is shown as a run begins; the points of a sweep stay until the next sweep."""
        self._trace, self.measured = None, []
        if not run.is_sweep:
            return {"_charts": []}
        self._swept, self._sweep = [], run.workloads[0]
        return {"_charts": [], "_points": [], "_knee": None, "_swept": asked_line(self._sweep, several=True)}

    def look(self, run: LabRun, session: Session) -> Values:
        """Return what is shown of a run that goes on, or has just ended."""
        if run is self._over:
            return {}
        error, state = run.error or run.refusal, run.state
        values: Values = {
            "state": state,
            "_stage": stage_line(run) if state == "loading" else "",
            "_progress": progress_line(run),
            "error": "" if error is None else error_line(error),
        }
        asked, info = run.asked, run.info
        if asked is None or info is None:
            return values | nothing_shown()
        if self._trace is None or self._trace.asked is not asked:
            self._traces += 1
            self._trace = LabTrace(asked, info)
        trace = self._trace
        trace.follow(session.steps)
        settled, recent, latest = trace.steps.parts
        values |= {
            "_shown_run": self._traces,
            "_lanes": trace.lane_entries(),
            "_settled": settled,
            "_recent": recent,
            "_latest": latest,
            "_forgotten": trace.steps.forgotten > 0,
        }
        if asked is not self._taken:
            figures = live_figures(trace, info, session.price, trace.over_ns or time.monotonic_ns())
            values |= {"_limit": "", "_shares": {}, "_status": "", "_figures": dict(figures)}
        return values

    def take_in(self, run: LabRun, results: Results, price: MachinePrice) -> Values:
        """Return what is shown of a workload that is over."""
        made = results.run
        limit = bottleneck(made, bandwidth=run.bandwidth)
        self.measured, self._taken = [*self.measured, results], run.asked
        values: Values = {
            "_figures": dict(final_figures(made, price)),
            "_limit": why(made, limit),
            "_shares": limit.shares if limit else {},
            "_status": status_line(results),
        }
        if run.is_sweep:
            self._swept = [*self._swept, (len(results), made)]
            points = points_of(self._swept, price, run.bandwidth)
            values |= {"_points": points, "_knee": knee(points)}
        return values

    def ended(self, run: LabRun, figures: Mapping[str, Any]) -> Values:
        """Return what is shown at the end of a run; `figures` are those that are."""
        self._over = run
        if run.asked is None or run.asked is self._taken:
            return {}
        if run.asked.workload not in run.workloads:  # a warm-up, which is nobody's result
            return nothing_shown()
        # It came to no end that counts: nothing runs and waits any more.
        return {"_figures": {**figures, "running": None, "waiting": None, "pool_used": None}}

    def card(self, title: str, wanted: Workload, shown: Values, points: list[Point]) -> str:
        """Return the last workload, what came of it and the points of the last sweep as HTML that needs no script."""
        workload = wanted if self._taken is None else self._taken.workload
        figures = NO_FIGURES if self._taken is None else shown["_figures"]
        return card_html(title, workload, figures, shown["_limit"], self._sweep, points)


def nothing_shown() -> Values:
    """Return what is shown of a run before it has a request."""
    return {
        "_shown_run": 0,
        "_lanes": [],
        "_settled": [],
        "_recent": [],
        "_latest": [],
        "_forgotten": False,
        "_figures": dict(NO_FIGURES),
        "_limit": "",
        "_shares": {},
        "_status": "",
    }
