"""What a request costs on a machine that is paid by the hour.

`cost = dollars an hour × hours`, with the request's e2e time (*wall cost*: the machine kept for it alone) or with its
attributed part of the engine's busy time (*shared cost*). A price that nobody gave is an assumption and says so
wherever it is shown. Unknown is `None`, never 0.
"""

from __future__ import annotations

from dataclasses import dataclass

from jupyter_infer.errors import ConfigError
from jupyter_infer.metrics import phases
from jupyter_infer.records import RequestRecord

__all__ = ["DEFAULT_PRICE", "Cost", "MachinePrice", "cost", "format_usd"]

NS_PER_HOUR = 3_600_000_000_000


@dataclass(frozen=True, slots=True)
class MachinePrice:
    """Dollars an hour for the whole machine, and where the figure comes from.

    Parameters
    ----------
    usd_per_hour
        Dollars an hour, ≥ 0.
    assumed
        True if nobody gave the figure: shown as ``assumed``.
    source
        Where it comes from, with its date.
    """

    usd_per_hour: float
    assumed: bool = False
    source: str = "given"

    def __post_init__(self) -> None:
        if not (0 <= self.usd_per_hour < float("inf")):
            raise ConfigError(f"a machine price is dollars an hour, 0 or more; got {self.usd_per_hour!r}")

    def __str__(self) -> str:
        return f"${self.usd_per_hour:g}/h{' assumed' if self.assumed else ''}"


DEFAULT_PRICE = MachinePrice(0.05, assumed=True, source="a small 2-core cloud machine, assumed 2026-11")


@dataclass(frozen=True, slots=True)
class Cost:
    """Dollars of one request at one machine price; `None` where the time behind it is unknown."""

    price: MachinePrice
    wall_usd: float | None
    shared_usd: float | None
    queued_usd: float | None
    prefill_usd: float | None
    decode_usd: float | None

    def __str__(self) -> str:
        return f"≈{format_usd(self.shared_usd)} @ {self.price}"


def cost(record: RequestRecord, price: MachinePrice = DEFAULT_PRICE) -> Cost:
    """Return what the request cost; the phases' costs sum to the wall cost."""

    def usd(duration_ns: int | None) -> float | None:
        return None if duration_ns is None else price.usd_per_hour * duration_ns / NS_PER_HOUR

    times = phases(record)
    return Cost(
        price=price,
        wall_usd=usd(times.e2e_ns),
        shared_usd=usd(record.shared_ns),
        queued_usd=usd(times.queued_ns),
        prefill_usd=usd(times.prefill_ns),
        decode_usd=usd(times.decode_ns),
    )


def format_usd(usd: float | None) -> str:
    """Return dollars with two significant digits at least, or ``n/a``: ``$2.4e-5``, ``$0.0031``, ``$12.50``."""
    if usd is None:
        return "n/a"
    if usd >= 1:
        return f"${usd:,.2f}"
    return f"${usd:.2g}".replace("e-0", "e-")
