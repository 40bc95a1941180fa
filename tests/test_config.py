"""Names and values as people type them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_infer.config import check_names, field_name, parse_value
from jupyter_infer.errors import ConfigError, InferError, nearest


@pytest.mark.parametrize("typed", ["--max-model-len", "max-model-len", "max_model_len", "--max_model_len"])
def test_a_name_is_a_field(typed: str) -> None:
    assert field_name(typed) == "max_model_len"


@pytest.mark.parametrize(
    ("typed", "value"),
    [
        ("2048", 2048),
        ("-1", -1),
        ("0.9", 0.9),
        ("true", True),
        ("False", False),
        ("none", None),
        ("null", None),
        ("[1,2]", [1, 2]),
        ('{"method":"ngram"}', {"method": "ngram"}),
        ("bfloat16", "bfloat16"),
        ("org/model", "org/model"),
        ("", ""),
        ("1 +", "1 +"),
        ("os.getcwd()", "os.getcwd()"),
        ("{[1]: 2}", "{[1]: 2}"),  # a literal that cannot be: lists are no keys
        ("(" * 500, "(" * 500),
    ],
)
def test_a_value_is_what_it_looks_like_else_text(typed: str, value: Any) -> None:
    assert parse_value(typed) == value
    assert type(parse_value(typed)) is type(value)


@given(st.text(alphabet="()[]{}'\",:0123456789.-+ejx \\#\n") | st.text())
def test_any_text_is_some_value(typed: str) -> None:
    parse_value(typed)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=3)))
def test_a_python_literal_is_its_value(value: Any) -> None:
    assert parse_value(repr(value)) == value


def test_known_names_pass() -> None:
    check_names({"seed": 1}, ["seed", "n"], {"stream": "it is ours"}, "sampling value")
    check_names({}, [], {}, "sampling value")


def test_an_unknown_name_names_the_near_ones() -> None:
    with pytest.raises(ConfigError) as caught:
        check_names({"max_token": 1}, ["max_tokens", "min_tokens", "seed"], {}, "sampling value")
    assert str(caught.value) == "unknown sampling value 'max_token'; did you mean 'max_tokens', 'min_tokens'?"


def test_an_unknown_name_that_is_like_nothing_points_to_the_help() -> None:
    with pytest.raises(ConfigError, match=r"unknown engine setting 'zzz'; %infer help"):
        check_names({"zzz": 1}, ["seed"], {}, "engine setting")


def test_a_name_that_is_ours_says_why() -> None:
    with pytest.raises(ConfigError, match="'stream' cannot be set: it is ours"):
        check_names({"stream": 1}, ["stream"], {"stream": "it is ours"}, "engine setting")


def test_nothing_is_near_to_nonsense() -> None:
    assert nearest("qqqq", ["load", "unload"]) == ""
    assert nearest("laod", ["load", "unload"]) == "; did you mean 'load', 'unload'?"


def test_an_error_is_one_line_in_ipython_and_the_builtin_that_it_is() -> None:
    error = ConfigError("too many")
    assert error._render_traceback_() == ["ConfigError: too many"]
    assert isinstance(error, ValueError)
    assert isinstance(error, InferError)
