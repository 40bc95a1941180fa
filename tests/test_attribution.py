"""Shares of a step sum to it to the nanosecond, and the fit finds what a step costs."""

from __future__ import annotations

import random

import pytest
from builders import make_step, make_work
from hypothesis import given
from hypothesis import strategies as st

from jupyter_infer.attribution import Attribution, fit, split
from jupyter_infer.records import Fit, StepRecord

NOTHING = Fit(0, None, None, None, None)

COEFFICIENTS = st.floats(0, 1e9, allow_nan=False)
FITS = st.just(NOTHING) | st.builds(Fit, st.just(9), COEFFICIENTS, COEFFICIENTS, st.none() | COEFFICIENTS, st.just(0.0))


@st.composite
def steps(draw: st.DrawFn) -> StepRecord:
    """A step with up to 40 entries of up to 512 tokens that took up to some hours."""
    sizes = draw(st.lists(st.tuples(st.integers(0, 512), st.integers(0, 100_000)), min_size=1, max_size=40))
    work = [make_work(f"r{n}", tokens=tokens, kv_tokens=kv) for n, (tokens, kv) in enumerate(sizes)]
    return make_step(*work, start=5, end=5 + draw(st.integers(0, 10**13)))


@given(step=steps(), by=FITS)
def test_shares_are_not_negative_and_sum_to_the_step(step: StepRecord, by: Fit) -> None:
    shares = split(step, by)
    assert sum(shares) == step.duration_ns
    assert all(type(share) is int and share >= 0 for share in shares)
    assert len(shares) == len(step.work)


@given(step=steps(), by=FITS, seed=st.integers())
def test_a_share_does_not_depend_on_the_order_of_the_entries(step: StepRecord, by: Fit, seed: int) -> None:
    mixed = list(step.work)
    random.Random(seed).shuffle(mixed)
    shuffled = make_step(*mixed, start=step.start_ns, end=step.end_ns)
    expected = {work.request_id: share for work, share in zip(step.work, split(step, by), strict=True)}
    assert {w.request_id: share for w, share in zip(mixed, split(shuffled, by), strict=True)} == expected


def test_a_sum_that_depends_on_the_order_does_not_move_a_nanosecond() -> None:
    """The weights of these five add up to another float in another order."""
    work = [make_work(name, tokens=tokens) for name, tokens in zip("abcde", (2, 0, 1, 9, 8), strict=True)]
    by = Fit(9, 0.7, 0.7, None, 0.0)
    shares = dict(zip("abcde", split(make_step(*work, end=60), by), strict=True))
    assert shares == dict(zip("cbead", split(make_step(*(work[i] for i in (2, 1, 4, 0, 3)), end=60), by), strict=True))


@given(seed=st.integers(0, 2**32), by=FITS)
def test_shares_sum_to_a_step_that_is_longer_than_a_float_can_count(seed: int, by: Fit) -> None:
    """Above 2⁵³ ns the rounded parts can be too many as well as too few."""
    draw = random.Random(seed)
    work = [make_work(f"r{n}", tokens=draw.randint(0, 10 ** draw.randint(0, 9))) for n in range(draw.randint(1, 40))]
    duration = draw.randint(10**16, 10**17)
    shares = split(make_step(*work, end=duration), by)
    assert sum(shares) == duration
    assert min(shares) >= 0


@given(duration=st.integers(0, 10**13), by=FITS, tokens=st.integers(0, 512))
def test_a_request_alone_gets_the_whole_step(duration: int, by: Fit, tokens: int) -> None:
    assert split(make_step(make_work(tokens=tokens), end=duration), by) == (duration,)


def test_ties_go_to_the_first_id() -> None:
    step = make_step(make_work("b"), make_work("a"), make_work("c"), end=10)
    assert split(step, NOTHING) == (3, 4, 3)


def test_samples_of_one_request_are_entries_of_their_own() -> None:
    step = make_step(make_work(sample=1), make_work(sample=0), end=3)
    assert split(step, NOTHING) == (1, 2)


def test_each_entry_gets_its_part_of_the_fixed_time_and_its_own_tokens() -> None:
    step = make_step(make_work("a", tokens=1), make_work("b", tokens=9), end=2000)
    # Fitted 1000 + 100 · 10 = 2000: halves of 1000, and 100 and 900.
    assert split(step, Fit(9, 1000.0, 100.0, None, 0.0)) == (600, 1400)


def test_a_step_that_took_longer_than_fitted_is_scaled() -> None:
    step = make_step(make_work("a", tokens=1), make_work("b", tokens=9), end=4000)
    assert split(step, Fit(9, 1000.0, 100.0, None, 0.0)) == (1200, 2800)


def test_kv_that_is_read_has_its_price() -> None:
    step = make_step(make_work("a", kv_tokens=100), make_work("b", kv_tokens=300), end=400)
    assert split(step, Fit(9, 0.0, 0.0, 1.0, 0.0)) == (100, 300)


def test_without_coefficients_a_step_is_split_by_tokens() -> None:
    step = make_step(make_work("a", tokens=1), make_work("b", tokens=3), end=400)
    assert split(step, NOTHING) == (100, 300)


def test_a_step_without_work_has_no_shares() -> None:
    assert split(make_step(), NOTHING) == ()


# The fit.


def measured(count: int, cost: object, *, seed: int = 1, kv: int = 0) -> list[StepRecord]:
    """Steps whose time is `cost(tokens, kv)`, with 1 % noise and every tenth one ten times too long."""
    draw = random.Random(seed)
    made = []
    for number in range(count):
        tokens, context = draw.randint(1, 512), draw.randint(0, kv)
        exact = cost(tokens, context) * draw.gauss(1, 0.01)  # type: ignore[operator]
        duration = round(exact * 10 if number % 10 == 9 else exact)
        made.append(make_step(make_work(tokens=tokens, kv_tokens=context), end=duration))
    return made


