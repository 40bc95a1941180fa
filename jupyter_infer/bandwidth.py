"""How fast this machine reads memory: what a decode step cannot beat, because it reads every weight once."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["MOST_BYTES", "fastest", "read_bandwidth"]

MOST_BYTES = 1 << 28
"""Bytes that are read at most: more than a cache of most machines holds."""
TRIES = 7


def read_bandwidth(size: int = MOST_BYTES, device: str = "cpu") -> float:
    """Return bytes a second: the fastest of some plain sums over so many bytes, with the threads that PyTorch has.

    Parameters
    ----------
    size
        Bytes to read. As many as a model reads for a token say what it can reach: a cache counts, where it helps.
    device
        PyTorch's name of where the memory is.
    """
    import torch

    numbers = torch.ones(max(1, size // 4), device=device)

    def read() -> None:
        numbers.sum().item()  # waits for a device

    return fastest(read, numbers.nbytes)


def fastest(read: Callable[[], object], size: int) -> float:
    """Return bytes a second of the fastest of some calls that read `size` bytes each."""
    seconds = []
    for _ in range(TRIES):
        begun = time.perf_counter()
        read()
        seconds.append(time.perf_counter() - begun)
    return size / min(seconds)
