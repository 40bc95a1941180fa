"""Limits of vLLM's own scheduler, changed while requests run: no reload, and nobody who runs is thrown out."""

from __future__ import annotations

import itertools

from jupyter_infer.bottleneck import bottleneck
from jupyter_infer.records import Limits
from jupyter_infer.session import Session

PROMPTS = [f"{number}. Some facts about the sea and the sky:" for number in range(8)]
LENGTH = {"max_tokens": 24, "ignore_eos": True, "temperature": 0, "template": False}


def test_limits_hold_from_the_next_step_on(cold: Session) -> None:
    loaded = cold.load()
    first = cold.submit_batch(PROMPTS[:4], **LENGTH)
    list(itertools.islice(first[0], 4))
    cold.set_limits(max_num_seqs=4)
    second = cold.submit_batch(PROMPTS[4:], **LENGTH)
    list(itertools.islice(first[0], 8))
    cold.set_limits(max_num_seqs=4, max_num_batched_tokens=2)
    list(itertools.islice(first[0], 12))
    assert cold.set_limits() == loaded.limits
    results = first.result(), second.result()
    assert cold.info is loaded
    assert all(result.usage.output_tokens == 24 for batch in results for result in batch)

    begun = min(result.record.arrival_ns for result in results[0])
    steps = [step for step in cold.steps if step.end_ns > begun]
    held = [step for step in steps if step.limits == Limits(4, loaded.max_num_batched_tokens)]
    narrow = [step for step in steps if step.limits == Limits(4, 2)]
    assert held
    assert narrow
    assert all(step.running == 4 for step in held + narrow)
    assert any(step.waiting == 4 for step in held)  # the second batch has no place
    assert max(step.tokens for step in narrow) == 2  # of four that run, two get a token
    assert {len(step.work) for step in narrow} == {2}
    assert max(step.running for step in steps) == 8  # and everybody has one at the end


def test_a_budget_below_the_batch_is_what_limits_it(cold: Session) -> None:
    cold.load()
    batch = cold.submit_batch(PROMPTS, **LENGTH)
    list(itertools.islice(batch[0], 2))
    cold.set_limits(max_num_batched_tokens=2)
    run = batch.result().run
    cold.set_limits()
    found = bottleneck(run, bandwidth=cold.bandwidth())
    assert found is not None
    assert found.kind == "budget"
    assert "the budget left up to 6 of them out of a step" in batch.result().chart("steps").reading


def test_what_limits_a_run_is_told_of_the_real_engine(cold: Session) -> None:
    bandwidth = cold.bandwidth()
    assert bandwidth is not None
    assert 1e9 < bandwidth < 1e13
    assert cold.bandwidth() == bandwidth  # measured once a load
    cold.set_limits(max_num_seqs=2)
    try:
        held = cold.generate(PROMPTS, **LENGTH).run
    finally:
        cold.set_limits()
    found = bottleneck(held, bandwidth=bandwidth)
    assert found is not None
    assert found.kind == "cap"
    assert sum(found.parts.values()) == found.elapsed_ns
    for count in (1, 2, 4, 8):  # different steps, for the fit
        free = cold.generate([f"{count} {prompt}" for prompt in PROMPTS[:count]], **LENGTH).run
    found = bottleneck(free, bandwidth=bandwidth)
    assert found is not None
    assert found.parts.keys() >= {"compute", "bandwidth", "host"}
    assert not found.parts.keys() & {"cap", "pool", "model", "fixed"}
