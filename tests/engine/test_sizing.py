"""Defaults of a load on machines of several sizes; none of them overrides the user."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_infer import hardware
from jupyter_infer.engine.sizing import MIB, OVERHEAD, SMALLEST_POOL, WEIGHT_COPIES, plan_load
from jupyter_infer.errors import NotEnoughMemory
from jupyter_infer.models import ResolvedModel

GIB = 1024 * MIB
SMALL = 257 * MIB  # the default model's weights


def model(weights: int = SMALL) -> ResolvedModel:
    return ResolvedModel(name="tiny", path=Path("tiny"), source="folder", weight_bytes=weights)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that sets the machine: free memory, the limit, and whether it multiplies bfloat16."""

    def set_up(available: int, *, limit: int | None = None, bf16: bool = True) -> None:
        monkeypatch.setattr(hardware, "memory_available", lambda: available)
        monkeypatch.setattr(hardware, "memory_limit", lambda: limit or available)
        monkeypatch.setattr(hardware, "has_bf16_matmul", lambda: bf16)

    return set_up


def test_a_cpu_gets_small_blocks_eager_mode_and_a_pool_of_a_tenth(machine: Any) -> None:
    machine(6 * GIB)
    plan = plan_load(model(), {}, gpu=False)
    expected = {
        "max_model_len": -1,
        "block_size": 32,
        "enforce_eager": True,
        "max_num_batched_tokens": 512,
        "max_num_seqs": 64,
        "kv_cache_memory_bytes": 614 * MIB,
    }
    assert expected.items() <= plan.settings.items()
    assert plan.weight_bytes == SMALL
    assert plan.notices == ()


@pytest.mark.parametrize(
    ("available", "pool"),
    [
        (24 * GIB, 1024 * MIB),  # the largest
        (2 * GIB, 256 * MIB),  # enough for 32 short requests, though more than a tenth
        (2 * SMALL + 128 * MIB + 200 * MIB, 200 * MIB),  # what is left
        (2 * SMALL + 128 * MIB + 64 * MIB, 64 * MIB),  # the smallest
    ],
)
def test_the_pool_fits_the_machine(machine: Any, available: int, pool: int) -> None:
    machine(available)
    chosen = plan_load(model(), {}, gpu=False).settings["kv_cache_memory_bytes"]
    assert chosen == pool
    assert SMALL + chosen < available


def test_too_little_memory_is_refused_with_the_numbers(machine: Any) -> None:
    machine(700 * MIB, limit=2 * GIB)
    with pytest.raises(NotEnoughMemory) as caught:
        plan_load(model(), {}, gpu=False)
    assert str(caught.value) == (
        "the model needs about 706 MiB and 700 MiB are free of the 2,048 MiB that this process may use; "
        "free some, or take a smaller model"
    )
    assert isinstance(caught.value, MemoryError)


@given(free=st.integers(0, 64 * GIB), weights=st.integers(MIB, 16 * GIB), bf16=st.booleans())
def test_weights_and_pool_fit_into_what_is_free_or_the_load_is_refused(free: int, weights: int, bf16: bool) -> None:
    with pytest.MonkeyPatch.context() as machine:
        machine.setattr(hardware, "memory_available", lambda: free)
        machine.setattr(hardware, "memory_limit", lambda: 64 * GIB)
        machine.setattr(hardware, "has_bf16_matmul", lambda: bf16)
        least = WEIGHT_COPIES * weights + OVERHEAD + SMALLEST_POOL
        if least > free:
            numbers = f"needs about {least / MIB:,.0f} MiB and {free / MIB:,.0f} MiB are free"
            with pytest.raises(NotEnoughMemory, match=numbers):
                plan_load(model(weights), {}, gpu=False)
            return
        plan = plan_load(model(weights), {}, gpu=False)
    pool = plan.settings["kv_cache_memory_bytes"]
    assert WEIGHT_COPIES * plan.weight_bytes + OVERHEAD + pool <= free
    assert SMALLEST_POOL <= pool <= GIB


