"""Live widgets over a session: the front end is in ``js/``, built into ``jupyter_infer/static``."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from jupyter_infer.errors import InferError

if TYPE_CHECKING:
    from jupyter_infer.widgets._base import InferWidget
    from jupyter_infer.widgets.batch_lab import BatchLab
    from jupyter_infer.widgets.engine_status import EngineStatus
    from jupyter_infer.widgets.kv_map import KVCacheMap
    from jupyter_infer.widgets.playground import Playground

__all__ = ["BatchLab", "EngineStatus", "InferWidget", "KVCacheMap", "Playground"]

_HOME = {
    "BatchLab": "batch_lab",
    "EngineStatus": "engine_status",
    "InferWidget": "_base",
    "KVCacheMap": "kv_map",
    "Playground": "playground",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'jupyter_infer.widgets' has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(f"jupyter_infer.widgets.{_HOME[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name not in ("anywidget", "ipywidgets"):
            raise
        raise InferError(f"widgets need {error.name}; type: pip install anywidget") from error


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
