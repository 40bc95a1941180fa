"""Which runs are repeats, in what the others differ, and whether by more than noise."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import pytest
from builders import make_record, make_sample, make_step
from hypothesis import given
from hypothesis import strategies as st

from jupyter_infer.comparison import (
    HIGHER,
    LOWER,
    METRICS,
    SAME,
    UNDECIDED,
    UNKNOWN,
    Arm,
    arms,
    cache_state,
    compare,
    differences,
    measure,
    settings,
    spread,
    unfair,
)
from jupyter_infer.errors import ConfigError
from jupyter_infer.pricing import MachinePrice
from jupyter_infer.records import EngineInfo, RequestRecord
from jupyter_infer.run import Machine, Run, RunHeader

MS = 1_000_000
HOUR = 3_600_000_000_000

# Student's sleep data (Biometrika 6 (1908) 20), and what R 4 says of it (`t.test(extra ~ group, data = sleep)`):
# df 17.776, difference −1.58, 95 % interval −3.3654832 to 0.2054832.
SLEEP_1 = (0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0)
SLEEP_2 = (1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4)

repeats = st.lists(st.floats(1e-3, 1e9), min_size=1, max_size=8)


def make_engine(**facts: Any) -> EngineInfo:
    values: dict[str, Any] = {
        "model": "tiny",
        "engine": "vllm 0.32.0",
        "device": "cpu",
        "dtype": "bfloat16",
        "block_size": 16,
        "kv_blocks_total": 1000,
        "kv_bytes": None,
        "weight_bytes": None,
        "max_model_len": 2048,
        "max_num_batched_tokens": 512,
        "max_num_seqs": 64,
        "threads": 2,
    }
    return EngineInfo(**(values | facts))


def make_run(
    *records: RequestRecord,
    at: int = 0,
    price: MachinePrice | None = None,
    versions: dict[str, str] | None = None,
    machine: Machine | None = None,
    engine: EngineInfo | None = None,
    name: str | None = None,
    **facts: Any,
) -> Run:
    """Return a run of one request, or of `records`, `at` so many ns; facts are the engine's."""
    header = RunHeader(
        f"2026-12-01T00:00:{at:02}", engine or make_engine(**facts), price, None, machine, versions or {}
    )
    made = records or (make_record(arrival_ns=at),)
    return Run(header, made, (), name=name)


def make_arm(values: Sequence[float], name: str = "a", metric: str = "TTFT", states: Sequence[str] = ()) -> Arm:
    """Return an arm of which nothing but a metric's values is known."""
    figures = tuple(dict.fromkeys(METRICS) | {metric: value} for value in values)
    return Arm(name, (), {}, figures, tuple(states), name)


def test_runs_with_equal_settings_are_repeats() -> None:
    runs = [make_run(at=0), make_run(at=1, max_num_seqs=16), make_run(at=2), make_run(at=3, max_num_seqs=16)]
    first, second = arms(runs)
    assert first.runs == (runs[0], runs[2])
    assert second.runs == (runs[1], runs[3])
    assert (first.name, second.name) == ("max_num_seqs 64", "max_num_seqs 16")
    assert (first.short, second.short) == ("64", "16")
    assert differences([first, second]) == [("max_num_seqs", ("64", "16"))]


def test_what_is_another_each_time_sets_no_runs_apart() -> None:
    one = make_run(make_record(request_id="r1", sampling={"seed": 1, "temperature": 1.0}), load_ns=5, notices=("x",))
    two = make_run(make_record(request_id="r2", sampling={"seed": 2, "temperature": 1.0}), at=1, load_ns=9)
    two = dataclasses.replace(two, header=dataclasses.replace(two.header, seeds={"r2": 2}))
    assert len(arms([one, two])) == 1


def test_a_pool_that_a_load_made_a_little_smaller_is_the_same_setting() -> None:
    pool = {"kv_cache_memory_bytes": 1_000_000}
    same = [make_run(settings=pool), make_run(at=1, kv_blocks_total=990, settings={"kv_cache_memory_bytes": 990_000})]
    assert len(arms(same)) == 1
    assert len(arms([make_run(), make_run(at=1, kv_blocks_total=500)])) == 2


