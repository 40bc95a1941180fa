"""Measured numbers as text: three significant digits, a unit that fits, and ``n/a`` for what is not known.

Not known is `None` or not finite; it is never shown as 0. Dollars are `jupyter_infer.pricing.format_usd`.
"""

from __future__ import annotations

import math

__all__ = [
    "NOT_KNOWN",
    "axis_unit",
    "format_bytes",
    "format_count",
    "format_ns",
    "format_rate",
    "format_share",
    "format_times",
]

NOT_KNOWN = "n/a"


def format_ns(duration_ns: float | None) -> str:
    """Return nanoseconds in the unit that fits: ``12 ns``, ``81 ms``, ``1.75 s``, ``2 min 5 s``, ``1 h 2 min``."""
    if duration_ns is None or not math.isfinite(duration_ns):
        return NOT_KNOWN
    if duration_ns < 0:
        return f"−{format_ns(-duration_ns)}"
    for unit, size in (("ns", 1), ("µs", 1e3), ("ms", 1e6)):
        # Rounded first, so that 999.9 µs is "1 ms" and not "1e+03 µs".
        if float(f"{duration_ns / size:.3g}") < 1000:
            return f"{duration_ns / size:.3g} {unit}" if duration_ns else "0 s"
    seconds = duration_ns / 1e9
    if float(f"{seconds:.3g}") < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours:,} h {minutes} min" if minutes else f"{hours:,} h"


def format_rate(per_second: float | None, unit: str = "tok/s") -> str:
    """Return a rate: ``36.2 tok/s``, ``1,840 tok/s``."""
    if per_second is None or not math.isfinite(per_second):
        return NOT_KNOWN
    # From 100 on, the digits before the point are enough, and "1.84e+03" is no number to read.
    return f"{per_second:,.0f} {unit}" if abs(per_second) >= 100 else f"{per_second:.3g} {unit}"


def format_count(count: int | None) -> str:
    """Return a count with thousands set apart: ``12,345``."""
    return NOT_KNOWN if count is None else f"{count:,}"


def format_bytes(count: int | None) -> str:
    """Return bytes with three digits: ``812 MB``, ``1.92 GB``; as ``js/src/lib/format.ts`` does."""
    if count is None:
        return NOT_KNOWN
    return f"{count / 1e6:.3g} MB" if count < 999.5e6 else f"{count / 1e9:.3g} GB"


def format_share(part: float | None, whole: float | None) -> str:
    """Return `part` of `whole` in per cent: ``63 %``, ``0.4 %``, ``under 0.1 %``."""
    if part is None or not whole or not math.isfinite(part / whole):
        return NOT_KNOWN
    percent = 100 * part / whole
    if 0 < percent < 0.1:
        return "under 0.1 %"
    return f"{percent:.1f} %" if 0 < percent < 1 else f"{percent:.0f} %"


def format_times(ratio: float | None) -> str:
    """Return how many times one figure is another: ``1.3``, ``12``, ``1,840``."""
    if ratio is None or not math.isfinite(ratio):
        return NOT_KNOWN
    # Rounded first, so that 9.96 is "10" and not "10.0" or "1e+01".
    return f"{ratio:,.0f}" if abs(ratio) >= 9.95 else f"{ratio:.2g}"


def axis_unit(most_ns: float) -> tuple[str, float]:
    """Return the unit in which times up to `most_ns` have few digits on an axis, and its nanoseconds."""
    if most_ns < 1e9:
        return "ms", 1e6
    return ("s", 1e9) if most_ns < 600e9 else ("min", 60e9)
