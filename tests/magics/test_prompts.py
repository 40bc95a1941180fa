"""From a cell's text to prompts: every character of them, and values only where they were asked for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_infer.errors import ConfigError
from jupyter_infer.magics.prompts import interpolate, known_names, prompts_in, split_prompts


class Hostile:
    """Raises whatever is asked of it."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    def __getitem__(self, key: Any) -> Any:
        raise RuntimeError("no item")

    @property
    def attribute(self) -> Any:
        raise RuntimeError("no attribute")


NAMES = {
    "x": 1,
    "name": "{x}",
    "xs": [10, 20, 30],
    "table": {"key": "value", 2: "two", "{": "brace"},
    "thing": SimpleNamespace(size=5, inner=SimpleNamespace(deep="d")),
    "i": 2,
    "hostile": Hostile(),
}


@pytest.mark.parametrize(
    ("body", "separator", "prompts"),
    [
        ("one\n---\ntwo", "---", ["one", "two"]),
        ("one\n--- \ntwo\n---\n", "---", ["one", "two"]),
        ("---\none\n---\n\n---\ntwo", "---", ["one", "two"]),
        ("  one \n\n more\n---\n two", "---", ["  one \n\n more", " two"]),
        ("| a |\n|---|\n| b |", "---", ["| a |\n|---|\n| b |"]),
        ("one\r\n---\r\ntwo", "---", ["one\r", "two"]),
        ("one\n###\ntwo ### three", "###", ["one", "two ### three"]),
        ("one\ntwo\n\nthree\n", "\n", ["one", "two", "three"]),
        ("a\nb\n\nc", "\n\n", ["a\nb", "c"]),
        ("one", "---", ["one"]),
        ("---\n \n---", "---", []),
    ],
)
def test_a_body_is_taken_apart_at_lines(body: str, separator: str, prompts: list[str]) -> None:
    assert split_prompts(body, separator) == prompts


def test_a_separator_is_something() -> None:
    with pytest.raises(ConfigError, match="--split takes the line between two prompts"):
        split_prompts("a", "")


@given(st.lists(st.text().filter(lambda text: text.strip() and "---" not in text)))
def test_what_is_joined_by_the_separator_comes_apart_again(prompts: list[str]) -> None:
    assert split_prompts("\n---\n".join(prompts), "---") == prompts


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("{x} and {x}", "1 and 1"),
        ("{name}", "{x}"),  # what is put in is not looked through again
        ("{xs[0]} {xs[-1]} {xs[i]} {xs[1:]}", "10 30 30 [20, 30]"),
        ("{table['key']} {table[\"key\"]} {table[2]} {table[i]}", "value value two two"),
        ("{thing.size} {thing.inner.deep}", "5 d"),
        ("{ x }", "1"),
        ('{"a": {x}}', '{"a": 1}'),
        ("${x} 100%", "$1 100%"),
        ("{x", "{x"),
        ("x}", "x}"),
        ("{{x}}", "{{x}}"),
        ("{}", "{}"),
        ("{\nx}", "{\nx}"),
        ("{missing} {thing.missing} {xs[99]} {table['no']}", "{missing} {thing.missing} {xs[99]} {table['no']}"),
        ("{x + 1} {len(xs)} {x!r} {x:03} {print}", "{x + 1} {len(xs)} {x!r} {x:03} {print}"),
        ("{xs.append(1)}", "{xs.append(1)}"),
        ("{hostile} {hostile[0]} {hostile.attribute}", "{hostile} {hostile[0]} {hostile.attribute}"),
        ("{n: n**2 for n in xs}", "{n: n**2 for n in xs}"),
        ("{" * 50_000, "{" * 50_000),
        (r"{\d+}", r"{\d+}"),
    ],
)
def test_only_names_that_resolve_are_replaced(text: str, result: str) -> None:
    assert interpolate(text, NAMES) == result


@given(st.text(alphabet=st.sampled_from("{}[]()'\"\\.:x1 \n")))
def test_any_braces_are_taken_and_nothing_is_lost_without_names(text: str) -> None:
    assert interpolate(text, {}) == text
    interpolate(text, NAMES)


def test_names_that_stand_in_braces_are_found() -> None:
    assert known_names("{x} {missing} {{name}} {thing.size} {x} {i} { i }", NAMES) == ["x", "i"]


@pytest.mark.parametrize(
    ("value", "prompts"), [(["a", "b"], ["a", "b"]), (("a",), ["a"]), ({"a": 1}.keys(), ["a"]), (["", " "], ["", " "])]
)
def test_the_prompts_of_a_variable(value: Any, prompts: list[str]) -> None:
    assert prompts_in("qs", {"qs": value}) == prompts


@pytest.mark.parametrize(
    ("namespace", "says"),
    [
        ({}, "--prompts: there is no variable 'qs'"),
        ({"qs": "text"}, "--prompts: qs is no list of strings but a str"),
        ({"qs": b"text"}, "--prompts: qs is no list of strings but a bytes"),
        ({"qs": {"a": 1}}, "--prompts: qs is no list of strings but a dict"),
        ({"qs": 5}, "--prompts: qs is no list of strings but an int"),
        ({"qs": ["a", 2]}, "--prompts: qs[1] is no string but an int"),
        ({"qs": []}, "--prompts: qs is empty"),
    ],
)
def test_what_is_no_list_of_strings_is_said(namespace: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        prompts_in("qs", namespace)
    assert str(caught.value) == says
