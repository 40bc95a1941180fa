"""Records as charts: Plotly figures, a static HTML form of them and the MIME bundle of both. No engine in sight.

Importing this package does not import Plotly; drawing a figure does.
"""

from __future__ import annotations

from jupyter_infer.charts.bundle import PLOTLY_MIME, bundle
from jupyter_infer.charts.chart import Chart, Table
from jupyter_infer.charts.draw import KINDS, draw
from jupyter_infer.charts.phases import phases_figure
from jupyter_infer.charts.static import static_html
from jupyter_infer.charts.template import COLORS, CONFIG, TEMPLATE

__all__ = [
    "COLORS",
    "CONFIG",
    "KINDS",
    "PLOTLY_MIME",
    "TEMPLATE",
    "Chart",
    "Table",
    "bundle",
    "draw",
    "phases_figure",
    "static_html",
]
