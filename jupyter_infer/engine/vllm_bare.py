"""vLLM's own loop with its own scheduler and nothing of ours around it, to measure ourselves against."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jupyter_infer.engine.vllm_api import import_vllm
from jupyter_infer.engine.vllm_load import LOAD_ENVIRON

__all__ = ["bare_loop"]


def bare_loop(
    model: str, settings: Mapping[str, Any]
) -> tuple[Callable[[Sequence[str], int], int], Callable[[], object]]:
    """Return a function that runs prompts as one batch and returns the number of output tokens, and one that forgets
    the prefix cache.

    The engine is `LLMEngine` in this process, greedy, without statistics, and runs every prompt to the end.

    Parameters
    ----------
    model
        A folder.
    settings
        vLLM `EngineArgs`.
    """
    os.environ.update(LOAD_ENVIRON)
    vllm = import_vllm()
    engine = vllm.LLMEngine.from_engine_args(vllm.EngineArgs(model=model, disable_log_stats=True, **settings))

    def run(prompts: Sequence[str], tokens: int) -> int:
        params = vllm.SamplingParams(
            temperature=0, max_tokens=tokens, ignore_eos=True, output_kind=vllm.DELTA, detokenize=True
        )
        for index, prompt in enumerate(prompts):
            engine.add_request(f"r{index}", prompt, params.clone())
        count = 0
        while engine.has_unfinished_requests():
            count += sum(len(output.token_ids) for answer in engine.step() for output in answer.outputs)
        return count

    return run, engine.reset_prefix_cache
