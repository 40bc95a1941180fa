"""How fast this machine reads memory: what one sequence's decode cannot beat.

A decode step of one sequence reads every weight once, so it takes at least their bytes ÷ this speed.
"""

from __future__ import annotations

from typing import Any

from jupyter_infer.bandwidth import MOST_BYTES, fastest, read_bandwidth
from jupyter_infer.bench.peers.serve import Peer, serve

__all__ = ["Probe"]


class Probe(Peer):
    """Measures at its load; there is nothing to run."""

    def __init__(self, load: dict[str, Any]) -> None:
        super().__init__()
        import torch

        columns = 1 << 13
        matrix = torch.ones(MOST_BYTES // 2 // columns, columns, dtype=torch.bfloat16)
        vector = torch.ones(columns, dtype=torch.bfloat16)
        read = read_bandwidth()
        self.facts = {
            "sum_gbps": None if read is None else read / 1e9,
            "matvec_gbps": fastest(lambda: matrix @ vector, matrix.nbytes) / 1e9,
            "threads": torch.get_num_threads(),
        }


if __name__ == "__main__":
    serve(Probe)
