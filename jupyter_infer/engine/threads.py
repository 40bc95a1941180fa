"""How many OpenMP threads compute a step, beside whatever else wants the CPUs.

The threads of a step meet some hundred times in it, and a thread that another process keeps from its CPU keeps them all
waiting: with two threads on two CPUs, one busy neighbour makes a step six times slower, where one thread alone would
lose nothing (docs/speed.md has the figures). Linux says how long each thread wanted to run and could not
(``/proc/PID/task/TID/schedstat``), in a container too. `Threads` reads it a few times a second while steps run, and
`Share` decides.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from jupyter_infer import hardware
from jupyter_infer.engine.quiet import LOGS

__all__ = ["Share", "Threads"]

WINDOW_NS = 200_000_000
"""How long steps are watched before a decision."""

PAUSE_NS = 50_000_000
"""A gap between two steps after which the watch begins anew: nobody waits while nothing runs."""

CROWDED = 0.25
"""CPUs that all threads together waited for, over a window, from which fewer threads are faster."""

FREE = 0.8
"""CPUs that must be idle before one more thread is tried."""

FIRST_TRIAL_S, LAST_TRIAL_S = 1.0, 30.0
"""How long after a cut one more thread is tried; twice as long after each trial that failed."""


class Share:
    """Decides how many threads compute, from what they waited for and what is idle.

    Parameters
    ----------
    most
        Threads that this process may run at once.
    """

    def __init__(self, most: int) -> None:
        self.most = self.now = most
        self._until_trial_s = FIRST_TRIAL_S
        self._since_s = 0.0  # seconds of steps since the last change
        self._trying = False

    def after(self, seconds: float, waited: float, idle: float | None) -> int:
        """Return the number of threads for what comes, after a window of steps.

        Parameters
        ----------
        seconds
            Length of the window.
        waited
            CPUs that the threads together wanted and did not have: their waiting time by the window's.
        idle
            CPUs that nobody used, or None where that is not known.
        """
        self._since_s += seconds
        if waited > CROWDED and self.now > 1:
            self._until_trial_s = min(2 * self._until_trial_s, LAST_TRIAL_S) if self._trying else FIRST_TRIAL_S
            self._set(self.now - max(1, round(waited)), trying=False)
        elif self._trying and self._since_s >= FIRST_TRIAL_S:  # it went well
            self._trying = False
        elif self.now < self.most and self._since_s >= self._until_trial_s and (idle is None or idle >= FREE):
            self._set(self.now + 1, trying=True)
        return self.now

    def _set(self, count: int, *, trying: bool) -> None:
        self.now, self._trying, self._since_s = max(1, min(count, self.most)), trying, 0.0


class Threads:
    """The OpenMP threads of the calling thread, which is the only one that may use it.

    Where Linux does not say what threads wait for, or no OpenMP library answers, their number stays as it is.
    """

    def __init__(self) -> None:
        self._library = _openmp()
        most = hardware.cpu_threads()
        self._share = Share(min(most, self._library.omp_get_max_threads()) if self._library else most)
        self._files: Sequence[Path] = ()
        if self._library and self._share.most > 1:
            self._set(self._share.most)
        self._begun_ns = self._ended_ns = 0
        self._waited_ns = 0
        self._idle_s: float | None = None

    @property
    def now(self) -> int:
        """How many compute."""
        return self._share.now

    def close(self) -> None:
        """Let all threads compute again: the next engine may have the same first thread."""
        if self._library and self._share.now != self._share.most:
            self._library.omp_set_num_threads(self._share.most)

    def before_step(self) -> None:
        """Begin a watch, unless one goes on."""
        if self._files and (now := time.monotonic_ns()) - self._ended_ns > PAUSE_NS:
            self._begin(now)

    def after_step(self) -> None:
        """Decide, at the end of a watch."""
        if not self._files:
            return
        self._ended_ns = now = time.monotonic_ns()
        if now - self._begun_ns < WINDOW_NS:
            return
        seconds, waited_ns, idle_s = (now - self._begun_ns) / 1e9, self._waited_ns, self._idle_s
        self._begin(now)
        idle = None if idle_s is None or self._idle_s is None else (self._idle_s - idle_s) / seconds
        before = self._share.now
        if self._share.after(seconds, (self._waited_ns - waited_ns) / 1e9 / seconds, idle) != before:
            self._set(self._share.now)
            self._begin(now)  # it is another team that is watched
            LOGS.append(f"threads of a step: {self._share.now}, {before} before, by what others use of the CPUs")

    def _begin(self, now: int) -> None:
        self._begun_ns, self._waited_ns = now, sum(map(_waited_ns, self._files))
        # Only somebody who has been cut needs to know what is free.
        self._idle_s = _idle_s() if self._share.now < self._share.most else None

    def _set(self, count: int) -> None:
        """Let so many threads compute, and find their files: OpenMP ends the ones that it does not need."""
        assert self._library is not None
        self._library.omp_set_num_threads(count)
        team = {threading.get_native_id()}
        note: Any = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: team.add(threading.get_native_id()))
        self._library.GOMP_parallel(note, None, count, 0)
        files = [Path(f"/proc/self/task/{thread}/schedstat") for thread in team]
        self._files = files if all(file.exists() for file in files) else ()


def _openmp() -> Any:
    """Return the OpenMP library that PyTorch uses (Intel's has GNU's entry points, too), or None."""
    library = ctypes.CDLL(None)
    return library if hasattr(library, "omp_set_num_threads") and hasattr(library, "GOMP_parallel") else None


def _waited_ns(file: Path) -> int:
    """Return how long a thread was ready to run and had no CPU."""
    try:
        return int(file.read_bytes().split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def _idle_s() -> float | None:
    """Return the idle seconds of the CPUs that this process may run on."""
    try:
        times = psutil.cpu_times(percpu=True)
        return sum(times[cpu].idle for cpu in os.sched_getaffinity(0))
    except (OSError, IndexError, AttributeError):
        return None
