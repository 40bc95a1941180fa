"""Loading vLLM in this process: checks first, then the engine, one line for what the user can mend."""

from __future__ import annotations

import dataclasses
import gc
import json
import os
import re
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from jupyter_infer import hardware
from jupyter_infer.config import check_names
from jupyter_infer.engine import vllm_quirks
from jupyter_infer.engine.load_options import LoadOptions, split_options
from jupyter_infer.engine.protocol import Progress
from jupyter_infer.engine.quiet import LOGS, quiet
from jupyter_infer.engine.sizing import LoadPlan, plan_load
from jupyter_infer.engine.trace import tracing
from jupyter_infer.engine.vllm import VllmEngine
from jupyter_infer.engine.vllm_api import Vllm, first_line, import_vllm, sweep
from jupyter_infer.engine.vllm_compile import Compilation, compiled_folder
from jupyter_infer.errors import ConfigError, InferError, ModelError, NotEnoughMemory
from jupyter_infer.kernelspec import kernel_env
from jupyter_infer.models import ResolvedModel, resolve
from jupyter_infer.models.quantize import quantized
from jupyter_infer.records import LoadStage

__all__ = ["OWNED_SETTINGS", "prepare"]

OWNED_SETTINGS = {
    "model": "name it first: %infer load MODEL",
    "scheduler_cls": "jupyter-infer observes the scheduler that vLLM chooses itself",
    "disable_log_stats": "the measurements need vLLM's request statistics",
    "skip_tokenizer_init": "prompts are text here",
    "tensor_parallel_size": "the engine lives in this one process; start a vLLM server for several GPUs",
    "pipeline_parallel_size": "the engine lives in this one process; start a vLLM server for several GPUs",
    "data_parallel_size": "the engine lives in this one process; start a vLLM server for several GPUs",
    "distributed_executor_backend": "the engine lives in this one process",
    "stream_interval": "every token is timed, so every token is an event",
}
"""Engine settings that are ours, each with the reason."""

NUMBER = re.compile(r"(<class ')?(int|float)('>)?( \| None)?")
"""How the type of an `EngineArgs` field that is a number is written."""

Begin = Callable[..., None]
"""Told the stage of a load that begins, and a detail."""

LOAD_ENVIRON = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine core in this process
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CONFIGURE_LOGGING": "0",  # logging belongs to the user; `quiet` collects vLLM's
    "TOKENIZERS_PARALLELISM": "false",  # no thread pool of Rust's beside OpenMP's, and no warning on a fork
}


def prepare(model: str, settings: Mapping[str, Any], progress: Progress) -> Callable[[Progress], VllmEngine]:
    """Return a function that loads `model`, after everything that can be checked beforehand was.

    What fails here leaves a loaded engine as it is. The model is fetched and converted here if need be.

    Parameters
    ----------
    model
        A model name that `jupyter_infer.models.resolve` knows.
    settings
        vLLM `EngineArgs` by name.
    progress
        Called as each stage begins.

    Raises
    ------
    ModelError, ConfigError
        One line each.
    """
    told = ""

    def fetching(stage: str, done: int, total: int) -> None:
        nonlocal told
        detail = f"{stage} {100 * done // total} %" if total else stage
        if detail != told:
            told = detail
            progress(LoadStage("model", detail, time.monotonic_ns()))

    options, engine_settings = split_options(settings)
    if "vllm" not in sys.modules:
        resolved = _resolved(model, options, fetching)
    else:
        vllm = import_vllm()
        _check_settings(vllm, engine_settings)
        resolved = _resolved(model, options, fetching)
        _try_settings(vllm, resolved, engine_settings)
    return lambda on_worker: _load(resolved, options, engine_settings, on_worker)


def _resolved(model: str, options: LoadOptions, progress: Callable[[str, int, int], None]) -> ResolvedModel:
    found = resolve(model, progress=progress)
    return quantized(found, options.bits, progress=progress) if options.bits else found


def _load(model: ResolvedModel, options: LoadOptions, settings: Mapping[str, Any], progress: Progress) -> VllmEngine:
    begun_ns = time.monotonic_ns()

    def begin(stage: str, detail: str = "") -> None:
        progress(LoadStage(stage, detail, time.monotonic_ns()))

    begin("import", "vLLM and PyTorch")
    with quiet({**kernel_env(), **LOAD_ENVIRON}):
        vllm = import_vllm()
        begin("config")
        # Nothing of the engine is a variable here: something that vLLM imports keeps the frames that it was imported
        # from, and so this one, for ever.
        return _build(vllm, model, options, settings, begin, begun_ns)


