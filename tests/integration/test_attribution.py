"""Who used the engine's time, on the real engine: alone and in batches, with short and long contexts."""

from __future__ import annotations

import dataclasses
import statistics

import pytest

from jupyter_infer.attribution import fit, split
from jupyter_infer.metrics import busy_ns
from jupyter_infer.records import RequestRecord, StepRecord
from jupyter_infer.session import Session

BATCHES = (1, 2, 8, 16)
CONTEXTS = {"short": 4, "long": 120}  # times five tokens and some
TOKENS = 16


@dataclasses.dataclass(frozen=True)
class Batch:
    records: list[RequestRecord]
    busy_ns: int
    unattributed_ns: int

    def mean_ns(self, what: str) -> float:
        return statistics.mean(getattr(record, what) for record in self.records)


@pytest.fixture(scope="module")
def batches(session: Session) -> dict[tuple[str, int], Batch]:
    """The same kind of request alone and in batches; no two share a prefix."""
    session.unload()
    session.load()
    session.generate([f"{n} warm up" for n in range(4)], max_tokens=8, ignore_eos=True)
    found = {}
    for context, words in CONTEXTS.items():
        for size in BATCHES:
            assert session.clear_cache()
            worker = session._worker
            before = worker.busy_ns, worker.unattributed_ns
            prompts = [f"{size}.{n} " + "apple pear plum cherry fig " * words for n in range(size)]
            results = session.generate(prompts, max_tokens=TOKENS, ignore_eos=True, temperature=0)
            found[context, size] = Batch(
                [result.record for result in results.done],
                worker.busy_ns - before[0],
                worker.unattributed_ns - before[1],
            )
    return found


@pytest.fixture(scope="module")
def steps(session: Session, batches: dict[tuple[str, int], Batch]) -> tuple[StepRecord, ...]:
    return session.steps


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("size", BATCHES)
def test_shares_and_the_rest_are_the_busy_time(batches: dict[tuple[str, int], Batch], context: str, size: int) -> None:
    batch = batches[context, size]
    assert len(batch.records) == size
    assert sum(record.shared_ns for record in batch.records) + batch.unattributed_ns == batch.busy_ns
    assert batch.unattributed_ns == 0  # nobody was aborted
    for record in batch.records:
        parts = (record.shared_prefill_ns, record.shared_decode_ns, record.shared_stalled_ns)
        assert sum(parts) == record.shared_ns
        assert parts[0] > 0
        assert parts[1] > 0
        assert parts[2] == 0


@pytest.mark.parametrize("context", CONTEXTS)
def test_decode_is_cheaper_for_each_the_more_share_its_steps(
    batches: dict[tuple[str, int], Batch], context: str
) -> None:
    alone, two, eight, sixteen = (batches[context, size].mean_ns("shared_decode_ns") for size in BATCHES)
    print(f"shared decode, {context}: {[round(ns / 1e6, 2) for ns in (alone, two, eight, sixteen)]} ms a request")
    assert two < 0.9 * alone  # the fixed part is halved
    assert eight < 0.6 * alone
    assert sixteen < 0.8 * two


def test_prefill_costs_by_its_length_and_hardly_by_its_neighbours(batches: dict[tuple[str, int], Batch]) -> None:
    short, long = batches["short", 1].records[0], batches["long", 1].records[0]
    assert long.prompt_tokens > 8 * short.prompt_tokens
    assert long.shared_prefill_ns > 2 * short.shared_prefill_ns


def test_the_fit_says_how_far_off_a_step_is(batches: dict[tuple[str, int], Batch]) -> None:
    by = batches["long", 16].records[-1].fit
    print(f"step = {by.fixed_ns / 1e6:.2f} ms + {by.token_ns / 1e6:.3f} ms · tokens, {by.kv_token_ns} ns · KV tokens")
    print(f"median error of a step {by.residual_ns / 1e6:.2f} ms, over {by.steps} steps")
    assert by.fixed_ns > 0
    assert by.token_ns > 0
    assert by.residual_ns > 0
    assert by.kv_token_ns is not None  # contexts of some 40 and of 8,000 tokens in a step can be told apart
    assert by.residual_ns < by.fixed_ns + 512 * by.token_ns


@pytest.mark.parametrize("kv", [True, False])
def test_steps_are_split_exactly_with_and_without_the_kv_term(steps: tuple[StepRecord, ...], kv: bool) -> None:
    by = fit(steps)
    assert by.kv_token_ns is not None
    by = by if kv else dataclasses.replace(by, kv_token_ns=None)
    shares = [split(step, by) for step in steps]
    assert sum(map(sum, shares)) == busy_ns(steps)
    assert all(share >= 0 for step in shares for share in step)
    # Of two decodes in a step, the longer context never costs less, and costs more where the term says so.
    step = max(steps, key=lambda step: sum(work.phase == "decode" for work in step.work))
    pairs = sorted((work.kv_tokens, share) for work, share in zip(step.work, split(step, by), strict=True))
    assert pairs[0][1] <= pairs[-1][1] + 1  # a nanosecond of rounding


def test_the_kv_term_moves_time_to_long_contexts(session: Session) -> None:
    assert session.clear_cache()
    prompts = ["long " + "apple pear plum cherry fig " * 300, *(f"{n} short" for n in range(7))]
    results = session.generate(prompts, max_tokens=TOKENS, ignore_eos=True, temperature=0)
    long, *short = (result.record.request_id for result in results.done)
    decode = [step for step in results.steps if len(step.work) == 8 and all(w.phase == "decode" for w in step.work)]
    assert len(decode) >= TOKENS - 4
    by = fit(session.steps)
    for term, more in ((by, True), (dataclasses.replace(by, kv_token_ns=None), False)):
        given = dict.fromkeys((long, *short), 0)
        for step in decode:
            for work, share in zip(step.work, split(step, term), strict=True):
                given[work.request_id] += share
        assert sum(given.values()) == busy_ns(decode)
        # Without the term a decode costs the same whatever its context, to a nanosecond of rounding a step.
        assert (given[long] > max(given[name] for name in short) + len(decode)) is more
