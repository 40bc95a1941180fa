"""The rounds: every contestant once in each, in a process of its own, in an order that rotates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jupyter_infer.bench.peers.contestants import Contestant
from jupyter_infer.bench.peers.process import LIMIT_S, PeerFailed, PeerProcess
from jupyter_infer.bench.peers.runs import Make, Plan, Say, run_one

__all__ = ["Rounds", "run_rounds"]


@dataclass(slots=True)
class Rounds:
    """What the rounds gave: by name the runs, and one line for each that has none or not all."""

    runs: dict[str, list[dict[str, Any]]]
    failed: dict[str, str]
    unavailable: dict[str, str]
    probes: list[dict[str, Any]]


def run_rounds(
    entrants: Sequence[Contestant],
    plan: Plan,
    make: Make,
    say: Say,
    *,
    probe: Contestant | None = None,
    limit_s: float = LIMIT_S,
) -> Rounds:
    """Run everyone once a round. Who fails is reported and takes no further part.

    Parameters
    ----------
    entrants
        Those who take part.
    plan
        What they run.
    make
        Returns prompts by number, tokens and seed (`PromptMaker.make`).
    say
        Told what is being done.
    probe
        Run at the beginning of each round; only its facts are kept.
    limit_s
        How long one answer may take.
    """
    found = Rounds({entrant.name: [] for entrant in entrants}, {}, {}, [])
    for number in range(plan.rounds):
        where = f"round {number + 1} of {plan.rounds}"
        if probe is not None:
            say(f"{where}: memory bandwidth")
            try:
                with _process(probe, limit_s) as process:
                    found.probes.append(process.ready["facts"])
            except PeerFailed as error:
                found.failed[probe.name] = error.line
                say(f"{where}: failed: {error.line}")
        shift = number * len(entrants) // plan.rounds
        for entrant in [*entrants[shift:], *entrants[:shift]]:
            if entrant.name not in found.failed | found.unavailable:
                _round(entrant, number, found, plan, make, _after(f"{where}: {entrant.name}", say), limit_s)
    return found


def _round(entrant: Contestant, number: int, found: Rounds, plan: Plan, make: Make, say: Say, limit_s: float) -> None:
    """Let one take part once."""
    say("loading")
    try:
        with _process(entrant, limit_s) as process:
            if why := process.ready.get("unavailable"):
                found.unavailable[entrant.name] = why
                say(why)
                return
            say(f"imported and loaded in {process.ready['import_s']:.1f} + {process.ready['load_s']:.1f} s")
            found.runs[entrant.name].append(run_one(process, entrant, plan, make, number, say))
    except PeerFailed as error:
        found.failed[entrant.name] = error.line
        say(f"failed: {error.line}")


def _process(entrant: Contestant, limit_s: float) -> PeerProcess:
    return PeerProcess(entrant.name, entrant.command, entrant.load, environ=entrant.environ, limit_s=limit_s)


def _after(where: str, say: Say) -> Say:
    return lambda line: say(f"{where}: {line}")
