"""What the rounds gave, as one JSON object: the ratios first, then what they were made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jupyter_infer.bench.peers.contestants import PEERS
from jupyter_infer.bench.peers.ours import OURS
from jupyter_infer.bench.peers.ratios import best, median, ratio, speeds, summary
from jupyter_infer.bench.peers.rounds import Rounds
from jupyter_infer.bench.peers.runs import Plan

__all__ = ["report"]

LIKE_FOR_LIKE = ("bf16", "bf16 compiled")
"""Settings of ours that compute what stock vLLM computes."""


def report(rounds: Rounds, plan: Plan, skipped: Mapping[str, str]) -> dict[str, Any]:
    """Return what the rounds gave: `ratio` first, then what it was made of. What is not known is None."""
    counts = [str(count) for count in plan.counts]
    found = {name: summary(runs, plan.tokens) for name, runs in rounds.runs.items() if runs}
    whole = {name: found[name]["decode_tps"] for name in found if name not in rounds.failed}
    bandwidth = _bandwidth(rounds.probes)
    for name in OURS:
        if name in found:
            found[name] |= _ceiling(found[name], bandwidth["gbps"])
    for name, why in {**rounds.unavailable, **rounds.failed}.items():
        found.setdefault(name, {})["unavailable" if name in rounds.unavailable else "failed"] = why
    answer = {
        **_compared(whole, counts, skipped),
        "tokens": plan.tokens,
        "rounds": plan.rounds,
        "repeats": plan.repeats,
        "prompt_tokens": plan.prefill[0],
        "ours": {name: found[name] for name in OURS if name in found},
        "peers": {name: found[name] for name in PEERS if name in found},
        "probe": bandwidth,
        "skipped": dict(skipped),
        "unavailable": rounds.unavailable,
        "failed": rounds.failed,
    }
    if plan.beside_busy:
        beside = {
            name: speeds([run["beside_busy"] for run in runs], plan.tokens)
            for name, runs in rounds.runs.items()
            if runs and name not in rounds.failed
        }
        answer["beside_busy"] = {**_compared(beside, counts, skipped), "decode_tps": beside}
    return answer


def _compared(decode: Mapping[str, Any], counts: Sequence[str], skipped: Mapping[str, str]) -> dict[str, Any]:
    """Return the ratios of decode speeds by number of sequences.

    Who runs one sequence at a time is compared at every number by that speed: so it serves any number of them.
    """
    ours = {name: decode[name] for name in OURS if name in decode}
    alike = {name: ours[name] for name in LIKE_FOR_LIKE if name in ours}

    def by(settings: Mapping[str, Any], peer: str, count: str) -> Any:
        if (name := best(settings, count)) is None or peer not in decode:
            return None
        theirs = decode[peer]
        return ratio(settings[name][count], theirs.get(count, theirs.get("1") if peer == "llama_cpp" else None))

    spread = {peer: None if peer in skipped else {count: by(ours, peer, count) for count in counts} for peer in PEERS}
    like = {count: by(alike, "vllm_all_cores", count) for count in counts}
    return {
        "ratio": {peer: row and {count: _median(row[count]) for count in counts} for peer, row in spread.items()},
        "best": {count: best(ours, count) for count in counts},
        "like_for_like": {
            "ratio": {count: _median(like[count]) for count in counts},
            "best": {count: best(alike, count) for count in counts},
            "spread": like,
        },
        "spread": spread,
    }


def _median(found: Any) -> float | None:
    return None if found is None else found["median"]


def _bandwidth(probes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the fastest that any probe read, in GB/s."""
    fastest = {
        name: max((found for probe in probes if (found := probe[name]) is not None), default=None)
        for name in ("sum_gbps", "matvec_gbps")
    }
    known = [value for value in fastest.values() if value is not None]
    return {"gbps": max(known, default=None), **fastest, "runs": list(probes)}


def _ceiling(found: Mapping[str, Any], gbps: float | None) -> dict[str, float | None]:
    """Return the bytes that a token of one sequence needs, the decode speed if the weights came as fast as the probe
    read memory, and how much of it was reached.

    An embedding table that is the output layer, too, is read for each token; beside an output layer of its own it is
    not, but for one row.
    """
    weights, speed = found.get("weight_bytes"), median(found["decode_tps"], "1")
    read = weights - found.get("unread_bytes", 0) if weights else None
    ceiling = gbps * 1e9 / read if gbps and read else None
    return {"read_bytes": read, "ceiling_tps": ceiling, "of_ceiling": speed / ceiling if speed and ceiling else None}
