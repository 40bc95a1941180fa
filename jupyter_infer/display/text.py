"""Model output as text that does nothing but be read."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["joined", "printable", "tail"]

_CONTROL = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
_CONTROL |= {code: f"\\u{code:04x}" for code in range(0xD800, 0xE000)}  # halves of pairs: no message can carry them


def printable(text: str) -> str:
    r"""Return text with control characters as escapes (``\x1b``), so that an answer cannot move the cursor or recolour
    a page.
    """
    return text.translate(_CONTROL)


def joined(texts: Sequence[str]) -> str:
    """Return one text of all answers: the only one as it is, several of them numbered."""
    if len(texts) == 1:
        return printable(texts[0])
    return "\n\n".join(f"[{number}] {printable(text)}" for number, text in enumerate(texts, 1))


def tail(text: str, limit: int) -> str:
    """Return a text of at most `limit` characters, its end if it is longer, and how much was left out."""
    if len(text) <= limit:
        return text
    return f"… {len(text) - limit:,} characters above are shown at the end\n{text[-limit:]}"
