"""The charts below a batch lab: an `ipywidgets.Output` whose outputs are set."""

from __future__ import annotations

import threading
from typing import Any

from ipywidgets import Output

from jupyter_infer.display.place import Place
from jupyter_infer.errors import InferError
from jupyter_infer.results import Results

__all__ = ["CHARTS", "ChartPlace"]

CHARTS = ("steps", "phases", "tokens", "cost", "kv")
"""Charts of a batch."""


class ChartPlace:
    """Where one chart is shown at a time. A drawn chart takes no update, so each is an output of its own.

    Nothing is captured: the outputs are set as a trait, from whatever thread, while other cells run.
    """

    def __init__(self) -> None:
        self.output = Output()
        self.html = ""
        """The chart without a script."""
        self._drawing = threading.RLock()

    def draw(self, results: Results, kind: str, title: str) -> None:
        """Show a chart under a line of its own; one that cannot be drawn says why in a line."""
        with self._drawing:
            try:
                self._set(results.chart(kind, title=title)._repr_mimebundle_())
            except InferError as error:
                self._set({"text/plain": f"{type(error).__name__}: {error}"})

    def clear(self) -> None:
        """Show nothing."""
        with self._drawing:
            self._set({})

    def show(self) -> None:
        """Show the place in the cell that runs."""
        Place().show({**self.output._repr_mimebundle_(), "text/plain": ""})

    def _set(self, data: dict[str, Any]) -> None:
        item = {"output_type": "display_data", "data": data, "metadata": {}}
        self.output.outputs = (item,) if data else ()
        self.html = data.get("text/html", "")
