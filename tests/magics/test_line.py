"""A magic's line: words as typed, quoted words as Python strings, options by their full names."""

from __future__ import annotations

import contextlib
import warnings
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_infer.errors import ConfigError
from jupyter_infer.magics.line import Option, parse_line, split_line

KNOWN = (
    Option(("-s", "--system"), "TEXT", "a system message"),
    Option(("-t", "--temperature"), "X", "how much chance", float),
    Option(("--max-tokens",), "N", "output tokens at most", int),
    Option(("-q", "--quick"), None, "a switch"),
    Option(("--stop",), "TEXT", "where to end", many=True),
    Option(("--split",), "[SEP]", "apart", default="---"),
    Option(("--sampling",), "KEY VALUE", "anything else"),
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
    assert parse_line(f"--stop={text!r} --stop {text!r}", KNOWN).options == {"stop": [text, text]}
    assert parse_line(f"--sampling word {text!r}", KNOWN).options == {"sampling": {"word": text}}
    assert parse_line(f"--word {text!r}").others == {"word": text}


@given(st.text())
def test_any_line_is_words_or_one_line_of_error(line: str) -> None:
    for known in (KNOWN, None):
        with contextlib.suppress(ConfigError):
            parse_line(line, known)


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
        ("--max-tokens 64", {"max_tokens": 64}),
        ("--max-tokens=64", {"max_tokens": 64}),
        ("--max-tokens '64'", {"max_tokens": 64}),
        ("-t 0.5 -s x", {"temperature": 0.5, "system": "x"}),
        ("-t -1", {"temperature": -1.0}),
        ("-t -.5", {"temperature": -0.5}),
        ("--temperature -1e-3", {"temperature": -1e-3}),
        ("--system '--max-tokens'", {"system": "--max-tokens"}),
        ("--system=--max-tokens", {"system": "--max-tokens"}),
        ("--system ''", {"system": ""}),
        ("-q", {"quick": True}),
        ("-q -s x", {"quick": True, "system": "x"}),
        ("--system true", {"system": "true"}),  # a text stays a text
        ("--stop 5 --stop=-- --stop '\\n'", {"stop": ["5", "--", "\n"]}),
        ("--split", {"split": "---"}),
        ("--split -q", {"split": "---", "quick": True}),
        ("--split ### -q", {"split": "###", "quick": True}),
        ("--split=-q", {"split": "-q"}),
        ("--split ''", {"split": ""}),
        ("--sampling min-p 0.1 --sampling top_k '5'", {"sampling": {"min_p": 0.1, "top_k": "5"}}),
        ("--sampling stop_token_ids [1,2]", {"sampling": {"stop_token_ids": [1, 2]}}),
        ("--sampling detokenize false", {"sampling": {"detokenize": False}}),
    ],
)
def test_known_options_have_their_value(line: str, options: dict[str, Any]) -> None:
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
def test_options_of_the_engine_have_the_value_that_they_look_like(line: str, others: dict[str, Any]) -> None:
    parsed = parse_line(line)
    assert parsed.others == others
    assert (parsed.options, parsed.words) == ({}, [])


def test_words_without_a_dash_are_kept_apart() -> None:
    parsed = parse_line("first --n 3 second '--third' -1 --")
    assert parsed.words == ["first", "second", "--third", "-1", "--"]
    assert parsed.others == {"n": 3}


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--system", "--system needs a value: --system TEXT"),
        ("--system --max-tokens 5", "--system needs a value: --system TEXT"),
        ("-t 1 --temperature 2", "--temperature stands twice"),
        ("-q --quick", "--quick stands twice"),
        ("--quick=yes", "--quick is a switch and takes no value"),
        ("--max-tokens many", "--max-tokens takes a whole number, not 'many'"),
        ("--max-tokens 1.5", "--max-tokens takes a whole number, not '1.5'"),
        ("--max-tokens=", "--max-tokens takes a whole number, not ''"),
        ("-t hot", "-t takes a number, not 'hot'"),
        ("--sampling min_p", "--sampling needs two words: --sampling KEY VALUE"),
        ("--sampling -q 1", "--sampling needs two words: --sampling KEY VALUE"),
        ("--sampling min_p 1 --sampling min-p 2", "--sampling min-p stands twice"),
        ("--max-token 3", "unknown option '--max-token'; did you mean '--max-tokens'?"),
        ("--max 3", "unknown option '--max'"),
        (
            "--gpu-memory 3",
            "unknown option '--gpu-memory'; another sampling value is --sampling gpu_memory 3, "
            "an engine setting belongs to %infer load --gpu-memory 3",
        ),
        ("-x 3", "unknown option '-x'"),
        ("-max-tokens 3", "unknown option '-max-tokens'; did you mean '--max-tokens'?"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(line: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_line(line, KNOWN)
    assert str(caught.value).startswith(says)
    assert "\n" not in str(caught.value)


def test_an_option_of_the_engine_does_not_stand_twice() -> None:
    with pytest.raises(ConfigError, match="--n stands twice"):
        parse_line("--n 1 --n 2")
