"""What a request costs on a machine that is paid by the hour, and what it would cost at an API's prices.

Two prices, never mixed. *Machine price*: dollars an hour × hours, with the request's e2e time (*wall cost*: the machine
kept for it alone) or with its attributed part of the engine's busy time (*shared cost*). *API price*: dollars a million
tokens × tokens. A price that nobody gave is an assumption and says so wherever it is shown. Nothing is rounded before
it is text. Unknown is `None`, never 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from jupyter_infer.errors import ConfigError
from jupyter_infer.metrics import phases
from jupyter_infer.records import RequestRecord

__all__ = [
    "DEFAULT_PRICE",
    "ApiPrice",
    "Cost",
    "MachinePrice",
    "PerMillion",
    "api_blended",
    "api_usd",
    "cost",
    "format_usd",
    "per_million",
]

NS_PER_HOUR = 3_600_000_000_000
MILLION = 1_000_000


def _is_amount(value: float) -> bool:
    return 0 <= value < math.inf


@dataclass(frozen=True, slots=True)
class MachinePrice:
    """Dollars an hour for the whole machine, and where the figure comes from.

    Parameters
    ----------
    usd_per_hour
        Dollars an hour, ≥ 0.
    watts
        What the machine draws, where its power is paid apart; with `usd_per_kwh` or not at all.
    usd_per_kwh
        Dollars a kWh of it.
    assumed
        True if nobody gave the figure: shown as ``assumed``.
    source
        Where it comes from, with its date.
    """

    usd_per_hour: float
    watts: float | None = None
    usd_per_kwh: float | None = None
    assumed: bool = False
    source: str = "given"

    def __post_init__(self) -> None:
        if not _is_amount(self.usd_per_hour):
            raise ConfigError(f"a machine price is dollars an hour, 0 or more; got {self.usd_per_hour!r}")
        if (self.watts is None) != (self.usd_per_kwh is None):
            raise ConfigError(
                "power needs both watts and dollars a kWh: MachinePrice(0.40, watts=65, usd_per_kwh=0.30)"
            )
        for what, value in (("watts are a number", self.watts), ("dollars a kWh are a number", self.usd_per_kwh)):
            if value is not None and not _is_amount(value):
                raise ConfigError(f"{what}, 0 or more; got {value!r}")

    @property
    def total_usd_per_hour(self) -> float:
        """Dollars an hour, power included: what every cost is computed with."""
        if self.watts is None or self.usd_per_kwh is None:
            return self.usd_per_hour
        return self.usd_per_hour + self.watts / 1000 * self.usd_per_kwh

    def usd(self, time_ns: float | None) -> float | None:
        """Return what a time of the machine costs; None of one that is not known."""
        return None if time_ns is None else self.total_usd_per_hour * time_ns / NS_PER_HOUR

    def __str__(self) -> str:
        power = "" if self.watts is None else f" + {self.watts:g} W × ${_as_given(self.usd_per_kwh or 0)}/kWh"
        return f"${_as_given(self.usd_per_hour)}/h{power}{' assumed' if self.assumed else ''}"


DEFAULT_PRICE = MachinePrice(0.05, assumed=True, source="a small 2-core cloud machine, assumed 2026-11")


@dataclass(frozen=True, slots=True)
class ApiPrice:
    """Dollars a million tokens that an API takes for a model, and where the figures come from.

    `cached_input_usd` is None where the provider has no price of its own for cached tokens.
    """

    name: str
    provider: str | None
    input_usd: float
    cached_input_usd: float | None
    output_usd: float
    source: str = "given"

    def __post_init__(self) -> None:
        for usd in (self.input_usd, self.cached_input_usd, self.output_usd):
            if usd is not None and not _is_amount(usd):
                raise ConfigError(f"an API price is dollars a million tokens, 0 or more; got {usd!r}")

    def __str__(self) -> str:
        cached = "" if self.cached_input_usd is None else f"${_as_given(self.cached_input_usd)} cached · "
        return f"${_as_given(self.input_usd)} in · {cached}${_as_given(self.output_usd)} out"


@dataclass(frozen=True, slots=True)
class Cost:
    """Dollars of one request at one machine price, and at an API's prices if one is set; `None` where it is unknown."""

    price: MachinePrice
    wall_usd: float | None
    shared_usd: float | None
    queued_usd: float | None  # of the wall cost, as the next two
    prefill_usd: float | None
    decode_usd: float | None
    shared_prefill_usd: float | None  # of the shared cost, by what was computed
    shared_decode_usd: float | None
    shared_stalled_usd: float | None
    api: ApiPrice | None = None
    api_usd: float | None = None

    def __str__(self) -> str:
        api = "" if self.api is None else f" · API {format_usd(self.api_usd)} ({self.api.name})"
        return f"≈{format_usd(self.shared_usd)} @ {self.price}{api}"


