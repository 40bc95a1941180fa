"""What everything that was recorded has: charts, frames and files; and runs that were read from files."""

from __future__ import annotations

import json
import os
import string
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from jupyter_infer.chrome_trace import trace_events
from jupyter_infer.comparison import arms
from jupyter_infer.errors import ConfigError
from jupyter_infer.frames import Rows, frame
from jupyter_infer.jsonl import read_files, target_of, write_file, write_whole
from jupyter_infer.metrics import throughput, wall_ns
from jupyter_infer.numbers import format_count, format_ns, format_rate
from jupyter_infer.records import RequestRecord, StepRecord
from jupyter_infer.run import Run, bursts

if TYPE_CHECKING:
    import pandas as pd
    from plotly.graph_objects import Figure

    from jupyter_infer.charts import Chart

__all__ = ["Recorded", "Recording", "Runs", "compare", "read_runs"]


class Recorded(ABC):
    """Charts, frames and files of what was recorded."""

    _named = False  # whether a frame says which run a row is of

    @property
    @abstractmethod
    def runs(self) -> Runs:
        """What was recorded, a run for each engine."""

    def chart(self, kind: str = "phases", **options: Any) -> Chart:
        """Return a chart, which as the value of a cell shows itself and stays readable in a saved notebook.

        Parameters
        ----------
        kind
            ``"phases"``, ``"tokens"``, ``"steps"``, ``"cost"``, ``"kv"`` or ``"compare"``.
        **options
            Of that kind: ``victim="r3"`` of ``"steps"``, ``labels=[…]`` of ``"compare"``; of all, ``title="…"``, the
            line above it.

        Raises
        ------
        ConfigError
            If there is no such kind or option, or nothing to draw.
        """
        from jupyter_infer.charts import draw

        if kind == "compare":  # a line about one run is not its title
            return draw(kind, self._compared(), **options)
        return draw(kind, self._one(), **{"title": self._title(), **options})

    def figure(self, kind: str = "phases", **options: Any) -> Figure:
        """Return the Plotly figure of a chart; parameters and errors are those of `chart`."""
        return self.chart(kind, **options).figure

    def to_pandas(self, rows: Rows = "requests") -> pd.DataFrame:
        """Return a frame with a row a request, a scheduler step or a token event."""
        runs = self.runs.data
        return frame(runs, rows, named=self._named or len(runs) > 1)

    def to_jsonl(self, path: str | os.PathLike[str], *, append: bool = False) -> Path:
        """Write all that was recorded to a file of JSON lines, which `read_runs` reads back equal; return its path.

        Parameters
        ----------
        path
            The file; it is replaced, and whole or as it was at any moment.
        append
            Put it behind what the file holds.

        Raises
        ------
        ConfigError
            If no request ran, or the file cannot be one of recorded runs.
        """
        if not (runs := self.runs.data):
            raise ConfigError("no request ran, so there is nothing to write")
        return write_file(Path(path), runs, append=append)

    def to_trace(self, path: str | os.PathLike[str]) -> Path:
        """Write a trace for ui.perfetto.dev or chrome://tracing; return its path. Of a session it has the last load."""
        target = target_of(path)
        events = trace_events(self._one()[0])
        return write_whole(target, [json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}).encode()])

    def _one(self) -> Sequence[Run]:
        """Return the run that a chart of one run shows."""
        data = self.runs.data
        if not data or not data[-1].requests:
            raise ConfigError("no request ran, so there is nothing to draw")
        return data[-1:]

    def _compared(self) -> Sequence[Run]:
        """Return the runs that a comparison has."""
        return [part for run in self.runs.data for part in bursts(run)]

    def _title(self) -> str:
        """Return a line that says what was recorded."""
        data = self.runs.data
        return describe(data[-1]) if data else ""


class Recording(Recorded):
    """A run that was read from a file."""

    def __init__(self, run: Run) -> None:
        self.run = run

    @property
    def runs(self) -> Runs:
        """The run alone."""
        return Runs([self])

    @property
    def requests(self) -> tuple[RequestRecord, ...]:
        """The requests, in the order of their arrival."""
        return self.run.requests

    @property
    def steps(self) -> tuple[StepRecord, ...]:
        """The engine's steps in that time."""
        return self.run.steps

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Recording) and self.run == other.run

    __hash__ = None  # type: ignore[assignment]  # what it holds has none

    def __repr__(self) -> str:
        return f"Recording({self._title()})"


