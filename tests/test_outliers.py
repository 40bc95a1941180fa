"""Late tokens and what explains them: only facts of the trace, the main one first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from builders import make_record, make_sample, make_step, make_work

from jupyter_infer.gaps import facts_of, gaps_of, name_of
from jupyter_infer.outliers import NOTHING, names, outliers
from jupyter_infer.records import EngineInfo, StepRecord, StepWork, TokenEvent
from jupyter_infer.run import Run, RunHeader

MS = 1_000_000


def run_of(
    lengths: Sequence[float],
    late: Sequence[StepWork] = (),
    *,
    engine: EngineInfo | None = None,
    without: bool = False,
    **facts: Any,
) -> Run:
    """Return a run of one request whose steps take so many ms; the longest one has more work, and facts of its own."""
    worst = max(range(len(lengths)), key=lambda place: lengths[place])
    steps: list[StepRecord] = []
    times = [0]
    for index, length in enumerate(lengths):
        start, end = times[-1], times[-1] + round(length * MS)
        own = () if without and index == worst else (make_work("r1"),)
        step = make_step(*own, *(late if index == worst else ()), start=start, end=end, index=index)
        step = replace(step, cpu_ns=end - start, threads=2)
        steps.append(replace(step, **facts) if index == worst else step)
        times.append(end)
    sample = make_sample(times[1:])
    return Run(RunHeader("", engine, None), (make_record(sample),), tuple(steps))


def texts(run: Run) -> list[str]:
    return [outlier.text for outlier in outliers(run)]


STEADY = [10, 10, 10, 10, 60, 10, 10]


def test_a_gap_stands_out_above_twice_the_median_and_five_ms() -> None:
    assert outliers(run_of([10, 10, 10, 20, 10])) == []  # just twice
    assert outliers(run_of([1, 1, 1, 5.9, 1])) == []  # 4.9 ms above
    (found,) = outliers(run_of([10, 10, 10, 20.1, 10]))
    assert (found.gap.step, found.gap.ns, found.median_ns) == (3, 20_100_000, 10 * MS)
    assert len(outliers(run_of([1, 1, 1, 6, 1]))) == 1


def test_the_longest_comes_first() -> None:
    found = outliers(run_of([10, 10, 10, 40, 10, 90, 10, 50]))
    assert [outlier.gap.ns // MS for outlier in found] == [90, 50, 40]


def test_one_step_with_several_tokens_is_one_gap() -> None:
    record = make_record(make_sample([100, 200, 400], tokens=[1, 5, 0]))
    (gap,) = gaps_of(record)
    assert (gap.ns, gap.tokens, gap.after, gap.step) == (100, 5, 0, 1)


def test_a_prompt_of_another_in_the_step() -> None:
    late = [make_work("r4", 512, prefill_tokens=512, cached_tokens=0)]
    assert texts(run_of(STEADY, late)) == ["step 4 also computed 512 prompt tokens of r4"]


def test_requests_that_joined() -> None:
    late = [make_work(f"r{i}", 40, prefill_tokens=40, cached_tokens=0) for i in (2, 3)]
    assert texts(run_of(STEADY, late)) == ["step 4 also computed 80 prompt tokens of r2 and r3, which joined"]
    late = [make_work(f"r{i}", 40, prefill_tokens=40, cached_tokens=0) for i in range(2, 16)]
    assert texts(run_of(STEADY, late)) == ["step 4 also computed 560 prompt tokens of 14 requests, which joined"]


def test_a_few_prompt_tokens_explain_nothing() -> None:
    late = [make_work("r2", 10, prefill_tokens=2)]
    assert texts(run_of(STEADY, late)) == [NOTHING]


def test_lost_tokens_of_another() -> None:
    late = [make_work("r4", 96, recomputed_tokens=96, cached_tokens=0)]
    assert texts(run_of(STEADY, late)) == ["step 4 also computed 96 lost tokens of r4 again"]


def test_many_more_requests_in_the_step() -> None:
    late = [make_work(f"r{i}") for i in range(2, 9)]
    assert texts(run_of(STEADY, late)) == ["step 4 computed 8 requests at once, the others mostly 1"]


def test_the_thread_was_kept_off_the_cpu() -> None:
    assert texts(run_of(STEADY, cpu_ns=36 * MS)) == [
        "the machine: 40 % of the step's time the worker's thread was not on a CPU"
    ]
    assert texts(run_of(STEADY, cpu_ns=48 * MS)) == [NOTHING]


@pytest.mark.parametrize("cpu_ns", [None, 0])
def test_a_cpu_time_that_was_not_measured_blames_nobody(cpu_ns: int | None) -> None:
    assert texts(run_of(STEADY, cpu_ns=cpu_ns)) == [NOTHING]


def test_on_a_gpu_the_thread_waits_by_design() -> None:
    info = EngineInfo("m", "vllm", "cuda", "bfloat16", 16, 100, None, None, 4096, 512, 64, None)
    assert texts(run_of(STEADY, engine=info, cpu_ns=6 * MS)) == [NOTHING]


def test_what_was_measured_comes_first_if_it_is_half_of_the_excess() -> None:
    late = [make_work("r4", 512, prefill_tokens=512, cached_tokens=0)]
    kinds = [cause.kind for cause in outliers(run_of(STEADY, late, cpu_ns=20 * MS))[0].causes]
    assert kinds == ["machine", "prefill"]  # 40 of the 50 ms
    kinds = [cause.kind for cause in outliers(run_of(STEADY, late, cpu_ns=40 * MS))[0].causes]
    assert kinds == ["prefill", "machine"]  # 20 of them


def test_fewer_threads() -> None:
    assert texts(run_of(STEADY, threads=1)) == ["fewer threads (1 instead of 2)"]
    assert texts(run_of(STEADY, threads=3)) == [NOTHING]


def test_a_preemption_is_named_before_all_else() -> None:
    run = run_of([10, 10, 10, 10, 10, 10, 10, 10])
    steps = list(run.steps)
    (sample,) = run.requests[0].samples
    kept = tuple(event for event in sample.events if event.step not in (3, 4, 5))
    steps[3] = replace(steps[3], work=(make_work("r2"),), preempted=(("r1", 0),))
    steps[4] = replace(steps[4], work=(make_work("r2"),))
    steps[5] = replace(steps[5], work=(make_work("r1", 64, recomputed_tokens=64, output_tokens=0),), cpu_ns=MS)
    run = replace(run, requests=(replace(run.requests[0], samples=(replace(sample, events=kept),)),))
    (found,) = outliers(replace(run, steps=tuple(steps)))
    assert found.gap.ns == 40 * MS
    assert found.causes[0].text == "r1 was preempted in step 3 and computed 64 tokens again"


def test_steps_that_left_it_out() -> None:
    run = run_of([10, 10, 10, 10, 10, 10, 10, 10])
    (sample,) = run.requests[0].samples
    kept = tuple(event for event in sample.events if event.step not in (3, 4))
    steps = [replace(step, work=(make_work("r2"),)) if step.index in (3, 4) else step for step in run.steps]
    run = replace(run, requests=(replace(run.requests[0], samples=(replace(sample, events=kept),)),))
    assert texts(replace(run, steps=tuple(steps))) == ["r1 was not in steps 3 to 4"]


def test_time_between_steps() -> None:
    run = run_of(STEADY)
    late = replace(run.steps[4], start_ns=run.steps[4].start_ns + 45 * MS, cpu_ns=15 * MS)
    steps = (*run.steps[:4], late, *run.steps[5:])
    assert texts(replace(run, steps=steps)) == ["45 ms passed between two steps"]


def test_a_step_that_is_forgotten_explains_nothing_and_says_so() -> None:
    run = run_of(STEADY)
    assert texts(replace(run, steps=run.steps[5:])) == ["step 4 is no longer remembered"]
    assert texts(replace(run, steps=())) == ["step 4 is no longer remembered"]


def test_of_a_request_whose_steps_are_all_forgotten_others_may_be_remembered() -> None:
    run = run_of(STEADY)
    later = make_step(make_work("r2"), start=900 * MS, end=910 * MS, index=90)
    assert texts(replace(run, steps=(later,))) == ["step 4 is no longer remembered"]


def numbered(run: Run, *indices: int) -> Run:
    """Return the run with other numbers for its steps."""
    (sample,) = run.requests[0].samples
    events = tuple(
        TokenEvent(event.request_id, event.sample, index, event.time_ns, event.token_ids, event.text)
        for event, index in zip(sample.events, indices, strict=True)
    )
    steps = tuple(replace(step, index=index) for step, index in zip(run.steps, indices, strict=True))
    return replace(run, requests=(replace(run.requests[0], samples=(replace(sample, events=events),)),), steps=steps)


def test_numbers_of_steps_far_apart_are_not_counted_through() -> None:
    far = 2**62
    late = [make_work("r4", 512, prefill_tokens=512, cached_tokens=0)]
    run = numbered(run_of(STEADY, late), -far, 1 - far, 2 - far, 3 - far, far, far + 1, far + 2)
    assert texts(run) == [f"step {far} also computed 512 prompt tokens of r4"]


def test_numbers_of_steps_that_run_back_are_taken_as_they_are() -> None:
    late = [make_work("r4", 512, prefill_tokens=512, cached_tokens=0)]
    run = numbered(run_of(STEADY, late), 10, 11, 12, 13, 4, 15, 16)
    assert texts(run) == ["step 4 also computed 512 prompt tokens of r4"]


def two_samples(*works: Sequence[StepWork], lost: int | None = None) -> Run:
    """Return a run of one request with two samples, by steps of 10 ms; `lost` is the one that preempts the second."""
    steps = [
        make_step(
            *work,
            start=place * 10 * MS,
            end=(place + 1) * 10 * MS,
            index=place,
            preempted=[("r1", 1)] * (place == lost),
        )
        for place, work in enumerate(works)
    ]
    samples = []
    for number in (0, 1):
        whole = make_sample([step.end_ns for step in steps], index=number)
        kept = tuple(e for e in whole.events if any(w.sample == number and w.output_tokens for w in works[e.step]))
        samples.append(replace(whole, events=kept))
    return Run(RunHeader("", None, None), (make_record(*samples),), tuple(steps))


def test_of_several_samples_the_one_is_named() -> None:
    both, first = (make_work("r1"), make_work("r1", sample=1)), (make_work("r1"),)
    assert texts(two_samples(both, both, both, both, first, first, both)) == ["r1 #2 was not in steps 4 to 5"]


def test_tokens_are_computed_again_of_one_sample_and_not_of_the_other() -> None:
    both, first = (make_work("r1"), make_work("r1", sample=1)), (make_work("r1"),)
    again = (make_work("r1", 7, recomputed_tokens=6), make_work("r1", 64, sample=1, recomputed_tokens=64))
    found = texts(two_samples(both, both, both, both, first, first, again, both, lost=4))
    assert found[0].startswith("r1 #2 was preempted in step 4 and computed 64 tokens again")


def test_the_prompt_of_another_sample_of_the_request_is_anothers() -> None:
    late = [make_work("r1", 512, sample=1, prefill_tokens=512, cached_tokens=0)]
    assert texts(run_of(STEADY, late)) == ["step 4 also computed 512 prompt tokens of r1 #2"]


def test_requests_without_a_second_token_have_no_outliers() -> None:
    records = (make_record(make_sample([100])), make_record(make_sample([])), make_record(samples := make_sample([1])))
    assert samples.events
    assert outliers(Run(RunHeader("", None, None), records, ())) == []


def test_facts_count_each_request_once() -> None:
    work = (make_work("r1", sample=0), make_work("r1", sample=1), make_work("r2", 5, draft_tokens=4, accepted_tokens=2))
    facts = facts_of([replace(make_step(*work, index=7), cpu_ns=500)])[7]
    assert (facts.requests, facts.tokens, facts.drafts, facts.accepted, facts.on_cpu) == (2, 7, 4, 2, 0.5)


def test_names() -> None:
    assert [name_of("r1"), name_of("r1", 0)] == ["r1", "r1 #1"]
    assert [names(["r1"]), names(["r1", "r2"]), names(["a"] * 1400)] == ["r1", "r1 and r2", "1,400 requests"]
