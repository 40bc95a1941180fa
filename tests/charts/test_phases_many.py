"""Charts of many requests, and what a saved notebook keeps of any chart."""

from __future__ import annotations

import json
import re

import pytest

from jupyter_infer.charts import bundle, phases_figure, static_html
from jupyter_infer.charts._form import form_of
from jupyter_infer.metrics import phases
from jupyter_infer.pricing import DEFAULT_PRICE, cost

from .figures import PHASE_NAMES, names, numbers, spec, trace
from .samples import MS, aborted_in_prefill, make_batch, make_record


@pytest.mark.parametrize("count", [13, 24, 64, 65, 200, 201, 500])
def test_bars_of_many_are_the_phases_to_seven_digits(count: int) -> None:
    records = [*make_batch(count - 1, tokens=5), aborted_in_prefill()]
    figure = spec(records)
    arrivals, *phase_bars = (trace for trace in figure["data"] if trace["type"] == "bar" and "base" not in trace)
    assert figure["layout"]["barmode"] == "stack"
    assert numbers(arrivals["x"]) == pytest.approx([(r.arrival_ns - records[0].arrival_ns) / 1e9 for r in records])
    for name, bars in zip(PHASE_NAMES, phase_bars, strict=False):
        assert (bars["name"], bars["y0"], bars["dy"]) == (name, 1, 1)
        lengths = [getattr(phases(record), f"{name}_ns") for record in records]
        wanted = [None if length is None else length / 1e9 for length in lengths]
        *drawn, last = numbers(bars["x"])
        assert drawn == pytest.approx(wanted[:-1])
        assert (last is None) == (wanted[-1] is None)


@pytest.mark.parametrize("count", [13, 500])
def test_bars_of_many_say_their_dollars_and_definitions(count: int) -> None:
    records = make_batch(count, tokens=30)
    bars = trace(spec(records), "decode")
    exponent = re.search(r"&#36;%\{customdata\}e([+-]\d+)", bars["hovertemplate"])
    unit = 10.0 ** int(exponent[1]) if exponent else 1.0
    dollars = [value * unit for value in numbers(bars["customdata"]) if value is not None]
    assert dollars == pytest.approx([cost(record).decode_usd for record in records], rel=1e-3)
    assert "<b>request %{y}</b><br><b>decode %{x:.3~s}s, &#36;%{customdata" in bars["hovertemplate"]
    assert "first → last output token" in bars["hovertemplate"]


@pytest.mark.parametrize("count", [6, 12, 64, 200])
def test_costs_of_many_stand_beside_them_as_bars(count: int) -> None:
    records = [*make_batch(count - 1, tokens=3), make_record(shared=None)]
    bars = trace(spec(records), "shared cost")
    *known, unknown = numbers(bars["x"])
    assert known == pytest.approx([cost(record).shared_usd for record in records[:-1]])
    assert unknown is None
    assert bars["xaxis"] == "x3"


def test_bars_lie_at_whole_pixels() -> None:
    for count in (1, 2, 5, 6, 12, 13, 24, 64, 65, 200, 500):
        form = form_of(count)
        bar = form.bar * form.row
        assert bar == pytest.approx(round(bar))
        assert (form.row - round(bar)) % 2 == 0 or form.row < 6
    assert form_of(500).row == 1


def test_thinned_ticks_say_so() -> None:
    ticks = trace(spec(make_batch(20)), "token step")
    stride = re.fullmatch(r"token step \(1 of (\d+) drawn\)", ticks["name"])
    assert stride
    assert len(numbers(ticks["x"])) == 20 * -(-200 // int(stride[1])) <= 200
    assert "token step" not in " ".join(names(spec(make_batch(64, tokens=4))))


@pytest.mark.parametrize(
    ("count", "bound"),
    [(1, 20000), (2, 21000), (5, 26000), (12, 32000), (16, 25000), (64, 23000), (200, 27000), (500, 34000)],
)
def test_what_a_notebook_keeps_is_bounded(count: int, bound: int) -> None:
    """JSON, HTML and text of a chart leave room for the picture in the 100 kB that a saved output may take.

    JupyterLab's Plotly renderer adds the picture, a PNG as wide as the output, which only a browser can draw. Measured
    at 1000 pixels in Chromium, in base64: 74 kB for 1 request with a load, up to 77 kB for 5, 62 kB for 12, 67 kB for
    16, 74 kB for 64, 56 kB for 200, 71 to 76 kB for 500.
    """
    records = [
        make_record(
            f"r{i}",
            prompt=f"A question of a common length, the one with the number {i}?",
            arrival=7.123 * i,
            queued=None if i % 20 == 19 else 5.5 + 31.7 * i,
            prefill=None if i % 20 == 18 else 180 + 11.5 * (i % 5),
            itl=[22.25 + (i * 7 + step * 3) % 11 for step in range(40 + (i * 37) % 160)],
            tokens=200,
            load=21_300 if i == 0 else None,
            stalled=80 if i % 9 == 8 else 0,
            shared=None if i % 6 == 5 else 90 + i,
            finish=("stop", "length", "abort")[i % 3],
        )
        for i in range(count)
    ]
    shown = {record.request_id: record.arrival_ns + 400 * MS for record in records}
    title = "· ".join(["✓ some-organisation/some-model-1.5B-Instruct ", *["28 in → 120 out "] * 5])
    figure = phases_figure(records, DEFAULT_PRICE, title=title, first_shown_ns=shown)
    made = bundle(figure, static_html(records, DEFAULT_PRICE, status=title), title)
    assert sum(len(json.dumps(form, ensure_ascii=False).encode()) for form in made.values()) <= bound


def test_a_long_answer_stays_small() -> None:
    figure = spec([make_record(tokens=100_000)])
    assert len(json.dumps(figure).encode()) <= 20_000


def test_height_grows_to_a_bound() -> None:
    heights = [spec(make_batch(count, tokens=2))["layout"]["height"] for count in (1, 3, 12, 20, 500)]
    assert heights == sorted(heights)
    assert heights[-1] <= 700
