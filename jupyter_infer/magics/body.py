"""The cell's text as it was typed.

IPython takes ``>>>``, ``...``, ``In [1]:`` and a common indentation off the lines of a cell, because people paste
sessions; a cell magic sees what is left, and a prompt that quotes a session would lose part of it. A clean-up transform
that comes first keeps ``%%infer`` cells as they are. It also keeps a question in ``%infer tokens``, whose question mark
IPython would take for a call for help.
"""

from __future__ import annotations

import re
from typing import Any

__all__ = ["keep_bodies", "leave_bodies"]

# A line ends where Python ends one: a form feed or U+2028 in a quoted value is a part of it.
_CELL = re.compile(r"\s*%%infer(?=[\s;]|$)(?P<options>[^\r\n]*)(?:\r\n?|\n|$)(?P<body>.*)", re.DOTALL)
_TOKENS = re.compile(r"\s*%infer(?P<line>[^\S\r\n]+tokens[^\S\r\n]+\S[^\r\n]*\?)\s*")


def _keep(lines: list[str]) -> list[str]:
    """Turn an ``%%infer`` cell into the call that IPython would make of it, before anything is taken off its body."""
    cell = "".join(lines)
    if found := _CELL.fullmatch(cell):
        body = found["body"] or "\n"  # IPython refuses an empty one, and the prompts can be a variable
        return [f"get_ipython().run_cell_magic('infer', {_rest(found['options'])!r}, {body!r})\n"]
    if found := _TOKENS.fullmatch(cell):
        return [f"get_ipython().run_line_magic('infer', {_rest(found['line'])!r})\n"]
    return lines


def _rest(line: str) -> str:
    return line.rstrip().removeprefix(" ")


_keep.has_side_effects = True  # type: ignore[attr-defined]  # so that "is this cell complete?" still sees a magic


def keep_bodies(shell: Any) -> None:
    """Hand the bodies of `shell`'s ``%%infer`` cells over as typed; twice does no harm."""
    leave_bodies(shell)
    shell.input_transformers_cleanup.insert(0, _keep)


def leave_bodies(shell: Any) -> None:
    """Undo `keep_bodies`."""
    if _keep in shell.input_transformers_cleanup:
        shell.input_transformers_cleanup.remove(_keep)
