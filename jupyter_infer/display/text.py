"""Model output as text that does nothing but be read."""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["Growth", "joined", "printable", "tail", "utf8_size"]

_KNOWN_CHARS = 16
"""Characters by which a text is known again."""

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
"""All but tab and line feed; and halves of pairs, which no message can carry."""


def printable(text: str) -> str:
    r"""Return text with control characters as escapes (``\x1b``), so that an answer cannot move the cursor or recolour
    a page.
    """
    return _CONTROL.sub(_escape, text)  # on a text that is not ASCII, 15 times as quick as `str.translate`


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def utf8_size(text: str) -> int:
    """Return the number of bytes that a message needs for a text."""
    return len(text.encode(errors="replace"))


def joined(texts: Sequence[str]) -> str:
    """Return one text of all answers: the only one as it is, several of them numbered."""
    if len(texts) == 1:
        return printable(texts[0])
    return "\n\n".join(f"{_head(number)}{printable(text)}" for number, text in enumerate(texts, 1))


def tail(texts: Sequence[str], chars: int, limit: int) -> str:
    """Return what `joined` would, of `chars` characters, or its end if it has more than `limit`, and how much was left
    out. The rest is not made: what this costs does not depend on how long the texts are.
    """
    if chars <= limit:
        return joined(texts)
    parts: list[str] = []
    left = limit
    for number, text in zip(range(len(texts), 0, -1), reversed(texts), strict=True):
        part = printable(text[-left:]) + ("\n\n" if parts else "")
        if len(text) < left and len(texts) > 1:
            part = _head(number) + part
        parts.append(part)
        left -= len(part)
        if left <= 0:
            break
    end = "".join(reversed(parts))[-limit:]
    return f"… {chars - limit:,} characters above are shown at the end\n{end}"


class Growth:
    """How much text there is of answers that grow, as `joined` would return it; each look reads what is new."""

    def __init__(self) -> None:
        self._counted: list[_Counted] = []

    def look(self, texts: Sequence[str]) -> tuple[int, int]:
        """Return characters and UTF-8 bytes. A text that does not go on from where it was is counted anew."""
        if len(texts) != len(self._counted):
            self._counted = [_Counted() for _ in texts]
        chars = size = len(joined([""] * len(texts)))  # what stands beside them
        for counted, text in zip(self._counted, texts, strict=True):
            counted.read(text)
            chars += counted.chars
            size += counted.size
        return chars, size


class _Counted:
    """Characters and bytes of one text as far as it was read."""

    __slots__ = ("_end", "_read", "chars", "size")

    def __init__(self) -> None:
        self.chars = self.size = self._read = 0
        self._end = ""  # of what was read

    def read(self, text: str) -> None:
        """Count what is new."""
        if not text.startswith(self._end, self._read - len(self._end)):
            self.chars = self.size = self._read = 0
        new = printable(text[self._read :])
        self.chars += len(new)
        self.size += utf8_size(new)
        self._read, self._end = len(text), text[-_KNOWN_CHARS:]


def _head(number: int) -> str:
    return f"[{number}] "
