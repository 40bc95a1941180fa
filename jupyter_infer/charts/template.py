"""The one look of all charts: an opaque card that reads well on a light and on a dark page.

A chart that travels as MIME data knows no theme, so it brings its own background. The phases' colours are from the
palette of Okabe and Ito (2008), which stays apart for every kind of colour vision; time that is no phase is hatched.
"""

from __future__ import annotations

from typing import Any

__all__ = ["COLORS", "CONFIG", "FONT", "HATCH", "INK", "TEMPLATE"]

CARD = "#f8f9fa"
PLOT = "#ffffff"
INK = "#1f2328"
MUTED = "#57606a"  # 6.1:1 on the card
GRID = "#e3e6ea"

COLORS = {
    "load": "#b8bfc7",
    "queued": "#e69f00",
    "prefill": "#0072b2",
    "decode": "#56b4e9",
    "stalled": "#d55e00",
    "shared cost": "#009e73",
}
TEXT_ON = {"queued": INK, "prefill": "#ffffff", "decode": INK}
HATCH = {"load": "/", "stalled": "x"}

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'DejaVu Sans', sans-serif"
SIZE = 12
SMALL = 11
TITLE_SIZE = 12

TEXT_WIDTH = 530  # pixels of text that fit on the card in a JupyterLab window of 700 pixels, its gutters taken off

_AXIS = {
    "ticks": "outside",
    "ticklen": 5,
    "tickcolor": "rgba(0,0,0,0)",  # only keeps the labels off the plot
    "automargin": False,  # margins that follow the labels make a chart jump when it is resized
    "color": MUTED,
    "gridcolor": GRID,
    "linecolor": GRID,
    "zerolinecolor": GRID,
    "tickfont": {"size": SMALL, "color": MUTED},
    "title": {"font": {"size": SMALL, "color": MUTED}, "standoff": 6},
}

TEMPLATE: dict[str, Any] = {
    "layout": {
        "paper_bgcolor": CARD,
        "plot_bgcolor": PLOT,
        "font": {"family": FONT, "size": SIZE, "color": INK},
        "colorway": [COLORS["prefill"], COLORS["decode"], COLORS["queued"], COLORS["stalled"], "#009e73", "#cc79a7"],
        "title": {"font": {"size": TITLE_SIZE, "color": INK}},
        "hoverlabel": {
            "align": "left",
            "bgcolor": "#ffffff",
            "bordercolor": MUTED,
            "font": {"family": FONT, "size": SMALL, "color": INK},
            "namelength": -1,
        },
        "legend": {"orientation": "h", "font": {"size": SMALL, "color": INK}, "bgcolor": "rgba(0,0,0,0)"},
        "modebar": {"bgcolor": "rgba(248,249,250,0.85)", "color": MUTED, "activecolor": INK},
        "xaxis": _AXIS,
        "yaxis": _AXIS,
    }
}

CONFIG: dict[str, Any] = {
    "responsive": True,
    "displaylogo": False,
    "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d", "zoomIn2d", "zoomOut2d"],
    "showSendToCloud": False,  # on by default since plotly.js 4; prompts stay on the machine
    "plotlyServerURL": "",
    "typesetMath": False,  # two prices in a line are no formula
}
