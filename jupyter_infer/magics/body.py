"""The cell's text as it was typed.

IPython takes ``>>>``, ``...`` and ``In [1]:`` off the lines of a cell, because people paste sessions; a cell magic sees
what is left, and a prompt that quotes a session would lose part of it. A clean-up transform that comes first keeps
``%%infer`` cells as they are.
"""

from __future__ import annotations

import re
from typing import Any

__all__ = ["keep_bodies", "leave_bodies"]

_HEAD = re.compile(r"%%infer(?=[\s;]|$)(?!\s*\?)")


def _keep(lines: list[str]) -> list[str]:
    """Turn an ``%%infer`` cell into the call that IPython would make of it, before anything is taken off its body."""
    first = next((number for number, line in enumerate(lines) if line.strip()), 0)
    if not lines or not _HEAD.match(lines[first]):
        return lines
    options = lines[first].removeprefix("%%infer").rstrip().removeprefix(" ")
    body = "".join(lines[first + 1 :]) or "\n"  # IPython refuses an empty one, and the prompts can be a variable
    return [f"get_ipython().run_cell_magic('infer', {options!r}, {body!r})\n"]


_keep.has_side_effects = True  # type: ignore[attr-defined]  # so that "is this cell complete?" still sees a magic


def keep_bodies(shell: Any) -> None:
    """Hand the bodies of `shell`'s ``%%infer`` cells over as typed; twice does no harm."""
    leave_bodies(shell)
    shell.input_transformers_cleanup.insert(0, _keep)


def leave_bodies(shell: Any) -> None:
    """Undo `keep_bodies`."""
    if _keep in shell.input_transformers_cleanup:
        shell.input_transformers_cleanup.remove(_keep)
