"""The runs of one process, all of them timed by the process itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from jupyter_infer.bench.peers.contestants import Contestant
from jupyter_infer.bench.peers.process import PeerProcess, busy_process
from jupyter_infer.bench.peers.prompts import Prompt
from jupyter_infer.bench.peers.ratios import decode_tps

__all__ = ["COUNTS", "Make", "Plan", "Say", "run_one"]

COUNTS = (1, 4, 16, 32)
PREFILL = (32, 512, 1400)
WARM_UP_TOKENS = 2

Say = Callable[[str], None]
Make = Callable[[int, int, int], Sequence[Prompt]]
"""Returns prompts by number, tokens and seed (`PromptMaker.make`)."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What each contestant runs.

    Attributes
    ----------
    tokens
        Output tokens of a request.
    rounds
        Processes of each.
    repeats
        Runs of each kind in a process.
    counts
        Sequences at once.
    prefill
        Prompt lengths; the first one is that of all decode runs, too.
    beside_busy
        Whether decode is measured once more beside a busy process.
    """

    tokens: int = 64
    rounds: int = 3
    repeats: int = 3
    counts: Sequence[int] = COUNTS
    prefill: Sequence[int] = PREFILL
    beside_busy: bool = False


def run_one(process: PeerProcess, entrant: Contestant, plan: Plan, make: Make, seed: int, say: Say) -> dict[str, Any]:
    """Return the seconds of all runs of one process."""
    counts = [count for count in plan.counts if entrant.most is None or count <= entrant.most] or [1]
    decode = _decode(process, counts, plan, make, seed, say)
    found = {**process.ready, "decode": decode, "prefill": _prefill(process, plan, make, seed, say)}
    if plan.beside_busy:
        with busy_process():
            found["beside_busy"] = _decode(
                process, counts, plan, make, seed, lambda line: say(f"{line}, beside a busy one")
            )
    return found


def _decode(
    process: PeerProcess, counts: Sequence[int], plan: Plan, make: Make, seed: int, say: Say
) -> dict[str, dict[str, list[float]]]:
    found: dict[str, dict[str, list[float]]] = {}
    for count in counts:
        prompts = make(count, plan.prefill[0], seed)
        _run(process, prompts, WARM_UP_TOKENS)
        runs: dict[str, list[float]] = {"first_s": [], "all_s": []}
        for _ in range(plan.repeats):
            runs["first_s"].append(_run(process, prompts, 1))
            runs["all_s"].append(_run(process, prompts, plan.tokens))
        found[str(count)] = runs
        speed = decode_tps(count, plan.tokens, runs["first_s"], runs["all_s"])
        say(f"{count} at once: {'not to be told from noise' if speed is None else f'{speed:,.1f} tok/s'}")
    return found


def _prefill(process: PeerProcess, plan: Plan, make: Make, seed: int, say: Say) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for length in plan.prefill:
        warm_up, *prompts = make(1 + plan.repeats, length, seed)
        _run(process, [warm_up], 1)
        found[str(length)] = [_run(process, [prompt], 1) for prompt in prompts]
    say("prefill: " + ", ".join(f"{length} tokens in {min(runs):.3g} s" for length, runs in found.items()))
    return found


def _run(process: PeerProcess, prompts: Sequence[Any], tokens: int) -> float:
    question = {
        "texts": [prompt.text for prompt in prompts],
        "prompts": [list(prompt.ids) for prompt in prompts],
        "tokens": tokens,
    }
    return process.run(question, len(prompts) * tokens)
