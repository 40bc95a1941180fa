"""Figures as they are sent, for the tests of charts."""

from __future__ import annotations

import base64
import json
import math
import struct
from typing import Any

from jupyter_infer.charts import PLOTLY_MIME, bundle, phases_figure
from jupyter_infer.pricing import DEFAULT_PRICE, MachinePrice

PHASE_NAMES = ("queued", "prefill", "decode")


def spec(records: list[Any], price: MachinePrice | None = DEFAULT_PRICE, **options: Any) -> dict[str, Any]:
    """Return the Plotly JSON as it is sent, after it went through strict JSON."""
    made = bundle(phases_figure(records, price, **options), "", "")[PLOTLY_MIME]
    sent: dict[str, Any] = json.loads(json.dumps(made, allow_nan=False))
    return sent


def trace(figure: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any]
    (found,) = (trace for trace in figure["data"] if trace.get("name", "").startswith(name))
    return found


def names(figure: dict[str, Any]) -> list[str]:
    return [trace["name"] for trace in figure["data"] if "name" in trace]


def strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for item in items for text in strings(item)]


def numbers(values: Any) -> list[float | None]:
    """Return the items of an array of a figure, packed or not; `None` for what is not drawn."""
    if isinstance(values, dict):
        data = base64.b64decode(values["bdata"])
        code = {"f4": "f", "u2": "H"}[values["dtype"]]
        values = struct.unpack(f"<{len(data) // struct.calcsize(code)}{code}", data)
    return [None if value is None or math.isnan(value) else value for value in values]


def to_ns(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1e9)
