"""An abort frees everything before the second following step, and nothing of it reaches the next request."""

from __future__ import annotations

import itertools
import signal
import threading
from typing import Any

import pytest

from jupyter_infer.session import Session


def test_a_cancelled_request_keeps_its_tokens_and_frees_its_blocks(session: Session) -> None:
    handle = session.submit("Write a long story.", max_tokens=200, ignore_eos=True)
    seen = list(itertools.islice(handle, 5))
    steps_before = session.steps[-1].index
    handle.cancel()
    record = handle.record(timeout=60)
    assert record.finish_reason == "abort"
    assert record.samples[0].events[:5] == tuple(seen)
    assert 5 <= record.output_tokens <= 8
    assert session.steps[-1].index <= steps_before + 2
    after = session.generate("Say hi.", max_tokens=3)
    assert after.record.output_tokens <= 3
    assert session.status().kv_blocks_free == session.info.kv_blocks_total


def test_an_interrupt_in_a_script_aborts_and_goes_on_as_an_interrupt(session: Session) -> None:
    handle = session.submit("Write a long story.", max_tokens=200, ignore_eos=True)

    def watch() -> None:
        list(itertools.islice(handle, 3))
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    threading.Thread(target=watch).start()
    with pytest.raises(KeyboardInterrupt):
        session.result(handle)
    assert handle.record(timeout=60).finish_reason == "abort"


def test_unload_while_generating_ends_the_request_and_the_next_one_loads_again(session: Session) -> None:
    handle = session.submit("Write a long story.", max_tokens=200, ignore_eos=True)
    list(itertools.islice(handle, 2))
    session.unload()
    assert handle.record(timeout=60).finish_reason == "abort"
    assert session.generate("Hi", max_tokens=1).record.load_ns > 0


def test_many_at_once_with_cancels_lose_nothing(session: Session) -> None:
    handles: list[Any] = session.submit_batch([f"Count to {n}." for n in range(12)], max_tokens=6, ignore_eos=True)
    for handle in handles[::3]:
        handle.cancel()
    for number, handle in enumerate(handles):
        record = handle.record(timeout=120)
        assert record.request_id == handle.request_id
        assert [event for sample in record.samples for event in sample.events] == handle.events_after(0)
        assert record.finish_reason == "abort" if number % 3 == 0 else record.output_tokens == 6
