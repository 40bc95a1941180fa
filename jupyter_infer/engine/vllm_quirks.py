"""Where vLLM does what a guest in somebody's process must not, or breaks: each work-around with its reason, in one
place.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["draw_apart", "leave_process_alone", "let_seeds_be_chunked", "rank_at_once", "report_stages"]


@contextlib.contextmanager
def leave_process_alone(device: str) -> Iterator[None]:
    """Load without reseeding the global random generators, freezing the heap or disabling `torch.set_num_threads`, and
    without breaking on what the user imported.

    With the engine in this process, these would hit the user's own code (vllm-project/vllm#17929). A model's weights do
    not come from these generators, and each of our requests brings a seed of its own.
    """
    import torch
    from vllm.triton_utils import dispatcher
    from vllm.v1.engine import core

    if device == "cpu":
        from vllm.v1.worker import cpu_worker as worker
    else:
        from vllm.v1.worker import gpu_worker as worker

    patched: list[tuple[Any, str, Any]] = [
        (worker, "set_random_seed", lambda *args, **kwargs: None),
        (core, "freeze_gc_heap", lambda: None),
        (torch, "set_num_threads", torch.set_num_threads),  # put back after the CPU worker replaced it
    ]
    kept = [(module, name, getattr(module, name)) for module, name, _ in patched]
    threads = torch.get_num_threads()
    # vLLM looks for its kernels at everything in every module, also at what cannot be looked at: llvmlite's libraries
    # (numba imports them), or proxies that raise outside of their context.
    dispatcher.vars, dispatcher.hasattr = _vars, _hasattr
    try:
        for module, name, replacement in patched:
            setattr(module, name, replacement)
        yield
    finally:
        del dispatcher.vars, dispatcher.hasattr
        for module, name, original in kept:
            setattr(module, name, original)
        if device != "cpu" and torch.get_num_threads() != threads:  # vLLM sets one thread beside a GPU
            torch.set_num_threads(threads)


def _vars(value: Any) -> Any:
    """Return the attributes of a value as a mapping, and none where they are no mapping."""
    found = vars(value)
    return found if hasattr(found, "get") else {}


def _hasattr(value: Any, name: str) -> bool:
    """Whether a value has an attribute; one that raises has none."""
    try:
        return hasattr(value, name)
    except Exception:
        return False


def report_stages(executor: type, begin: Callable[[str], None]) -> type:
    """Return a subclass of a vLLM executor that says when loading weights, making the KV pool and warming up begin."""

    class Reporting(executor):
        def _init_executor(self) -> None:
            begin("weights")
            super()._init_executor()

        def initialize_from_config(self, *args: Any, **kwargs: Any) -> Any:
            begin("KV pool")
            return super().initialize_from_config(*args, **kwargs)

        def compile_or_warm_up_model(self, *args: Any, **kwargs: Any) -> Any:
            begin("warm-up")
            return super().compile_or_warm_up_model(*args, **kwargs)

    Reporting.__name__ = Reporting.__qualname__ = executor.__name__
    return Reporting


def draw_apart() -> None:
    """Let vLLM's CPU sampler draw from a generator of its own where it would take the user's global one.

    `TopKTopPSampler.forward_cpu` draws a seed for every row from PyTorch's default generator, and then overwrites those
    of requests that bring a seed, as all of ours do.
    """
    import torch
    from vllm.v1.sample.ops import topk_topp_sampler

    own = torch.Generator()

    class Torch:
        """`torch`, but for where random integers come from."""

        def __getattr__(self, name: str) -> Any:
            return getattr(torch, name)

        def randint(self, *args: Any, **kwargs: Any) -> Any:
            return torch.randint(*args, **{"generator": own, **kwargs})

    topk_topp_sampler.torch = Torch()


def rank_at_once() -> None:
    """Let the ranks of tokens be counted without compiling anything first.

    vLLM compiles this one comparison in the step that first needs it: seconds in which all requests wait, and the end
    of all of them where there is no C++ compiler.
    """
    from vllm.v1.sample import sampler

    def count(logprobs: Any, values: Any) -> Any:
        return (logprobs >= values).sum(-1)

    sampler.batched_count_greater_than = count


def let_seeds_be_chunked(model_runner: Any) -> None:
    """Let a seeded request's prompt be computed in chunks on a CPU.

    vLLM samples from every row of a batch and, for rows whose prompt is not complete, winds the request's generator
    back by an offset. Only CUDA's generators have one: on a CPU `Generator.get_offset` raises and takes the whole
    engine with it. Here such rows draw from a throw-away generator, so that there is nothing to wind back.
    """
    import torch

    class Discarded(torch.Generator):
        """Stands in for a row whose token is thrown away."""

        def get_offset(self) -> int:
            return 0

        def set_offset(self, offset: int) -> None:
            """Do nothing: nobody draws from this generator again."""

    original = model_runner.sample_tokens

    def sample_tokens(*args: Any, **kwargs: Any) -> Any:
        rows = model_runner.input_batch.generators
        unfinished = model_runner.discard_request_mask.np
        kept = {row: generator for row, generator in rows.items() if unfinished[row]}
        rows.update({row: Discarded() for row in kept})
        try:
            return original(*args, **kwargs)
        finally:
            rows.update(kept)

    model_runner.sample_tokens = sample_tokens