class Runs(Recorded, Sequence["Recording"]):
    """Runs, of one file or of many people's. A chart of one run is `runs[0].figure(kind)`."""

    _named = True

    def __init__(self, recordings: Sequence[Recording]) -> None:
        self._recordings = tuple(recordings)

    @overload
    def __getitem__(self, index: int) -> Recording: ...
    @overload
    def __getitem__(self, index: slice) -> Runs: ...
    def __getitem__(self, index: int | slice) -> Recording | Runs:
        return Runs(self._recordings[index]) if isinstance(index, slice) else self._recordings[index]

    def __len__(self) -> int:
        return len(self._recordings)

    def __iter__(self) -> Iterator[Recording]:
        return iter(self._recordings)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Runs) and self._recordings == other._recordings

    __hash__ = None  # type: ignore[assignment]

    @property
    def runs(self) -> Runs:
        """These."""
        return self

    @property
    def data(self) -> list[Run]:
        """The runs as plain values."""
        return [recording.run for recording in self._recordings]

    def _one(self) -> Sequence[Run]:
        if len(self) > 1:
            raise ConfigError(f"these are {len(self)} runs; take one, runs[0], or compare them: runs.chart('compare')")
        return super()._one()

    def _title(self) -> str:
        return super()._title() if len(self) == 1 else ""

    def __repr__(self) -> str:
        return f"Runs({len(self)}: {', '.join(run.name or describe(run) for run in self.data)})"


def read_runs(*paths: str | os.PathLike[str]) -> Runs:
    """Return the runs of files that `to_jsonl` wrote; patterns such as ``"runs/*.jsonl"`` name several.

    Raises
    ------
    ConfigError
        If no file is called so, or one is no recorded run; the message says which line.
    """
    if not paths:
        raise ConfigError('read_runs takes the names of files: ji.read_runs("run.jsonl"), ji.read_runs("runs/*.jsonl")')
    return Runs([Recording(run) for run in read_files(*paths)])


def compare(*recorded: Recorded | Sequence[Recorded], labels: Sequence[str] | None = None) -> Chart:
    """Return the chart that compares runs: the difference with its run-to-run noise, and which settings differ.

    Parameters
    ----------
    *recorded
        Two or more of what was recorded: results, batches, sessions, runs of files. Runs with the same settings are
        repeats of one another. So are those of a list, if lists are given that settings do not tell apart.
    labels
        What to call each argument; those of the same label are repeats.

    Raises
    ------
    ConfigError
        If there are fewer than two runs, or not as many labels as arguments.
    """
    from jupyter_infer.charts import draw

    if labels is not None and len(labels) != len(recorded):
        raise ConfigError(f"{len(recorded)} things to compare want as many labels; got {len(labels)}")
    runs: list[Run] = []
    called: list[str] = []
    for index, item in enumerate(recorded):
        parts = [item] if isinstance(item, Recorded) else list(item) if isinstance(item, list | tuple) else []
        if not parts or not all(isinstance(part, Recorded) for part in parts):
            hint = f"; read the file first: read_runs({item!r})" if isinstance(item, str | os.PathLike) else ""
            raise ConfigError(f"what is compared are results, sessions and recorded runs, not {_kind_of(item)}{hint}")
        own = [run for part in parts for run in part._compared()]
        runs += own
        called += [labels[index] if labels is not None else _letter(index)] * len(own)
    grouped = any(not isinstance(item, Recorded) for item in recorded)
    if labels is None and not (grouped and len(arms(runs)) < len(recorded)):
        return draw("compare", runs)  # called by the settings that differ
    return draw("compare", runs, labels=called)


def _letter(index: int) -> str:
    return string.ascii_uppercase[index] if index < 26 else str(index + 1)


def _kind_of(item: Any) -> str:
    """Return what something is that was not recorded."""
    if isinstance(item, list | tuple):
        strangers = [part for part in item if not isinstance(part, Recorded)]
        return f"a list with a {type(strangers[0]).__name__} in it" if strangers else "an empty list"
    return f"a {type(item).__name__}"


def describe(run: Run) -> str:
    """Return a line that says what was run."""
    records = run.requests
    names = dict.fromkeys(record.model for record in records) or ([run.engine.model] if run.engine else ["no model"])
    parts = [
        ", ".join(names),
        f"{format_count(len(records))} request{'' if len(records) == 1 else 's'}",
        f"{format_count(sum(record.prompt_tokens for record in records))} in → "
        f"{format_count(sum(record.output_tokens for record in records))} out",
        f"throughput {format_rate(throughput(records))}",
        format_ns(wall_ns(records)),
    ]
    return " · ".join([*([run.name] if run.name else []), *parts])