def _build(
    vllm: Vllm, model: ResolvedModel, options: LoadOptions, settings: Mapping[str, Any], begin: Begin, begun_ns: int
) -> VllmEngine:
    gpu = vllm.device == "cuda"
    try:
        _check_settings(vllm, settings)
        failed = ""
        if options.compile and not gpu:  # on a GPU vLLM compiles anyway, and keeps it
            compilation, folder = Compilation(begin), compiled_folder(vllm)
            try:
                folder.mkdir(parents=True, exist_ok=True)
                if not os.access(folder, os.W_OK):
                    raise PermissionError(f"cannot write to {folder}")
                os.environ["VLLM_CACHE_ROOT"] = str(folder)
                with compilation.watched():
                    plan = plan_load(model, settings, gpu=gpu, compiled=True)
                    return _made(vllm, model, plan.noting("compiled (torch.compile)"), begin, begun_ns)
            except Exception as error:
                if not (compilation.begun or isinstance(error, OSError)):
                    raise
                if isinstance(_one_line(error, model), NotEnoughMemory):  # eager it would not fit, either
                    raise
                LOGS.append(f"{type(error).__name__}: {error}")
                failed = f"not compiled: {first_line(error)}; %infer logs says more"
            sweep()
            begin("config", failed)
        plan = plan_load(model, settings, gpu=gpu)
        return _made(vllm, model, plan.noting(failed), begin, begun_ns)
    except BaseException as error:
        sweep()
        raise _one_line(error, model) from None


def _made(vllm: Vllm, model: ResolvedModel, plan: LoadPlan, begin: Begin, begun_ns: int) -> VllmEngine:
    with vllm_quirks.leave_process_alone(vllm.device):
        engine = _vllm_engine(vllm, model, plan, begin)
    gc.collect()
    hardware.release_memory()  # what packing the weights took: some 100 MB
    return VllmEngine(engine, vllm, model, plan, load_ns=time.monotonic_ns() - begun_ns)


def _check_settings(vllm: Vllm, settings: Mapping[str, Any]) -> None:
    known = {field.name: str(field.type) for field in dataclasses.fields(vllm.EngineArgs)}
    check_names(settings, known, OWNED_SETTINGS, "engine setting")
    for name, value in settings.items():
        if isinstance(value, str) and NUMBER.fullmatch(known[name]):  # vLLM would compare it with a number
            raise ConfigError(f"engine setting {name!r} takes a number, not {value!r}")


def _try_settings(vllm: Vllm, model: ResolvedModel, settings: Mapping[str, Any]) -> None:
    """Refuse settings that vLLM does not take, while the engine before is still there."""
    refused: BaseException | None = None
    with quiet({**kernel_env(), **LOAD_ENVIRON}):
        try:
            _configure(vllm, model, {"max_model_len": -1, **settings})
        except Exception as error:
            refused = _one_line(error, model)
    if refused is not None:
        raise refused


def _configure(vllm: Vllm, model: ResolvedModel, settings: Mapping[str, Any]) -> Any:
    from vllm.usage.usage_lib import UsageContext

    arguments = vllm.EngineArgs(model=str(model.path), served_model_name=model.name, **settings)
    return arguments.create_engine_config(UsageContext.LLM_CLASS)


def _vllm_engine(vllm: Vllm, model: ResolvedModel, plan: LoadPlan, begin: Begin) -> Any:
    from vllm.usage.usage_lib import UsageContext

    config = _configure(vllm, model, plan.settings)
    # Over the class that vLLM chose for this configuration; given as a setting it would switch the overlap off.
    config.scheduler_config.scheduler_cls = tracing(config.scheduler_config.get_scheduler_cls())
    engine = vllm.LLMEngine(
        vllm_config=config,
        executor_class=vllm_quirks.report_stages(vllm.Executor.get_class(config), begin),
        log_stats=True,
        usage_context=UsageContext.LLM_CLASS,
        multiprocess_mode=False,
    )
    vllm_quirks.rank_at_once()
    engine.logger_manager = None  # Prometheus and periodic log lines: nobody reads them here, and each step would pay
    if vllm.device == "cpu":
        vllm_quirks.draw_apart()
        vllm_quirks.let_seeds_be_chunked(engine.model_executor.driver_worker.model_runner)
    return engine


def _one_line(error: BaseException, model: ResolvedModel) -> BaseException:
    """Return what the user can act on; a fault that is nobody's input stays what it is."""
    if isinstance(error, InferError):
        return error
    LOGS.append(f"{type(error).__name__}: {error}")
    line = first_line(error)
    refusal = ConfigError(f"vLLM refused to load {model.name}: {line}; %infer logs says more")
    if "validation error" in str(error).partition("\n")[0]:  # pydantic's, and it may be about a memory setting
        return refusal
    if "max seq len" in line:
        line = line.split(". Try ")[0]
        return NotEnoughMemory(f"{line}; take a smaller --max-model-len or a larger --kv-cache-memory-bytes")
    if isinstance(error, MemoryError) or "memory" in line.lower():
        return NotEnoughMemory(f"{line}; a smaller --max-model-len or --kv-cache-memory-bytes needs less")
    if isinstance(error, (OSError, json.JSONDecodeError)) or "safetensors" in type(error).__module__.lower():
        return ModelError(f"{model.name} in {model.path} cannot be loaded: {line}")
    if isinstance(error, (ValueError, TypeError, KeyError, NotImplementedError)):
        return refusal
    if model.bits and isinstance(error, RuntimeError):  # of a GPU that is too old for it, or of a kernel
        line = f"vLLM cannot run {model.name} with {model.bits} bits here: {line}"
        return ConfigError(f"{line}; load it without --bits; %infer logs says more")
    return error