@pytest.mark.parametrize(
    ("other", "name", "values"),
    [
        ({"model": "large"}, "model", ("tiny", "large")),
        ({"dtype": "float32"}, "dtype", ("bfloat16", "float32")),
        ({"settings": {"quantization": "int8"}}, "quantization", ("none", "int8")),
        ({"settings": {"enforce_eager": True}}, "enforce_eager", ("none", "on")),
        ({"settings": {"swap_bytes": 3 << 30}}, "swap_bytes", ("none", "3 GiB")),
        ({"settings": {"spec": {"method": "ngram", "n": 4}}}, "spec", ("none", "method=ngram, n=4")),
        ({"max_num_batched_tokens": 8192}, "max_num_batched_tokens", ("512", "8,192")),
        ({"threads": None}, "threads", ("2", "n/a")),
        ({"versions": {"torch": "3"}}, "torch version", ("none", "3")),
        ({"machine": Machine("Linux", "AMD", 4, 1)}, "cpu", ("n/a", "AMD")),
        ({"price": MachinePrice(2.0)}, "price", ("n/a", "$2/h")),
    ],
)
def test_a_setting_that_differs_is_named_with_its_values(other: Any, name: str, values: tuple[str, str]) -> None:
    found = dict(differences(arms([make_run(), make_run(at=1, **other)])))
    assert found[name] == values
    assert set(found) <= {name, "system", "cpus"}


def test_what_was_asked_is_a_setting() -> None:
    one = make_run(make_record(prompt="Why?", label="Why?", sampling={"max_tokens": 8}))
    records = [make_record(request_id=f"r{i}", prompt="How?", label="How?", arrival_ns=i) for i in range(3)]
    found = dict(differences(arms([one, make_run(*records, at=1)])))
    assert found == {"requests": ("1", "3"), "prompts": ("“Why?”", "“How?” and 2 more"), "max_tokens": ("8", "64")}
    assert [arm.name for arm in arms([one, make_run(*records)])] == ["1 request", "3 requests"]


def test_prompts_that_begin_alike_are_told_apart() -> None:
    runs = [
        make_run(make_record(prompt="long " * 99 + end, label="long long long"), at=i) for i, end in enumerate("ab")
    ]
    assert differences(arms(runs)) == [("prompts", ("“long long long” [1]", "“long long long” [2]"))]


