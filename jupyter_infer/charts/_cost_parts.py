"""Where the money of a run went, in whole nanoseconds of the machine: dollars are made of them last."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from jupyter_infer.metrics import phases
from jupyter_infer.numbers import axis_unit, format_ns
from jupyter_infer.pricing import MachinePrice, format_usd
from jupyter_infer.records import RequestRecord
from jupyter_infer.run import Run

__all__ = ["SHARED", "UNITS", "WALL", "Measure", "Parts", "dollars", "parts_of", "shared_ns", "wall_ns"]

UNITS = {"$": 1.0, "m$": 1e-3, "µ$": 1e-6, "n$": 1e-9}
SHARED = ("prefill", "decode", "stalled")
WALL = ("queued", "prefill", "decode")


@dataclass(frozen=True, slots=True)
class Parts:
    """The machine's time over a run: `prefill + decode + stalled + unattributed + idle == elapsed`, exactly.

    What the steps do not tell, because some of them are not remembered, is None.
    """

    elapsed: int  # from the first arrival to the last moment of the requests
    prefill: int  # of the requests' attributed time
    decode: int
    stalled: int
    unattributed: int | None  # busy with others' work, or with what is nobody's
    idle: int | None

    @property
    def shared(self) -> int:
        """What the requests' own work took."""
        return self.prefill + self.decode + self.stalled

    @property
    def drawn(self) -> int:
        """How long the bar of all parts is; more than what elapsed where steps and records contradict each other."""
        return max(self.elapsed, self.shared)

    @property
    def busy(self) -> int | None:
        """What the engine worked."""
        return None if self.unattributed is None else self.shared + self.unattributed


@dataclass(frozen=True, slots=True)
class Measure:
    """What times are shown as: dollars at a machine price, or times where there is none."""

    price: MachinePrice | None

    def amount(self, time_ns: int | None) -> float | None:
        """Return a time in dollars, or in nanoseconds."""
        return time_ns if self.price is None else self.price.usd(time_ns)

    def text(self, time_ns: int | None) -> str:
        """Return a time as text, in dollars if it has a price."""
        return format_ns(time_ns) if self.price is None else format_usd(self.amount(time_ns))

    def unit(self, amounts: Iterable[float | None]) -> tuple[str, float]:
        """Return the unit in which amounts have few digits, and its size."""
        most = max((amount for amount in amounts if amount is not None), default=0.0)
        return axis_unit(most) if self.price is None else dollars(most)


def dollars(most: float) -> tuple[str, float]:
    """Return the unit in which up to `most` dollars have few digits, and its size."""
    return next(((unit, size) for unit, size in UNITS.items() if most >= size / 10), ("n$", UNITS["n$"]))


def parts_of(run: Run) -> Parts:
    """Return what the machine did while the requests lasted."""
    begun, ended = run.span_ns
    sums = {phase: sum(shared_ns(record)[phase] or 0 for record in run.requests) for phase in SHARED}
    unattributed = idle = None
    if (busy := run.busy_ns) is not None:
        shared = sum(sums.values())
        if shared <= busy <= ended - begun:  # else steps and records contradict each other, and there is no figure
            unattributed, idle = busy - shared, ended - begun - busy
    return Parts(ended - begun, sums["prefill"], sums["decode"], sums["stalled"], unattributed, idle)


def shared_ns(record: RequestRecord) -> dict[str, int | None]:
    """Return a request's attributed time, by what was computed."""
    return {
        "prefill": record.shared_prefill_ns,
        "decode": record.shared_decode_ns,
        "stalled": record.shared_stalled_ns,
    }


def wall_ns(record: RequestRecord) -> dict[str, int | None]:
    """Return a request's time by the wall clock, by phase; None of a request that did not get to its end."""
    times = phases(record)
    return {"queued": times.queued_ns, "prefill": times.prefill_ns, "decode": times.decode_ns}
