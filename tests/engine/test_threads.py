from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from jupyter_infer.engine import threads
from jupyter_infer.engine.threads import FIRST_TRIAL_S, Share, Threads

WINDOW_S = 0.2


def run(share: Share, seconds: float, waited: float, idle: float | None) -> set[int]:
    """Watch for so long; return the numbers of threads that there were."""
    return {share.after(WINDOW_S, waited, idle) for _ in range(round(seconds / WINDOW_S))}


@pytest.mark.parametrize(("waited", "left"), [(0.0, 8), (0.2, 8), (0.3, 7), (1.2, 7), (1.6, 6), (20.0, 1)])
def test_as_many_threads_go_as_cpus_are_missing(waited, left):
    assert Share(8).after(WINDOW_S, waited, idle=None) == left


def test_one_thread_stays():
    share = Share(2)
    assert run(share, 2, waited=1.5, idle=0.0) == {1}
    assert Share(1).after(WINDOW_S, 3.0, idle=None) == 1


def test_beside_a_neighbour_that_stays_it_stays_so():
    share = Share(2)
    share.after(WINDOW_S, 0.5, idle=0.0)
    assert run(share, 60, waited=0.0, idle=0.1) == {1}  # nobody waits, and nothing is free


def test_a_cpu_that_becomes_free_is_used_again():
    share = Share(2)
    share.after(WINDOW_S, 0.5, idle=0.0)
    assert run(share, FIRST_TRIAL_S - WINDOW_S, waited=0.0, idle=1.0) == {1}
    assert share.after(WINDOW_S, 0.0, idle=1.0) == 2
    assert run(share, 60, waited=0.0, idle=0.0) == {2}


def test_trials_that_fail_become_rare():
    share, trials, seconds = Share(2), [], 0.0
    while seconds < 200:  # where nobody knows what is idle, and two threads are always too many
        if share.after(WINDOW_S, 0.5 if share.now == 2 else 0.0, idle=None) == 2:
            trials.append(seconds)
        seconds += WINDOW_S
    assert [round(after - before) for before, after in itertools.pairwise(trials)][:6] == [2, 4, 8, 16, 30, 30]
    share = Share(2)
    share.after(WINDOW_S, 0.5, idle=None)
    run(share, 5, waited=0.0, idle=None)
    assert share.now == 2
    share.after(WINDOW_S, 0.5, idle=None)  # a trial that went well: the next one comes soon again
    assert run(share, FIRST_TRIAL_S, waited=0.0, idle=None) == {1, 2}


def test_what_a_thread_waited_for_is_read_and_what_cannot_be_read_is_none(tmp_path):
    (tmp_path / "schedstat").write_text("900 1234 5\n")
    assert threads._waited_ns(tmp_path / "schedstat") == 1234
    assert threads._waited_ns(tmp_path / "none") == 0
    (tmp_path / "schedstat").write_text("")
    assert threads._waited_ns(tmp_path / "schedstat") == 0


class Library:
    """OpenMP with as many threads as it is told."""

    def __init__(self) -> None:
        self.count = 2

    def omp_get_max_threads(self) -> int:
        return self.count

    def omp_set_num_threads(self, count: int) -> None:
        self.count = count

    def GOMP_parallel(self, function, data, count, flags) -> None:
        function(data)


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="this system has no schedstat")
def test_the_library_is_told_when_others_use_the_cpus(monkeypatch):
    library, clock, waited = Library(), [0], [0]
    monkeypatch.setattr(threads, "_openmp", lambda: library)
    monkeypatch.setattr(threads.hardware, "cpu_threads", lambda: 4)
    monkeypatch.setattr(threads, "_waited_ns", lambda file: waited[0])
    monkeypatch.setattr(threads.time, "monotonic_ns", lambda: clock[0])
    watched = Threads()
    assert watched.now == 2  # OMP_NUM_THREADS said so
    for busy, wanted in ((False, 2), (True, 1)):
        for _ in range(10):
            watched.before_step()
            clock[0] += 40_000_000
            waited[0] += 30_000_000 if busy else 0
            watched.after_step()
        assert (watched.now, library.count) == (wanted, wanted)
    watched.close()
    assert Threads().now == library.count == 2  # of the next engine on this thread
    library.count = 1
    monkeypatch.setattr(threads, "_idle_s", lambda: clock[0] / 1e9)  # a CPU is free
    for _ in range(100):
        watched.before_step()
        clock[0] += 40_000_000
        watched.after_step()
    assert (watched.now, library.count) == (2, 2)  # what the new thread waited for before does not count
    waited[0] += 10**10
    clock[0] += 10**10  # between two requests nothing runs, and what was waited for counts for nothing
    watched.before_step()
    assert watched._begun_ns == clock[0]


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="this Linux has no schedstat")
def test_a_thread_beside_more_threads_than_cpus_waited():
    file = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")
    before, end = threads._waited_ns(file), time.monotonic() + 20
    cpu = min(os.sched_getaffinity(0))
    mask = os.sched_getaffinity(0)
    hog = [sys.executable, "-c", f"import os\nos.sched_setaffinity(0, {{{cpu}}})\nprint(flush=True)\nwhile True: pass"]
    with subprocess.Popen(hog, stdout=subprocess.PIPE) as process:
        try:
            process.stdout.readline()
            os.sched_setaffinity(0, {cpu})  # of this thread
            while threads._waited_ns(file) - before < 5_000_000 and time.monotonic() < end:
                pass
        finally:
            os.sched_setaffinity(0, mask)
            process.kill()
    assert threads._waited_ns(file) - before >= 5_000_000
