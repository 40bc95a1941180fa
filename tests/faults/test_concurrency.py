"""64 requests from threads and a cell at once, with cancels: each event reaches its own request, in order, once."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from gate import WAIT

from jupyter_infer.handle import RequestHandle
from jupyter_infer.session import Session, current_session

from .conftest import Cells

CLIENTS, TURNS = 7, 9  # and a cell: 64 requests
PATIENCE = 10 * WAIT  # of a real engine on a busy machine


@pytest.fixture
def callers(cells: Cells, monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """The names of the threads that touch the engine."""
    owner, names = cells.row.owned(cells.session._worker.engine)
    seen: set[str] = set()

    def watch(name: str) -> None:
        method = getattr(owner, name)

        def watched(*args: Any, **options: Any) -> Any:
            seen.add(threading.current_thread().name)
            return method(*args, **options)

        monkeypatch.setattr(owner, name, watched)

    for name in names:
        watch(name)
    return seen


def test_64_requests_at_once_with_cancels(cells: Cells, callers: set[str]) -> None:
    session, start = cells.session, threading.Barrier(CLIENTS + 1)
    busy, asked = session._worker.busy_ns, len(session.history)
    done: list[tuple[str, int, bool, RequestHandle]] = []
    failures: list[BaseException] = []

    def client(number: int) -> None:
        draw = random.Random(number)
        try:
            start.wait()
            for turn in range(TURNS):
                prompt, limit, cancelled = f"c{number}t{turn}", draw.randint(1, 12), draw.random() < 1 / 3
                handle = session.submit(prompt, max_tokens=limit, temperature=0, ignore_eos=True)
                if cancelled:
                    list(itertools.islice(handle, draw.randint(0, 4)))
                    handle.cancel()
                if draw.random() < 1 / 4:
                    session.status()
                    session.clear_cache()
                done.append((prompt, limit, cancelled, handle))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    start.wait()
    own = cells.ask("%%infer -t 0 --max-tokens 12 --ignore-eos\nthe cell's")
    for thread in threads:
        thread.join(PATIENCE)
    assert failures == []
    assert len(done) == CLIENTS * TURNS == 63
    records = [handle.record(PATIENCE) for *_, handle in done]
    for (prompt, limit, cancelled, handle), record in zip(done, records, strict=True):
        (sample,) = record.samples
        assert record.request_id == handle.request_id
        assert prompt in record.prompt
        assert list(handle) == list(sample.events)  # none lost, none twice, for every reader
        assert {event.request_id for event in sample.events} <= {handle.request_id}
        assert [event.step for event in sample.events] == sorted({event.step for event in sample.events})
        assert [event.time_ns for event in sample.events] == sorted(event.time_ns for event in sample.events)
        assert record.output_tokens == sum(len(event.token_ids) for event in sample.events) <= limit
        assert record.output_tokens == limit or (cancelled and record.finish_reason == "abort")
        if cells.row.answer:
            assert sample.text == "".join(f"{prompt}:{token} " for token in range(record.output_tokens))
    assert own.usage.output_tokens == 12
    assert "the cell's" in own.record.prompt
    assert len({record.request_id for record in records} | {own.record.request_id}) == 64
    assert callers == {"jupyter-infer-engine"}
    history = list(session.history)[asked:]
    assert sorted(result.record.request_id for result in history) == sorted(
        [own.record.request_id, *(record.request_id for record in records)]
    )
    assert session._worker.busy_ns > busy
    cells.well()


def test_cells_of_many_threads_keep_their_answers(cells: Cells) -> None:
    """As the callbacks of widgets do: they run beside a cell, on threads of their own."""
    results: dict[str, Any] = {}

    def call(name: str) -> None:
        results[name] = cells.session.generate(name, max_tokens=3, temperature=0, ignore_eos=True)

    names = [f"thread{number}" for number in range(8)]
    threads = [threading.Thread(target=call, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    cells.answers_right()
    for thread in threads:
        thread.join(PATIENCE)
    assert {name: name in results[name].record.prompt for name in names} == dict.fromkeys(names, True)
    assert {result.usage.output_tokens for result in results.values()} == {3}
    cells.well()


def test_two_cells_at_once_get_one_session(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Session] = []

    class Slow(Session):
        def __init__(self) -> None:
            time.sleep(0.01)  # so that the other one comes meanwhile
            super().__init__()
            made.append(self)

    monkeypatch.setattr("jupyter_infer.session._current", None)
    monkeypatch.setattr("jupyter_infer.session.Session", Slow)
    got: list[Session] = []
    threads = [threading.Thread(target=lambda: got.append(current_session())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    assert got == made * 4
