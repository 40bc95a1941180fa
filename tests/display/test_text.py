"""Model output as text."""

from __future__ import annotations

from jupyter_infer.display import printable


def test_control_characters_are_shown_not_obeyed() -> None:
    assert printable("a\x1b[31mred\x1b[0m\x07 b\rc\x00\x7f\x9b") == "a\\x1b[31mred\\x1b[0m\\x07 b\\x0dc\\x00\\x7f\\x9b"


def test_halves_of_surrogate_pairs_are_shown() -> None:
    assert printable("a\ud800b\udfff") == "a\\ud800b\\udfff"


def test_all_other_characters_are_kept() -> None:
    text = "a\tb\nc <img src=x onerror=1> **bold** $5 and $6 ünï 語 🙂 \u202e"
    assert printable(text) == text
