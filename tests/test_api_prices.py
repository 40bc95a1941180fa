"""Prices of APIs by name, from what is installed and never from the network."""

from __future__ import annotations

import contextlib
import importlib.metadata
import subprocess
import sys
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest

from jupyter_infer.api_prices import api_price
from jupyter_infer.errors import ConfigError

types = pytest.importorskip("genai_prices.types")

RELEASE = f"genai-prices {importlib.metadata.version('genai-prices')}"
OFFLINE = """
import sys

def refuse(event, args):
    if event.startswith("socket."):
        raise RuntimeError(f"{event} {args}")

sys.addaudithook(refuse)
from jupyter_infer.api_prices import api_price
print(api_price("gpt-4o-mini").name)
import socket
try:
    socket.create_connection(("127.0.0.1", 9))
except RuntimeError:
    print("guarded")
"""


@pytest.fixture
def sellers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two sellers, whose prices are all known and change with day, hour and length."""

    def model(name: str, prices: Any) -> Any:
        return types.ModelInfo(id=name, match=types.ClauseEquals(equals=name), prices=prices)

    def tokens(**usd: str) -> Any:
        return types.ModelPrice(**{f"{kind}_mtok": Decimal(value) for kind, value in usd.items()})

    def when(constraint: Any, **usd: str) -> Any:
        return types.ConditionalPrice(constraint=constraint, prices=tokens(**usd))

    def tiered(base: str, later: str) -> Any:
        return types.TieredPrices(base=Decimal(base), tiers=[types.Tier(start=200_000, price=Decimal(later))])

    start = types.StartDateConstraint(start_date=date(2026, 6, 1))
    night = types.TimeOfDateConstraint(start_time=time(1, tzinfo=UTC), end_time=time(4, tzinfo=UTC))
    models = [
        model("plain", tokens(input="2", cache_read="0.5", output="8")),
        model("uncached", tokens(input="2", output="8")),
        model("free", tokens(input="0", output="0")),
        model("long", types.ModelPrice(input_mtok=tiered("1", "2"), output_mtok=tiered("4", "6"))),
        model("changed", [when(None, input="9", output="9"), when(start, input="3", output="5")]),
        model(
            "nightly",
            [when(None, input="9", output="9"), when(start, input="3", output="5"), when(night, input="1", output="2")],
        ),
        model("embedding", tokens(input="1")),
        model("unpriced", types.ModelPrice()),
        model("fee", types.ModelPrice(**vars(tokens(input="1", output="1")), requests_kcount=Decimal(5))),
        model("org/both", tokens(input="1", output="2")),
    ]
    other = [model("org/both", tokens(input="3", output="4")), model("org/alone", tokens(input="5", output="6"))]

    def provider(name: str, models: list[Any], match: Any) -> Any:
        return types.Provider(
            id=name,
            name=name,
            api_pattern=name,
            model_match=match,
            provider_match=types.ClauseEquals(equals=name),
            models=models,
        )

    names = types.ClauseOr(or_=[types.ClauseEquals(equals=model.id) for model in models if "/" not in model.id])
    monkeypatch.setattr("genai_prices.data.providers", [provider("acme", models, names), provider("zeta", other, None)])


def at(day: str) -> datetime:
    return datetime.fromisoformat(day).replace(tzinfo=UTC)


@pytest.mark.usefixtures("sellers")
@pytest.mark.parametrize("name", ["plain", "PLAIN", " plain ", "acme/plain", "acme:plain", "ACME/plain"])
def test_a_model_is_found_by_its_name(name: str) -> None:
    price = api_price(name)
    assert (price.name, price.provider) == ("plain", "acme")
    assert (price.input_usd, price.cached_input_usd, price.output_usd) == (2.0, 0.5, 8.0)
    assert price.source == RELEASE


@pytest.mark.usefixtures("sellers")
def test_a_price_that_there_is_none_of_is_none_and_free_is_not() -> None:
    assert api_price("uncached").cached_input_usd is None
    assert (api_price("free").input_usd, api_price("free").output_usd) == (0, 0)


@pytest.mark.usefixtures("sellers")
def test_a_price_by_length_is_that_of_the_first_tier_and_says_so() -> None:
    price = api_price("long")
    assert (price.input_usd, price.cached_input_usd, price.output_usd) == (1.0, None, 4.0)
    assert price.source == f"{RELEASE}, first tier"


@pytest.mark.usefixtures("sellers")
@pytest.mark.parametrize(
    ("name", "now", "usd", "why"),
    [
        ("changed", "2026-05-31T23:59", (9, 9), ""),
        ("changed", "2026-06-01T00:00", (3, 5), ", since 2026-06-01"),
        ("nightly", "2026-05-31T12:00", (9, 9), ", at 12:00 UTC"),
        ("nightly", "2026-07-01T12:30", (3, 5), ", since 2026-06-01, at 12:30 UTC"),
        ("nightly", "2026-07-01T02:00", (1, 2), ", at 02:00 UTC"),
    ],
)
def test_a_price_by_the_day_or_the_hour_is_the_one_that_holds(
    name: str, now: str, usd: tuple[int, int], why: str
) -> None:
    price = api_price(name, now=at(now))
    assert (price.input_usd, price.output_usd) == usd
    assert price.source == RELEASE + why


@pytest.mark.usefixtures("sellers")
def test_a_name_that_several_sell_needs_one_of_them() -> None:
    with pytest.raises(
        ConfigError, match=r"several providers sell 'org/both'; name one: acme/org/both, zeta/org/both$"
    ):
        api_price("org/both")
    assert api_price("zeta/org/both").input_usd == 3
    assert api_price("acme:org/both").input_usd == 1
    assert api_price("org/alone").provider == "zeta"


@pytest.mark.usefixtures("sellers")
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("plane", "no API price for 'plane'; did you mean 'plain'?"),
        ("zeta/org/alon", "no API price for 'zeta/org/alon'; did you mean 'zeta/org/alone', 'zeta/org/both'?"),
        ("xyz", "no API price for 'xyz'; give dollars a million tokens, IN,CACHED,OUT such as 2,0.5,8"),
        ("", "no API price for ''; give dollars a million tokens, IN,CACHED,OUT such as 2,0.5,8"),
        ("acme/", "no API price for 'acme/'"),
        ("embedding", f"acme/embedding is not priced by the token alone in {RELEASE}; give dollars a million tokens"),
        ("unpriced", "acme/unpriced is not priced by the token alone"),
        ("fee", "acme/fee is not priced by the token alone"),
    ],
)
def test_a_name_without_a_price_is_told_in_one_line(name: str, says: str) -> None:
    with pytest.raises(ConfigError) as told:
        api_price(name)
    assert str(told.value).startswith(says)
    assert len(str(told.value).splitlines()) == 1


def test_the_installed_prices_know_common_models() -> None:
    price = api_price("openai/gpt-4o-mini")
    assert (price.name, price.provider) == ("gpt-4o-mini", "openai")
    assert price.cached_input_usd is not None
    assert 0 < price.cached_input_usd < price.input_usd < price.output_usd < 100
    with pytest.raises(ConfigError, match="did you mean 'gpt-4o-mini'"):
        api_price("gpt4o-mni")


def test_every_installed_model_has_a_price_or_is_refused() -> None:
    from genai_prices.data import providers

    found = 0
    for provider in providers:
        for model in provider.models:
            with contextlib.suppress(ConfigError):
                found += api_price(f"{provider.id}/{model.id}").source.startswith(RELEASE)
    assert found > 1000


def test_a_price_is_read_without_the_network() -> None:
    done = subprocess.run([sys.executable, "-c", OFFLINE], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["gpt-4o-mini", "guarded"]


def test_prices_that_another_library_fetched_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    from genai_prices import data_snapshot

    monkeypatch.setattr(data_snapshot, "_custom_snapshot", data_snapshot.DataSnapshot([], from_auto_update=True))
    assert api_price("gpt-4o-mini").provider == "openai"


def test_without_the_package_it_is_told_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "genai_prices.data", None)
    with pytest.raises(
        ConfigError, match=r"^API prices need genai-prices; type: pip install 'jupyter-infer\[prices\]'$"
    ):
        api_price("gpt-4o-mini")


def test_importing_the_package_does_not_import_the_prices() -> None:
    code = "import sys, jupyter_infer.magics.price, jupyter_infer.session; print('genai_prices' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]
