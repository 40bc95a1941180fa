"""What a cell asks for: options, defaults, and what contradicts itself, before anything is loaded."""

from __future__ import annotations

import contextlib
import re
from typing import Any

import pytest

from jupyter_infer.errors import ConfigError, InferError, PromptError
from jupyter_infer.magics.ask import Ask, read_ask, without_semicolon


def ask_of(line: str, body: str = "Hi\n", defaults: Any = None, **names: Any) -> Ask:
    return read_ask(line, body, defaults or {}, names)


def test_a_plain_cell() -> None:
    assert ask_of("") == Ask(
        prompts=("Hi",),
        batch=False,
        model=None,
        system=None,
        sampling={},
        template=True,
        continues=False,
        background=False,
        out=None,
        format=None,
        stream=True,
        shown="chart",
        hint=None,
    )


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ("-m x", "model", "x"),
        ("-s 'be brief'", "system", "be brief"),
        ("-t 0 --max-tokens 5", "sampling", {"temperature": 0.0, "max_tokens": 5}),
        ("--no-cache", "sampling", {"skip_reading_prefix_cache": True}),
        ("--no-template", "template", False),
        ("-c", "continues", True),
        ("-b", "background", True),
        ("-o answer", "out", "answer"),
        ("-o größe", "out", "größe"),
        ("-f text", "format", "text"),
        ("--no-stream", "stream", False),
        ("--no-chart", "shown", "status"),
        ("--json", "shown", "json"),
        ("--json;", "shown", "json"),
        ("-t 0;", "shown", "nothing"),
        (";", "shown", "nothing"),
        ("--stop ';'", "sampling", {"stop": [";"]}),
    ],
)
def test_an_option_says_what_it_says(line: str, field: str, value: Any) -> None:
    assert getattr(ask_of(line), field) == value


def test_a_semicolon_at_the_end_of_the_cell_mutes_and_stays_in_the_prompt() -> None:
    ask = ask_of("", "Hi; \n")
    assert (ask.shown, ask.prompts) == ("nothing", ("Hi; ",))


def test_only_the_last_semicolon_of_a_line_is_taken() -> None:
    assert without_semicolon("a;; ") == ("a;", True)
    assert without_semicolon("a; b") == ("a; b", False)


def test_options_after_the_first_line_are_the_prompt() -> None:
    assert ask_of("", "--max-tokens 5\n-c\nHi").prompts == ("--max-tokens 5\n-c\nHi",)


def test_a_batch_is_several_prompts_or_one() -> None:
    assert ask_of("--split", "a\n---\nb\n").prompts == ("a", "b")
    assert ask_of("--split", "a").batch
    ask = ask_of("--prompts qs", "\n", qs=["a", "b"])
    assert (ask.prompts, ask.batch) == (("a", "b"), True)


def test_values_are_put_in_after_the_text_was_taken_apart() -> None:
    assert ask_of("-i --split", "{x}\n---\n{y}", x="a\n---\nb", y="{x}").prompts == ("a\n---\nb", "{x}")


@pytest.mark.parametrize(
    ("line", "hint"),
    [("", "{x} was sent as typed; %%infer -i puts the value of x in its place"), ("-i", None), ("--split", "{x}")],
)
def test_a_name_in_braces_gets_a_hint(line: str, hint: str | None) -> None:
    found = ask_of(line, "what is {x}?", x=1).hint
    assert found is None if hint is None else found is not None and found.startswith(hint)


# Defaults.


def test_defaults_hold_where_the_line_says_nothing() -> None:
    defaults = {"max_tokens": 9, "temperature": 0.0, "system": "short", "no_chart": True, "format": "text"}
    ask = ask_of("-t 1", defaults=defaults)
    assert ask.sampling == {"max_tokens": 9, "temperature": 1.0}
    assert (ask.system, ask.shown, ask.format) == ("short", "status", "text")


def test_a_default_system_message_means_nothing_to_a_raw_completion() -> None:
    assert ask_of("--no-template", defaults={"system": "short"}).system is None


def test_a_default_system_message_does_not_stop_a_conversation() -> None:
    assert ask_of("-c", defaults={"system": "short"}).continues


def test_any_other_sampling_value_goes_before_a_default() -> None:
    assert ask_of("--sampling max_tokens 5", defaults={"max_tokens": 9}).sampling == {"max_tokens": 5}


def test_names_that_the_user_did_not_make_get_no_hint() -> None:
    ask = read_ask("", r"\frac{In}{_}", {}, {"In": [], "_": 1}, hidden={"In"})
    assert ask.hint is None


# What cannot be.


