"""The interpreter's switch interval: short while requests run, and the user's own otherwise."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from gate import WAIT, Gate

from jupyter_infer.engine.gil import SWITCH_S, hurry, relax
from jupyter_infer.engine.scripted import Script


@pytest.fixture(autouse=True)
def interval() -> Iterator[float]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.005)
    yield 0.005
    sys.setswitchinterval(before)


def now() -> float:
    return round(sys.getswitchinterval(), 6)


def test_it_is_short_until_the_last_one_relaxes() -> None:
    hurry()
    hurry()
    relax()
    assert now() == SWITCH_S
    relax()
    assert now() == 0.005


def test_what_the_user_sets_meanwhile_stays() -> None:
    hurry()
    sys.setswitchinterval(0.002)
    relax()
    assert now() == 0.002


def test_what_is_shorter_already_stays() -> None:
    sys.setswitchinterval(0.00001)
    hurry()
    assert now() == 0.00001
    relax()
    assert now() == 0.00001


def test_it_is_short_while_requests_run(scripted_session: Callable[..., Any]) -> None:
    gate = Gate()
    session = scripted_session(Script(answer=lambda prompt: ["a"] * 10), sleep=gate.sleep)
    session.load()
    assert now() == 0.005
    handle = session.submit("Hi")
    gate.wait()
    assert now() == SWITCH_S
    gate.open()
    handle.result(WAIT)
    session._worker.ask(lambda engine: None).wait(WAIT)  # the worker waits for messages again
    session.stop()
    assert now() == 0.005
