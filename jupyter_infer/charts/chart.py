"""What a chart is: a figure, the sentences that read it, and its numbers for hosts that draw nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jupyter_infer.charts.bundle import bundle
from jupyter_infer.charts.static import table_html

if TYPE_CHECKING:
    import plotly.graph_objects as go

__all__ = ["Chart", "Table"]


@dataclass(frozen=True, slots=True)
class Table:
    """Numbers as text: names of the columns and the cells of each row, the first of which says whose they are."""

    head: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()


@dataclass(frozen=True, slots=True)
class Chart:
    """A figure with what is to be read from it. As the value of a cell it shows itself, also in a saved notebook.

    Parameters
    ----------
    figure
        The figure, with its sentences on the card.
    title
        What was run: a line of plain text.
    reading
        One sentence that reads the figure.
    advice
        One sentence that says what to try next, where tuning is the point.
    table
        The numbers that matter, for hosts without Plotly.
    html
        The static form; made from the rest if it is None.
    """

    figure: go.Figure
    title: str
    reading: str
    advice: str | None = None
    table: Table = field(default_factory=Table)
    html: str | None = None

    @property
    def text(self) -> str:
        """The chart in words."""
        return "\n".join(line for line in (self.title, self.reading, self.advice) if line)

    def __repr__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        html = self.html
        if html is None:
            sentences = [self.reading, *([self.advice] if self.advice else [])]
            html = table_html(self.title, sentences, self.table.head, self.table.rows)
        return bundle(self.figure, html, self.text)
