"""The rounds: every contestant in a process of its own, in turn, and what came of it as one JSON object.

A round is one process of each, one after the other: it loads, runs, and ends. The order rotates from round to round,
and within it ours and theirs take turns, so that a noisy machine hits all alike. All run the same prompts, given as
token ids (ours as the texts that have these ids), greedily, to the same length.

**Decode** of a batch is measured by difference, for all alike: runs that end with the first token are taken from runs
that end with the last one (`ratios.decode_tps`). **TTFT** is the time of a run of one short prompt that ends with its
first token, **prefill** a prompt's tokens by that time. **Load** is from the first import to an engine that answers,
split into imports and the rest; the first process of each is cold, in caches of its own, and the later ones are warm.
"""

from __future__ import annotations

import os
import platform
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jupyter_infer import hardware
from jupyter_infer.bench.peers.contestants import chosen, contestants, probe
from jupyter_infer.bench.peers.prompts import PromptMaker
from jupyter_infer.bench.peers.report import report
from jupyter_infer.bench.peers.rounds import run_rounds
from jupyter_infer.bench.peers.runs import Plan, Say

__all__ = ["measure_peers"]


def measure_peers(
    *, model: str | None = None, plan: Plan, only: Sequence[str] = (), gguf: str | None = None, say: Say
) -> dict[str, Any]:
    """Return ratios (ours at its best setting ÷ theirs) and everything that they were made of.

    Parameters
    ----------
    model
        What to load; None for this machine's default.
    plan
        What to run.
    only
        Names of those who take part; all if empty.
    gguf
        A GGUF file of the same model, for llama.cpp.
    say
        Told what is being done.

    Raises
    ------
    ConfigError, ModelError
        For a name that nobody has, and a model that cannot be had.
    """
    from jupyter_infer.models import default_model_here, resolve

    names, machine = chosen(only), _machine()
    asked = model or default_model_here()
    resolved = resolve(asked)
    prompts = PromptMaker(resolved.path)
    with tempfile.TemporaryDirectory(prefix="jupyter-infer-bench-", ignore_cleanup_errors=True) as home:
        entrants, skipped = contestants(names, resolved, Path(home), asked=asked, gguf=gguf)
        for name, why in skipped.items():
            say(f"{name} is skipped: {why}")
        rounds = run_rounds(entrants, plan, prompts.make, say, probe=probe(Path(home)))
    return {**report(rounds, plan, skipped), "model": resolved.name, "machine": machine}


def _machine() -> dict[str, Any]:
    return {
        "cpus": hardware.cpu_threads(),
        "bf16_matmul": hardware.has_bf16_matmul(),
        "memory_bytes": hardware.memory_limit(),
        "architecture": platform.machine(),
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "load_average": list(os.getloadavg()) if hasattr(os, "getloadavg") else None,
    }
