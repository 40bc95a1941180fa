from __future__ import annotations

import json
import math
import subprocess
import sys

import plotly.graph_objects as go

from jupyter_infer.charts import PLOTLY_MIME, bundle


def test_bundle_is_strict_json_with_all_three_forms() -> None:
    figure = go.Figure({"data": [{"type": "bar", "x": [1.0, math.nan, None, math.inf], "y": [0, 1, 2, 3]}]})
    made = bundle(figure, "<p>", "text")
    assert set(made) == {PLOTLY_MIME, "text/html", "text/plain"}
    assert json.loads(json.dumps(made, allow_nan=False)) == made
    assert made[PLOTLY_MIME]["data"][0]["x"] == [1.0, None, None, None]


def test_config_keeps_the_chart_on_the_machine() -> None:
    config = bundle(go.Figure(), "", "")[PLOTLY_MIME]["config"]
    assert config["responsive"] is True
    assert config["displaylogo"] is False
    assert config["typesetMath"] is False
    assert config["showSendToCloud"] is False
    assert config["plotlyServerURL"] == ""


def test_plotly_is_imported_by_drawing_only() -> None:
    code = "import sys, jupyter_infer.charts; sys.exit('plotly' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
