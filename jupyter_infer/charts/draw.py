"""Charts by kind."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jupyter_infer.errors import ConfigError, nearest

if TYPE_CHECKING:
    from jupyter_infer.charts.chart import Chart
    from jupyter_infer.run import Run

__all__ = ["KINDS", "draw"]

KINDS = {
    "phases": "where the time of each request went, and what it cost",
    "tokens": "each token at its time, and what kept the late ones",
    "steps": "which step computed what of which request",
    "cost": "where the money went",
    "kv": "the KV pool over time, by owner",
    "compare": "two or more runs, and whether they differ by more than noise",
}
"""The kinds of chart, and what each shows. Each is `KIND_chart` in a module of its name."""


def draw(kind: str, runs: Sequence[Run], /, *, title: str = "", **options: Any) -> Chart:
    """Return a chart of a run, or of several for ``"compare"``; `title` says in a line what was run.

    Raises
    ------
    ConfigError
        If there is no such kind, or it has no such option.
    """
    kind = str(kind)
    if kind not in KINDS:
        raise ConfigError(f"unknown chart {kind!r}{nearest(kind, KINDS)}; there is: {', '.join(KINDS)}")
    make = getattr(importlib.import_module(f"jupyter_infer.charts.{kind}"), f"{kind}_chart")
    known = [name for name in inspect.signature(make).parameters if name not in ("run", "runs", "title")]
    for name in options:
        if name not in known:
            has = f"it takes {', '.join(known)}" if known else "it takes none"
            raise ConfigError(f"the chart {kind!r} has no option {name!r}{nearest(name, known)}; {has}")
    # A name that looks like a number was perhaps read as one.
    named = {name: str(value) if isinstance(value, int | float) else value for name, value in options.items()}
    chart: Chart = make(runs if kind == "compare" else runs[0], title="" if title is None else str(title), **named)
    return chart
