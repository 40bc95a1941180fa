"""What a request costs, and how that is said."""

from __future__ import annotations

import pytest
from builders import make_record, make_sample

from jupyter_infer.errors import ConfigError
from jupyter_infer.pricing import DEFAULT_PRICE, MachinePrice, cost, format_usd

HOUR = 3_600_000_000_000


def test_an_hour_of_the_machine_costs_its_price() -> None:
    record = make_record(make_sample([HOUR]), started_ns=0, shared_ns=HOUR // 4)
    money = cost(record, MachinePrice(2.0))
    assert money.wall_usd == 2.0
    assert money.shared_usd == 0.5


def test_the_costs_of_the_phases_sum_to_the_wall_cost() -> None:
    record = make_record(make_sample([HOUR // 2, HOUR]), started_ns=HOUR // 4)
    money = cost(record, MachinePrice(8.0))
    assert (money.queued_usd, money.prefill_usd, money.decode_usd) == (2.0, 2.0, 4.0)
    assert money.wall_usd == 8.0


def test_a_cost_whose_time_is_not_known_is_not_known() -> None:
    money = cost(make_record(make_sample([], finish="abort"), started_ns=None, shared_ns=None))
    assert (money.wall_usd, money.shared_usd, money.queued_usd) == (None,) * 3
    assert "n/a" in str(money)


def test_an_assumed_price_says_so_wherever_it_is_shown() -> None:
    assert str(DEFAULT_PRICE) == "$0.05/h assumed"
    assert "2026" in DEFAULT_PRICE.source
    money = cost(make_record(shared_ns=HOUR // 1000))
    assert str(money) == "≈$5e-5 @ $0.05/h assumed"
    assert str(MachinePrice(1.5)) == "$1.5/h"


def test_a_machine_can_be_free() -> None:
    assert cost(make_record(), MachinePrice(0)).wall_usd == 0


@pytest.mark.parametrize("price", [-1, float("inf"), float("nan")])
def test_a_price_that_is_none_is_refused(price: float) -> None:
    with pytest.raises(ConfigError, match="dollars an hour"):
        MachinePrice(price)


@pytest.mark.parametrize(
    ("usd", "text"),
    [
        (None, "n/a"),
        (0, "$0"),
        (0.000024, "$2.4e-5"),
        (0.0031, "$0.0031"),
        (0.5, "$0.5"),
        (12.5, "$12.50"),
        (12345.678, "$12,345.68"),
    ],
)
def test_dollars_as_text(usd: float | None, text: str) -> None:
    assert format_usd(usd) == text
