"""Figures as widgets: `FigureWidget` takes them, whatever a request did not reach or nobody priced."""

from __future__ import annotations

import json
import math
from typing import Any

import plotly.graph_objects as go
import pytest

from jupyter_infer.charts import phases_figure, static_html
from jupyter_infer.pricing import DEFAULT_PRICE, MachinePrice
from jupyter_infer.records import RequestRecord

from .figures import PHASE_NAMES, numbers, strings
from .samples import aborted_in_decode, aborted_in_prefill, aborted_in_queue, make_batch, make_record, one_token

NOT_REACHED = {  # the phases that have no bar
    "one token": (one_token, ()),
    "aborted in the queue": (aborted_in_queue, PHASE_NAMES),
    "aborted in prefill": (aborted_in_prefill, ("prefill", "decode")),
    "aborted in decode": (aborted_in_decode, ()),
    "share unknown": (lambda: make_record(shared=None), ()),
}


def sent(records: list[RequestRecord], price: MachinePrice | None) -> list[dict[str, Any]]:
    """Return the traces as a widget sends them: through strict JSON."""
    state = go.FigureWidget(phases_figure(records, price)).get_state()
    traces: list[dict[str, Any]]
    traces, _ = json.loads(json.dumps([state["_widget_data"], state["_widget_layout"]], allow_nan=False))
    return traces


def every_number(value: Any) -> list[float | None]:
    """Return all numbers below `value`, packed ones too: `None` for what is not drawn."""
    if isinstance(value, dict) and "bdata" in value:
        return numbers(value)
    if isinstance(value, dict | list):
        items = value.values() if isinstance(value, dict) else value
        return [number for item in items for number in every_number(item)]
    return [value] if value is None or (isinstance(value, int | float) and not isinstance(value, bool)) else []


@pytest.mark.parametrize("price", [DEFAULT_PRICE, None], ids=["priced", "unpriced"])
@pytest.mark.parametrize("others", [0, 30])
@pytest.mark.parametrize("kind", NOT_REACHED)
def test_a_widget_takes_every_request_and_missing_bars_are_absent(
    kind: str, others: int, price: MachinePrice | None
) -> None:
    make, missing = NOT_REACHED[kind]
    traces = sent([*make_batch(others, tokens=3), make()], price)
    assert all(number is None or math.isfinite(number) for number in every_number(traces))
    for phase in PHASE_NAMES:
        (bars,) = (trace for trace in traces if trace.get("name") == phase)
        *drawn, last = numbers(bars["x"])
        assert None not in drawn
        assert (last is None) == (phase in missing)


@pytest.mark.parametrize(
    ("record", "price", "said", "unsaid"),
    [
        (one_token(), DEFAULT_PRICE, ("TPOT n/a", "decode n/a"), ("TPOT 0", "nan", "inf")),
        (
            aborted_in_prefill(),
            DEFAULT_PRICE,
            ("prefill n/a", "decode n/a", "TTFT n/a", "e2e n/a"),
            ("TTFT 0", "e2e 0"),
        ),
        (make_record(), None, ("cost: n/a shared, n/a wall",), ("&#36;",)),
    ],
    ids=["one token", "aborted in prefill", "unpriced"],
)
def test_what_is_not_known_is_said_and_is_no_zero(
    record: RequestRecord, price: MachinePrice | None, said: tuple[str, ...], unsaid: tuple[str, ...]
) -> None:
    hover = " ".join(strings([trace.get("customdata", []) for trace in sent([record], price)])).replace("<br>", " ")
    for text in said:
        assert text in hover
    for text in unsaid:
        assert text not in hover
    assert "n/a" in static_html([record], price, status="")
