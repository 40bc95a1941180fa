"""Defaults of a load that depend on the machine: precision, KV pool, step size. None overrides the user."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from jupyter_infer import hardware
from jupyter_infer.errors import ConfigError, NotEnoughMemory
from jupyter_infer.models import ResolvedModel

__all__ = ["LoadPlan", "plan_load"]

MIB = 1 << 20
SMALLEST_POOL = 64 * MIB
SMALL_POOL = 256 * MIB  # 32 short requests of the default model
LARGEST_POOL = 1024 * MIB
POOL_SHARE = 0.1  # of the memory that is free
OVERHEAD = 128 * MIB  # activations, tokenizer, scheduler
STRUCTURED_BACKEND = "xgrammar"  # it closes a schema's objects, and refuses what it cannot heed
WEIGHT_COPIES = 2  # loading packs the weights for the kernels beside the originals


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """Engine settings of a load, the user's included, and what to tell about them."""

    settings: dict[str, Any]
    weight_bytes: int  # in the engine's precision, computed from the files
    notices: tuple[str, ...] = ()

    def noting(self, notice: str) -> LoadPlan:
        """Return the plan with one more notice, unless that is empty."""
        return replace(self, notices=(*self.notices, notice)) if notice else self


def plan_load(model: ResolvedModel, settings: Mapping[str, Any], *, gpu: bool, compiled: bool = False) -> LoadPlan:
    """Return the settings of a load.

    On a GPU these are vLLM's own, with the context fitted to the pool. On a CPU: block size 32; eager unless
    `compiled`; the KV pool sized within the container's limit; a step of at most 512 tokens, or 128 where the CPU does
    not multiply bfloat16, so that a step stays well below a second and an interrupt is felt at once; float32 on such a
    CPU when there is memory for it.

    Raises
    ------
    NotEnoughMemory
        If weights and the smallest pool do not fit, with the numbers.
    """
    defaults: dict[str, Any] = {
        "max_model_len": -1,  # vLLM fits it to the pool
        "use_tqdm_on_load": False,  # in a notebook its bar is a widget in the user's cell
    }
    structured = settings.get("structured_outputs_config")
    if structured is None or (isinstance(structured, Mapping) and "backend" not in structured):
        # One backend for all: left to vLLM, the first such request chooses for those that come after it, too.
        settings = {**settings, "structured_outputs_config": {"backend": STRUCTURED_BACKEND, **(structured or {})}}
    notices = []
    if model.bits is not None:
        notices.append(f"int{model.bits} weights (rounded to nearest; embeddings and norms are not)")
    if gpu:
        return LoadPlan({**defaults, **settings}, model.weight_bytes, tuple(notices))
    if model.bits is not None and settings.get("dtype") in ("float32", "float") and "amx_tile" in hardware.cpu_flags():
        raise ConfigError("vLLM's int8 kernels of this CPU (AMX) take bfloat16 inputs only; leave out --dtype float32")
    fast_bf16 = hardware.has_bf16_matmul()
    defaults |= {
        "block_size": 32,
        "enforce_eager": not compiled,
        "max_num_batched_tokens": 512 if fast_bf16 else 128,
        "max_num_seqs": 64,
    }
    available = hardware.memory_available()
    floats = model.weight_bytes if model.kept_bytes is None else model.kept_bytes  # the files hold 16 bits of each
    wide = model.weight_bytes + floats
    if not fast_bf16 and "dtype" not in settings and _need(wide) + LARGEST_POOL <= available:
        defaults["dtype"] = "float32"
        saves = "halves the memory" if model.bits is None else "takes less memory"
        notices.append(f"float32: this CPU does not multiply bfloat16 (--dtype bfloat16 {saves})")
    chosen = {**defaults, **settings}
    weights = wide if chosen.get("dtype") in ("float32", "float") else model.weight_bytes
    if chosen.get("kv_cache_memory_bytes") is None:
        chosen["kv_cache_memory_bytes"] = _pool(available, weights)
    if "max_num_seqs" not in settings:  # vLLM refuses more sequences than tokens a step
        chosen["max_num_seqs"] = max(1, min(chosen["max_num_seqs"], int(chosen["max_num_batched_tokens"])))
    return LoadPlan(chosen, weights, tuple(notices))


def _need(weights: int) -> int:
    return WEIGHT_COPIES * weights + OVERHEAD


def _pool(available: int, weights: int) -> int:
    """Return the bytes of the KV pool: a tenth of what is free, between 256 MiB and 1 GiB; less where that does not
    fit.
    """
    room = available - _need(weights)
    if room < SMALLEST_POOL:
        raise NotEnoughMemory(
            f"the model needs about {(_need(weights) + SMALLEST_POOL) / MIB:,.0f} MiB and {available / MIB:,.0f} MiB "
            f"are free of the {hardware.memory_limit() / MIB:,.0f} MiB that this process may use; free some, or take "
            "a smaller model"
        )
    wanted = min(max(int(available * POOL_SHARE), SMALL_POOL), LARGEST_POOL)
    return min(wanted, room) // MIB * MIB
