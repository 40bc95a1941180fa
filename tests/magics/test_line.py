"""A magic's line: words as typed, quoted words as Python strings, options by their full names."""

from __future__ import annotations

import contextlib
import warnings
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_infer.errors import ConfigError
from jupyter_infer.magics.help import COMMANDS, help_text
from jupyter_infer.magics.line import Option, parse_line, split_line
from jupyter_infer.magics.options import OPTIONS, sampling_of

KNOWN = (
    Option(("-s", "--system"), "TEXT", "a system message"),
    Option(("-t", "--temperature"), "X", "how much chance"),
    Option(("--max-tokens",), "N", "output tokens at most"),
    Option(("-q", "--quick"), None, "a switch"),
)


def words(line: str) -> list[str]:
    return [word.text for word in split_line(line)]


# Words.


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", []),
        ("   ", []),
        ("a  b\tc", ["a", "b", "c"]),
        ("org/model-1.5 don't", ["org/model-1.5", "don't"]),
        ("--system 'be brief'", ["--system", "be brief"]),
        ('--system "be \\"brief\\""', ["--system", 'be "brief"']),
        ('--stop "\\n\\n"', ["--stop", "\n\n"]),
        ("--stop='\\t'", ["--stop", "\t"]),
        ('--system="a b"', ["--system", "a b"]),
        ("--max-tokens=5", ["--max-tokens", "5"]),
        ("--max-tokens=", ["--max-tokens", ""]),
        ("--stop==", ["--stop", "="]),
        ('""', [""]),
        ("a=b", ["a=b"]),
        ("{'a': 1}", ["{'a':", "1}"]),
        ("\\n", ["\\n"]),
        ("5'", ["5'"]),
    ],
)
def test_a_line_is_split_into_words(line: str, expected: list[str]) -> None:
    assert words(line) == expected


@given(st.text())
def test_any_text_can_be_quoted(text: str) -> None:
    assert words(f"--stop {text!r} after") == ["--stop", text, "after"]
    assert words(f"--stop={text!r}") == ["--stop", text]
    assert parse_line(f"--system {text!r}", KNOWN).options == {"system": text}
    assert parse_line(f"--stop {text!r}", KNOWN).others == {"stop": text}


@given(st.text())
def test_any_line_is_words_or_one_line_of_error(line: str) -> None:
    with contextlib.suppress(ConfigError):
        parse_line(line, KNOWN)


@pytest.mark.parametrize("line", ['"open', "'open", '--system "be brief', '"a"b', "--stop='a b'c", "--stop='a"])
def test_a_quote_that_is_not_closed_or_touched_is_said(line: str) -> None:
    with pytest.raises(ConfigError, match="a quote is not closed, or text touches it"):
        split_line(line)


@pytest.mark.parametrize("line", [r'"\x"', r"'\N{no such character}'", r'"\u12"'])
def test_a_quoted_word_that_is_no_python_string_is_said(line: str) -> None:
    with pytest.raises(ConfigError, match="is not a Python string; double the backslashes"):
        split_line(line)


def test_a_regular_expression_in_quotes_is_kept_without_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert words(r'--regex "\d+\.\w"') == ["--regex", r"\d+\.\w"]


# Options.


@pytest.mark.parametrize(
    ("line", "options"),
    [
        ("--max-tokens 64", {"max_tokens": "64"}),
        ("--max-tokens=64", {"max_tokens": "64"}),
        ("-t 0.5 -s x", {"temperature": "0.5", "system": "x"}),
        ("-t -1", {"temperature": "-1"}),
        ("-t -.5", {"temperature": "-.5"}),
        ("--temperature -1e-3", {"temperature": "-1e-3"}),
        ("--system '--max-tokens'", {"system": "--max-tokens"}),
        ("--system=--max-tokens", {"system": "--max-tokens"}),
        ("--system ''", {"system": ""}),
        ("-q", {"quick": True}),
        ("-q -s x", {"quick": True, "system": "x"}),
        ("--system true", {"system": "true"}),  # a text stays a text
    ],
)
def test_known_options_have_their_value_as_typed(line: str, options: dict[str, Any]) -> None:
    parsed = parse_line(line, KNOWN)
    assert parsed.options == options
    assert (parsed.others, parsed.words) == ({}, [])


@pytest.mark.parametrize(
    ("line", "others"),
    [
        ("--top-p 0.9", {"top_p": 0.9}),
        ("--top-p=0.9", {"top_p": 0.9}),
        ("--top-k -1", {"top_k": -1}),
        ("--top-k=-1", {"top_k": -1}),
        ("--n 3", {"n": 3}),
        ("--ignore-eos", {"ignore_eos": True}),
        ("--ignore-eos --n 3", {"ignore_eos": True, "n": 3}),
        ("--ignore-eos false", {"ignore_eos": False}),
        ("--ignore-eos=none", {"ignore_eos": None}),
        ("--dtype bfloat16", {"dtype": "bfloat16"}),
        ("--stop '5'", {"stop": "5"}),  # quoted: a text
        ("--stop='5'", {"stop": "5"}),
        ("--stop 5", {"stop": 5}),
        ("--stop-token-ids [1,2]", {"stop_token_ids": [1, 2]}),
        ("--stop=--", {"stop": "--"}),
    ],
)
def test_other_options_have_the_value_that_they_look_like(line: str, others: dict[str, Any]) -> None:
    parsed = parse_line(line, KNOWN)
    assert parsed.others == others
    assert (parsed.options, parsed.words) == ({}, [])


def test_words_without_a_dash_are_kept_apart() -> None:
    parsed = parse_line("first --n 3 second '--third' -1 --", KNOWN)
    assert parsed.words == ["first", "second", "--third", "-1", "--"]
    assert parsed.others == {"n": 3}


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--system", "--system needs a value: --system TEXT"),
        ("--system --max-tokens 5", "--system needs a value: --system TEXT"),
        ("-t 1 --temperature 2", "--temperature stands twice"),
        ("--n 1 --n 2", "--n stands twice"),
        ("-x 3", "unknown option '-x'"),
        ("-max-tokens 3", "unknown option '-max-tokens'; did you mean '--max-tokens'?"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(line: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_line(line, KNOWN)
    assert str(caught.value).startswith(says)
    assert "\n" not in str(caught.value)


def test_there_are_no_abbreviations() -> None:
    assert parse_line("--max 3", KNOWN).others == {"max": 3}


# The options of %%infer.


def test_numbers_among_the_options_are_numbers() -> None:
    values = sampling_of({"temperature": "0", "max_tokens": "64", "seed": "-1", "system": "x"}, {"top_p": 0.9})
    assert values == {"temperature": 0.0, "max_tokens": 64, "seed": -1, "top_p": 0.9}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"max_tokens": "many"}, "--max-tokens takes a whole number, not 'many'"),
        ({"max_tokens": "1.5"}, "--max-tokens takes a whole number, not '1.5'"),
        ({"max_tokens": ""}, "--max-tokens takes a whole number, not ''"),
        ({"temperature": "hot"}, "--temperature takes a number, not 'hot'"),
    ],
)
def test_a_number_that_is_none_is_said(options: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        sampling_of(options, {})
    assert str(caught.value) == says


def test_the_help_names_every_option_and_command() -> None:
    text = help_text()
    for option in OPTIONS:
        assert f"{', '.join(option.names)}" in text
        assert option.does in text
    for command in COMMANDS:
        assert command in text
    assert max(len(line) for line in text.splitlines()) <= 120
