"""What limited a run: its time by kind, to the nanosecond."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from builders import make_record, make_sample, make_step, make_work
from hypothesis import given
from hypothesis import strategies as st

from jupyter_infer.bottleneck import KINDS, bottleneck
from jupyter_infer.records import EngineInfo, Fit, Limits, SampleRecord, StepRecord, TokenEvent
from jupyter_infer.run import Run, RunHeader

INFO = EngineInfo("m", "vllm", "cpu", "bfloat16", 32, 100, None, 4000, 4096, 512, 8, 2)
FIT = Fit(10, fixed_ns=600.0, token_ns=10.0, kv_token_ns=1.0, residual_ns=0.0)
GBPS = 1e10  # 4,000 bytes in 400 ns


def run(*steps: StepRecord, engine: EngineInfo | None = INFO, arrival: int = 0, **facts: Any) -> Run:
    """Return the run of one request that got a token of each step and is over with the last."""
    numbered = tuple(replace(step, index=index) for index, step in enumerate(steps))
    record = make_record(
        make_sample([step.end_ns for step in numbered]),
        arrival_ns=arrival,
        started_ns=numbered[0].start_ns if numbered else None,
        finished_ns=numbered[-1].end_ns if numbered else 1000,
        **facts,
    )
    return Run(RunHeader("now", engine, None), (record,), numbered)


def parts(found: Run, **options: Any) -> dict[str, int]:
    limit = bottleneck(found, **{"fit": FIT, "bandwidth": GBPS, **options})
    assert limit is not None
    assert sum(limit.parts.values()) == limit.elapsed_ns
    return limit.parts


def test_a_step_is_divided_by_the_fit_and_the_bandwidth() -> None:
    # 200 ns of 1,000 are planning and taking in. Of the fit's 600 ns these are 200, so that the model's are 400: all of
    # them for the weights. 20 tokens are 200 ns and 200 KV tokens 200 ns. So of the 800 ns that the model took, 600
    # parts of 800 are memory and 200 of 800 compute.
    step = make_step(make_work(tokens=20, kv_tokens=200), start=0, end=1000, running=1)
    assert parts(run(step)) == {"host": 200, "compute": 200, "bandwidth": 600}
    # At twice the bandwidth the weights are 200 ns, and the other 200 of the fixed part are the host's.
    assert parts(run(step), bandwidth=2 * GBPS) == {"host": 400, "compute": 200, "bandwidth": 400}


def test_without_a_bandwidth_or_weights_the_fixed_part_stays_whole() -> None:
    step = make_step(make_work(tokens=20, kv_tokens=200), start=0, end=1000, running=1)
    assert parts(run(step), bandwidth=None) == {"host": 200, "compute": 200, "bandwidth": 200, "fixed": 400}
    assert "fixed" in parts(run(step, engine=replace(INFO, weight_bytes=None)))


def test_without_a_fit_the_model_is_not_divided() -> None:
    step = make_step(make_work(tokens=20), start=0, end=1000, running=1)
    assert parts(run(step), fit=None) == {"host": 200, "model": 800}
    assert parts(run(step), fit=Fit(1, None, None, None, None)) == {"host": 200, "model": 800}


def test_the_fit_of_the_record_that_ended_last_is_taken() -> None:
    step = make_step(make_work(tokens=20, kv_tokens=200), start=0, end=1000, running=1)
    limit = bottleneck(run(step, fit=FIT), bandwidth=GBPS)
    assert limit is not None
    assert limit.parts == {"host": 200, "compute": 200, "bandwidth": 600}
    assert limit.kind == "bandwidth"
    assert list(limit.shares) == ["bandwidth", "compute", "host"]
    assert sum(limit.shares.values()) == pytest.approx(1)


@pytest.mark.parametrize(
    ("running", "waiting", "tokens", "limits", "kind"),
    [
        (8, 1, 8, None, "cap"),
        (4, 1, 8, Limits(4, 512), "cap"),  # changed live
        (2, 1, 512, None, "budget"),
        (2, 1, 16, Limits(8, 16), "budget"),
        (2, 1, 8, None, "pool"),
    ],
)
def test_a_step_in_which_requests_waited_is_what_they_waited_for(
    running: int, waiting: int, tokens: int, limits: Limits | None, kind: str
) -> None:
    step = make_step(make_work(tokens=tokens), start=0, end=1000, running=running, waiting=waiting, limits=limits)
    assert parts(run(step)) == {kind: 1000}


def test_who_is_in_the_batch_and_left_out_of_a_step_waits_for_the_budget() -> None:
    both = (make_work("r1"), make_work("r2"))
    assert parts(run(make_step(*both, end=1000, running=8, limits=Limits(8, 2)))) == {"budget": 1000}
    # Of asynchronous steps one can be left out because it is sure to end; the budget has room then.
    assert "budget" not in parts(run(make_step(*both, end=1000, running=3)))


def test_a_preemption_is_the_pools() -> None:
    step = make_step(make_work(), start=0, end=1000, running=8, waiting=1, preempted=[("r2", 0)])
    assert parts(run(step)) == {"pool": 1000}


def test_between_steps_it_is_the_host_while_a_request_is_open_and_else_idle() -> None:
    waited = make_step(make_work(), start=500, end=1500, running=8, waiting=1)
    assert parts(run(waited)) == {"host": 500, "cap": 1000}
    first = run(make_step(make_work(), start=0, end=1000, running=8, waiting=1))
    step = make_step(make_work("r2"), start=4000, end=5000, running=8, waiting=1, index=1)
    sample = SampleRecord(0, (TokenEvent("r2", 0, 1, 5000, (1,), "w"),), "stop")
    second = make_record(sample, request_id="r2", arrival_ns=4000, started_ns=4000, finished_ns=5000)
    both = replace(first, requests=(*first.requests, second), steps=(*first.steps, step))
    assert parts(both) == {"cap": 2000, "idle": 3000}


def test_a_step_that_began_before_the_first_arrival_counts_from_there() -> None:
    step = make_step(make_work(), start=0, end=1000, running=8, waiting=1)
    assert parts(run(step, arrival=400)) == {"cap": 600}


def test_nothing_is_said_of_what_is_not_known() -> None:
    step = make_step(make_work(), start=0, end=1000, running=1)
    assert bottleneck(run(step, engine=None)) is None
    assert bottleneck(run(step, engine=replace(INFO, engine="replay of vllm"))) is None
    assert bottleneck(Run(RunHeader("now", INFO, None), (), ())) is None
    whole = run(step, replace(step, start_ns=1000, scheduled_ns=1000, planned_ns=1100, computed_ns=1900, end_ns=2000))
    assert bottleneck(whole) is not None
    assert bottleneck(replace(whole, steps=whole.steps[1:])) is None


@given(
    spans=st.lists(st.tuples(st.integers(0, 500), st.integers(1, 5000)), min_size=1, max_size=8),
    tokens=st.integers(1, 512),
    waiting=st.lists(st.integers(0, 1), min_size=8, max_size=8),
    fit=st.sampled_from([None, FIT, replace(FIT, fixed_ns=0.0), replace(FIT, fixed_ns=0.0, token_ns=0.0)]),
    bandwidth=st.sampled_from([None, 1e3, 1e15]),
)
def test_the_parts_are_the_time_exactly(
    spans: list[tuple[int, int]], tokens: int, waiting: list[int], fit: Fit | None, bandwidth: float | None
) -> None:
    now, steps = 0, []
    for (gap, length), waits in zip(spans, waiting, strict=False):
        steps.append(make_step(make_work(tokens=tokens), start=now + gap, end=now + gap + length, waiting=waits))
        now += gap + length
    found = parts(run(*steps), fit=fit, bandwidth=bandwidth)
    assert all(part > 0 for part in found.values())
    assert found.keys() <= KINDS.keys()
