"""A run: whether its steps are all there, how busy the engine was, and what was asked together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from builders import make_record, make_sample, make_step, make_work

from jupyter_infer.engine import worker as worker_module
from jupyter_infer.engine.scripted import Script
from jupyter_infer.pricing import DEFAULT_PRICE, MachinePrice
from jupyter_infer.records import RequestRecord, StepRecord
from jupyter_infer.run import Run, RunHeader, bursts, header_of, steps_of
from jupyter_infer.session import Session

HEADER = RunHeader("2026-12-01T00:00:00+00:00", None, None)


def request(name: str, arrival: int, started: int | None, finished: int, *times: int, **facts: Any) -> RequestRecord:
    """Return a request with a token in the steps 0, 1, … that ended at `times`."""
    return make_record(
        make_sample(times, request_id=name, finish="stop" if times else "abort"),
        request_id=name,
        arrival_ns=arrival,
        started_ns=started,
        finished_ns=finished,
        **facts,
    )


def steps(*spans: tuple[int, int, str]) -> tuple[StepRecord, ...]:
    """Return steps from their start, their end and the ids, a letter each, of the requests in them."""
    return tuple(
        make_step(*(make_work(name) for name in names), start=start, end=end, index=index)
        for index, (start, end, names) in enumerate(spans)
    )


# Whether all of it is there.


def test_a_run_is_complete_if_the_steps_of_all_tokens_are_there() -> None:
    record = request("a", 0, 100, 300, 200, 300)
    whole = steps((100, 200, "a"), (200, 300, "a"))
    assert Run(HEADER, (record,), whole).complete
    assert not Run(HEADER, (record,), whole[:1]).complete
    assert not Run(HEADER, (record,), whole[1:]).complete
    assert not Run(HEADER, (record,), ()).complete
    assert not Run(HEADER, (record,), steps((100, 200, "b"), (200, 300, "a"))).complete


def test_forgotten_steps_of_a_long_prompt_are_missed_though_they_gave_no_token() -> None:
    sample = make_sample([200, 300, 400], tokens=[0, 0, 1], request_id="a")
    record = make_record(sample, request_id="a", started_ns=100)
    whole = steps((100, 200, "a"), (200, 300, "a"), (300, 400, "a"))
    assert Run(HEADER, (record,), whole).complete
    assert not Run(HEADER, (record,), whole[1:]).complete
    assert not Run(HEADER, (record,), whole[2:]).complete


def test_what_never_started_has_no_steps_to_miss() -> None:
    assert Run(HEADER, (request("q", 0, None, 900),), ()).complete
    assert not Run(HEADER, (request("p", 0, 100, 900),), ()).complete  # aborted in its prefill
    assert Run(HEADER, (request("p", 0, 100, 900),), steps((100, 950, "p"))).complete


# From when to when, and how busy.


def test_the_span_is_from_the_first_arrival_to_the_last_moment() -> None:
    records = (request("a", 50, 100, 300, 200, 300), request("b", 20, 110, 250, 250))
    assert Run(HEADER, records, ()).span_ns == (20, 300)
    assert Run(HEADER, records, steps((100, 320, "a"))).span_ns == (20, 320)  # an abort ends before its step
    assert Run(HEADER, (), steps((100, 320, "a"))).span_ns == (0, 0)


def test_utilisation_is_busy_time_of_the_time_from_the_first_arrival_to_the_last_end() -> None:
    record = request("a", 0, 100, 600, 200, 400, 600)
    run = Run(HEADER, (record,), steps((100, 200, "a"), (300, 400, "a"), (550, 600, "a")))
    assert run.utilisation == 250 / 600
    aborted = replace(run, steps=(*run.steps, *steps((600, 1000, "n"))))
    assert aborted.utilisation == 650 / 1000


def test_utilisation_is_not_known_where_steps_are_missing() -> None:
    record = request("a", 0, 100, 400, 200, 400)
    whole = steps((100, 200, "a"), (300, 400, "a"))
    assert Run(HEADER, (record,), whole).utilisation == 200 / 400
    assert Run(HEADER, (record,), whole[1:]).utilisation is None
    assert Run(HEADER, (request("q", 0, None, 900),), ()).utilisation is None
    assert Run(HEADER, (request("p", 0, 100, 900),), ()).utilisation is None


# Which steps.


def test_steps_are_those_from_the_first_arrival_to_the_last_end_with_neighbours() -> None:
    all_steps = steps((0, 100, "n"), (100, 200, "an"), (200, 300, "n"), (300, 400, "b"), (400, 500, "n"))
    records = [request("a", 50, 100, 200, 200), request("b", 60, 300, 400, 400)]
    assert steps_of(records, all_steps) == all_steps[:4]  # the first one ran when it came
    assert steps_of(records[:1], all_steps) == all_steps[:2]
    assert steps_of([request("a", 100, 100, 250, 200)], all_steps) == all_steps[1:3]  # aborted in a step
    assert steps_of([request("q", 250, None, 900)], all_steps) == all_steps[2:]  # it waited for all of them
    assert steps_of([], all_steps) == ()


def test_a_request_that_waits_for_its_neighbours_does_not_make_the_machine_idle() -> None:
    sample = make_sample([100, 300, 400], tokens=[0, 0, 1], request_id="a")
    record = make_record(sample, request_id="a", arrival_ns=50, started_ns=300)
    run = Run(HEADER, (record,), steps((0, 100, "n"), (100, 300, "n"), (300, 400, "a")))
    assert run.busy_ns == 350  # of the step that ran when it came, what was left
    assert run.utilisation == 1.0


# What was asked together.


def names_of(run: Run) -> list[tuple[str, ...]]:
    return [tuple(record.request_id for record in part.requests) for part in bursts(run)]


def test_requests_that_overlap_are_one_burst_and_a_touch_is_apart() -> None:
    a = request("a", 0, 10, 100, 100)
    b = request("b", 50, 60, 300, 300)
    c = request("c", 250, 260, 280, 280)
    d = request("d", 300, 310, 400, 400)
    run = Run(HEADER, (a, b, c, d), steps((10, 100, "a"), (150, 300, "bc"), (310, 400, "d")), {"c": 281, "d": 401}, "x")
    assert names_of(run) == [("a", "b", "c"), ("d",)]
    first, second = bursts(run)
    assert first.steps == run.steps[:2]
    assert second.steps == run.steps[2:]
    assert (first.first_shown_ns, second.first_shown_ns) == ({"c": 281}, {"d": 401})
    assert (first.name, first.header) == ("x", HEADER)


def test_a_long_request_keeps_those_within_it_together() -> None:
    run = Run(
        HEADER, tuple(request(n, at, None, end) for n, at, end in (("a", 0, 900), ("b", 10, 20), ("c", 500, 600))), ()
    )
    assert names_of(run) == [("a", "b", "c")]


def test_bursts_are_in_the_order_of_arrival() -> None:
    run = Run(HEADER, (request("b", 500, None, 600), request("a", 0, None, 100)), ())
    assert names_of(run) == [("a",), ("b",)]
    assert bursts(Run(HEADER, (), ())) == []


# What it is called, and its header.


def test_a_name_does_not_count() -> None:
    run = Run(HEADER, (), ())
    assert run.called("x") == run
    assert run.called("x").name == "x"
    assert run != Run(HEADER, (request("a", 0, None, 1),), ())


def test_a_header_says_what_is_needed_to_repeat_a_run() -> None:
    records = [
        make_record(request_id="r1", sampling={"seed": 5}),
        make_record(request_id="r2", sampling={"seed": None}),
        make_record(request_id="r3", sampling={}),
    ]
    header = header_of(None, MachinePrice(1.0), None, records)
    assert header.seeds == {"r1": 5}
    assert header.price == MachinePrice(1.0)
    assert header.created.endswith("+00:00")
    assert {"python", "jupyter-infer"} <= set(header.versions)
    assert header.machine is not None
    assert header.machine.system.startswith("Linux")
    assert header.machine.cpus >= 1
    assert header.machine.memory_bytes > 0


# The runs of results and of sessions.


def test_a_result_has_the_steps_in_its_time_and_knows_when_they_are_forgotten(
    scripted_session: Callable[..., Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "STEPS_KEPT", 8)
    session = scripted_session(Script(step_ns=lambda tokens: 1000))
    early = session.generate("one")  # four tokens
    assert early.run.complete
    assert [len(step.work) for step in early.run.steps] == [1, 1, 1, 1]
    second = session.generate("two")
    assert early.run.complete
    assert [step.index for step in second.run.steps] == [4, 5, 6, 7]  # not its neighbour's of before
    session.generate("three", max_tokens=1)
    run = early.run
    assert not run.complete
    assert [step.index for step in run.steps] == [1, 2, 3]
    assert run.utilisation is None
    assert run.requests == (early.record,)
    session.generate(["four", "five", "six"])
    assert early.run.steps == ()
    assert early.run.utilisation is None
    assert early.text == "Hello, world."


def test_a_session_has_a_run_for_each_of_its_loads(scripted_session: Callable[..., Session]) -> None:
    session = scripted_session()
    session.generate(["a", "b"])
    session.unload()
    session.generate("c")
    session.load(max_num_seqs=4)
    session.generate("d")
    runs = session.runs
    assert [[record.label for record in run.requests] for run in runs] == [["a", "b"], ["c"], ["d"]]
    for run in runs:
        assert run.run.complete
        own = {record.request_id for record in run.requests}
        assert {work.request_id for step in run.steps for work in step.work} == own
        assert run.steps[0].index == 0
    assert session.chart().title.startswith("scripted · 1 request")
    assert "throughput" in session.chart().title


def test_the_price_of_a_run_is_the_newest_one(scripted_session: Callable[..., Session]) -> None:
    session = scripted_session()
    session.generate("a")
    session.price = MachinePrice(2.0)
    session.generate("b")
    [run] = session.runs.data
    assert run.price == MachinePrice(2.0)
    assert session.history[0].run.price == DEFAULT_PRICE


def test_when_a_text_was_shown_is_a_part_of_the_run(scripted_session: Callable[..., Session]) -> None:
    session = scripted_session()
    handle = session.submit("a")
    handle.shown()
    result = handle.result()
    assert result.run.first_shown_ns == {result.record.request_id: handle.first_shown_ns}