def cost(record: RequestRecord, price: MachinePrice = DEFAULT_PRICE, api: ApiPrice | None = None) -> Cost:
    """Return what the request cost; the phases' costs sum to the wall cost, the shared ones to the shared cost."""
    usd, times = price.usd, phases(record)
    return Cost(
        price=price,
        wall_usd=usd(times.e2e_ns),
        shared_usd=usd(record.shared_ns),
        queued_usd=usd(times.queued_ns),
        prefill_usd=usd(times.prefill_ns),
        decode_usd=usd(times.decode_ns),
        shared_prefill_usd=usd(record.shared_prefill_ns),
        shared_decode_usd=usd(record.shared_decode_ns),
        shared_stalled_usd=usd(record.shared_stalled_ns),
        api=api,
        api_usd=None if api is None else api_usd(record, api),
    )


def api_usd(record: RequestRecord, price: ApiPrice) -> float | None:
    """Return what the request would cost at an API's prices, or None if its cached tokens are not known.

    Cached tokens are a part of the prompt's and are charged once: at their own price, or at that of input where the
    provider has none. The prompt of several samples is charged once, their output tokens each.
    """
    if (cached := record.cached_tokens) is None:
        return None
    cached_usd = price.input_usd if price.cached_input_usd is None else price.cached_input_usd
    uncached = record.prompt_tokens - cached
    return (uncached * price.input_usd + cached * cached_usd + record.output_tokens * price.output_usd) / MILLION


@dataclass(frozen=True, slots=True)
class PerMillion:
    """Dollars of the machine a million tokens: while it is busy (at 100 %), and at the utilisation that was measured.

    Nobody's request pays for the time in which the machine idles, so the price of a token depends on the utilisation.
    """

    input: float | None
    output: float | None
    blended: float | None
    utilisation: float | None

    def at_utilisation(self) -> tuple[float | None, float | None, float | None]:
        """Return input, output and blended at the measured utilisation."""

        def used(usd: float | None) -> float | None:
            return None if usd is None or not self.utilisation else usd / self.utilisation

        return used(self.input), used(self.output), used(self.blended)


def per_million(
    records: Sequence[RequestRecord],
    price: MachinePrice,
    *,
    busy_ns: int | None = None,
    elapsed_ns: int | None = None,
) -> PerMillion:
    """Return what a million tokens of these requests cost the machine; those that gave no token are left out.

    Input is the prefill's shared time over the uncached prompt tokens, output the rest over the output tokens. The
    first output token comes with the prefill and adds nothing to the output's dollars, but counts as an output token:
    an API bills it as one, and so the two prices × their tokens are the shared cost. Blended is all of the shared time
    over all tokens, cached ones too.
    """
    answered = _answered(records)

    def usd(time_ns: int | None, tokens: int | None) -> float | None:
        amount = price.usd(time_ns)
        return None if amount is None or not tokens else amount * MILLION / tokens

    cached = _total(record.cached_tokens for record in answered)
    prompt, output = sum(record.prompt_tokens for record in answered), sum(record.output_tokens for record in answered)
    prefill = _total(record.shared_prefill_ns for record in answered)
    rest = _total(part for record in answered for part in (record.shared_decode_ns, record.shared_stalled_ns))
    return PerMillion(
        input=usd(prefill, None if cached is None else prompt - cached),
        output=usd(rest, output),
        blended=usd(_total(record.shared_ns for record in answered), prompt + output),
        utilisation=None if busy_ns is None or not elapsed_ns else busy_ns / elapsed_ns,
    )


def api_blended(records: Sequence[RequestRecord], price: ApiPrice) -> float | None:
    """Return an API's dollars a million tokens for the mix of tokens (in, cached, out) that `per_million` counts."""
    answered = _answered(records)
    costs = [usd for record in answered if (usd := api_usd(record, price)) is not None]
    tokens = sum(record.prompt_tokens + record.output_tokens for record in answered)
    return math.fsum(costs) * MILLION / tokens if tokens and len(costs) == len(answered) else None


def format_usd(usd: float | None) -> str:
    """Return dollars with two significant digits at least, or ``n/a``: ``$2.4e-5``, ``$0.0031``, ``$12.50``."""
    if usd is None or not math.isfinite(usd):
        return "n/a"
    if usd < 0:
        return f"−{format_usd(-usd)}"
    if not usd:
        return "$0"
    text = f"{usd:#.2g}"  # "#" keeps the zero of 0.50
    # Rounded first, so that 0.999 is "$1.00" and not "$1.0".
    return f"${usd:,.2f}" if float(text) >= 1 else f"${text.replace('e-0', 'e-')}"


def _as_given(usd: float) -> str:
    """Return a price as it was typed: cents in full below a dollar (``0.40``), else no zeros at the end."""
    return f"{usd:.2f}" if 0 < usd < 1 and round(usd, 2) == usd else f"{usd:g}"


def _answered(records: Iterable[RequestRecord]) -> list[RequestRecord]:
    """Return the requests that gave a token: of another one it is not known how much of its prompt was computed."""
    return [record for record in records if record.first_token_ns is not None]


def _total(parts: Iterable[int | None]) -> int | None:
    """Return the sum, or None if a part of it is not known."""
    known = list(parts)
    return None if None in known else sum(part for part in known if part is not None)
