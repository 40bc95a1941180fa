"""A request in flight: every reader sees every event in order, and everybody learns that it is over."""

from __future__ import annotations

import logging
import threading

import pytest
from builders import make_record, make_sample

from jupyter_infer.errors import EngineFailed
from jupyter_infer.handle import RequestHandle
from jupyter_infer.records import TokenEvent


def make_handle() -> RequestHandle:
    return RequestHandle("r1", lambda: None)


def make_event(number: int) -> TokenEvent:
    return TokenEvent("r1", 0, number, number, (number,), f"w{number} ")


def test_events_come_in_order_and_end_with_the_record() -> None:
    handle = make_handle()
    for number in range(3):
        handle.event(make_event(number))
    handle.finished(make_record())
    assert [event.step for event in handle] == [0, 1, 2]
    assert [event.step for event in handle] == [0, 1, 2]  # a second reader gets all of them, too
    assert handle.record() == make_record()


def test_readers_on_other_threads_get_events_as_they_come() -> None:
    handle, started = make_handle(), threading.Barrier(4)
    seen: list[list[int]] = [[], [], []]

    def read(number: int) -> None:
        started.wait()
        seen[number].extend(event.step for event in handle)

    readers = [threading.Thread(target=read, args=(number,)) for number in range(3)]
    for reader in readers:
        reader.start()
    started.wait()
    for number in range(50):
        handle.event(make_event(number))
    handle.finished(make_record())
    for reader in readers:
        reader.join()
    assert seen == [list(range(50))] * 3


def test_the_last_events_are_not_lost_when_the_end_comes_with_them() -> None:
    handle = make_handle()
    events = iter(handle)
    handle.event(make_event(0))
    assert next(events).step == 0
    handle.event(make_event(1))
    handle.finished(make_record())
    assert [event.step for event in events] == [1]


def test_an_error_comes_after_the_events_before_it() -> None:
    handle = make_handle()
    handle.event(make_event(0))
    handle.failed(EngineFailed("the engine stopped"))
    events = iter(handle)
    assert next(events).step == 0
    with pytest.raises(EngineFailed):
        next(events)
    with pytest.raises(EngineFailed):
        handle.record()
    assert handle.done


def test_events_after_a_number_come_at_once() -> None:
    handle = make_handle()
    assert handle.events_after(0) == []
    handle.event(make_event(0))
    handle.event(make_event(1))
    assert handle.events_after(1) == [make_event(1)]


def test_a_record_that_does_not_come_in_time_is_a_timeout() -> None:
    with pytest.raises(TimeoutError, match="request r1 is still running"):
        make_handle().record(timeout=0)


def test_whoever_waits_for_the_end_is_not_woken_by_tokens() -> None:
    looks: list[bool] = []
    waits = threading.Event()

    class Watched(RequestHandle):
        @property
        def _over(self) -> bool:
            looks.append(RequestHandle._over.fget(self))  # type: ignore[attr-defined]
            waits.set()
            return looks[-1]

    handle, kept = Watched("r1", lambda: None), []
    reader = threading.Thread(target=lambda: kept.append(handle.record()))
    reader.start()
    assert waits.wait(30)
    for number in range(1000):
        handle.event(make_event(number))
    handle.finished(make_record())
    reader.join()
    assert kept == [make_record()]
    assert len(looks) <= 4


def test_cancel_asks_the_engine() -> None:
    asked: list[str] = []
    handle = RequestHandle("r1", lambda: asked.append("r1"))
    handle.cancel()
    handle.cancel()
    assert asked == ["r1", "r1"]
    assert not handle.done  # it is over when the engine says so


def test_only_the_first_moment_on_a_screen_counts() -> None:
    handle = make_handle()
    assert handle.first_shown_ns is None
    handle.shown()
    first = handle.first_shown_ns
    handle.shown()
    assert handle.first_shown_ns == first is not None


def test_listeners_are_told_once_before_or_after_the_end() -> None:
    handle, told = make_handle(), []
    handle.when_done(lambda: told.append("early"))
    assert told == []
    handle.finished(make_record(make_sample([], finish="abort")))
    handle.when_done(lambda: told.append("late"))
    assert told == ["early", "late"]


def test_a_listener_sees_that_it_is_over() -> None:
    handle = make_handle()
    states = []
    handle.when_done(lambda: states.append((handle.done, handle.record().finish_reason)))
    handle.finished(make_record())
    assert states == [(True, "stop")]


def test_a_listener_that_fails_is_logged_and_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """It runs on the engine's thread, which must live on."""
    handle, told = make_handle(), []
    handle.when_done(lambda: 1 / 0)
    handle.when_done(lambda: told.append("second"))
    with caplog.at_level(logging.ERROR):
        handle.finished(make_record())
        handle.when_done(lambda: 1 / 0)
    assert told == ["second"]
    assert [record.exc_info[0] for record in caplog.records] == [ZeroDivisionError] * 2  # the traceback is kept
