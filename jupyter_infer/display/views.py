"""Which view suits a front end."""

from __future__ import annotations

from typing import Any

from jupyter_infer.display.cell import CellView
from jupyter_infer.display.loop import View
from jupyter_infer.display.stream import CellStreamView, TerminalView

__all__ = ["view_for"]


def view_for(shell: Any, format: str | None = None, *, in_place: bool = False) -> View:
    """Return the view that suits an IPython shell.

    Parameters
    ----------
    shell
        The shell; one with a kernel has a front end that shows displays.
    format
        ``"markdown"`` or ``"text"``; None for Markdown in a front end and text in a terminal.
    in_place
        Whether a front end shows it in one place of the cell and not on its stdout, which belongs to other cells while
        they run.
    """
    if getattr(shell, "kernel", None) is None:
        return TerminalView()
    if format == "text":
        return CellView(markdown=False) if in_place else CellStreamView()
    return CellView()
