"""How fast this machine reads memory: what a decode step cannot beat, because it reads every weight once."""

from __future__ import annotations

import time
from collections.abc import Callable

from jupyter_infer import hardware

__all__ = ["MOST_BYTES", "fastest", "read_bandwidth"]

MOST_BYTES = 1 << 28
"""Bytes that are read at most: more than a cache of most machines holds."""
TRIES = 7
READS = 20  # of a try on a device that has to be waited for, which takes as long as some of them


def read_bandwidth(size: int = MOST_BYTES, device: str = "cpu") -> float | None:
    """Return bytes a second: the fastest of some plain sums over so many bytes, with the threads that PyTorch has.

    None if there is no room for them: fewer bytes would be read from a cache, and say nothing.

    Parameters
    ----------
    size
        Bytes to read. As many as a model reads for a token say what it can reach: a cache counts, where it helps.
    device
        PyTorch's name of where the memory is.
    """
    import torch

    room = hardware.memory_available() if device == "cpu" else torch.cuda.mem_get_info()[0]
    if size > room // 2:
        return None
    try:
        numbers = torch.ones(max(1, size // 4), device=device)
    except (RuntimeError, MemoryError):  # somebody else took it
        return None
    reads = 1 if device == "cpu" else READS

    def read() -> None:
        for _ in range(reads):
            found = numbers.sum()
        found.item()  # waits for a device

    return fastest(read, reads * numbers.nbytes)


def fastest(read: Callable[[], object], size: int) -> float:
    """Return bytes a second of the fastest of some calls that read `size` bytes each."""
    seconds = []
    for _ in range(TRIES):
        begun = time.perf_counter()
        read()
        seconds.append(time.perf_counter() - begun)
    return size / min(seconds)
