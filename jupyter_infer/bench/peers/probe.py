"""How fast this machine reads memory: what one sequence's decode cannot beat.

A decode step of one sequence reads every weight once, so it takes at least their bytes ÷ this speed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from jupyter_infer.bench.peers.serve import Peer, serve

__all__ = ["Probe"]

BYTES = 1 << 28  # more than a cache holds
TRIES = 7


class Probe(Peer):
    """Measures at its load; there is nothing to run."""

    def __init__(self, load: dict[str, Any]) -> None:
        super().__init__()
        import torch

        numbers = torch.ones(BYTES // 4)
        columns = 1 << 13
        matrix = torch.ones(BYTES // 2 // columns, columns, dtype=torch.bfloat16)
        vector = torch.ones(columns, dtype=torch.bfloat16)
        self.facts = {
            "sum_gbps": _best(numbers.sum),
            "matvec_gbps": _best(lambda: matrix @ vector),
            "threads": torch.get_num_threads(),
        }


def _best(read: Callable[[], object]) -> float:
    """Return the GB/s of the fastest try."""
    seconds = []
    for _ in range(TRIES):
        begun = time.perf_counter()
        read()
        seconds.append(time.perf_counter() - begun)
    return BYTES / min(seconds) / 1e9


if __name__ == "__main__":
    serve(Probe)