def test_the_fit_finds_what_steps_cost_in_spite_of_hiccups() -> None:
    found = fit(measured(300, lambda tokens, kv: 30e6 + 0.4e6 * tokens))
    assert found.fixed_ns == pytest.approx(30e6, rel=0.05)
    assert found.token_ns == pytest.approx(0.4e6, rel=0.02)
    assert found.kv_token_ns is None  # hardly any KV was read, so its price cannot be told
    assert found.steps == 300
    assert found.residual_ns < 0.05 * 130e6


def test_the_fit_finds_the_price_of_long_contexts() -> None:
    found = fit(measured(400, lambda tokens, kv: 30e6 + 0.4e6 * tokens + 2e3 * kv, kv=50_000))
    assert found.fixed_ns == pytest.approx(30e6, rel=0.1)
    assert found.token_ns == pytest.approx(0.4e6, rel=0.05)
    assert found.kv_token_ns == pytest.approx(2e3, rel=0.05)


def test_an_exact_line_is_found_exactly() -> None:
    found = fit([make_step(make_work(tokens=n), end=1000 + 10 * n) for n in range(1, 21)])
    assert found.fixed_ns == pytest.approx(1000)
    assert found.token_ns == pytest.approx(10)
    assert found.residual_ns == pytest.approx(0, abs=1e-6)


def test_no_coefficient_is_negative() -> None:
    falling = fit([make_step(make_work(tokens=n), end=100_000 - 10 * n) for n in range(1, 101)])
    assert falling.token_ns == 0
    assert falling.fixed_ns == pytest.approx(99_495, rel=0.01)
    through_zero = fit([make_step(make_work(tokens=n), end=max(0, 1000 * n - 5000)) for n in range(1, 101)])
    assert through_zero.fixed_ns == 0
    assert through_zero.token_ns > 0


@pytest.mark.parametrize(
    "counts", [[], [1] * 50, [1, 512] * 25, [1, 2, 3, 4, 5, 6, 7]], ids=["none", "alike", "two counts", "seven steps"]
)
def test_steps_that_are_too_few_or_too_alike_give_no_coefficients(counts: list[int]) -> None:
    found = fit([make_step(make_work(tokens=count)) for count in counts])
    assert found == Fit(len(counts), None, None, None, None)


def test_steps_without_work_are_not_fitted() -> None:
    assert fit([make_step()] * 100).steps == 0


# Steps as they come in.


def test_parts_and_the_rest_sum_to_the_busy_time() -> None:
    book, draw = Attribution(), random.Random(3)
    total = given_out = 0
    for number in range(200):
        work = [make_work(f"r{n}", tokens=draw.randint(1, 99)) for n in range(draw.randint(0, 5))]
        step = make_step(*work, end=draw.randint(1, 10**9))
        total += step.duration_ns
        given_out += sum(book.add(step, {"r0", "r2", "r3"}).values())
        if number % 7 == 0:
            book.refit()
    assert book.busy_ns == total
    assert book.unattributed_ns == total - given_out
    assert book.fit.token_ns is not None  # it was split in more than one way on the way


def test_a_step_without_work_is_nobodys() -> None:
    book = Attribution()
    assert book.add(make_step(end=70), {"r1"}) == {}
    assert (book.busy_ns, book.unattributed_ns) == (70, 70)


def test_the_part_of_a_request_that_is_gone_is_nobodys() -> None:
    book = Attribution()
    step = make_step(make_work("gone", tokens=3), make_work("here", tokens=1), end=400)
    assert book.add(step, {"here"}) == {("here", "decode"): 100}
    assert book.unattributed_ns == 300


def test_samples_of_a_request_are_summed() -> None:
    step = make_step(make_work(sample=0), make_work(sample=1), end=101)
    assert Attribution().add(step, {"r1"}) == {("r1", "decode"): 101}


def line(count: int, first: int = 1) -> list[StepRecord]:
    return [make_step(make_work(tokens=n), end=1000 + 10 * n) for n in range(first, first + count)]


def test_the_steps_after_a_load_are_split_but_not_fitted() -> None:
    book = Attribution(warm_up=4)
    for step in [make_step(make_work(tokens=7), end=10**9)] * 4 + line(20):
        book.add(step, {"r1"})
    assert book.refit().steps == 20
    assert book.fit.fixed_ns == pytest.approx(1000)


def test_a_fit_stays_in_force_until_a_tenth_more_steps_came() -> None:
    book = Attribution(warm_up=0)
    for step in line(200):
        book.add(step, {"r1"})
    first = book.refit()
    for step in line(19, first=300):
        book.add(step, {"r1"})
    assert book.refit() is first
    book.add(make_step(make_work(tokens=400), end=5000), {"r1"})
    assert book.refit().steps == 220


def test_a_fit_looks_back_on_a_window() -> None:
    book = Attribution(warm_up=0, window=50)
    for step in line(200):
        book.add(step, {"r1"})
    assert book.refit().steps == 50


def test_a_requests_share_is_told_apart_by_what_the_step_was_to_it() -> None:
    step = make_step(
        make_work(tokens=10, prefill_tokens=10), make_work(sample=1, tokens=3, recomputed_tokens=2), end=1300
    )
    assert Attribution().add(step, {"r1"}) == {("r1", "prefill"): 1000, ("r1", "stalled"): 300}
