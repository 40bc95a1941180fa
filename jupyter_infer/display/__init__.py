"""A request's events as they come, on a screen: in a notebook's cell, or in a terminal. No engine in sight.

Model output is data: it is escaped or rendered to harmless HTML, and never run.
"""

from __future__ import annotations

from jupyter_infer.display.cell import BYTES_PER_S, UPDATES_PER_S, CellView
from jupyter_infer.display.loop import View, follow, wait_for
from jupyter_infer.display.stream import CellStreamView, TerminalView
from jupyter_infer.display.text import printable
from jupyter_infer.display.views import view_for

__all__ = [
    "BYTES_PER_S",
    "UPDATES_PER_S",
    "CellStreamView",
    "CellView",
    "TerminalView",
    "View",
    "follow",
    "printable",
    "view_for",
    "wait_for",
]
