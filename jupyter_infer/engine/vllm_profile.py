"""Where the time of a decode step goes: vLLM's own functions with a stopwatch, and PyTorch's profiler."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from jupyter_infer.engine.protocol import EngineRequest
from jupyter_infer.engine.vllm import VllmEngine

__all__ = ["decode_profile"]

PRODUCTS = ("onednn_mm", "onednn_scaled_mm", "weight_packed_linear", "int8_scaled_mm", "mkl", "_mkl", "addmm", "mm")
"""Beginnings of the operations that multiply by weights, without the name of their library."""

ATTENTION = ("cpu_attention", "cpu_attn", "unified_attention", "unified_kv_cache")

WARM_UP = 16


def decode_profile(engine: VllmEngine, *, tokens: int) -> dict[str, float]:
    """Return the parts of a decode step of one request, in milliseconds; the parts add up to ``step_ms``.

    ``weights_ms`` (products with weights) and ``attention_ms`` are what PyTorch's profiler counts in their operations,
    a step. The others are medians of stopwatches around vLLM's functions: ``operations_ms`` is what is left of the
    model's forward pass and of the logits (small operations, and the Python that launches all of them),
    ``sampling_ms`` the sampler, ``scheduling_ms`` the scheduler with our tracing in it, ``inputs_ms`` what is left of
    executing the model (preparing its inputs), ``outputs_ms`` detokenising, ``rest_ms`` what is left of the step.

    Parameters
    ----------
    engine
        On a CPU; it has no requests.
    tokens
        Decode steps to measure.
    """
    runner = engine._engine.model_executor.driver_worker.model_runner
    watched = {
        "forward": (runner, "_model_forward"),
        "logits": (runner.model, "compute_logits"),
        "execute": (runner, "execute_model"),
        "sampling": (runner, "sample_tokens"),
        "schedule": (engine._core.scheduler, "schedule"),
        "update": (engine._core.scheduler, "update_from_output"),
        "outputs": (engine._engine.output_processor, "process_outputs"),
    }
    _run(engine, WARM_UP)
    with _stopwatches(watched) as times:
        steps = _run(engine, tokens)
    ms = {name: 1e3 * statistics.median(times[name]) for name in watched}
    step = 1e3 * statistics.median(steps)
    products, attention = _profiled(engine, tokens)
    logits_apart = ms["forward"] + ms["logits"]
    return {
        "step_ms": step,
        "weights_ms": products,
        "attention_ms": attention,
        "operations_ms": logits_apart - products - attention,
        "inputs_ms": ms["execute"] - logits_apart,
        "sampling_ms": ms["sampling"],
        "scheduling_ms": ms["schedule"] + ms["update"],
        "outputs_ms": ms["outputs"],
        "rest_ms": step - ms["execute"] - ms["sampling"] - ms["schedule"] - ms["update"] - ms["outputs"],
    }


def _run(engine: VllmEngine, tokens: int) -> list[float]:
    """Return the seconds of each decode step of one request."""
    prompt = engine.render("Some facts about rain, for a class:", template=False)
    sampling = engine.admit(prompt, {"temperature": 0, "max_tokens": tokens + 1, "ignore_eos": True})
    engine.add(EngineRequest("profile", prompt.text, prompt, sampling))
    seconds = []
    while engine.has_unfinished():
        begun = time.perf_counter()
        engine.step()
        seconds.append(time.perf_counter() - begun)
    return seconds[1:]  # the first one computes the prompt


@contextlib.contextmanager
def _stopwatches(watched: dict[str, tuple[Any, str]]) -> Iterator[dict[str, list[float]]]:
    times: dict[str, list[float]] = defaultdict(list)

    def timed(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            begun = time.perf_counter()
            try:
                return original(*args, **kwargs)
            finally:
                times[name].append(time.perf_counter() - begun)

        return run

    before = {name: vars(owner).get(attribute) for name, (owner, attribute) in watched.items()}
    for name, (owner, attribute) in watched.items():
        setattr(owner, attribute, timed(name, getattr(owner, attribute)))
    try:
        yield times
    finally:
        for name, (owner, attribute) in watched.items():
            if before[name] is None:
                delattr(owner, attribute)  # the class's own is below it
            else:
                setattr(owner, attribute, before[name])


def _profiled(engine: VllmEngine, tokens: int) -> tuple[float, float]:
    """Return the milliseconds a step in products with weights and in attention."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU]) as found:
        steps = len(_run(engine, tokens)) + 1
    sums = {PRODUCTS: 0.0, ATTENTION: 0.0}
    for event in found.key_averages():
        name = event.key.rpartition("::")[2]
        for kind in sums:
            if name.startswith(kind):
                sums[kind] += event.self_cpu_time_total / 1e3 / steps
    return sums[PRODUCTS], sums[ATTENTION]
