"""The figures against vLLM's own, the caller's stopwatch and each other."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest

from jupyter_infer.metrics import busy_ns, itl_ns
from jupyter_infer.result import Result
from jupyter_infer.session import Session

LONG = "Here is a list of words: " + "apple pear plum cherry " * 60


def test_phases_sum_to_e2e_and_e2e_to_the_callers_wall_time(session: Session) -> None:
    session.generate("Warm up.", max_tokens=2)
    over = []
    for _ in range(3):  # whoever waits for an answer can be kept from a CPU by others
        begun = time.monotonic_ns()
        result = session.generate("Name three colours.", max_tokens=12, temperature=0)
        wall = time.monotonic_ns() - begun
        times = result.phases
        assert times.queued_ns + times.prefill_ns + times.decode_ns == times.e2e_ns
        assert times.e2e_ns <= wall
        over.append(wall - times.e2e_ns - max(0.01 * wall, 5e6))
    assert min(over) <= 0


def test_a_wall_clock_that_jumps_changes_nothing(
    cold: Session, vllm_stats: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """vLLM takes the arrival from the wall clock and all the rest from the monotonic one."""
    jumps = itertools.count(2_000_000_000, -(10**6))
    with monkeypatch.context() as jumping:
        jumping.setattr(time, "time", lambda: float(next(jumps)))
        begun = time.monotonic_ns()
        result = cold.generate("word " * 100, template=False, max_tokens=20, ignore_eos=True)
        wall = time.monotonic_ns() - begun
    times = result.phases
    assert vllm_stats[result.record.request_id].arrival_time < 2_000_000_000 + 1  # the jumping clock was asked
    assert min(times.queued_ns, times.prefill_ns, times.decode_ns) >= 0
    assert 0.9 * wall <= times.queued_ns + times.prefill_ns + times.decode_ns <= wall
    assert result.usage.output_tokens == 20


@pytest.mark.parametrize("tokens", [1, 2, 20])
def test_tpot_is_decode_over_one_token_less(session: Session, tokens: int) -> None:
    result = session.generate("Tell me about rivers.", max_tokens=tokens, ignore_eos=True)
    times, gaps = result.phases, itl_ns(result.record)
    assert len(gaps) == tokens - 1
    assert sum(gaps) == times.decode_ns
    assert times.tpot_ns == (None if tokens == 1 else times.decode_ns / (tokens - 1))


def test_vllm_reports_the_same_times_from_scheduled_on(cold: Session, vllm_stats: dict[str, Any]) -> None:
    results = cold.generate(["Say hello.", LONG, "What is two plus two?"], max_tokens=8, ignore_eos=True)
    for result in results:
        assert isinstance(result, Result)
        record, theirs = result.record, vllm_stats[result.record.request_id]
        assert record.started_ns / 1e9 == pytest.approx(theirs.scheduled_ts, abs=0.002)
        assert record.first_token_ns / 1e9 == pytest.approx(theirs.first_token_ts, abs=0.002)
        assert record.last_token_ns / 1e9 == pytest.approx(theirs.last_token_ts, abs=0.002)
        assert record.output_tokens == theirs.num_generation_tokens == 8
        assert record.preemptions == theirs.num_preemptions


def test_shared_times_and_the_rest_sum_to_the_busy_time(session: Session) -> None:
    session.unload()
    session.load()
    results = [session.generate("Alone.", max_tokens=4)]
    results += session.generate(["One.", "Two.", LONG], max_tokens=6)
    worker = session._worker
    shared = sum(result.record.shared_ns for result in results)
    assert shared + worker.unattributed_ns == worker.busy_ns


def test_one_request_alone_gets_all_of_its_steps(session: Session) -> None:
    result = session.generate("Tell me about rivers.", max_tokens=6)
    mine = [step for step in session.steps if any(w.request_id == result.record.request_id for w in step.work)]
    assert result.record.shared_ns == busy_ns(mine)
    assert result.record.started_ns == mine[0].start_ns
    assert result.record.last_token_ns == mine[-1].end_ns


def test_every_prompt_token_is_prefill_once_and_every_further_token_is_decode(cold: Session) -> None:
    result = cold.generate(LONG, max_tokens=5, ignore_eos=True)
    work = [w for step in cold.steps for w in step.work if w.request_id == result.record.request_id]
    assert sum(w.prefill_tokens for w in work) == result.record.prompt_tokens
    assert sum(w.decode_tokens for w in work) == 4  # the last token is never computed
    assert sum(w.output_tokens for w in work) == 5
    assert len(itl_ns(result.record)) == 4
    budget = cold.info.max_num_batched_tokens
    assert max(w.tokens for w in work) <= budget


def test_a_repeated_prompt_is_cached_in_whole_blocks_and_never_its_last_token(cold: Session) -> None:
    first, second = (cold.generate(LONG, max_tokens=2) for _ in range(2))
    block = cold.info.block_size
    assert first.usage.cached_tokens == 0
    assert second.usage.cached_tokens == block * ((second.usage.prompt_tokens - 1) // block)
    assert "warm" in second.status
    assert "warm" not in first.status


def test_samples_of_one_request_are_billed_one_prompt(session: Session) -> None:
    result = session.generate("Tell me a joke.", n=3, max_tokens=4, temperature=1, seed=1, ignore_eos=True)
    assert len(result.texts) == 3
    assert [len(sample.token_ids) for sample in result.record.samples] == [4, 4, 4]
    assert result.usage.output_tokens == 12
    assert result.usage.prompt_tokens < 60


def test_one_token_has_no_tpot(session: Session) -> None:
    result = session.generate("Say yes.", max_tokens=1)
    assert result.phases.tpot_ns is None
    assert result.phases.decode_ns == 0
    assert itl_ns(result.record) == ()
    assert "n/a" in result.status
