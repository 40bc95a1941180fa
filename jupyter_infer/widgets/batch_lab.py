"""Batches: requests that arrive as one likes, limits changed while they run, and a sweep over their number."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping
from typing import Any, ClassVar

import traitlets

from jupyter_infer.charts.labels import one_line as in_one_line
from jupyter_infer.errors import ConfigError, InferError
from jupyter_infer.records import EngineInfo
from jupyter_infer.results import Results
from jupyter_infer.session import Session
from jupyter_infer.widgets._lab_charts import CHARTS, ChartPlace
from jupyter_infer.widgets._lab_figures import NO_FIGURES, Point
from jupyter_infer.widgets._lab_run import LabRun
from jupyter_infer.widgets._lab_shown import LabShown, nothing_shown
from jupyter_infer.widgets._lab_words import asked_line, status_line
from jupyter_infer.widgets._lab_workload import ARRIVALS, Workload
from jupyter_infer.widgets._running import RunningWidget

__all__ = ["MOST_REQUESTS", "BatchLab"]

MOST_REQUESTS = 64
"""Requests of a batch at most."""
LIMITS = ("max_num_seqs", "max_num_batched_tokens")
ASKED = ("requests", "prompt_tokens", "output_tokens", "arrivals", "interval_s", "seed", "shared_prefix")
FIELDS = (*ASKED, *LIMITS, "sizes")
"""The traits that say what is asked."""


class BatchLab(RunningWidget[LabRun]):
    """Run requests together, change the scheduler's limits while they run, and see each step.

    All that can be done on the page can be done from Python: ``lab.requests = 16; lab.run(); lab.max_num_seqs = 4;
    lab.result; lab.sweep(); lab.points``. A model loads with the first run. The first run after a load also asks three
    small batches that are not counted, because the first steps pay for more than later ones. One run goes on at a time;
    another one is refused until it is over or stopped. The two limits hold while a run of the lab goes on, for all that
    the engine does; afterwards it has those of its load again.

    Parameters
    ----------
    session
        The session that is asked; the one that cells share if left out.
    **traits
        Values of its traits.
    """

    front_end: ClassVar[str] = "batch_lab"
    called: ClassVar[str] = "lab"

    requests: int = traitlets.Int(8, min=1, max=MOST_REQUESTS).tag(sync=True)
    """Requests of a batch (int from 1 to 64, default 8)."""
    prompt_tokens: int = traitlets.Int(64, min=1).tag(sync=True)
    """Length of each prompt in tokens (int, default 64)."""
    output_tokens: int = traitlets.Int(32, min=1).tag(sync=True)
    """Length of each answer in tokens, which the model's own end does not shorten (int, default 32)."""
    arrivals: str = traitlets.Enum(ARRIVALS, default_value=ARRIVALS[0]).tag(sync=True)
    """How requests arrive (str): ``"at once"``, ``"staggered"`` or ``"poisson"``; default ``"at once"``."""
    interval_s: float = traitlets.Float(0.25).tag(sync=True)
    """Seconds between two arrivals, or their mean of a Poisson process (float above 0, default 0.25)."""
    seed: int = traitlets.Int(0).tag(sync=True)
    """Seed of the Poisson process (int, default 0)."""
    shared_prefix: bool = traitlets.Bool(False).tag(sync=True)
    """Whether all prompts of a batch begin alike (bool, default False)."""
    max_num_seqs: int | None = traitlets.Int(None, allow_none=True, min=1).tag(sync=True)
    """Requests in the running batch at most, changed live in a run (int or None, default None: as loaded)."""
    max_num_batched_tokens: int | None = traitlets.Int(None, allow_none=True, min=1).tag(sync=True)
    """Token budget of a step, changed live in a run (int or None, default None: as loaded)."""
    sizes: list[int] = traitlets.List().tag(sync=True)
    """Numbers of requests that a sweep goes through (list of int, default 1, 2, 4, 8, 16, 32)."""
    chart: str = traitlets.Enum(CHARTS, default_value=CHARTS[0]).tag(sync=True)
    """The chart below the lab once a run is over (str, one of those of `Result.chart` for one run; default "steps")."""
    _progress = traitlets.Unicode().tag(sync=True)
    _bounds = traitlets.Dict(allow_none=True, default_value=None).tag(sync=True)
    _charts = traitlets.List().tag(sync=True)
    _shown_run = traitlets.Int(0).tag(sync=True)  # whose lanes and steps the next ones are
    _lanes = traitlets.List().tag(sync=True)
    _settled = traitlets.List().tag(sync=True)
    _recent = traitlets.List().tag(sync=True)
    _latest = traitlets.List().tag(sync=True)
    _forgotten = traitlets.Bool(False).tag(sync=True)
    _figures = traitlets.Dict().tag(sync=True)
    _limit = traitlets.Unicode().tag(sync=True)
    _shares = traitlets.Dict().tag(sync=True)
    _swept = traitlets.Unicode().tag(sync=True)  # what the sweep of the points asks
    _points = traitlets.List().tag(sync=True)
    _knee = traitlets.Int(None, allow_none=True).tag(sync=True)
    _status = traitlets.Unicode().tag(sync=True)

    def __init__(self, session: Session | None = None, **traits: Any) -> None:
        self._shown_runs = LabShown()
        self._taking: int | None = None  # the thread that sets fields together
        self._below = ChartPlace()
        super().__init__(session=session, **traits)

    @traitlets.default("sizes")
    def _default_sizes(self) -> list[int]:
        return [1, 2, 4, 8, 16, 32]

    @traitlets.default("_figures")
    def _no_figures(self) -> Mapping[str, Any]:
        return dict(NO_FIGURES)

    # What a script uses.

    @property
    def workload(self) -> Workload:
        """What a run asks, as it is set."""
        return Workload(**{name: getattr(self, name) for name in ASKED})

    def run(self) -> LabRun:
        """Ask a batch, and return the run at once; it loads the model first if need be, and tells errors in `result()`.

        Raises
        ------
        EngineBusy
            If a run of this lab goes on.
        """
        return self._begin([self.workload])

    def sweep(self) -> LabRun:
        """Ask a batch of each of the `sizes`, one after another, and return the run at once; `points` grow meanwhile.

        Raises
        ------
        EngineBusy
            If a run of this lab goes on.
        ConfigError
            If there are no sizes.
        """
        if not self.sizes:
            raise ConfigError("a sweep needs sizes: lab.sizes = [1, 2, 4, 8]")
        values = {name: getattr(self, name) for name in ASKED}
        return self._begin([Workload(**{**values, "requests": size}) for size in dict.fromkeys(self.sizes)], sweep=True)

    def clear(self) -> None:
        """Take what was run away; what is asked stays.

        Raises
        ------
        EngineBusy
            If a run goes on.
        """
        with self._looking:
            self._check_idle("clear it")
            self._run = None
            self._shown_runs = LabShown()
            self.push(state="idle", error="", _stage="", _progress="", **nothing_shown())
            self.push(_charts=[], _points=[], _knee=None, _swept="")
            self._below.clear()
        self.refresh()

    @property
    def result(self) -> Results | None:
        """What the last batch gave, or None if there is none yet."""
        measured = self._shown_runs.measured
        return measured[-1] if measured else None

    @property
    def results(self) -> list[Results]:
        """What the batches of the last run gave: one of a run, one a size of a sweep."""
        return list(self._shown_runs.measured)

    @property
    def points(self) -> list[Point]:
        """The points of the last sweep, by number of requests: throughput, latencies, cost, and what limited each."""
        return list(self._points)

    # What a widget is made of.

    def handle(self, kind: str, payload: dict[str, Any]) -> Mapping[str, Any] | None:
        """Answer ``run``, ``sweep``, ``limits`` and ``chart``, and what every widget with runs does."""
        if kind in ("run", "sweep"):
            self._take(payload, FIELDS)
            return {"number": (self.run() if kind == "run" else self.sweep()).number}
        if kind == "limits":
            self._take(payload, LIMITS)
            if self._run is not None:
                self._run.limit()  # both at once, and what it refuses is the reply
            return {name: getattr(self, name) for name in LIMITS}
        if kind == "chart":
            self._take({"chart": payload.get("kind")}, ("chart",))
            return None
        return super().handle(kind, payload)

    def summary(self) -> str:
        """Return the lab in a line: the last run's status, or what would be asked."""
        return in_one_line(f"Batch lab · {self._status or self.error or asked_line(self.workload)}")

    def static_html(self) -> str:
        """Return what is asked, what came of it and the points of a sweep on a card."""
        shown = {"_figures": self._figures, "_limit": self._limit}
        return self._shown_runs.card(self.summary(), self.workload, shown, self._points) + self._below.html

    def close(self) -> None:
        """Close it and the place of its charts."""
        super().close()
        self._below.output.close()

    def _ipython_display_(self) -> None:
        super()._ipython_display_()
        self._below.show()  # below it: a chart of Plotly needs the host's own renderer

    # How.

    def _begin(self, workloads: list[Workload], *, sweep: bool = False) -> LabRun:
        with self._looking:
            self._check_idle("run again")
            run = LabRun(
                self._count + 1,
                self.session,
                workloads,
                limits=lambda: {name: getattr(self, name) for name in LIMITS},
                measured=self._take_in,
                ended=self._ended,
                sweep=sweep,
            )
            run.claim()
            self.push(**self._shown_runs.begin(run))
            self._below.clear()
            self._start(run)
        return run

    def _of_run(self, run: LabRun) -> dict[str, Any]:
        return self._shown_runs.look(run, self.session)

    def _of_engine(self, info: EngineInfo | None) -> Mapping[str, Any]:
        names = (*LIMITS, "block_size", "kv_blocks_total")
        return {"_bounds": None if info is None else {name: getattr(info, name) for name in names}}

    def _take(self, payload: Mapping[str, Any], names: tuple[str, ...]) -> None:
        """Set the fields as a view has them: what it set last may still be on its way."""
        self._taking = threading.get_ident()
        try:
            self.set_together({name: payload[name] for name in names if name in payload})
        finally:
            self._taking = None

    def _take_in(self, run: LabRun, results: Results) -> None:
        """Show what a workload gave; called on the run's thread."""
        with self._looking:
            values = self._shown_runs.take_in(run, results, self.session.price)
            self.tick()
            self.push(**values)

    def _ended(self, run: LabRun) -> None:
        """Show the end of a run; called on the run's thread."""
        with self._looking:
            self.tick()
            charts = list(CHARTS) if self._shown_runs.measured else []
            self.push(_charts=charts, **self._shown_runs.ended(run, self._figures))
        self._draw()
        self.refresh()

    def _draw(self) -> None:
        """Draw the chart below; of a sweep, of its last batch."""
        if (results := self.result) is not None and self._charts:
            self._below.draw(results, self.chart, status_line(results))

    @traitlets.validate("sizes")
    def _check_sizes(self, proposal: Mapping[str, Any]) -> list[int]:
        value: list[Any] = proposal["value"]
        for size in value:
            if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= MOST_REQUESTS:
                raise traitlets.TraitError(f"sizes: whole numbers from 1 to {MOST_REQUESTS}; got {size!r}")
        return value

    @traitlets.validate("interval_s")
    def _check_interval(self, proposal: Mapping[str, Any]) -> float:
        value: float = proposal["value"]
        if not 0 < value <= 3600:
            raise traitlets.TraitError(f"interval_s: seconds above 0, up to an hour; got {value!r}")
        return value

    @traitlets.validate(*LIMITS)
    def _check_limit(self, proposal: Mapping[str, Any]) -> int | None:
        value, name = proposal["value"], proposal["trait"].name
        most = None if (info := self.session.info) is None else getattr(info, name)
        if value is not None and most is not None and value > most:
            raise traitlets.TraitError(
                f"{name}: at most {most:,}, which was loaded; for more, type %infer load --{name.replace('_', '-')} N"
            )
        return int(value) if value is not None else None

    @traitlets.observe(*LIMITS)
    def _on_limit(self, change: Mapping[str, Any]) -> None:
        """Tell the scheduler at once while a run goes on; before, the run does. What it refuses is in `error`."""
        if (run := self._run) is not None and self._taking != threading.get_ident():
            with contextlib.suppress(InferError):
                run.limit()

    @traitlets.observe("chart")
    def _on_chart(self, change: Mapping[str, Any]) -> None:
        self._draw()
