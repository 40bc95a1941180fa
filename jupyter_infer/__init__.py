"""An inference microscope for notebooks: vLLM in the kernel, and a true account of each request's time and cost.

``%load_ext jupyter_infer`` brings ``%%infer``; `Session` is the same engine for scripts. Importing this package is
cheap: vLLM, PyTorch, Plotly and pandas come in when they are used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from jupyter_infer._version import __version__

if TYPE_CHECKING:
    from jupyter_infer.errors import InferError
    from jupyter_infer.pricing import MachinePrice
    from jupyter_infer.recorded import Recording, Runs, compare, read_runs
    from jupyter_infer.records import EngineInfo, RequestRecord, SampleRecord, StepRecord, StepWork, TokenEvent
    from jupyter_infer.result import Refused, Result
    from jupyter_infer.results import Results
    from jupyter_infer.session import Session, current_session
    from jupyter_infer.widgets import BatchLab, EngineStatus, KVCacheMap, Playground

__all__ = [
    "BatchLab",
    "EngineInfo",
    "EngineStatus",
    "InferError",
    "KVCacheMap",
    "MachinePrice",
    "Playground",
    "Recording",
    "Refused",
    "RequestRecord",
    "Result",
    "Results",
    "Runs",
    "SampleRecord",
    "Session",
    "StepRecord",
    "StepWork",
    "TokenEvent",
    "__version__",
    "compare",
    "current_session",
    "read_runs",
]

_HOME = {
    "InferError": "errors",
    "MachinePrice": "pricing",
    **dict.fromkeys(("EngineInfo", "RequestRecord", "SampleRecord", "StepRecord", "StepWork", "TokenEvent"), "records"),
    **dict.fromkeys(("Recording", "Runs", "compare", "read_runs"), "recorded"),
    **dict.fromkeys(("Refused", "Result"), "result"),
    "Results": "results",
    **dict.fromkeys(("Session", "current_session"), "session"),
    **dict.fromkeys(("BatchLab", "EngineStatus", "KVCacheMap", "Playground"), "widgets"),
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"jupyter_infer.{_HOME[name]}"), name)
    raise AttributeError(f"module 'jupyter_infer' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))


def load_ipython_extension(shell: Any) -> None:
    """Register the magics: what ``%load_ext jupyter_infer`` calls."""
    from jupyter_infer.magics import register

    register(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Take the magics away and free the engine: what ``%unload_ext jupyter_infer`` calls."""
    from jupyter_infer.magics import unregister

    unregister(shell)
