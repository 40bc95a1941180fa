"""The engine's share of the interpreter beside a cell that computes.

A step of vLLM lets go of the GIL a thousand times and asks for it again. A thread that computes in Python gives it up
after `sys.getswitchinterval()`, 5 ms by default, so that beside a busy cell one step waits for seconds. A shorter
interval while requests run costs the cell little and makes the engine many times faster (docs/overhead.md has the
figures).
"""

from __future__ import annotations

import math
import sys
import threading

__all__ = ["SWITCH_S", "hurry", "relax"]

SWITCH_S = 0.00002
"""Seconds after which a thread that computes gives way, while requests run."""

_lock = threading.Lock()
_hurrying = 0
_before = SWITCH_S


def hurry() -> None:
    """Shorten the interval, until `relax` was called as often."""
    global _hurrying, _before
    with _lock:
        _hurrying += 1
        if _hurrying == 1 and (now := sys.getswitchinterval()) > SWITCH_S:
            _before = now
            sys.setswitchinterval(SWITCH_S)


def relax() -> None:
    """Set the interval back, unless the user has set another one meanwhile."""
    global _hurrying, _before
    with _lock:
        _hurrying -= 1
        if not _hurrying and math.isclose(sys.getswitchinterval(), SWITCH_S, rel_tol=0.01):
            sys.setswitchinterval(_before)
            _before = SWITCH_S
