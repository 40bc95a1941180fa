"""The magics: ``%%infer`` sends a cell to the engine, ``%infer`` steers it."""

from __future__ import annotations

from jupyter_infer.magics.infer import InferMagics, register, unregister

__all__ = ["InferMagics", "register", "unregister"]
