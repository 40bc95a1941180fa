"""Whether two arms differ by more than their run-to-run noise.

A difference is told only where its 95 % interval leaves out "none". The interval is Welch's (B. L. Welch, Biometrika 34
(1947) 28), on logarithms where all values are positive, so that differences are ratios. Of twenty comparisons of equals
one is still told apart, by chance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from jupyter_infer.comparison.arm import Arm
from jupyter_infer.comparison.figures import METRICS, UNKNOWN

__all__ = ["HIGHER", "LOWER", "SAME", "UNDECIDED", "Difference", "Spread", "compare", "spread"]

LOWER = "lower"
HIGHER = "higher"
SAME = "no difference that can be told from noise"
UNDECIDED = "undecided: one run each, so its noise is not known"
# 97.5 % quantiles of Student's t for 1 … 30 degrees of freedom (NIST/SEMATECH e-Handbook, section 1.3.6.7.2).
T_975 = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131]
T_975 += [2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042]
Z_975 = 1.960  # with no end of them


@dataclass(frozen=True, slots=True)
class Spread:
    """The mean of repeats, its 95 % interval and their noise (standard deviation / mean); None where one run is all."""

    mean: float
    low: float | None
    high: float | None
    noise: float | None


@dataclass(frozen=True, slots=True)
class Difference:
    """How `metric` of one arm is to that of another: their ratio, or what it is more where a value is not positive.

    `low` and `high` are the ends of its 95 % interval. `single` names the arm of a single run: its own noise is not
    known, and is taken to be that of the other arm.
    """

    metric: str
    relative: bool
    value: float | None
    low: float | None
    high: float | None
    verdict: str
    single: str | None = None

    @property
    def told(self) -> bool:
        """Whether it is told from noise."""
        return self.verdict in (LOWER, HIGHER)

    @property
    def text(self) -> str:
        """The difference and its interval: ``1.18 × (1.12 to 1.25)``, ``+32 (20 to 44)``."""
        if self.value is None:
            return UNKNOWN
        show = self._ratio if self.relative else self._amount
        value = f"{show(self.value)} ×" if self.relative else show(self.value)
        if self.low is None or self.high is None:
            return value
        return f"{value}, no noise" if self.low == self.high else f"{value} ({show(self.low)} to {show(self.high)})"

    def _ratio(self, ratio: float) -> str:
        # A bound beside 1 is to be seen to lie beside it.
        told = self.told and 0.9 < ratio < 1.1 and ratio != 1
        digits = next((digits for digits in (2, 3, 4) if not told or f"{ratio:.{digits}f}" != f"{1:.{digits}f}"), 5)
        if ratio < 0.001:
            return "under 0.001"
        if ratio < 0.1:
            return f"{ratio:.2g}"
        return f"{ratio:.{digits}f}" if ratio < 10 else f"{ratio:.3g}" if ratio < 1000 else "over 1,000"

    def _amount(self, amount: float) -> str:
        sign = "−" if amount < 0 else "+" if amount > 0 else ""
        return sign + METRICS[self.metric].text(abs(amount))


def spread(values: Sequence[float]) -> Spread | None:
    """Return mean and noise of repeats, with Student's 95 % interval; None without a value.

    The mean is the geometric one, and the interval is on logarithms, if all values are positive.
    """
    if not values:
        return None
    logs = min(values) > 0
    scaled = [math.log(value) for value in values] if logs else list(values)
    back = _exp if logs else float
    middle, mean = fmean(scaled), fmean(values)
    if len(values) == 1:
        return Spread(values[0], None, None, None)
    margin = _t_975(len(values) - 1) * stdev(scaled) / math.sqrt(len(values))
    noise = stdev(values) / mean if mean > 0 else None
    return Spread(back(middle), back(middle - margin), back(middle + margin), noise)


def compare(a: Arm, b: Arm, metric: str) -> Difference:
    """Return how a metric of `b` is to that of `a`, with its noise and a verdict."""
    first, second = a.values(metric), b.values(metric)
    relative = min(first + second, default=0) > 0
    if not first or not second:
        return Difference(metric, relative, None, None, None, UNKNOWN)
    back = _exp if relative else float
    x, y = ([math.log(value) for value in values] if relative else values for values in (first, second))
    value = fmean(y) - fmean(x)
    margin = _margin(x, y)
    if margin is None:
        return Difference(metric, relative, back(value), None, None, UNDECIDED)
    # What rounding makes of equal values is no difference.
    rounding = 1e-9 * (1 if relative else max(abs(number) for number in (*x, *y)))
    verdict = SAME if abs(value) <= margin + rounding else HIGHER if value > 0 else LOWER
    single = a.name if len(x) == 1 else b.name if len(y) == 1 else None
    return Difference(metric, relative, back(value), back(value - margin), back(value + margin), verdict, single)


def _margin(x: Sequence[float], y: Sequence[float]) -> float | None:
    """Return half of the 95 % interval of the difference of means: Welch's; None if both are single values.

    A single value beside several is an observation of theirs if nothing differs, so its noise is taken to be theirs
    (J. R. Crawford and D. C. Howell, The Clinical Neuropsychologist 12 (1998) 482).
    """
    if len(x) == len(y) == 1:
        return None
    if min(len(x), len(y)) == 1:
        many = max(x, y, key=len)
        return _t_975(len(many) - 1) * stdev(many) * math.sqrt(1 + 1 / len(many))
    parts = [stdev(values) ** 2 / len(values) for values in (x, y)]
    if not (total := sum(parts)):
        return 0.0
    freedom = total**2 / sum(part**2 / (len(values) - 1) for part, values in zip(parts, (x, y), strict=True))
    return _t_975(freedom) * math.sqrt(total)


def _t_975(freedom: float) -> float:
    """Return the 97.5 % quantile of Student's t; between the table's, up to 3 % too large."""
    below = math.floor(freedom + 1e-9)
    if below < len(T_975):
        ends, values = (1 / below, 1 / (below + 1)), T_975[below - 1 : below + 1]
    else:
        ends, values = (1 / len(T_975), 0.0), [T_975[-1], Z_975]
    part = (1 / freedom - ends[1]) / (ends[0] - ends[1])
    return math.exp(part * math.log(values[0]) + (1 - part) * math.log(values[1]))


def _exp(value: float) -> float:
    return math.exp(min(value, 700.0))  # the next larger ones are no floats
