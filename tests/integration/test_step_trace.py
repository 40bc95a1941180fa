"""The step trace against the requests' records, vLLM's own figures and the KV pool, with all that a step can be."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import jupyter_infer as ji
from jupyter_infer.metrics import itl_ns, phases
from jupyter_infer.pool import Pool
from jupyter_infer.pool_rebuild import rebuild
from jupyter_infer.run import Run
from jupyter_infer.session import Session

INTRO = "Here is an introduction that all of them share. " * 12


@pytest.fixture
def another(session: Session) -> Iterator[Session]:
    """The session to be loaded with other settings; the next test gets the usual ones."""
    yield session
    session.unload()


def pool_of(run: Run) -> Pool:
    ended = {record.request_id: record.finished_ns for record in run.requests}
    engine = run.engine
    return rebuild(run.steps, block_size=engine.block_size, total=engine.kv_blocks_total, caching=True, ended=ended)


def agree(run: Run, free_before: int, total: int) -> None:
    """Check that requests, tokens, steps and blocks of a run tell the same story."""
    assert run.complete
    ends = {step.index: step.end_ns for step in run.steps}
    for earlier, later in itertools.pairwise(run.steps):
        assert later.index == earlier.index + 1
        assert earlier.end_ns <= later.start_ns
    for step in run.steps:
        assert step.scheduled_ns <= step.start_ns <= step.computed_ns <= step.end_ns
        assert min(step.schedule_ns, step.forward_ns, step.update_ns) >= 0
        assert step.schedule_ns + step.forward_ns + step.update_ns == step.duration_ns
        assert 0 < step.cpu_ns <= 1.05 * step.duration_ns + 5_000_000
        assert len(step.work) <= step.running
    for record in run.requests:
        times, name = phases(record), record.request_id
        mine = [(step, work) for step in run.steps for work in step.work if work.request_id == name]
        assert mine[0][0].start_ns == record.started_ns
        assert times.queued_ns + times.prefill_ns + times.decode_ns == times.e2e_ns
        assert sum(work.output_tokens for _, work in mine) == record.output_tokens
        for sample in record.samples:
            given = {step.index: work.output_tokens for step, work in mine if work.sample == sample.index}
            for event in sample.events:
                assert event.time_ns == ends[event.step]
                assert given[event.step] == len(event.token_ids)
            assert sum(itl_ns(record, sample.index)) == sample.events[-1].time_ns - sample.events[0].time_ns
        entries = [work for _, work in mine if work.cached_tokens is not None]
        assert entries[0].cached_tokens == record.cached_tokens
        assert len(entries) == len(record.samples) + record.preemptions
        first = sum(w.prefill_tokens for _, w in mine if w.sample == 0)
        assert first == record.prompt_tokens - record.cached_tokens
    assert free_before == total
    measured = [moment for moment in pool_of(run).moments if moment.used is not None]
    assert len(measured) >= len(run.steps)
    assert {moment.unknown for moment in measured} == {0}  # the tables hold exactly the blocks that are not free


def test_a_batch_with_a_shared_prefix_and_a_long_prompt(cold: Session, vllm_stats: dict[str, Any]) -> None:
    cold.generate(INTRO + "First of all?", max_tokens=2)
    before = cold.status().kv_blocks_free
    prompts = [*(f"{INTRO} Question {n}?" for n in range(4)), "apple pear plum cherry " * 300]
    results = cold.generate(prompts, max_tokens=12, ignore_eos=True, temperature=0)
    agree(results.run, before, cold.info.kv_blocks_total)
    assert max(moment.shared for moment in pool_of(results.run).moments) >= 3  # the introduction's, held by four
    chunks = [
        w
        for step in results.run.steps
        for w in step.work
        if w.prefill_tokens and w.request_id == results[4].record.request_id
    ]
    assert len(chunks) >= 3  # under a budget of 512 tokens
    for result in results.done:
        record, theirs = result.record, vllm_stats[result.record.request_id]
        assert record.started_ns / 1e9 == pytest.approx(theirs.scheduled_ts, abs=0.002)
        assert record.first_token_ns / 1e9 == pytest.approx(theirs.first_token_ts, abs=0.002)
        assert record.last_token_ns / 1e9 == pytest.approx(theirs.last_token_ts, abs=0.002)


def test_samples_of_one_request_share_its_prompts_blocks(cold: Session) -> None:
    result = cold.generate(INTRO, n=3, max_tokens=6, temperature=1, seed=3, ignore_eos=True)
    record = result.record
    assert result.run.complete
    last = [state for state in pool_of(result.run) if len(state.tables) == 3][-1]
    tables = [last.tables[record.request_id, sample] for sample in range(3)]
    assert tables[0][:2] == tables[1][:2] == tables[2][:2]
    assert len({table[-1] for table in tables}) == 3


def test_a_run_reads_back_equal_and_is_played_again_to_the_nanosecond(cold: Session, tmp_path: Path) -> None:
    results = cold.generate(["Say hello.", "Name a colour."], max_tokens=6, temperature=0, ignore_eos=True)
    path = results.to_jsonl(tmp_path / "two.jsonl")
    assert ji.read_runs(path) == results.runs
    replay = Session(str(path))
    again = replay.generate(["Say hello.", "Name a colour."])
    assert again.texts == results.texts
    for before, after in zip(results.done, again.done, strict=True):
        assert after.record.model == f"{before.record.model} (replay)"
        assert after.phases.prefill_ns == before.phases.prefill_ns
        assert after.phases.decode_ns == before.phases.decode_ns
        assert itl_ns(after.record) == itl_ns(before.record)
    replay.unload()


def test_preemptions_and_evictions_in_a_small_pool(another: Session, tmp_path: Path) -> None:
    another.load(kv_cache_memory_bytes=12 << 20, max_model_len=400)
    before, total = another.status().kv_blocks_free, another.info.kv_blocks_total
    results = another.generate(
        [f"Tell me about number {n} please." for n in range(6)], max_tokens=110, ignore_eos=True, temperature=0
    )
    run = results.run
    agree(run, before, total)
    assert sum(len(step.preempted) for step in run.steps) == sum(record.preemptions for record in run.requests) > 0
    assert sum(len(step.evicted) for step in run.steps) > 0
    assert max(step.waiting for step in run.steps) > 0
    victims = [record for record in run.requests if record.preemptions]
    assert all(record.shared_stalled_ns > 0 for record in victims if record.stalled_ns)
    again = ji.read_runs(another.to_jsonl(tmp_path / "preempted.jsonl"))
    assert again == another.runs
    for kind in ("phases", "tokens", "steps", "cost", "kv"):
        assert again[-1].chart(kind).reading == another.chart(kind).reading


def test_drafts_and_what_was_accepted_of_them(another: Session) -> None:
    drafts = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4}
    another.load(kv_cache_memory_bytes=256 << 20, speculative_config=drafts)
    result = another.generate(
        "Repeat: a b c d e f g a b c d e f g a b c d e f g", max_tokens=40, temperature=0, ignore_eos=True
    )
    work = [w for step in result.run.steps for w in step.work]
    assert result.run.complete
    assert sum(w.draft_tokens for w in work) > 0
    assert 0 < sum(w.accepted_tokens for w in work) <= sum(w.draft_tokens for w in work)
    assert all(w.accepted_tokens <= w.draft_tokens for w in work)
    assert sum(w.output_tokens for w in work) == 40
    given = [w for w in work if w.output_tokens]
    # Each step gives what was accepted and one token more, except a last one that the limit cuts.
    assert all(w.output_tokens == w.accepted_tokens + 1 for w in given[:-1])
    assert len(itl_ns(result.record)) == len(given) - 1
