"""Every error that a user can meet: one line that says what to type next.

An `InferError` is the user's to mend, so IPython shows its message and no traceback; a script still catches it as the
builtin it is (`ValueError`, `RuntimeError`, …). A fault of ours is raised as it is and keeps its traceback.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

__all__ = [
    "ConfigError",
    "EngineBusy",
    "EngineFailed",
    "EngineNotInstalled",
    "EngineNotLoaded",
    "InferError",
    "ModelError",
    "NotEnoughMemory",
    "PromptError",
    "nearest",
]


_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


class InferError(Exception):
    """Base of all errors that a user can mend. Its message is one line, whatever the user's words in it."""

    def __str__(self) -> str:
        return _UNPRINTABLE.sub(lambda found: repr(found[0])[1:-1], super().__str__())

    def _render_traceback_(self) -> list[str]:
        """Show one line in IPython instead of a traceback (IPython's display protocol)."""
        return [f"{type(self).__name__}: {self}"]


class ConfigError(InferError, ValueError):
    """An option, an engine setting or a sampling value is unknown or out of range."""


class PromptError(InferError, ValueError):
    """The prompt cannot be run: empty, too long for the context or for the KV pool, or unusable as text."""


class ModelError(InferError, ValueError):
    """The model is unknown, unreachable, broken or of an architecture that is not supported."""


class EngineNotInstalled(InferError, ImportError):
    """vLLM is missing, or cannot be imported beside what is installed."""


class EngineNotLoaded(InferError, RuntimeError):
    """The call needs a loaded engine."""


class EngineBusy(InferError, RuntimeError):
    """Another session of this process holds the engine, or requests are still running."""


class EngineFailed(InferError, RuntimeError):
    """The engine stopped while it worked; the next request loads it again."""


class NotEnoughMemory(InferError, MemoryError):
    """Weights and KV pool do not fit into the memory that this process may use."""


def nearest(word: str, known: Iterable[str], *, count: int = 3, cutoff: float = 0.6) -> str:
    """Return ``"; did you mean 'a', 'b'?"`` for the known names close to `word`, or ``""`` when none is.

    `cutoff` is how close, from 0 to 1, as `difflib.get_close_matches` has it.
    """
    close = difflib.get_close_matches(word, list(known), n=count, cutoff=cutoff)
    return f"; did you mean {', '.join(repr(name) for name in close)}?" if close else ""
