"""The map's state as the front end gets it: ids of blocks as packed numbers, and facts of requests beside them.

The mirror of ``js/src/lib/kv_frame.ts``.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable
from typing import Any

from jupyter_infer.widgets._kv_shown import Shown

__all__ = ["facts", "pack"]


def pack(shown: Shown) -> bytes:
    """Return the ids of all tables, of the cached, the evicted and the unseen blocks; `facts` says how many of each.

    Little-endian, two bytes a block, or four where that is not enough.
    """
    numbers = array(_code(shown))
    for table in shown.state.tables.values():
        numbers.extend(table)
    for blocks in (sorted(shown.state.cached_free), shown.evicted, sorted(shown.unseen)):
        numbers.extend(blocks)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


def facts(shown: Shown) -> dict[str, Any]:
    """Return everything else, as JSON has it."""
    state, names = shown.state, shown.names()
    return {
        "total": shown.total,
        "size": state.block_size,
        "used": shown.used,
        "unknown": shown.unknown,
        "word": 2 if _code(shown) == "H" else 4,
        "owners": [
            [names[owner], len(table), state.tokens.get(owner, 0), shown.missing(owner)]
            for owner, table in state.tables.items()
        ],
        "cached": len(state.cached_free),
        "evicted": len(shown.evicted),
        "unseen": len(shown.unseen),
        "step": shown.step,
        "since_ns": shown.since_ns,
        "planned": state.moment.planned,
    }


def _code(shown: Shown) -> str:
    blocks: Iterable[int] = (shown.total, *map(max, filter(None, shown.state.tables.values())))
    return "H" if max(blocks) < 2**16 else "I"
