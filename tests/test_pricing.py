"""What a request costs, and how that is said."""

from __future__ import annotations

import math
from typing import Any

import pytest
from builders import make_record, make_sample
from hypothesis import given
from hypothesis import strategies as st

from jupyter_infer.errors import ConfigError
from jupyter_infer.pricing import (
    DEFAULT_PRICE,
    ApiPrice,
    Cost,
    MachinePrice,
    PerMillion,
    api_blended,
    api_usd,
    cost,
    format_usd,
    per_million,
)
from jupyter_infer.records import from_json, to_json

HOUR = 3_600_000_000_000
API = ApiPrice("gpt", "openai", 2.0, 0.5, 8.0)

amounts = st.floats(0, 1e4, allow_subnormal=False)
counts = st.integers(0, 10**6)


def asked(prompt: int, cached: int | None, output: int, **facts: Any) -> Any:
    return make_record(make_sample([300], tokens=[output]), prompt_tokens=prompt, cached_tokens=cached, **facts)


def shared(prefill: int | None, decode: int | None, stalled: int | None = 0) -> dict[str, int | None]:
    return {"shared_prefill_ns": prefill, "shared_decode_ns": decode, "shared_stalled_ns": stalled}


def test_an_hour_of_the_machine_costs_its_price() -> None:
    record = make_record(make_sample([HOUR]), started_ns=0, shared_ns=HOUR // 4)
    money = cost(record, MachinePrice(2.0))
    assert money.wall_usd == 2.0
    assert money.shared_usd == 0.5


def test_a_time_of_the_machine_has_one_price() -> None:
    price = MachinePrice(2.0, watts=500, usd_per_kwh=1.0)
    assert price.usd(HOUR // 5) == pytest.approx(0.5)
    assert price.usd(0) == 0
    assert price.usd(None) is None


def test_the_costs_of_the_phases_sum_to_the_wall_cost() -> None:
    record = make_record(make_sample([HOUR // 2, HOUR]), started_ns=HOUR // 4)
    money = cost(record, MachinePrice(8.0))
    assert (money.queued_usd, money.prefill_usd, money.decode_usd) == (2.0, 2.0, 4.0)
    assert money.wall_usd == 8.0


def test_the_shared_cost_is_told_by_what_was_computed() -> None:
    record = make_record(**shared(HOUR // 8, HOUR // 4, HOUR // 2))
    money = cost(record, MachinePrice(8.0))
    assert (money.shared_prefill_usd, money.shared_decode_usd, money.shared_stalled_usd) == (1.0, 2.0, 4.0)
    assert money.shared_usd == 7.0


@given(st.lists(st.integers(0, 10**15), min_size=3, max_size=3), amounts)
def test_the_shared_costs_sum_to_the_shared_cost(times: list[int], usd: float) -> None:
    money = cost(make_record(**shared(*times)), MachinePrice(usd))
    parts = (money.shared_prefill_usd, money.shared_decode_usd, money.shared_stalled_usd)
    assert money.shared_usd == pytest.approx(math.fsum(part or 0 for part in parts), rel=1e-12)
    assert all(part is not None and part >= 0 for part in parts)


def test_a_cost_whose_time_is_not_known_is_not_known() -> None:
    money = cost(make_record(make_sample([], finish="abort"), started_ns=None, shared_ns=None))
    assert (money.wall_usd, money.shared_usd, money.queued_usd, money.shared_prefill_usd) == (None,) * 4
    assert "n/a" in str(money)


def test_power_is_paid_beside_the_machine() -> None:
    price = MachinePrice(0.40, watts=500, usd_per_kwh=0.20)
    assert price.total_usd_per_hour == pytest.approx(0.50)
    assert cost(make_record(shared_ns=HOUR), price).shared_usd == pytest.approx(0.50)
    assert MachinePrice(0.40).total_usd_per_hour == 0.40
    assert MachinePrice(0, watts=65, usd_per_kwh=0.30).total_usd_per_hour == pytest.approx(0.0195)


@pytest.mark.parametrize(
    ("price", "text"),
    [
        (MachinePrice(1.5), "$1.5/h"),
        (MachinePrice(0.4), "$0.40/h"),
        (MachinePrice(0.0035), "$0.0035/h"),
        (MachinePrice(12), "$12/h"),
        (MachinePrice(0), "$0/h"),
        (MachinePrice(0.4, 65, 0.3), "$0.40/h + 65 W × $0.30/kWh"),
        (MachinePrice(0.4, 65, 0, assumed=True), "$0.40/h + 65 W × $0/kWh assumed"),
    ],
)
def test_a_machine_price_is_said_as_it_was_given(price: MachinePrice, text: str) -> None:
    assert str(price) == text


def test_an_assumed_price_says_so_wherever_it_is_shown() -> None:
    assert str(DEFAULT_PRICE) == "$0.05/h assumed"
    assert "2026" in DEFAULT_PRICE.source
    money = cost(make_record(shared_ns=HOUR // 1000))
    assert str(money) == "≈$5.0e-5 @ $0.05/h assumed"


def test_a_machine_can_be_free() -> None:
    assert cost(make_record(), MachinePrice(0)).wall_usd == 0


@pytest.mark.parametrize("price", [-1, float("inf"), float("nan")])
def test_a_price_that_is_none_is_refused(price: float) -> None:
    with pytest.raises(ConfigError, match="dollars an hour"):
        MachinePrice(price)
    with pytest.raises(ConfigError, match="watts are a number"):
        MachinePrice(1, price, 0.3)
    with pytest.raises(ConfigError, match="dollars a kWh are a number"):
        MachinePrice(1, 65, price)
    for wrong in ((price, 1, 1), (1, price, 1), (1, 1, price)):
        with pytest.raises(ConfigError, match="dollars a million tokens"):
            ApiPrice("gpt", None, *wrong)


@pytest.mark.parametrize("power", [{"watts": 65}, {"usd_per_kwh": 0.3}])
def test_half_of_a_power_price_is_refused(power: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=r"watts=65, usd_per_kwh=0.30"):
        MachinePrice(0.4, **power)


def test_a_cached_token_is_charged_once_and_at_its_own_price() -> None:
    assert api_usd(asked(1500, 1024, 200), API) == 0.003064  # 0.005112 if the cached ones were charged as input, too


def test_cached_tokens_without_a_price_of_their_own_are_input() -> None:
    assert api_usd(asked(1500, 1024, 200), ApiPrice("gpt", None, 2.0, None, 8.0)) == 0.0046


def test_the_prompt_of_several_samples_is_charged_once() -> None:
    record = make_record(
        *(make_sample([300], tokens=[100], index=index) for index in range(3)), prompt_tokens=1000, cached_tokens=0
    )
    assert api_usd(record, API) == 0.0044


def test_an_api_cost_whose_tokens_are_not_known_is_not_known() -> None:
    record = asked(1500, None, 200)
    assert api_usd(record, API) is None
    assert str(cost(record, api=API)).endswith(" · API n/a (gpt)")


def test_an_api_cost_is_shown_only_where_a_price_is_set() -> None:
    record = asked(1500, 1024, 200, shared_ns=HOUR // 1000)
    assert "API" not in str(cost(record))
    assert cost(record).api_usd is None
    money = cost(record, MachinePrice(0.05), API)
    assert (money.api, money.api_usd) == (API, 0.003064)
    assert str(money) == "≈$5.0e-5 @ $0.05/h · API $0.0031 (gpt)"


@given(counts, counts, counts, amounts, amounts, amounts)
def test_caching_never_makes_a_request_dearer(
    uncached: int, cached: int, output: int, dear: float, cheap: float, out: float
) -> None:
    price = ApiPrice("gpt", None, max(dear, cheap), min(dear, cheap), out)
    warm = api_usd(asked(uncached + cached, cached, output), price)
    cold = api_usd(asked(uncached + cached, 0, output), price)
    assert warm is not None
    assert cold is not None
    assert 0 <= warm <= cold * (1 + 1e-12)


def test_prices_and_costs_survive_a_round_trip() -> None:
    money = cost(asked(1500, 1024, 200), MachinePrice(0.4, 65, 0.3), API)
    assert from_json(to_json(money), Cost) == money


def test_a_million_tokens_cost_the_machine_what_their_time_does() -> None:
    records = [
        asked(1000, 200, 100, **shared(HOUR // 10, HOUR // 2)),
        asked(500, 300, 300, **shared(HOUR // 10, HOUR // 4, HOUR // 4)),
    ]
    found = per_million(records, MachinePrice(1.0), busy_ns=HOUR, elapsed_ns=4 * HOUR)
    assert found.input == pytest.approx(0.2 / 1000 * 1e6)  # 1,000 uncached tokens in 0.2 h
    assert found.output == pytest.approx(1.0 / 400 * 1e6)
    assert found.blended == pytest.approx(1.2 / 1900 * 1e6)
    assert found.utilisation == 0.25
    assert found.at_utilisation() == pytest.approx((800, 10_000, 4 * 1.2 / 1900 * 1e6))


def test_the_power_is_a_part_of_a_million_tokens() -> None:
    found = per_million([asked(1000, 0, 100, **shared(HOUR, HOUR))], MachinePrice(1.0, 1000, 1.0))
    assert found.input == pytest.approx(2000)


def test_a_request_without_a_token_counts_for_nothing() -> None:
    whole = asked(1000, 0, 100, **shared(HOUR, HOUR))
    cut = make_record(make_sample([], finish="abort"), prompt_tokens=9999, **shared(7, 0))
    waited = make_record(make_sample([], finish="abort"), started_ns=None, cached_tokens=None, shared_ns=None)
    price = MachinePrice(1.0)
    assert per_million([cut, whole, waited], price) == per_million([whole], price)
    assert api_blended([cut, whole, waited], API) == api_blended([whole], API)


@pytest.mark.parametrize(
    ("records", "unknown"),
    [
        ([], {"input", "output", "blended"}),
        ([asked(100, None, 10)], {"input"}),
        ([asked(100, 0, 10), asked(100, None, 10)], {"input"}),
        ([asked(100, 100, 10)], {"input"}),  # divided by nothing
        ([asked(100, 0, 10, shared_ns=None)], {"input", "output", "blended"}),
    ],
)
def test_a_figure_that_is_not_known_is_none(records: list[Any], unknown: set[str]) -> None:
    found = per_million(records, MachinePrice(1.0))
    assert {name for name in ("input", "output", "blended") if getattr(found, name) is None} == unknown


@pytest.mark.parametrize(
    ("times", "utilisation"), [({}, None), ({"busy_ns": 1}, None), ({"busy_ns": 0, "elapsed_ns": 0}, None)]
)
def test_without_a_utilisation_there_is_no_price_at_it(times: dict[str, int], utilisation: float | None) -> None:
    found = per_million([asked(100, 0, 10)], MachinePrice(1.0), **times)
    assert found.utilisation is utilisation
    assert found.at_utilisation() == (None, None, None)
    assert PerMillion(1.0, None, 3.0, 0.5).at_utilisation() == (2.0, None, 6.0)
    assert PerMillion(1.0, 2.0, 3.0, 0.0).at_utilisation() == (None, None, None)


@given(
    st.lists(
        st.tuples(st.integers(1, 10**5), counts, st.integers(1, 10**5), *[st.integers(0, 10**13)] * 3), min_size=1
    ),
    amounts,
)
def test_the_prices_of_tokens_give_the_shared_cost_again(rows: list[tuple[int, ...]], usd: float) -> None:
    """No dollar is lost or counted twice between in, out and blended."""
    price = MachinePrice(usd)
    records = [asked(new + old, old, out, **shared(*times)) for new, old, out, *times in rows]
    found = per_million(records, price)
    spent = math.fsum(cost(record, price).shared_usd or 0 for record in records)
    assert found.input is not None
    assert found.output is not None
    assert found.blended is not None
    new, old, out = (sum(row[column] for row in rows) for column in range(3))
    assert (found.input * new + found.output * out) / 1e6 == pytest.approx(spent, rel=1e-9)
    assert found.blended * (new + old + out) / 1e6 == pytest.approx(spent, rel=1e-9)


def test_an_api_is_blended_for_the_same_tokens() -> None:
    assert api_blended([asked(1500, 1024, 200)], API) == pytest.approx(0.003064 / 1700 * 1e6)
    assert api_blended([asked(1000, 0, 0), asked(0, 0, 1000)], API) == pytest.approx(8.0)  # the first gave no token
    assert api_blended([asked(1500, 1024, 200), asked(10, None, 1)], API) is None
    assert api_blended([], API) is None


@pytest.mark.parametrize(
    ("usd", "text"),
    [
        (None, "n/a"),
        (float("nan"), "n/a"),
        (float("inf"), "n/a"),
        (0, "$0"),
        (-0.0, "$0"),
        (1e-9, "$1.0e-9"),
        (1.5e-10, "$1.5e-10"),
        (0.000024, "$2.4e-5"),
        (0.0005, "$0.00050"),
        (0.0031, "$0.0031"),
        (0.09996, "$0.10"),
        (0.5, "$0.50"),
        (0.994, "$0.99"),
        (0.999, "$1.00"),
        (1, "$1.00"),
        (1.5, "$1.50"),
        (12.5, "$12.50"),
        (999, "$999.00"),
        (999.999, "$1,000.00"),
        (12345.678, "$12,345.68"),
        (-0.0031, "−$0.0031"),
        (-12.5, "−$12.50"),
    ],
)
def test_dollars_as_text(usd: float | None, text: str) -> None:
    assert format_usd(usd) == text


@given(st.floats(1e-9, 1e3))
def test_dollars_as_text_are_right_to_two_digits(usd: float) -> None:
    text = format_usd(usd)
    digits, _, _ = text.removeprefix("$").replace(",", "").partition("e")
    assert len(digits.replace(".", "").lstrip("0")) >= 2
    assert float(text.removeprefix("$").replace(",", "")) == pytest.approx(usd, rel=0.05)
