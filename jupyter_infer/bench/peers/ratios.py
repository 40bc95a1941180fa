"""From seconds to figures, and from figures to ratios. Pure; what is not known is None."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["best", "decode_tps", "figure", "median", "ratio", "summary"]

Figure = dict[str, Any]


def decode_tps(count: int, tokens: int, first_s: Sequence[float], all_s: Sequence[float]) -> float | None:
    """Return the decode tokens a second of a batch, from runs to the first token and runs to the last one.

    It is ``count · (tokens − 1) ÷ (median of all_s − median of first_s)``: what the prompts cost is in both and falls
    out. It is the same for everyone, because not everyone says when a token was there.
    """
    if tokens < 2 or not first_s or not all_s:
        return None
    seconds = statistics.median(all_s) - statistics.median(first_s)
    return count * (tokens - 1) / seconds if seconds > 0 else None


def figure(values: Sequence[float | None]) -> Figure | None:
    """Return median, lowest and highest of a value that was measured once a round, and the rounds; None for none."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    return {"median": statistics.median(known), "min": min(known), "max": max(known), "runs": list(values)}


def median(figures: Mapping[str, Figure | None] | None, key: str) -> float | None:
    """Return the median of a figure of several, or None."""
    found = (figures or {}).get(key)
    return None if found is None else float(found["median"])


def best(speeds: Mapping[str, Mapping[str, Figure | None]], count: str) -> str | None:
    """Return the name whose median is the highest at `count`, or None if nobody has one."""
    known = {name: found for name in speeds if (found := median(speeds[name], count)) is not None}
    return max(known, key=known.__getitem__) if known else None


def ratio(ours: Figure | None, theirs: Figure | None) -> Figure | None:
    """Return our median by theirs, with the ratios of the rounds in which both ran; None if one is not known."""
    if ours is None or theirs is None:
        return None
    rounds = [a / b for a, b in zip(ours["runs"], theirs["runs"], strict=False) if a is not None and b is not None]
    return {
        "median": ours["median"] / theirs["median"],
        "min": min(rounds, default=None),
        "max": max(rounds, default=None),
        "runs": rounds,
    }


def summary(runs: Sequence[Mapping[str, Any]], tokens: int) -> dict[str, Any]:
    """Return the figures of one contestant over the rounds, and the seconds that they were made of.

    Parameters
    ----------
    runs
        What `jupyter_infer.bench.peers.measure.run_one` returned, a round each.
    tokens
        Output tokens of a request.
    """
    loads = [{name: run[name] for name in ("import_s", "load_s")} for run in runs]
    warm = {name: statistics.median(load[name] for load in loads[1:]) for name in loads[0]} if loads[1:] else None
    lengths = list(runs[0]["prefill"]) if runs else []
    prefill = {
        length: figure([int(length) / statistics.median(run["prefill"][length]) for run in runs]) for length in lengths
    }
    first = lengths[0] if lengths else None
    return {
        "decode_tps": speeds([run["decode"] for run in runs], tokens),
        "ttft_s": figure([statistics.median(run["prefill"][first]) for run in runs]) if first else None,
        "prefill_tps": prefill,
        "load": {"cold": loads[0] if loads else None, "warm": warm, "runs": loads},
        **(runs[-1]["facts"] if runs else {}),
        "seconds": [{name: run[name] for name in ("decode", "prefill")} for run in runs],
    }


def speeds(decodes: Sequence[Mapping[str, Any]], tokens: int) -> dict[str, Figure | None]:
    """Return the decode speed by the number of sequences, from the seconds of each round."""
    counts = list(decodes[0]) if decodes else []
    return {
        count: figure([decode_tps(int(count), tokens, run[count]["first_s"], run[count]["all_s"]) for run in decodes])
        for count in counts
    }
