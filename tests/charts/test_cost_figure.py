"""The chart of costs: every part is there once, and what is not known is no zero."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from typing import Any

import pytest
from builders import make_record, make_sample, make_step, make_work
from hypothesis import given
from hypothesis import strategies as st

from jupyter_infer.charts import PLOTLY_MIME
from jupyter_infer.charts._cost_parts import Measure, parts_of
from jupyter_infer.charts.cost import cost_chart
from jupyter_infer.charts.labels import text_width
from jupyter_infer.charts.template import SMALL
from jupyter_infer.metrics import phases
from jupyter_infer.numbers import axis_unit
from jupyter_infer.pricing import ApiPrice, MachinePrice, api_usd, cost, format_usd
from jupyter_infer.records import RequestRecord
from jupyter_infer.run import Run, RunHeader

from .figures import names, numbers, strings, trace

SECOND = 1_000_000_000
PRICE = MachinePrice(3600.0)  # a dollar a second
API = ApiPrice("model <b>", "provider", 1.0, 0.5, 4.0, "given")
EVIL = "<img src=x onerror=1> $5 $6 &amp;\n\u202eשלום 🙂 " + "x" * 100_000


def ask(
    name: str = "a", *, arrival: int = 0, prefill: int = 2, decode: int = 1, stalled: int = 0, **facts: Any
) -> RequestRecord:
    """Return a request of 10 seconds, 5 of them decode; its attributed parts are seconds, too."""
    sample = replace(make_sample([(arrival + second) * SECOND for second in (5, 10)], request_id=name))
    values: dict[str, Any] = {
        "arrival_ns": arrival * SECOND,
        "started_ns": (arrival + 1) * SECOND,
        "shared_prefill_ns": prefill * SECOND,
        "shared_decode_ns": decode * SECOND,
        "shared_stalled_ns": stalled * SECOND,
        "prompt_tokens": 10,
        "cached_tokens": 4,
    }
    return make_record(sample, request_id=name, **(values | facts))


def make_run(
    *requests: RequestRecord, price: MachinePrice | None = PRICE, api: ApiPrice | None = None, busy: int = 9
) -> Run:
    """Return a run whose two steps are `busy` seconds in all, from the first start on and up to the last end."""
    end = max((record.finished_ns for record in requests), default=10 * SECOND)
    begun = min((record.started_ns for record in requests if record.started_ns is not None), default=0)
    work = [make_work(record.request_id) for record in requests]
    steps = (
        make_step(*work, start=begun, end=begun + (busy - 1) * SECOND, index=0),
        make_step(*work, start=end - SECOND, end=end, index=1),
    )
    return Run(RunHeader("2026-12-01T00:00:00+00:00", None, price, api), requests, steps)


def sent(run: Run, **options: Any) -> dict[str, Any]:
    made = cost_chart(run, **options)._repr_mimebundle_()[PLOTLY_MIME]
    figure: dict[str, Any] = json.loads(json.dumps(made, allow_nan=False))
    return figure


def panel(figure: dict[str, Any], axis: str) -> dict[str, list[float | None]]:
    """Return the bars on an axis by name: x9 is the machine, x shared, x2 wall and x3 the API."""
    return {t["name"]: numbers(t["x"]) for t in figure["data"] if t["xaxis"] == axis}


def test_the_machine_is_a_bar_of_all_parts() -> None:
    figure = sent(make_run(ask("a"), ask("b", prefill=1, decode=2, stalled=1)))
    assert panel(figure, "x9") == {
        "prefill": [3], "decode": [3], "stalled": [1], "not attributed": [2], "idle, nobody's": [1]
    }  # fmt: skip
    assert figure["layout"]["xaxis9"]["range"] == [0, 10]
    assert figure["layout"]["xaxis9"]["ticksuffix"] == " $"


def test_a_request_is_a_bar_by_what_was_computed_and_one_by_the_wall_clock() -> None:
    figure = sent(make_run(ask("a"), ask("b", prefill=1, decode=2, stalled=1)))
    assert panel(figure, "x") == {"prefill": [2, 1], "decode": [1, 2], "stalled": [0, 1]}
    assert panel(figure, "x2") == {"queued": [1, 1], "prefill": [4, 4], "decode": [5, 5]}
    assert figure["layout"]["xaxis"]["title"]["text"] == "shared cost, &#36;"
    assert figure["layout"]["barmode"] == "stack"
    for bars in figure["data"]:
        assert (bars["y0"], bars["dy"]) == (1, 1)  # places, so that equal labels stay apart


shared = st.one_of(st.none(), st.integers(0, 3 * SECOND))


@given(st.lists(st.tuples(shared, shared, shared), min_size=1, max_size=6), st.integers(2, 10))
def test_every_nanosecond_is_in_one_part(times: list[tuple[int | None, ...]], busy: int) -> None:
    requests = [
        ask(f"r{place}", shared_prefill_ns=prefill, shared_decode_ns=decode, shared_stalled_ns=stalled)
        for place, (prefill, decode, stalled) in enumerate(times)
    ]
    run = make_run(*requests, busy=busy)
    parts = parts_of(run)
    total = sum(record.shared_ns or 0 for record in requests)
    assert parts.shared == total
    assert parts.prefill == sum(record.shared_prefill_ns or 0 for record in requests)
    assert parts.elapsed == 10 * SECOND
    if total > busy * SECOND:  # what the steps cannot have been
        assert parts.unattributed is None
        assert parts.idle is None
    else:
        assert parts.busy == busy * SECOND
        assert parts.shared + (parts.unattributed or 0) + (parts.idle or 0) == parts.elapsed
        assert parts.idle == parts.elapsed - busy * SECOND


def test_bars_of_a_request_sum_to_its_costs() -> None:
    price = MachinePrice(0.05, watts=65, usd_per_kwh=0.3)
    records = [ask("a"), ask("b", prefill=1, decode=2, stalled=1)]
    figure = sent(make_run(*records, price=price))
    unit = {"shared cost, µ&#36;": 1e-6, "wall cost, m&#36;": 1e-3}
    for axis, kind in (("x", "shared"), ("x2", "wall")):
        size = unit[figure["layout"][f"{axis[0]}axis{axis[1:]}"]["title"]["text"]]
        bars = panel(figure, axis).values()
        for place, record in enumerate(records):
            drawn = sum(values[place] or 0 for values in bars) * size
            assert drawn == pytest.approx(getattr(cost(record, price), f"{kind}_usd"), rel=1e-6)


def test_the_sentence_reads_where_it_went() -> None:
    assert cost_chart(make_run(ask("a"), ask("b"))).reading == (
        "Shared cost of 2 requests: $6.00, 67 % of it prefill; paid by the wall clock, as if each had the machine to "
        "itself, it would be 3.3 times as much; nobody's request pays for $1.00 (10 % of the time) in which the "
        "machine idled."
    )
    assert cost_chart(make_run(ask(), busy=10)).reading == (
        "Shared cost of 1 request: $3.00, 67 % of it prefill; by the wall clock it was $10.00."
    )


def test_an_api_is_apart_and_added_to_nothing() -> None:
    record = ask()
    figure = sent(make_run(record, api=API))
    usd = (6 * 1.0 + 4 * 0.5 + 2 * 4.0) / 1e6
    assert api_usd(record, API) == pytest.approx(usd)
    assert panel(figure, "x3") == {"API cost (another price)": [pytest.approx(16)]}  # µ$
    bars = trace(figure, "API")
    assert bars["marker"]["line"]["width"] > 0  # an outline, where the machine's bars are filled
    assert figure["layout"]["xaxis3"]["title"]["text"] == "API, µ&#36;"
    assert panel(figure, "x9") == panel(sent(make_run(record)), "x9")
    assert "x3" not in {t["xaxis"] for t in sent(make_run(record))["data"]}
    assert "1.6e-5" in " ".join(" ".join(row) for row in cost_chart(make_run(record, api=API)).table.rows)


def test_an_api_cost_that_is_not_known_is_not_drawn() -> None:
    figure = sent(make_run(ask("a"), ask("b", cached_tokens=None), api=API))
    assert panel(figure, "x3")["API cost (another price)"][1] is None
    row = next(row for row in cost_chart(make_run(ask(cached_tokens=None), api=API)).table.rows if row[0][:3] == "API")
    assert row[1] == "n/a"


def test_a_million_tokens_are_told_with_what_the_machine_was_used() -> None:
    caption = captions(sent(make_run(ask())))
    # 2 s for 6 uncached tokens, 1 s for 2 output tokens; busy for 9 of 10 s.
    assert f"$ / 1M tokens while busy: {format_usd(2e6 / 6)} in, $500,000.00 out, $250,000.00 blended" in caption
    assert f"with idle time (busy 90 %): {format_usd(2e7 / 54)} in, $555,555.56 out" in caption


def captions(figure: dict[str, Any]) -> str:
    text = " ".join(note["text"] for note in figure["layout"]["annotations"]).replace("<br>", " ")
    return text.replace("&#36;", "$").replace("\u00a0", " ")


def test_without_a_price_times_stand_for_costs() -> None:
    run = make_run(ask("a"), ask("b"), price=None)
    chart, figure = cost_chart(run), sent(run)
    assert chart.reading.startswith(
        "No machine price is set, so times stand for costs; 2 requests took 6 s of the engine's work, 67 % of it "
        "prefill; by the wall clock they took 3.3 times as much"
    )
    assert chart.advice == "Set what the machine costs: %infer price USD_PER_HOUR."
    assert figure["layout"]["xaxis"]["title"]["text"] == "shared time, s"
    assert panel(figure, "x")["prefill"] == [2, 2]
    assert {row[1] for row in chart.table.rows} == {"n/a"}
    assert not any("&#36;" in text for text in strings(figure["data"]))


def test_without_all_steps_idle_time_is_not_known() -> None:
    whole = make_run(ask())
    for run in (replace(whole, steps=()), replace(whole, steps=whole.steps[1:])):
        figure = sent(run)
        assert set(panel(figure, "x9")) == {"prefill", "decode"}
        assert figure["layout"]["xaxis9"]["range"] == [0, 10]  # the rest is left open
        assert "idle and not attributed n/a" in captions(figure)
        rows = {row[0]: row[1] for row in cost_chart(run).table.rows}
        assert rows["idle, nobody's"] == rows["not attributed"] == "n/a"


@pytest.mark.parametrize("usd_per_hour", [1e-9, 1e-3, 0.05, 3600.0, 3.6e6])
def test_axes_have_few_digits_at_any_price(usd_per_hour: float) -> None:
    figure = sent(make_run(ask(), price=MachinePrice(usd_per_hour)))
    for axis in ("x", "x2"):
        most = max(sum(value or 0 for value in column) for column in zip(*panel(figure, axis).values(), strict=True))
        assert most < 1000 or usd_per_hour >= 3600
        assert most >= 0.1 or usd_per_hour < 1e-6
        assert math.isfinite(most)


def test_what_gave_no_token_has_no_wall_cost() -> None:
    never = ask("never", shared_prefill_ns=None, shared_decode_ns=None, shared_stalled_ns=None)
    never = replace(never, samples=(), started_ns=None, first_token_ns=None, last_token_ns=None)
    assert phases(never).e2e_ns is None
    started = replace(ask("started", decode=0), samples=(), first_token_ns=None, last_token_ns=None)
    figure = sent(make_run(ask("a"), never, started))
    assert panel(figure, "x2") == {"queued": [1, None, None], "prefill": [4, None, None], "decode": [5, None, None]}
    assert panel(figure, "x")["prefill"] == [2, None, 2]
    assert cost_chart(make_run(never)).reading == (
        "Shared cost of 1 request: n/a, because no step computed anything of it."
    )
    assert cost_chart(make_run()).reading == "No request ran."
    assert sent(make_run())["data"] == []


def test_advice_is_a_real_option_and_only_where_the_numbers_speak_for_it() -> None:
    stalled = cost_chart(make_run(ask(stalled=1))).advice
    assert stalled is not None
    assert "--kv-cache-memory-bytes" in stalled
    alone = make_run(ask("a", prefill=4, decode=5), ask("b", arrival=10, prefill=4, decode=5), busy=20)
    advice = cost_chart(alone).advice
    assert advice is not None
    assert "%%infer --prompts NAME" in advice
    assert cost_chart(make_run(ask("a"), ask("b"))).advice is None
    assert cost_chart(make_run(ask(prefill=4, decode=5))).advice is None  # one request has no neighbours


@pytest.mark.parametrize("count", [1, 12, 13, 60, 61, 500])
def test_many_requests_stay_small_and_in_their_places(count: int) -> None:
    records = [replace(ask(f"r{place}", label="same"), shared_prefill_ns=place) for place in range(count)]
    figure = sent(make_run(*records, api=API))
    assert len(json.dumps(figure)) < 120_000
    shown = panel(figure, "x").get("prefill", [0.0] * count)
    assert [round((value or 0) * SECOND) for value in shown] == pytest.approx(list(range(count)), abs=1)
    assert len(figure["data"]) <= 5 + 3 + 3 + 1
    axis = figure["layout"]["yaxis"]
    assert axis["range"] == [count + 0.5, 0.5]
    assert len(axis.get("ticktext", [])) == (count if count <= 12 else 0)


def test_text_is_data() -> None:
    chart = cost_chart(make_run(ask(label=EVIL), ask("b", label=EVIL), api=API), title=EVIL[:200])
    made = chart._repr_mimebundle_()
    for text in strings(made[PLOTLY_MIME]["data"]) + strings(made[PLOTLY_MIME]["layout"]):
        assert "<img" not in text
        assert "model <b>" not in text
        unescaped = re.sub(r"&#36;", "", text)
        assert "$" not in unescaped or re.fullmatch(r" ?[mµn]?\$", unescaped)  # a unit at a tick is no pair
    assert "<img" not in made["text/html"]
    assert len(json.dumps(made)) < 60_000


def test_names_of_bars_are_those_of_the_key() -> None:
    figure = sent(make_run(ask("a", stalled=1), api=API))
    key = captions(figure)
    for name in set(names(figure)):
        assert name in key


def rows_of(run: Run) -> dict[str, list[str]]:
    return {row[0]: list(row[1:]) for row in cost_chart(run).table.rows}


def unserved(name: str) -> RequestRecord:
    """Return a request that was aborted before a step computed anything of it."""
    never = ask(name, shared_prefill_ns=None, shared_decode_ns=None, shared_stalled_ns=None)
    return replace(never, samples=(), started_ns=None, first_token_ns=None, last_token_ns=None)


def test_the_table_sums_what_is_known_and_says_of_how_many() -> None:
    rows = rows_of(make_run(ask("a"), ask("b"), ask("c")))
    assert rows["shared cost, of all requests"] == ["$9.00", "9 s", "90 %"]
    assert rows["shared prefill, of all requests"] == ["$6.00", "6 s", "60 %"]
    assert rows["wall cost, of all requests"] == ["$30.00", "30 s", "300 %"]
    some = make_run(ask("a"), ask("b"), ask("c"), unserved("never"))
    rows = rows_of(some)
    assert rows["shared cost, of 3 of 4 requests"] == ["$9.00", "9 s", "90 %"]
    assert rows["shared decode, of 3 of 4 requests"] == ["$3.00", "3 s", "30 %"]
    assert rows["wall cost, of 3 of 4 requests"] == ["$30.00", "30 s", "300 %"]
    assert cost_chart(some).reading.startswith("Shared cost of 3 of 4 requests: $9.00, 67 % of it prefill; ")
    assert rows_of(make_run(ask()))["shared cost"] == ["$3.00", "3 s", "30 %"]


def test_the_table_of_what_is_not_known_has_no_zero() -> None:
    for run in (make_run(unserved("a")), make_run(unserved("a"), unserved("b"))):
        assert "n/a" in cost_chart(run).reading
        rows = rows_of(run)
        unknown = [cells for name, cells in rows.items() if name.startswith(("shared", "wall"))]
        assert len(unknown) == 5
        assert {cell for cells in unknown for cell in cells} == {"n/a"}
    assert not cost_chart(make_run()).table.rows


@pytest.mark.parametrize(("seconds", "unit"), [(0.5, "ms"), (400, "s"), (700, "min")])
def test_times_have_the_unit_of_other_charts(seconds: float, unit: str) -> None:
    measure = Measure(None)
    assert measure.unit([None, seconds * SECOND]) == axis_unit(seconds * SECOND)
    assert measure.unit([seconds * SECOND])[0] == unit


def test_a_label_that_is_too_long_is_cut_at_the_width() -> None:
    labels = sent(make_run(ask("a", label="W" * 99), ask("b", label="short")))["layout"]["yaxis"]["ticktext"]
    assert labels[1] == "2 · short"
    assert labels[0].startswith("1 · WW")
    assert labels[0].endswith("W…")
    assert text_width(labels[0], SMALL) <= 150