@pytest.mark.parametrize(
    ("line", "body", "says"),
    [
        ("Why", "Hi", "'Why' is no option; the prompt goes below the %%infer line"),
        ("", " \n\t", "the prompt is empty; write the question below the %%infer line"),
        ("--split", "---\n---\n", "there is no prompt between the separators; write one a piece"),
        ("--split ''", "Hi", "--split takes the line between two prompts"),
        ("-o 1x", "Hi", "--out takes the name of a variable, not '1x'"),
        ("-o class", "Hi", "--out takes the name of a variable, not 'class'"),
        ("-o a.b", "Hi", "--out takes the name of a variable, not 'a.b'"),
        ("-o ''", "Hi", "--out takes the name of a variable, not ''"),
        ("-f markdwn", "Hi", "--format takes markdown or text, not 'markdwn'; did you mean 'markdown'?"),
        ("--prompts qs", "Hi", "the prompts come from qs; leave the cell below the line empty"),
        ("--prompts qs --split", "", "--split is about the cell's text, and --prompts takes a list; leave one out"),
        ("--prompts qs -i", "", "--interpolate is about the cell's text"),
        ("--no-template -s x", "Hi", "a system message needs the chat template; leave out --system or --no-template"),
        ("-c -s x", "Hi", "a conversation keeps its system message; leave out --continue or --system"),
        ("-c --split", "Hi", "a conversation goes on with one prompt; leave out --continue or --split"),
        ("-c --prompts qs", "", "a conversation goes on with one prompt; leave out --continue or --prompts"),
        ("-c --no-template", "Hi", "a conversation needs the chat template; leave out --continue or --no-template"),
        ("-b --json", "Hi", "--json prints when the answer is there; leave out --background or --json"),
        ("-t 0 --sampling temperature 1", "Hi", "--sampling temperature says again what --temperature says"),
        ("-n 2 --sampling n 2", "Hi", "--sampling n says again what -n says"),
        ("--stop", "Hi", "--stop needs a value: --stop TEXT"),
        ("-n two", "Hi", "-n takes a whole number, not 'two'"),
        ("--top-p x", "Hi", "--top-p takes a number, not 'x'"),
        ("--top-k 0.5", "Hi", "--top-k takes a whole number, not '0.5'"),
        ("--logprobs all", "Hi", "--logprobs takes a whole number, not 'all'"),
    ],
)
def test_a_contradiction_is_one_line(line: str, body: str, says: str) -> None:
    with pytest.raises((ConfigError, PromptError)) as caught:
        ask_of(line, body, qs=["a"])
    assert str(caught.value).startswith(says)
    assert "\n" not in str(caught.value)


def test_nothing_but_our_errors_comes_of_any_line() -> None:
    for line in ("---", "--", "-", "'", '"', "--=", "--split=", "=", "-n", "--sampling a", "-t=", "--json=1", "\x00"):
        with contextlib.suppress(InferError):
            ask_of(line)


@pytest.mark.parametrize(
    ("line", "form"),
    [
        ("--schema person", {"json": {"type": "object"}}),
        ("--schema=text", {"json": {"type": "integer"}}),
        (r"--regex \d{3}-\d{4}", {"regex": r"\d{3}-\d{4}"}),
        ("--regex '[a-z] [a-z]'", {"regex": "[a-z] [a-z]"}),
        ("--choice yes --choice 'not sure'", {"choice": ["yes", "not sure"]}),
        ("--sampling structured_outputs {'choice':['a']}", {"choice": ["a"]}),
    ],
)
def test_the_form_of_an_answer_is_a_sampling_value(line: str, form: dict[str, Any]) -> None:
    ask = ask_of(line, person={"type": "object"}, text='{"type": "integer"}')
    assert ask.sampling == {"structured_outputs": form}


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--schema nothing", "there is no variable and no file 'nothing'"),
        ("--schema wrong", 'the schema is no JSON schema: "strin" is not valid'),
        ("--regex ''", "the regex cannot be ''"),
        ("--choice ''", "none of them empty"),
        ("--regex a --choice b", "an answer has one form; leave out --regex or --choice"),
        ("--schema wrong --regex a", "leave out --schema or --regex"),
        ("--regex a --sampling structured_outputs {'regex':'b'}", "or --sampling structured_outputs"),
        ("--sampling structured_outputs json", "takes a mapping"),
        ("--sampling structured_outputs {'schema':{}}", "unknown structured output 'schema'"),
    ],
)
def test_a_form_that_is_none_is_one_line(line: str, says: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(says)):
        ask_of(line, wrong={"type": "strin"})