def test_names_take_as_many_settings_as_they_need_or_the_names_of_runs() -> None:
    grid = [make_run(at=i, max_num_seqs=16 + i // 2, threads=1 + i % 2) for i in range(4)]
    assert [arm.name for arm in arms(grid)][:2] == ["max_num_seqs 16 + threads 1", "max_num_seqs 16 + threads 2"]
    assert [arm.short for arm in arms(grid)][2:] == ["17 + 1", "17 + 2"]
    prompts = [make_run(make_record(prompt=f"p{i}"), at=i) for i in range(2)]
    assert [arm.name for arm in arms(prompts)] == ["A", "B"]
    assert [arm.name for arm in arms([run.called(f"x{i}") for i, run in enumerate(prompts)])] == ["x0", "x1"]


def test_labels_group_and_say_what_they_mixed() -> None:
    runs = [make_run(at=0), make_run(at=1, threads=4), make_run(at=2)]
    first, second = arms(runs, ["old", "old", "new"])
    assert (first.name, first.mixed, second.name, second.mixed) == ("old", ("threads",), "new", ())
    with pytest.raises(ConfigError, match="3 runs, 1 labels"):
        arms(runs, ["old"])


def test_a_run_given_twice_is_no_repeat() -> None:
    (arm,) = arms([make_run(), make_run()])
    assert len(arm.runs) == 1
    assert [len(arm.runs) for arm in arms([make_run(), make_run()], ["a", "b"])] == [1, 1]


def test_runs_without_an_engine_or_requests_are_compared_by_what_is_known() -> None:
    empty = Run(RunHeader("", None, None), (), ())
    assert settings(empty)["model"] is None
    assert set(measure(empty).values()) == {None}
    assert dict(differences(arms([empty, make_run()])))["dtype"] == ("n/a", "bfloat16")


def test_the_figures_of_a_run() -> None:
    records = [
        make_record(make_sample([300 * MS, 400 * MS]), shared_ns=HOUR // 1000, cached_tokens=16),
        make_record(make_sample([500 * MS, 900 * MS]), request_id="r2", shared_ns=HOUR // 500, cached_tokens=0),
        make_record(make_sample([], finish="abort"), request_id="r3", started_ns=None, shared_ns=None, cached_tokens=0),
    ]
    found = measure(make_run(*records, price=MachinePrice(2.0)))
    assert found["TTFT"] == 400 * MS  # the median of 300 and 500; the aborted one has none
    assert found["TPOT"] == 250 * MS
    assert found["e2e"] == 650 * MS
    assert found["throughput"] == pytest.approx(4 / 0.9)
    assert found["decode speed"] == pytest.approx((10 + 2.5) / 2)
    assert found["wall time"] == 900 * MS
    assert found["shared cost"] == pytest.approx((0.002 + 0.004) / 2)
    assert found["$ / 1M tokens"] == pytest.approx(0.006 * 1e6 / 24)
    assert found["cached tokens"] == 16
    assert set(found) == set(METRICS)


def test_what_is_not_known_is_none_and_never_0() -> None:
    found = measure(make_run(make_record(make_sample([], finish="abort"), started_ns=None, cached_tokens=None)))
    assert set(found.values()) == {None}


@pytest.mark.parametrize(
    ("facts", "state"),
    [({}, "cold"), ({"cached_tokens": 16}, "warm"), ({"cached_tokens": None}, "n/a"), ({"load_ns": 5}, "first")],
)
def test_what_the_cache_did_to_a_run(facts: dict[str, Any], state: str) -> None:
    assert cache_state(make_run(make_record(**facts))) == state


def test_a_run_with_the_first_step_of_an_engine_is_the_first() -> None:
    run = make_run()
    assert cache_state(dataclasses.replace(run, steps=(make_step(index=0), make_step(index=1)))) == "first"
    assert cache_state(dataclasses.replace(run, steps=(make_step(index=1),))) == "cold"


def test_arms_with_other_shares_of_warm_or_first_runs_are_no_fair_comparison() -> None:
    cold, warm, mixed = (make_arm([], states=states) for states in (["cold"], ["warm"] * 2, ["cold", "warm"]))
    assert unfair([warm, make_arm([], states=["warm"])]) is None
    assert unfair([mixed, make_arm([], states=["warm", "cold", "cold", "warm"])]) is None
    assert unfair([cold, warm]) == "warm"
    assert unfair([mixed, mixed, warm]) == "warm"
    assert unfair([cold, make_arm([], states=["first"])]) == "first"


def test_the_interval_of_a_difference_is_welchs() -> None:
    found = compare(make_arm(SLEEP_2), make_arm(SLEEP_1), "TTFT")
    assert not found.relative
    assert found.value == pytest.approx(-1.58)
    assert (found.low, found.high) == (pytest.approx(-3.3654832, abs=1e-4), pytest.approx(0.2054832, abs=1e-4))
    assert found.verdict == SAME


def test_positive_values_are_compared_on_logarithms() -> None:
    one, two = (make_arm([math.exp(value) for value in values]) for values in (SLEEP_2, SLEEP_1))
    found = compare(one, two, "TTFT")
    assert found.relative
    assert found.value == pytest.approx(math.exp(-1.58))
    assert found.low == pytest.approx(math.exp(-3.3654832), rel=1e-4)
    assert found.high == pytest.approx(math.exp(0.2054832), rel=1e-4)


def test_the_interval_of_an_arm_is_students() -> None:
    found = spread([math.exp(value) for value in (1, 2, 3)])
    assert found is not None
    margin = 4.303 / math.sqrt(3)  # standard deviation 1, 2 degrees of freedom
    assert math.log(found.mean) == pytest.approx(2)
    assert (math.log(found.low or 0), math.log(found.high or 0)) == (
        pytest.approx(2 - margin),
        pytest.approx(2 + margin),
    )
    assert spread([8, 12]).noise == pytest.approx(math.sqrt(8) / 10)  # type: ignore[union-attr]
    assert spread([]) is None
    assert spread([5]) == dataclasses.replace(found, mean=5, low=None, high=None, noise=None)


def test_between_whole_degrees_of_freedom_the_interval_is_a_little_wide() -> None:
    """1.5 degrees of freedom have the quantile 6.0167 (its density integrated numerically)."""
    ratio = 2 + math.sqrt(3)  # of the variances: (1 + x)² / (1 + x²) = 1.5
    one, two = [0.0, 2.0], [0.0, 2 * math.sqrt(ratio)]
    found = compare(make_arm(one), make_arm(two), "TTFT")
    assert found.high is not None
    assert found.value is not None
    margin = found.high - found.value
    exact = 6.0167 * math.sqrt(1 + ratio)
    assert exact < margin < 1.03 * exact


@pytest.mark.parametrize(("value", "verdict"), [(6, SAME), (8, HIGHER), (-4, LOWER)])
def test_a_single_run_is_taken_to_be_as_noisy_as_the_others(value: float, verdict: str) -> None:
    """With logarithms 1, 2, 3 the half of the interval is 4.303 × √(1 + 1/3) = 4.97."""
    many, single = make_arm([math.exp(number) for number in (1, 2, 3)]), make_arm([math.exp(value)], "b")
    found = compare(many, single, "TTFT")
    assert (found.verdict, found.single) == (verdict, "b")
    assert math.log(found.high or 0) == pytest.approx(value - 2 + 4.303 * math.sqrt(4 / 3))
    assert compare(single, many, "TTFT").single == "b"


def test_one_run_each_decides_nothing() -> None:
    found = compare(make_arm([100]), make_arm([300]), "TTFT")
    assert (found.value, found.low, found.high) == (pytest.approx(3), None, None)
    assert found.verdict == UNDECIDED
    assert not found.told
    assert found.text == "3.00 ×"


def test_nothing_is_compared_with_nothing() -> None:
    found = compare(make_arm([]), make_arm([1, 2]), "TTFT")
    assert (found.value, found.verdict, found.text) == (None, UNKNOWN, "n/a")


def test_runs_without_noise_differ_by_what_they_differ() -> None:
    found = compare(make_arm([10, 10]), make_arm([20, 20]), "TTFT")
    assert (found.verdict, found.text) == (HIGHER, "2.00 ×, no noise")
    assert compare(make_arm([0.1] * 3), make_arm([0.1] * 7), "TTFT").verdict == SAME
    cached = compare(
        make_arm([0, 0], metric="cached tokens"), make_arm([32, 32], metric="cached tokens"), "cached tokens"
    )
    assert (cached.verdict, cached.text) == (HIGHER, "+32, no noise")


def test_a_bound_beside_1_is_not_rounded_to_it() -> None:
    found = compare(make_arm([1.0, 1.0001, 0.9999]), make_arm([1.003, 1.0031, 1.0029]), "TTFT")
    assert found.told
    assert found.text == "1.003 × (1.003 to 1.003)"


@given(repeats, repeats)
def test_swapping_the_arms_inverts_the_ratio(x: list[float], y: list[float]) -> None:
    one, two = compare(make_arm(x), make_arm(y), "TTFT"), compare(make_arm(y), make_arm(x), "TTFT")
    assert (one.value or 0) * (two.value or 0) == pytest.approx(1)
    if one.low is None:
        assert two.low is None
    elif one.low > 1e-100 and (one.high or 0) < 1e100:
        assert one.low * (two.high or 0) == pytest.approx(1, rel=1e-6)
    swapped = {HIGHER: LOWER, LOWER: HIGHER}
    assert two.verdict == swapped.get(one.verdict, one.verdict)


@given(st.lists(st.floats(1e-3, 1e9), min_size=2, max_size=8), st.randoms())
def test_equal_data_show_no_difference(x: list[float], random: Any) -> None:
    y = list(x)
    random.shuffle(y)
    found = compare(make_arm(x), make_arm(y), "TTFT")
    assert found.verdict == SAME
    assert found.value == pytest.approx(1)


@given(repeats, repeats, st.floats(0.01, 100))
def test_a_factor_on_an_arm_is_a_factor_on_the_ratio(x: list[float], y: list[float], factor: float) -> None:
    one = compare(make_arm(x), make_arm(y), "TTFT")
    two = compare(make_arm(x), make_arm([factor * value for value in y]), "TTFT")
    assert two.value == pytest.approx(factor * (one.value or 0))
    if one.low is not None and one.low > 1e-100 and (one.high or 0) < 1e100:
        assert (two.low, two.high) == (pytest.approx(factor * one.low), pytest.approx(factor * (one.high or 0)))