@pytest.mark.parametrize(
    ("names", "group"),
    [
        (("memory.max", "memory.current"), "0::/"),
        (("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"), ""),
    ],
    ids=["v2", "v1"],
)
@pytest.mark.parametrize(("used", "pool"), [(256 * MIB, 256 * MIB), (1200 * MIB, 206 * MIB), (1600 * MIB, None)])
def test_in_a_container_on_a_large_host_its_limit_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, str], group: str, used: int, pool: int | None
) -> None:
    limit, usage = (tmp_path / "cgroup" / name for name in names)
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(group)
    limit.parent.mkdir(parents=True)
    limit.write_text(str(2 * GIB))
    usage.write_text(str(used))
    host = psutil.virtual_memory()._replace(total=512 * GIB, available=400 * GIB)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: host)
    monkeypatch.setattr(hardware, "_address_space_limit", lambda: None)
    monkeypatch.setattr(hardware, "has_bf16_matmul", lambda: True)
    roots = hardware.Roots(tmp_path / "proc", tmp_path / "cgroup")
    for name in ("memory_available", "memory_limit"):
        monkeypatch.setattr(hardware, name, partial(getattr(hardware, name), roots=roots))
    if pool is None:
        with pytest.raises(NotEnoughMemory, match=r"706 MiB and 448 MiB are free of the 2,048 MiB that this process"):
            plan_load(model(), {}, gpu=False)
    else:
        assert plan_load(model(), {}, gpu=False).settings["kv_cache_memory_bytes"] == pool


def test_a_pool_that_the_user_asks_for_is_taken(machine: Any) -> None:
    machine(700 * MIB)
    plan = plan_load(model(), {"kv_cache_memory_bytes": 32 * MIB, "block_size": 128}, gpu=False)
    assert (plan.settings["kv_cache_memory_bytes"], plan.settings["block_size"]) == (32 * MIB, 128)


def test_without_bf16_a_step_is_smaller_and_the_weights_are_float32(machine: Any) -> None:
    machine(6 * GIB, bf16=False)
    plan = plan_load(model(), {}, gpu=False)
    assert (plan.settings["max_num_batched_tokens"], plan.settings["dtype"]) == (128, "float32")
    assert plan.weight_bytes == 2 * SMALL
    (notice,) = plan.notices
    assert "float32" in notice
    assert "--dtype bfloat16" in notice


def test_float32_needs_the_memory_for_it(machine: Any) -> None:
    machine(2 * GIB, bf16=False)
    plan = plan_load(model(), {}, gpu=False)
    assert "dtype" not in plan.settings
    assert plan.weight_bytes == SMALL


def test_a_precision_that_the_user_asks_for_is_taken_and_counted(machine: Any) -> None:
    machine(6 * GIB, bf16=False)
    assert plan_load(model(), {"dtype": "bfloat16"}, gpu=False).notices == ()
    assert plan_load(model(), {"dtype": "bfloat16"}, gpu=False).weight_bytes == SMALL
    machine(6 * GIB)
    assert plan_load(model(), {"dtype": "float32"}, gpu=False).weight_bytes == 2 * SMALL


def int8_copy() -> ResolvedModel:
    return ResolvedModel("tiny", Path("tiny"), "folder", 183 * MIB, bits=8, kept_bytes=54 * MIB)


@pytest.mark.parametrize("gpu", [False, True])
def test_a_copy_of_fewer_bits_says_so(machine: Any, gpu: bool) -> None:
    machine(6 * GIB)
    plan = plan_load(int8_copy(), {}, gpu=gpu)
    assert plan.notices == ("int8 weights (rounded to nearest; embeddings and norms are not)",)
    assert plan.weight_bytes == 183 * MIB


def test_in_float32_only_what_was_not_rounded_takes_more(machine: Any) -> None:
    machine(6 * GIB, bf16=False)
    plan = plan_load(int8_copy(), {}, gpu=False)
    assert (plan.settings["dtype"], plan.weight_bytes) == ("float32", (183 + 54) * MIB)
    assert len(plan.notices) == 2
    assert plan.notices[1].endswith("(--dtype bfloat16 takes less memory)")


def test_there_are_never_more_sequences_than_tokens_in_a_step(machine: Any) -> None:
    machine(6 * GIB)
    assert plan_load(model(), {"max_num_batched_tokens": 16}, gpu=False).settings["max_num_seqs"] == 16
    # What the user says about both is for vLLM to judge.
    both = plan_load(model(), {"max_num_batched_tokens": 16, "max_num_seqs": 99}, gpu=False)
    assert both.settings["max_num_seqs"] == 99


def test_a_gpu_gets_vllms_own_defaults_and_a_context_that_fits(machine: Any) -> None:
    machine(1 * MIB)
    plan = plan_load(model(), {"dtype": "float16"}, gpu=True)
    assert {"max_model_len": -1, "dtype": "float16"}.items() <= plan.settings.items()
    assert not {"block_size", "enforce_eager", "kv_cache_memory_bytes", "max_num_batched_tokens"} & set(plan.settings)
    assert "kv_cache_memory_bytes" not in plan.settings


def test_the_users_settings_are_not_changed(machine: Any) -> None:
    machine(6 * GIB)
    asked: dict[str, Any] = {"max_model_len": 2048}
    plan = plan_load(model(), asked, gpu=False)
    assert plan.settings["max_model_len"] == 2048
    assert asked == {"max_model_len": 2048}
