"""An interrupt strikes where the main thread waits, or at the end; what waits is never left locked."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from gate import WAIT

from jupyter_infer import interrupts
from jupyter_infer.interrupts import Bell, Held, Latch, check, held


def interrupt(kept: Held | None = None) -> None:
    signal.raise_signal(signal.SIGINT)


def nothing(kept: Held) -> None:
    pass


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    assert signal.getsignal(signal.SIGINT) is before


def inside(*body: Callable[[Held], object]) -> list[int]:
    """Run functions in a `held`, one after the other; return which ones came to their end, when an interrupt did."""
    done: list[int] = []

    def run() -> None:
        with held() as kept:
            for number, part in enumerate(body):
                part(kept)
                done.append(number)

    with pytest.raises(KeyboardInterrupt):
        run()
    return done


# What is kept whole.


def test_an_interrupt_waits_for_the_end_of_the_body() -> None:
    assert inside(interrupt, interrupt, nothing) == [0, 1, 2]


def test_an_interrupt_strikes_where_the_body_waits() -> None:
    def wait(kept: Held) -> None:
        threading.Timer(0.01, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT)).start()
        Latch().wait(WAIT)

    assert inside(wait) == []


@pytest.mark.parametrize("strike", [lambda kept: Latch().wait(0.001), lambda kept: check()])
def test_one_that_came_before_strikes_at_the_next_wait_or_check(strike: Callable[[Held], object]) -> None:
    assert inside(interrupt, nothing, strike, nothing) == [0, 1]
    check()  # outside it does nothing


def test_what_handles_an_interrupt_is_whole_too() -> None:
    done = []

    def handle(kept: Held) -> None:
        try:
            interrupt()
            check()
        except KeyboardInterrupt:
            interrupt()
            done.append("whole")
            raise

    assert inside(handle) == []
    assert done == ["whole"]


def test_undo_is_called_for_an_interrupt_that_is_left_at_the_end_and_only_then() -> None:
    undone: list[str] = []

    def undo(kept: Held) -> None:
        kept.undo = lambda: undone.append("interrupt")

    with held() as kept:
        kept.undo = lambda: undone.append("no interrupt")
    inside(undo, interrupt)
    assert set(undone) == {"interrupt"}


def test_an_interrupt_is_not_lost_to_another_error() -> None:
    assert inside(interrupt, lambda kept: 1 / 0) == [0]
    with pytest.raises(ZeroDivisionError), held():
        _ = 1 / 0


def test_one_inside_another_ends_with_the_other() -> None:
    def nested(kept: Held) -> None:
        with held():
            interrupt()

    assert inside(nested, nothing) == [0, 1]


def test_a_body_that_never_waits_can_be_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([0.0, interrupts.PATIENCE_S / 2, interrupts.PATIENCE_S * 1.1])
    monkeypatch.setattr(interrupts, "time", SimpleNamespace(monotonic=lambda: next(now)))
    assert inside(interrupt, interrupt, interrupt, nothing) == [0, 1]


def test_a_handler_of_the_users_own_is_called_once() -> None:
    """asyncio's, for one, cancels a task and raises nothing."""
    before, told = signal.getsignal(signal.SIGINT), []
    signal.signal(signal.SIGINT, lambda signum, frame: told.append(signum))
    try:
        with held():
            interrupt()
            Latch().wait(0.001)
            Latch().wait(0.001)
    finally:
        signal.signal(signal.SIGINT, before)
    assert told == [signal.SIGINT]


def test_where_interrupts_are_ignored_and_on_other_threads_nothing_is_changed() -> None:
    before, seen = signal.getsignal(signal.SIGINT), []

    def look() -> None:
        with held():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        look()
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == [before, signal.SIG_IGN]


# Waiting.


def test_a_latch_is_waited_for_on_any_thread_before_and_after() -> None:
    latch, seen = Latch(), []
    assert not latch.wait(0)
    threads = [threading.Thread(target=lambda: seen.append(latch.wait(WAIT))) for _ in range(4)]
    for thread in threads:
        thread.start()
    latch.set()
    for thread in threads:
        thread.join(WAIT)
    assert seen == [True] * 4
    assert latch.wait(0)
    assert latch.is_set()


def test_a_bell_wakes_everybody_each_time() -> None:
    bell, values = Bell(), []
    seen: list[list[int]] = [[], []]

    def read(mine: list[int]) -> None:
        while len(mine) < 500:
            assert bell.wait(lambda: len(values) > len(mine), WAIT)
            mine.extend(values[len(mine) :])

    threads = [threading.Thread(target=read, args=(mine,)) for mine in seen]
    for thread in threads:
        thread.start()
    for value in range(500):
        values.append(value)
        bell.ring()
    for thread in threads:
        thread.join(WAIT)
    assert seen == [list(range(500))] * 2


@pytest.mark.parametrize("calls", range(1, 24))
def test_an_interrupt_in_a_wait_keeps_nobody_else_waiting(calls: int) -> None:
    """In `threading.Event` it can: the lock of its condition stays taken."""
    latch, left = Latch(), [calls]

    def profile(frame: Any, event: str, arg: Any) -> None:
        left[0] -= 1
        if left[0] == 0:
            interrupt()

    sys.setprofile(profile)
    try:
        latch.wait(0.001)
    except KeyboardInterrupt:
        pass
    finally:
        sys.setprofile(None)
    thread = threading.Thread(target=latch.set)
    thread.start()
    thread.join(WAIT)
    assert latch.wait(WAIT)


def test_the_handler_is_put_back_whatever_undo_does() -> None:
    def breaking() -> None:
        raise MemoryError

    def run() -> None:
        with held() as kept:
            kept.undo = breaking
            interrupt()

    with pytest.raises(MemoryError):
        run()  # and `as_before` looks at the handler


def test_an_interrupt_during_undo_comes_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupts, "PATIENCE_S", -1.0)  # any second one would strike
    undone: list[str] = []

    def undo() -> None:
        if not undone:
            interrupt()
        undone.append("whole")

    def run() -> None:
        with held() as kept:
            kept.undo = undo
            kept._since = 0.0

    with pytest.raises(KeyboardInterrupt):
        run()
    assert undone == ["whole", "whole"]


def test_a_handler_that_does_not_raise_is_told_each_time_that_it_waits() -> None:
    told: list[Any] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: told.append(frame))
    try:
        with held() as kept:
            kept._waiting = True  # as in the middle of a wait
            interrupt()
            interrupt()
            kept._waiting = False
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(told) == 2
    assert None not in told
