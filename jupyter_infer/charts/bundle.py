"""A figure as a MIME bundle that any host can show: Plotly where there is a renderer, else HTML, else text."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from jupyter_infer.charts.template import CONFIG

if TYPE_CHECKING:
    import plotly.graph_objects as go

__all__ = ["PLOTLY_MIME", "bundle"]

PLOTLY_MIME = "application/vnd.plotly.v1+json"


def bundle(figure: go.Figure, html: str, text: str) -> dict[str, Any]:
    """Return the MIME bundle of a figure: plain JSON values only, each number finite or null.

    Parameters
    ----------
    figure
        The figure; not changed, and not kept.
    html
        The form for hosts without Plotly, e.g. from `static_html`.
    text
        The form for terminals.
    """
    # Plotly's own writer turns NaN and infinity into null and arrays into lists or base64; nothing else is kept.
    plain = json.loads(figure.to_json(validate=False))
    spec = {"data": plain.get("data", []), "layout": plain.get("layout", {}), "config": dict(CONFIG)}
    return {PLOTLY_MIME: spec, "text/html": html, "text/plain": text}
