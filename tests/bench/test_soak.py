"""The soak on each engine; the real one with the 300 requests of `jupyter infer bench soak`."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from jupyter_infer.bench.soak import as_it_must_be, measure_soak, soak_text
from jupyter_infer.engine.scripted import Script, ScriptedEngine
from jupyter_infer.handle import RequestHandle
from jupyter_infer.records import TokenEvent
from jupyter_infer.session import Session

REQUESTS = 300


def scripted(make: Callable[..., Session], in_flight: int) -> dict[str, Any]:
    """Words in, letters out, in a pool that holds a few requests."""
    script = Script(
        answer=lambda prompt: tuple(prompt[:30]),
        step_ns=lambda tokens: 200_000,
        block_size=4,
        blocks=60,
        max_model_len=128,
        token_budget=64,
        in_flight=in_flight,
    )
    session = make(script)
    session.load()
    return measure_soak(session, requests=REQUESTS, say=lambda line: None)


def vllm() -> dict[str, Any]:
    """The command, in a process of its own: its memory is nobody else's."""
    command = [sys.executable, "-m", "jupyter_infer", "bench", "soak", "--json", "--requests", str(REQUESTS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert done.stdout, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == int(not as_it_must_be(found))
    return found


@pytest.mark.parametrize(
    "engine",
    ["scripted", "scripted, two steps in flight", pytest.param("vllm", marks=pytest.mark.integration)],
)
def test_nothing_leaks_is_lost_or_out_of_order(scripted_session: Callable[..., Session], engine: str) -> None:
    found = vllm() if engine == "vllm" else scripted(scripted_session, 2 if "two" in engine else 1)
    assert found["faults"] == []
    assert (found["leaked_blocks"], found["lost_events"], found["misordered_events"]) == (0, 0, 0)
    assert found["finished"] + found["aborted"] + found["refused"] == found["requests"] == REQUESTS
    assert found["refused"] == 15
    assert 40 <= found["aborted"] <= 60  # some are over before their abort comes
    assert found["preemptions"] > 0
    assert found["threads"][0] == found["threads"][1]
    assert found["fds"][0] == found["fds"][1]
    assert found["rss_growth"] <= 0.03
    assert as_it_must_be(found)
    assert soak_text(found).endswith("✓ as it must be")


def test_an_event_that_is_dropped_or_late_is_seen(
    scripted_session: Callable[..., Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = RequestHandle.event
    seen = itertools.count()

    def sometimes(handle: RequestHandle, event: TokenEvent) -> None:
        if next(seen) % 50:
            told(handle, event)

    monkeypatch.setattr(RequestHandle, "event", sometimes)
    found = scripted(scripted_session, 1)
    assert found["lost_events"] > 0
    assert not as_it_must_be(found)


def test_a_block_that_is_not_given_back_is_seen(
    scripted_session: Callable[..., Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    def keep_one(engine: ScriptedEngine, sequence: Any) -> None:
        engine._free += sequence.blocks[1:]
        sequence.blocks = []

    monkeypatch.setattr(ScriptedEngine, "_release", keep_one)
    script = Script(step_ns=lambda tokens: 10_000, blocks=10_000, max_model_len=128)
    session = scripted_session(script)
    session.load()
    found = measure_soak(session, requests=100, say=lambda line: None)
    assert found["leaked_blocks"] > 0
    assert not as_it_must_be(found)


GOOD = {
    "requests": 300, "finished": 225, "aborted": 60, "refused": 15,
    "leaked_blocks": 0, "lost_events": 0, "misordered_events": 0, "faults": [],
    "rss_growth": 0.01, "rss_bytes": [1_000_000_000, 1_010_000_000], "threads": [9, 9], "fds": [40, 40],
    "warm_up_requests": 100, "events": 3000, "output_tokens": 3100, "preemptions": 7, "seconds": 61.2,
    "model": "scripted", "engine": "scripted", "kv_blocks": 60, "seed": 0,
}  # fmt: skip


def test_the_text_says_what_was_found() -> None:
    assert soak_text(GOOD).splitlines() == [
        "300 requests on scripted (scripted, 60 KV blocks) in 61 s",
        "  finished 225, aborted 60, refused 15; 3,100 output tokens, 7 preemptions",
        "  leaked blocks 0, lost events 0, misordered events 0 (of 3,000)",
        "  memory 1,000 → 1,010 MB, 1 % more; threads 9 → 9, open files 40 → 40, since the first 100 requests",
        "✓ as it must be",
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        {"leaked_blocks": 1},
        {"lost_events": 1},
        {"misordered_events": 1},
        {"faults": ["'1. rain' {}: TimeoutError: "]},
        {"finished": 224},
        {"threads": [9, 10]},  # fewer are no leak: a library's may end
        {"fds": [40, 41]},
        {"rss_growth": 0.031},
    ],
)
def test_anything_wrong_is_not_as_it_must_be(wrong: dict[str, Any]) -> None:
    assert as_it_must_be(GOOD)
    assert not as_it_must_be(GOOD | wrong)
    assert soak_text(GOOD | wrong).endswith("✗ not as it must be")


@pytest.mark.parametrize(("requests", "warm_up"), [(50, 0), (101, 100), (300, 200), (700, 400)])
def test_the_warm_up_is_as_long_as_is_said(
    scripted_session: Callable[..., Session], monkeypatch: pytest.MonkeyPatch, requests: int, warm_up: int
) -> None:
    looked: list[int] = []
    session = scripted_session(Script(step_ns=lambda tokens: 1_000, max_model_len=128))
    session.load()
    said: list[str] = []

    def footprint() -> dict[str, int]:
        looked.append(len(said))
        return {"rss_bytes": 1, "threads": 1, "fds": 1}

    monkeypatch.setattr("jupyter_infer.bench.soak._footprint", footprint)
    found = measure_soak(session, requests=requests, say=said.append)
    assert found["warm_up_requests"] == warm_up
    assert looked[-2] == 1 + warm_up // 100  # after so many rounds
