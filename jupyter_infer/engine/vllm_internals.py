"""Every name of vLLM that we touch below its public API: a version bump fails in a test, not in a cell."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["INTERNALS", "Internal", "missing"]


@dataclass(frozen=True, slots=True)
class Internal:
    """A class or module of vLLM, the members that we call or replace, and the attributes that it sets on itself."""

    where: str  # "module" or "module:Class"
    members: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()


INTERNALS = (
    Internal("vllm.engine.arg_utils:EngineArgs", ("create_engine_config",)),
    Internal("vllm.exceptions", ("VLLMValidationError",)),
    Internal("vllm.inputs.engine", ("tokens_input",)),
    Internal("vllm.platforms", ("current_platform",)),
    Internal("vllm.sampling_params", ("RequestOutputKind", "SamplingParams", "StructuredOutputsParams")),
    Internal("vllm.sampling_params:SamplingParams", ("verify", "__struct_fields__")),
    Internal("vllm.config:VllmConfig", ("model_config", "speculative_config", "structured_outputs_config")),
    Internal("vllm.usage.usage_lib:UsageContext", ("LLM_CLASS",)),
    Internal("vllm.distributed", ("cleanup_dist_env_and_memory",)),
    Internal("vllm.config.model:ModelConfig", ("get_diff_sampling_param",)),
    Internal("vllm.config.scheduler:SchedulerConfig", ("get_scheduler_cls", "scheduler_cls")),
    Internal("vllm.compilation.decorators", ("_try_load_aot_compiled_fn",)),
    Internal("vllm.tokenizers.hf", ("ThreadSafeHFTokenizerMixin",)),
    Internal(
        "vllm.v1.engine.llm_engine:LLMEngine",
        ("add_request", "abort_request", "step", "has_unfinished_requests", "reset_prefix_cache", "get_tokenizer"),
        ("engine_core", "model_executor", "logger_manager", "output_processor", "vllm_config", "model_config"),
    ),
    Internal("vllm.v1.engine.core_client:InprocClient", ("shutdown",), ("engine_core",)),
    Internal("vllm.v1.engine.core:EngineCore", (), ("scheduler", "batch_queue")),
    Internal("vllm.v1.engine.core", ("freeze_gc_heap",)),
    Internal("vllm.triton_utils.dispatcher", ("_rebind_kernels",)),
    Internal("vllm.v1.engine.parallel_sampling:ParentRequest", ("get_child_info",)),
    Internal("vllm.v1.executor:Executor", ("get_class",)),
    Internal(
        "vllm.v1.executor.uniproc_executor:UniProcExecutor",
        ("_init_executor", "initialize_from_config", "compile_or_warm_up_model"),
        ("driver_worker",),
    ),
    Internal("vllm.v1.worker.cpu_worker", ("set_random_seed",)),
    Internal("vllm.v1.worker.gpu_worker", ("set_random_seed",)),
    Internal(
        "vllm.v1.worker.gpu_model_runner:GPUModelRunner",
        ("sample_tokens", "execute_model", "_model_forward"),
        ("input_batch", "discard_request_mask", "kv_caches"),
    ),
    Internal("vllm.v1.sample.sampler", ("batched_count_greater_than",)),
    Internal("vllm.v1.sample.sampler:Sampler", ("gather_logprobs",)),
    Internal("vllm.v1.sample.ops.topk_topp_sampler", ("torch",)),
    Internal("vllm.v1.sample.ops.topk_topp_sampler:TopKTopPSampler", ("forward_cpu",)),
    Internal("vllm.v1.worker.gpu_input_batch:InputBatch", (), ("generators",)),
    Internal(
        "vllm.v1.core.sched.scheduler:Scheduler",
        (
            "schedule",
            "update_from_output",
            "get_request_counts",
            "reset_prefix_cache",
            "_preempt_request",
            "_free_blocks",
        ),
        ("requests", "kv_cache_manager", "max_num_active_reqs", "max_num_scheduled_tokens"),
    ),
    Internal("vllm.v1.core.sched.async_scheduler:AsyncScheduler", ("schedule", "update_from_output")),
    Internal(
        "vllm.v1.core.sched.output:SchedulerOutput",
        (),
        ("scheduled_new_reqs", "scheduled_cached_reqs", "num_scheduled_tokens", "scheduled_spec_decode_tokens"),
    ),
    Internal("vllm.v1.core.sched.output:NewRequestData", (), ("req_id", "num_computed_tokens", "block_ids")),
    Internal(
        "vllm.v1.core.sched.output:CachedRequestData",
        (),
        ("req_ids", "num_computed_tokens", "new_block_ids", "resumed_req_ids"),
    ),
    Internal("vllm.v1.request:Request", (), ("request_id", "num_prompt_tokens")),
    Internal("vllm.v1.core.kv_cache_manager:KVCacheManager", (), ("block_pool",)),
    Internal(
        "vllm.v1.core.block_pool:BlockPool",
        ("get_num_free_blocks", "_maybe_evict_cached_block"),
        ("num_gpu_blocks", "cached_block_hashes_by_block"),
    ),
    Internal("vllm.v1.core.kv_cache_utils:KVCacheBlock", (), ("block_id",)),
    Internal("vllm.v1.engine:EngineCoreOutputs", (), ("outputs",)),
    Internal("vllm.v1.engine:EngineCoreOutput", (), ("request_id", "new_token_ids")),
    Internal("vllm.outputs:RequestOutput", (), ("request_id", "outputs", "finished", "num_cached_tokens")),
    Internal(
        "vllm.outputs:CompletionOutput", (), ("index", "token_ids", "text", "finish_reason", "stop_reason", "logprobs")
    ),
)


def missing() -> Iterator[str]:
    """Yield each internal that the installed vLLM does not have (imports vLLM)."""
    for internal in INTERNALS:
        module_name, _, class_name = internal.where.partition(":")
        try:
            found = importlib.import_module(module_name)
            found = getattr(found, class_name) if class_name else found
        except (ImportError, AttributeError):
            yield internal.where
            continue
        for member in internal.members:
            if not hasattr(found, member) and member not in getattr(found, "__annotations__", {}):
                yield f"{internal.where}.{member}"
        source = _source(found) if internal.attributes else ""
        for attribute in internal.attributes:
            if f"self.{attribute}" not in source and f"\n    {attribute}:" not in source:
                yield f"{internal.where}.{attribute}"


def _source(found: object) -> str:
    """Return the source of a class and its bases: attributes that `__init__` sets are in no class."""
    bases = [base for base in inspect.getmro(found) if base.__module__.startswith("vllm.")]  # type: ignore[arg-type]
    return "\n".join(inspect.getsource(base) for base in bases)
