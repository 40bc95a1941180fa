from __future__ import annotations

import pytest

from jupyter_infer.errors import ConfigError, EngineNotInstalled, InferError, NotEnoughMemory, nearest


@pytest.mark.parametrize("kind", [InferError, ConfigError, EngineNotInstalled, NotEnoughMemory])
def test_a_message_is_one_printable_line_whatever_the_users_words_in_it(kind: type[InferError]) -> None:
    error = kind("no model 'a\nb\x1b[31m\u2028c\ud83d é  🚲'")
    assert str(error) == "no model 'a\\nb\\x1b[31m\\u2028c\\ud83d é  🚲'"
    assert error._render_traceback_() == [f"{kind.__name__}: {error}"]


def test_an_error_is_the_builtin_that_a_script_catches() -> None:
    assert issubclass(ConfigError, ValueError)
    assert issubclass(NotEnoughMemory, MemoryError)
    assert issubclass(EngineNotInstalled, ImportError)


def test_near_names_are_named() -> None:
    assert nearest("max_token", ["max_tokens", "seed"]) == "; did you mean 'max_tokens'?"
    assert nearest("zzz", ["seed"]) == ""
