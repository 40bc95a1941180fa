"""The figures of a request: exact sums, and None where there is nothing to say."""

from __future__ import annotations

import pytest
from builders import make_record, make_sample, make_step
from hypothesis import given
from hypothesis import strategies as st

from jupyter_infer.metrics import DEFINITIONS, busy_ns, itl_ns, phases, throughput, wall_ns

SECOND = 1_000_000_000


def test_the_phases_of_a_request_sum_to_its_e2e_time() -> None:
    record = make_record(make_sample([300, 350, 450]), stalled_ns=20, load_ns=7_000)
    times = phases(record)
    assert (times.queued_ns, times.prefill_ns, times.decode_ns) == (100, 200, 150)
    assert times.ttft_ns == 300
    assert times.e2e_ns == 450  # the load before the arrival is in no phase
    assert times.load_ns == 7_000
    assert times.stalled_ns == 20
    assert times.tpot_ns == 75
    assert times.decode_tps == 2 * SECOND / 150
    assert times.prefill_tps == 10 * SECOND / 200


@given(
    arrival=st.integers(0, 2**62),
    waits=st.tuples(*[st.integers(0, 10**13)] * 2),
    gaps=st.lists(st.integers(0, 10**12), max_size=20),
)
def test_queued_and_prefill_and_decode_are_exactly_e2e(arrival: int, waits: tuple[int, int], gaps: list[int]) -> None:
    moments = [arrival + sum(waits)]
    for gap in gaps:
        moments.append(moments[-1] + gap)
    record = make_record(make_sample(moments), arrival_ns=arrival, started_ns=arrival + waits[0])
    times = phases(record)
    assert times.queued_ns + times.prefill_ns + times.decode_ns == times.e2e_ns == moments[-1] - arrival
    assert times.ttft_ns == times.queued_ns + times.prefill_ns
    assert sum(itl_ns(record)) == times.decode_ns


def test_one_token_has_no_tpot_no_itl_and_no_decode_speed() -> None:
    record = make_record(make_sample([300], finish="length"))
    times = phases(record)
    assert (times.tpot_ns, times.decode_tps) == (None, None)
    assert itl_ns(record) == ()
    assert times.decode_ns == 0


@pytest.mark.parametrize("count", [2, 20])
def test_tpot_is_decode_over_one_token_less(count: int) -> None:
    record = make_record(make_sample([300 + 50 * number for number in range(count)]))
    assert phases(record).tpot_ns == phases(record).decode_ns / (count - 1) == 50
    assert itl_ns(record) == (50,) * (count - 1)


def test_a_step_of_three_tokens_is_one_gap_and_three_tokens() -> None:
    record = make_record(make_sample([300, 400, 460], tokens=[1, 3, 1]))
    assert itl_ns(record) == (100, 60)
    assert phases(record).tpot_ns == 160 / 4
    assert phases(record).decode_tps == 4 * SECOND / 160


def test_text_that_comes_without_a_token_is_no_sample_of_itl() -> None:
    """A stop string holds text back; its tail comes with no token."""
    record = make_record(make_sample([300, 400, 450], tokens=[1, 1, 0]))
    assert itl_ns(record) == (100,)
    assert phases(record).e2e_ns == 400


def test_all_tokens_in_one_step_have_no_speed() -> None:
    record = make_record(make_sample([300], tokens=[3]))
    assert phases(record).decode_ns == 0
    assert phases(record).decode_tps is None


def test_a_request_that_was_aborted_in_prefill_has_no_prefill_time() -> None:
    times = phases(make_record(make_sample([], finish="abort")))
    assert times.queued_ns == 100
    assert (times.prefill_ns, times.decode_ns, times.stalled_ns, times.ttft_ns, times.e2e_ns) == (None,) * 5
    assert (times.tpot_ns, times.decode_tps, times.prefill_tps) == (None, None, None)


def test_a_request_that_never_started_has_no_phase_at_all() -> None:
    times = phases(make_record(make_sample([], finish="abort"), started_ns=None))
    assert (times.queued_ns, times.prefill_ns, times.decode_ns, times.e2e_ns) == (None,) * 4


def test_a_request_that_was_aborted_in_decode_keeps_its_times() -> None:
    times = phases(make_record(make_sample([300, 340], finish="abort"), finished_ns=900))
    assert times.decode_ns == 40  # to its last token, not to its end


def test_prefill_speed_counts_tokens_that_were_computed() -> None:
    assert phases(make_record(prompt_tokens=100, cached_tokens=64)).prefill_tps == 36 * SECOND / 200
    assert phases(make_record(cached_tokens=None)).prefill_tps is None


def test_samples_of_one_request() -> None:
    """Each sample's first token is no decode; the mean is over samples that have a TPOT."""
    record = make_record(make_sample([300, 400, 500]), make_sample([300, 360], index=1), make_sample([300], index=2))
    times = phases(record)
    assert times.tpot_ns == (100 + 60) / 2
    assert times.decode_tps == 3 * SECOND / 200
    assert itl_ns(record, 1) == (60,)


def test_a_sample_without_a_token_takes_none_from_the_speed_of_the_others() -> None:
    record = make_record(make_sample([300, 400]), make_sample([], index=1, finish="abort"))
    assert phases(record).decode_tps == 1 * SECOND / 100


def test_the_wall_time_of_a_run_is_first_arrival_to_last_token() -> None:
    first = make_record(make_sample([300, 400]), arrival_ns=50)
    second = make_record(make_sample([500, 1050]), arrival_ns=80)
    assert wall_ns([first, second]) == 1000
    assert throughput([first, second]) == 4 * SECOND / 1000


def test_a_run_without_a_token_has_no_wall_time() -> None:
    aborted = make_record(make_sample([], finish="abort"))
    assert wall_ns([]) is None
    assert throughput([]) is None
    assert wall_ns([aborted]) is None
    assert throughput([aborted]) is None


def test_busy_time_is_the_sum_of_own_times() -> None:
    assert busy_ns([make_step(start=0, end=10), make_step(start=15, end=30)]) == 25
    assert busy_ns([]) == 0


def test_every_phase_has_a_definition() -> None:
    assert {"queued", "prefill", "decode", "stalled", "TTFT", "TPOT", "ITL", "e2e"} <= set(DEFINITIONS)
