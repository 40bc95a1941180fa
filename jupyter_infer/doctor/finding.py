"""One thing that was examined, and the table of all of them."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = ["Finding", "State", "render"]

State = Literal["ok", "warn", "fail"]

WIDTH = 100
MARKS: dict[State, str] = {"ok": "✓", "warn": "!", "fail": "✗"}


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found.

    Attributes
    ----------
    name
        What was examined, one or two words.
    state
        ``warn`` works, but less well than it could; with ``fail`` something will not work.
    found
        One line.
    fix
        What to type in a shell, or None if nothing can or need be typed.
    """

    name: str
    state: State
    found: str
    fix: str | None = None


def render(findings: Sequence[Finding]) -> str:
    """Return `findings` as a plain-text table of at most 100 columns, and under it what to type."""
    column = max((len(finding.name) for finding in findings), default=0)
    lines: list[str] = []
    for finding in findings:
        head = f"{MARKS[finding.state]} {finding.name:<{column}}  "
        lines += _wrapped(finding.found, head, " " * len(head))
    fixes: dict[str, list[str]] = {}
    for finding in findings:
        if finding.fix:
            fixes.setdefault(finding.fix, []).append(finding.name)
    if fixes:
        lines += ["", "What to type:"]
    for fix, names in fixes.items():
        lines += _wrapped(", ".join(names), "  # ", "  # ") + _command(fix)
    return "\n".join(lines)


def _wrapped(text: str, first: str, rest: str) -> list[str]:
    # A word that is longer than the line is cut: these are paths, which nobody types from here.
    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False) or [first]


def _command(text: str) -> list[str]:
    """Return a command that can be pasted: a long one goes on after a backslash, and no word is cut."""
    lines = textwrap.wrap(
        text,
        WIDTH - 2,
        initial_indent="  ",
        subsequent_indent="      ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [f"{line} \\" for line in lines[:-1]] + lines[-1:]
