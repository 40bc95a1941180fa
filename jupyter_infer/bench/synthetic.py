"""An engine whose steps only pass the time, as a GPU's do: what our own code costs beside a fast engine."""

from __future__ import annotations

import time
from typing import Any

from jupyter_infer.engine.scripted import Script, ScriptedEngine

__all__ = ["CALLS", "STEP_NS", "synthetic_engine", "use_synthetic"]

STEP_NS = 3_000_000
CALLS = 15
"""Calls of a step that let go of the GIL, as the launches and waits of a GPU's step do."""


def synthetic_engine(tokens: int) -> ScriptedEngine:
    """Return an engine that answers with so many words, a step of 3 ms each for all requests together."""
    script = Script(
        answer=lambda prompt: [f"word{number % 100} " for number in range(tokens)],
        step_ns=lambda count: STEP_NS,
        blocks=4096,
    )
    return ScriptedEngine(script, sleep=_pass)


def use_synthetic(tokens: int) -> None:
    """Let the magics of this process use it; ends the session that they had."""
    from jupyter_infer import session

    def build(progress: Any) -> ScriptedEngine:
        return synthetic_engine(tokens)

    session.current_session().unload()
    session._current = session.Session("synthetic", factory=lambda model, settings, progress: build)
    session._current.load()


def _pass(duration_ns: int) -> None:
    for _ in range(CALLS):
        time.sleep(duration_ns / CALLS / 1e9)
