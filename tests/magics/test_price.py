"""``%infer price``: what it shows, sets and refuses."""

from __future__ import annotations

import re
from typing import Any

import pytest

from jupyter_infer.errors import ConfigError
from jupyter_infer.metrics import busy_ns
from jupyter_infer.pricing import DEFAULT_PRICE, ApiPrice, MachinePrice, api_blended, format_usd, per_million
from jupyter_infer.session import Session

from .conftest import ask

GIVEN = ApiPrice("given", None, 2.0, 0.5, 8.0)


def test_a_price_is_shown_set_and_cleared(shell: Any, session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    ask(shell, "%infer price")
    assert capsys.readouterr().out == (
        f"machine price $0.05/h assumed ({DEFAULT_PRICE.source}); results that are there keep theirs\n"
        "API price n/a; %infer price --api NAME\n"
    )
    ask(shell, "%%infer\nHi")
    capsys.readouterr()
    ask(shell, "%infer price 0.40")
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first == "machine price $0.40/h (given); results that are there keep theirs"
    assert second == "API price n/a; %infer price --api NAME"
    assert ask(shell, "%%infer\nHi").price.usd_per_hour == 0.4
    assert session.history[0].price.assumed
    ask(shell, "%infer price --api 2,0.5,8")
    ask(shell, "%infer price clear")
    assert (session.price, session.api_price) == (DEFAULT_PRICE, None)


@pytest.mark.parametrize("typed", ["0.40", "$0.40", "0.40/h", "$0.40/h", "'0.40'"])
def test_dollars_an_hour_are_taken_as_they_are_written(shell: Any, session: Session, typed: str) -> None:
    ask(shell, f"%infer price {typed}")
    assert session.price == MachinePrice(0.4)


def test_power_is_set_and_shown_with_the_sum(shell: Any, session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    ask(shell, "%infer price 0.40 --watts 500 --kwh=0.30")
    assert session.price == MachinePrice(0.4, 500, 0.3)
    assert capsys.readouterr().out.startswith("machine price $0.40/h + 500 W × $0.30/kWh = $0.55/h (given); ")
    ask(shell, "%infer price 0.40")
    assert session.price.watts is None


def test_an_api_price_is_given_in_dollars(shell: Any, session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    ask(shell, "%infer price 0.40")
    capsys.readouterr()
    ask(shell, "%infer price --api 2,0.5,8")
    assert session.api_price == GIVEN
    assert session.price == MachinePrice(0.4)
    assert capsys.readouterr().out.splitlines()[1:] == [
        "API price given: $2 in · $0.50 cached · $8 out a million tokens (given)"
    ]
    ask(shell, "%infer price 0.80 --api $2,$8")
    assert session.api_price == ApiPrice("given", None, 2.0, None, 8.0)
    assert session.price == MachinePrice(0.8)


def test_an_api_price_is_taken_by_name(shell: Any, session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("genai_prices")
    ask(shell, "%infer price --api openai/gpt-4o-mini")
    assert session.api_price is not None
    assert session.api_price.name == "gpt-4o-mini"
    line = capsys.readouterr().out.splitlines()[1]
    assert re.fullmatch(
        r"API price gpt-4o-mini of openai: \$\S+ in · \$\S+ cached · \$\S+ out a million tokens \(genai-prices .+\)",
        line,
    )


def test_a_million_tokens_are_priced_once_there_are_results(
    shell: Any, session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    ask(shell, "%%infer\nOne and two")
    ask(shell, "%%infer\nThree and four")
    ask(shell, "%infer price 1000 --api 2,0.5,8;")
    run = session.runs[-1].run
    records, (begun, ended) = run.requests, run.span_ns
    machine = per_million(records, MachinePrice(1000), busy_ns=busy_ns(session.steps), elapsed_ns=ended - begun)
    assert machine.input is not None
    assert machine.output is not None
    assert 0 < (machine.utilisation or 0) <= 1
    capsys.readouterr()
    ask(shell, "%infer price")
    head, full, used, api = capsys.readouterr().out.splitlines()[2:]
    assert head.split("  ")[0] == "$ / 1M tokens"
    assert head.split()[4:] == ["in", "out", "blended"]
    assert full.startswith("machine at 100 % utilisation ")
    assert full.split()[-3:] == [format_usd(usd) for usd in (machine.input, machine.output, machine.blended)]
    assert re.match(r"machine at \d+ % utilisation \(busy .+ of .+\) ", used)
    assert used.split()[-3:] == [format_usd(usd) for usd in machine.at_utilisation()]
    assert api.startswith("API given ")
    assert api.split()[-3:] == ["$2.00", "$8.00", format_usd(api_blended(records, GIVEN))]
    assert len({len(line) for line in (head, full, used, api)}) == 1  # columns


def test_what_was_not_measured_is_not_known(shell: Any, session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    ask(shell, "%%infer\nHi")
    session._worker.steps.clear()
    capsys.readouterr()
    ask(shell, "%infer price")
    used = capsys.readouterr().out.splitlines()[-1]
    assert used.startswith("machine at n/a utilisation ")
    assert used.split()[-3:] == ["n/a"] * 3


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("dear", "%infer price takes dollars an hour, such as 0.40, or clear; got 'dear'"),
        ("-1", "%infer price takes dollars an hour, such as 0.40, or clear; got '-1'"),
        ("nan", "%infer price takes dollars an hour, such as 0.40, or clear; got 'nan'"),
        ("1 2", "%infer price takes dollars an hour, such as 0.40, or clear; got '1 2'"),
        ("0.40 --watts 65", "--watts and --kwh go together, after the price: %infer price 0.40 --watts 65 --kwh 0.30"),
        ("--watts 65 --kwh 0.3", "--watts and --kwh go together, after the price"),
        ("0.40 --watts -65 --kwh 0.3", "watts are a number, 0 or more; got -65.0"),
        ("0.40 --watts many --kwh 0.3", "--watts takes a number, not 'many'"),
        ("0.40 --watt 65", "unknown option '--watt'; did you mean '--watts'?"),
        ("0.40 --frobnicate 65", "unknown option '--frobnicate'; there is: --watts, --kwh, --api"),
        ("--api", "--api needs a value: --api NAME"),
        ("--api 2,x", "--api takes a name, or dollars a million tokens, IN,CACHED,OUT such as 2,0.5,8; got '2,x'"),
        ("--api 1,2,3,4", "--api takes a name, or dollars a million tokens"),
        ("--api 2,-8", "--api takes a name, or dollars a million tokens"),
        ("0.80 --api 2,", "--api takes a name, or dollars a million tokens"),
        ("clear --api 2,8", "clear stands alone and sets both prices back: %infer price clear"),
        ("clear all", "clear stands alone and sets both prices back: %infer price clear"),
    ],
)
def test_a_mistake_is_one_line_and_changes_nothing(shell: Any, session: Session, line: str, says: str) -> None:
    before = session.price, session.api_price
    with pytest.raises(ConfigError) as told:
        ask(shell, f"%infer price {line}")
    assert str(told.value).startswith(says)
    assert len(str(told.value).splitlines()) == 1
    assert (session.price, session.api_price) == before
