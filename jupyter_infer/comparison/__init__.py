"""Runs side by side: which are repeats of one another, in what the others differ, and whether more than noise did.

Runs with the same settings are repeats, an *arm*. How far repeats lie apart is the run-to-run noise.
"""

from __future__ import annotations

from jupyter_infer.comparison.arm import Arm, arms, cache_state, differences, settings, unfair
from jupyter_infer.comparison.figures import METRICS, UNKNOWN, Metric, measure
from jupyter_infer.comparison.noise import (
    HIGHER,
    LOWER,
    SAME,
    UNDECIDED,
    Difference,
    Spread,
    compare,
    spread,
)

__all__ = [
    "HIGHER",
    "LOWER",
    "METRICS",
    "SAME",
    "UNDECIDED",
    "UNKNOWN",
    "Arm",
    "Difference",
    "Metric",
    "Spread",
    "arms",
    "cache_state",
    "compare",
    "differences",
    "measure",
    "settings",
    "spread",
    "unfair",
]
