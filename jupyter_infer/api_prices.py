"""What an API takes for a model, by name: the prices that the package ``genai-prices`` carries, read offline.

Its data has no date of its own, so its release is named; where a model's price changed on a day, that day is. Batch and
priority prices, what writing into a cache costs and searches are left out: they are no part of a plain request.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from jupyter_infer.errors import ConfigError, nearest
from jupyter_infer.pricing import ApiPrice

__all__ = ["api_price"]

SHOWN = 4  # providers that a message names
GIVE = "give dollars a million tokens, IN,CACHED,OUT such as 2,0.5,8"


def api_price(name: str, *, now: datetime | None = None) -> ApiPrice:
    """Return what an API takes for a model today.

    Parameters
    ----------
    name
        A model, such as ``gpt-4o-mini``; with its provider in front (``groq/NAME`` or ``groq:NAME``) where several
        sell it.
    now
        When; some prices depend on the day or the hour. None is now.

    Raises
    ------
    ConfigError
        If ``genai-prices`` is missing, the name is unknown or several providers sell it, or it is not priced by the
        token alone.
    """
    try:
        from genai_prices.data import providers
        from genai_prices.data_snapshot import DataSnapshot
    except ModuleNotFoundError:
        raise ConfigError("API prices need genai-prices; type: pip install 'jupyter-infer[prices]'") from None
    # Our own snapshot of what is installed: the shared one may have been updated over the network.
    provider, model = _find(DataSnapshot(providers=providers, from_auto_update=False), name.strip())
    now = now or datetime.now(UTC)
    prices = model.get_prices(now)
    source = f"genai-prices {importlib.metadata.version('genai-prices')}"
    if prices.input_mtok is None or prices.output_mtok is None or getattr(prices, "requests_kcount", None) is not None:
        raise ConfigError(f"{provider.id}/{model.id} is not priced by the token alone in {source}; {GIVE}")
    used = [price for price in (prices.input_mtok, prices.cache_read_mtok, prices.output_mtok) if price is not None]
    tiers = ["first tier"] if any(hasattr(price, "tiers") for price in used) else []
    return ApiPrice(
        name=model.id,
        provider=provider.id,
        input_usd=_first_tier(prices.input_mtok),
        cached_input_usd=None if prices.cache_read_mtok is None else _first_tier(prices.cache_read_mtok),
        output_usd=_first_tier(prices.output_mtok),
        source=", ".join([source, *_conditions(model, prices, now), *tiers]),
    )


def _find(snapshot: Any, name: str) -> tuple[Any, Any]:
    """Return the provider and the model that a name means."""
    for separator in "/:":
        provider, found, rest = name.partition(separator)
        if found and (both := _look_up(snapshot, rest, provider)):
            return both
    if both := _look_up(snapshot, name, None):
        return both
    sold = [(provider, model) for provider in snapshot.providers if (model := provider.find_model(name))]
    if len(sold) == 1:
        return sold[0]
    if sold:
        names = ", ".join(f"{provider.id}/{name}" for provider, _ in sold[:SHOWN])
        more = f" or {len(sold) - SHOWN} more" if len(sold) > SHOWN else ""
        raise ConfigError(f"several providers sell {name!r}; name one: {names}{more}")
    raise ConfigError(f"no API price for {name!r}{nearest(name, _names(snapshot, name)) or f'; {GIVE}'}")


def _look_up(snapshot: Any, name: str, provider: str | None) -> tuple[Any, Any] | None:
    try:
        found: tuple[Any, Any] = snapshot.find_provider_model(name, None, provider, None)
    except LookupError:
        return None
    return found


def _names(snapshot: Any, typed: str) -> set[str]:
    """Return the names to choose near ones from: the provider's own where one stands in front."""
    before = typed.replace(":", "/").partition("/")[0].lower()
    named = {
        f"{before}/{model.id}" for provider in snapshot.providers if provider.id == before for model in provider.models
    }
    return named or {model.id for provider in snapshot.providers for model in provider.models}


def _conditions(model: Any, prices: Any, now: datetime) -> Iterator[str]:
    """Yield why these prices of the model's hold and no others."""
    if not isinstance(model.prices, list):
        return
    rules = [price.constraint for price in model.prices]
    for price in model.prices:
        if price.prices is prices and hasattr(price.constraint, "start_date"):
            yield f"since {price.constraint.start_date}"
    if any(hasattr(rule, "start_time") for rule in rules):
        yield f"at {now.astimezone(UTC):%H:%M} UTC"


def _first_tier(price: Any) -> float:
    """Return the price of short prompts, where longer ones cost more."""
    return float(getattr(price, "base", price))
