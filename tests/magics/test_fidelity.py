"""A cell's text and an option's value reach the engine as they were typed, whatever they are.

The one rule of the body: it begins after the first line, and one final line break is dropped. Everything here goes the
way of a cell, IPython's own transformations included.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from jupyter_infer.engine.scripted import SAMPLING, ScriptedEngine
from jupyter_infer.errors import ConfigError, PromptError
from jupyter_infer.magics.prompts import interpolate
from jupyter_infer.session import Session

from .conftest import ask

PIECES = (
    *("Why?", "word", "語", "é", "e\u0301\u0323\u0489", "👩‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪", "\U0010ffff", "𝔘", "ﷺ", "ﬁ"),
    *(
        "\n",
        "\n\n",
        "\r\n",
        "\r",
        "\t",
        "\v",
        "\f",
        "\x1c",
        "\x1d",
        "\x1e",
        "\x1f",
        "\x85",
        "\u2028",
        "\u2029",
        " ",
        "   ",
    ),
    *("\0", "\a", "\b", "\x1b[31m", "\x1b]0;title\x07", "\x7f", "\x9b2J", "\ufeff", "\xa0", "\u3000", "\u200b", "\xad"),
    *("\u202e", "\u202a", "\u2067", "\u2069", "\u200f", "\u061c", "שלום", "مرحبا", "\u200c", "\u200d"),
    *(
        "{",
        "}",
        "{x}",
        "{{x}}",
        "${x}",
        "$x",
        "%s",
        "%(x)s",
        "100%",
        "\\",
        "\\n",
        "\\\n",
        "'",
        '"',
        "'''",
        '"""',
        "`",
        "#",
    ),
    *(
        "%cd /\n",
        "!ls\n",
        "%%infer\n",
        "%%bash\n",
        "%infer stop\n",
        "?x\n",
        "x?\n",
        "x??\n",
        "!!ls\n",
        ",f x\n",
        ";\n",
        "/f\n",
    ),
    *(">>> x\n", "... x\n", "In [1]: x\n", "   ...: x\n", "Out[1]: x\n", "get_ipython()\n", "x = !ls\n", "x = %cd\n"),
    *(
        "<|im_end|>",
        "<script>",
        "</pre>",
        "--stop",
        "-t 0\n",
        "---\n",
        "'open\n",
        "def f(:\n",
        "\tindented\n",
        "  dent\n",
    ),
)
"""What stands in prompts, and what IPython, Python, a shell, a terminal or a template would see more in than text."""

HEADS = (
    "%%infer\n",
    "%%infer --max-tokens 1 --no-chart\n",
    "\n \n%%infer -t 0\n",
    "  %%infer\n",
    "%%infer;\n",
    "%%infer\r\n",
)

any_text = st.lists(st.sampled_from(PIECES) | st.characters(codec="utf-8"), max_size=8).map("".join)
bodies = any_text.filter(lambda text: text.strip())
in_a_shell = settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])

Asked = Callable[[str], Any]


@pytest.fixture
def shell(shell: Any) -> Any:
    """A shell that draws no chart: it would take most of the time."""
    shell.run_line_magic("config", "InferMagics.chart = False")
    return shell


@pytest.fixture
def asked(shell: Any, monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Return a function that runs a cell and returns what it gave to the engine to render: a text, or messages."""
    given: list[Any] = []
    render = ScriptedEngine.render

    def noted(self: ScriptedEngine, prompt: Any, **options: Any) -> Any:
        given.append(prompt)
        return render(self, prompt, **options)

    monkeypatch.setattr(ScriptedEngine, "render", noted)

    def run(cell: str) -> Any:
        given.clear()
        ask(shell, cell)
        (one,) = given
        return one

    return run


# The body.


@settings(in_a_shell, max_examples=200)
@given(head=st.sampled_from(HEADS), body=bodies)
def test_any_body_is_the_prompt(asked: Asked, head: str, body: str) -> None:
    assert asked(head + body) == body.removesuffix("\n")


@in_a_shell
@given(body=bodies)
def test_any_body_is_the_prompt_on_each_way_to_the_template(asked: Asked, body: str) -> None:
    typed = {"role": "user", "content": body.removesuffix("\n")}
    assert asked(f"%%infer --no-template\n{body}") == typed["content"]
    assert asked(f"%%infer -s 'be brief'\n{body}") == [{"role": "system", "content": "be brief"}, typed]
    assert asked(f"%%infer -c\n{body}")[-1] == typed
    assert asked(f"%%infer -i\n{body}") == typed["content"]  # no name in it is defined


@in_a_shell
@given(body=bodies)
def test_a_conversation_remembers_what_was_typed(asked: Asked, body: str) -> None:
    asked(f"%%infer\n{body}")
    first, answer, second = asked("%%infer -c\nAnd?")
    assert first == {"role": "user", "content": body.removesuffix("\n")}
    assert answer == {"role": "assistant", "content": "Hello, world."}
    assert second == {"role": "user", "content": "And?"}


@in_a_shell
@given(texts=st.lists(bodies, min_size=1, max_size=4))
def test_the_prompts_of_a_list_are_its_texts(shell: Any, texts: list[str]) -> None:
    shell.user_ns["texts"] = texts
    assert [result.record.prompt for result in ask(shell, "%%infer --prompts texts")] == texts


@in_a_shell
@given(body=st.text(alphabet=" \t\n\r\v\f\x1c\x1d\x1e\x1f\x85\xa0\u2028\u2029\u3000", max_size=8))
def test_a_body_of_white_space_is_empty(shell: Any, body: str) -> None:
    with pytest.raises(PromptError, match="the prompt is empty"):
        ask(shell, f"%%infer\n{body}")


@in_a_shell
@given(before=any_text, half=st.characters(categories=["Cs"]), after=any_text)
def test_half_a_surrogate_pair_is_one_line_that_names_it(session: Session, before: str, half: str, after: str) -> None:
    """At the API; a kernel gets its cells in UTF-8, which has no such thing."""
    text = f"{before}{half}{after}"
    for prompt, system in ((text, None), ("Hi", text), ([{"role": "user", "content": text}], None)):
        with pytest.raises(PromptError) as caught:
            session.submit(prompt, system=system)
        assert str(caught.value) == (
            f"the text holds half of a surrogate pair (\\u{ord(half):04x}), which is no character"
        )


def test_an_indented_cell_keeps_the_indentation_of_its_body(asked: Asked) -> None:
    assert asked("  %%infer\n  >>> a\n    b\n  ") == "  >>> a\n    b\n  "


# The line.


def spoken(text: str, quote: str) -> str:
    """Return a quoted value with no more escapes than it needs."""
    for char, escape in {"\\": "\\\\", quote: f"\\{quote}", "\n": "\\n", "\r": "\\r", "\0": "\\0"}.items():
        text = text.replace(char, escape)
    return f"{quote}{text}{quote}"


@in_a_shell
@given(
    value=any_text, form=st.sampled_from(["--system {}", "--system={}", "-s {}", "-s\t{}  -t 0", "--stop {0} -s {0}"])
)
def test_any_text_is_the_value_of_an_option(asked: Asked, value: str, form: str) -> None:
    assume("\0" not in value)  # Python reads \01 as one character; as \x00 it is written by `repr`
    for quoted in (repr(value), spoken(value, "'"), spoken(value, '"')):
        system, _ = asked(f"%%infer {form.format(quoted)}\nHi")
        assert system == {"role": "system", "content": value}


@in_a_shell
@given(values=st.lists(any_text, min_size=1, max_size=3))
def test_any_texts_are_the_values_of_an_option_that_is_repeated(shell: Any, values: list[str]) -> None:
    line = " ".join(f"--stop {value!r}" for value in values)
    assert ask(shell, f"%%infer {line}\nHi").record.sampling["stop"] == values


@pytest.mark.parametrize("mark", ["\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"])
def test_the_line_ends_where_python_ends_one(asked: Asked, mark: str) -> None:
    """`str.splitlines`, which IPython takes a cell apart with, ends it at each of these."""
    system, user = asked(f"%%infer -s 'a{mark}b'\n{mark}body")
    assert (system["content"], user["content"]) == (f"a{mark}b", f"{mark}body")


bare_words = st.text(alphabet=st.characters(codec="utf-8"), min_size=1).filter(
    lambda text: not any(char.isspace() for char in text) and text[0] not in "'\"" and text[-1] != ";"
)
"""A quote begins a quoted value, and a semicolon at the end mutes the cell."""


@in_a_shell
@given(word=bare_words)
def test_a_bare_word_is_taken_as_typed(asked: Asked, word: str) -> None:
    assert asked(f"%%infer --system={word}\nHi")[0]["content"] == word
    assert asked(f"%%infer -s {word} -t 0\nHi")[0]["content"] == word if word[0] != "-" else True


@in_a_shell
@given(
    temperature=st.floats(0, allow_infinity=False),
    seed=st.integers(),
    top_p=st.floats(0, 1, exclude_min=True),
    max_tokens=st.integers(1, 10**9),
)
def test_any_number_is_the_value_of_an_option(
    shell: Any, temperature: float, seed: int, top_p: float, max_tokens: int
) -> None:
    line = f"-t {temperature!r} --seed={seed} --top-p '{top_p!r}' --max-tokens {max_tokens} --sampling min_p {top_p!r}"
    sampling = ask(shell, f"%%infer {line}\nHi").record.sampling
    expected = {"temperature": temperature, "seed": seed, "top_p": top_p, "max_tokens": max_tokens, "min_p": top_p}
    assert {name: sampling[name] for name in expected} == expected


literals = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | any_text,
    lambda children: st.lists(children, max_size=3) | st.dictionaries(any_text, children, max_size=3),
    max_leaves=6,
)


@in_a_shell
@given(value=literals)
def test_any_python_value_is_a_sampling_value(shell: Any, monkeypatch: pytest.MonkeyPatch, value: Any) -> None:
    """A text in quotes; anything else as the literal that it is, without spaces outside of quotes."""
    assume(isinstance(value, str) or not any(char.isspace() for char in repr(value)))
    monkeypatch.setattr("jupyter_infer.engine.scripted.SAMPLING", (*SAMPLING, "extra_args"))
    found = ask(shell, f"%%infer --sampling extra_args {value!r}\nHi").record.sampling["extra_args"]
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("cell", "says"),
    [
        (
            "%%infer --word 'two\\nlines'\nHi",
            "nother sampling value is --sampling word 'two\\nlines', an engine setting belongs to ",
        ),
        ("%%infer --word '5'\nHi", "nother sampling value is --sampling word '5', an engine setting belongs to"),
        ("%%infer -s '\x1b[2J\nHi", "a quote is not closed, or text touches it: '\\x1b[2J"),
        ("%%infer -s '\\x\u2028'\nHi", "'\\x\\u2028' is not a Python string; double the backslashes"),
    ],
)
def test_a_mistake_is_told_in_one_line_whatever_was_typed(shell: Any, cell: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ask(shell, cell)
    assert says in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("text", ["Why?", "Why is the sky blue?", "really ??", "'x'?", "%cd?"])
def test_a_question_is_cut_into_tokens(shell: Any, capsys: pytest.CaptureFixture[str], text: str) -> None:
    """IPython would look for help on its last word."""
    ask(shell, f"%infer tokens {text}")
    words = text.split()
    out = capsys.readouterr().out
    assert out.startswith(f"{len(words)} token{'s' * (len(words) > 1)} of scripted · {len(text)} characters")
    assert all(repr(word) in out for word in words)


def test_help_is_still_asked_for_with_a_question_mark(shell: Any) -> None:
    for typed, name in {"%infer?": "%infer", "%%infer?": "%%infer", "%infer tokens?": "tokens"}.items():
        assert shell.transform_cell(typed) == f"get_ipython().run_line_magic('pinfo', '{name}')\n"


# Interpolation.

plain_text = any_text.filter(lambda text: not {"{", "}"} & set(text))
NAMES = ("x", "größe", "_private", "thing", "xs", "table")
FIELDS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "{x}": lambda names: names["x"],
    "{ x\t}": lambda names: names["x"],
    "{größe}": lambda names: names["größe"],
    "{_private}": lambda names: names["_private"],
    "{thing.part}": lambda names: names["thing"].part,
    "{thing.inner.part}": lambda names: names["thing"].inner.part,
    "{xs[0]}": lambda names: names["xs"][0],
    "{xs[-1].part}": lambda names: names["xs"][-1].part,
    "{xs[n]}": lambda names: names["xs"][0],
    "{xs[:1]}": lambda names: names["xs"][:1],
    "{table['key']}": lambda names: names["table"]["key"],
    '{table["a b"][1]}': lambda names: names["table"]["a b"][1],
}
"""What is put in, and what for."""
KEPT = (
    *(
        "{}",
        "{ }",
        "{{x}}",
        "{{ x }}",
        "{{}}",
        "{missing}",
        "{thing.missing}",
        "{xs[9]}",
        "{table['no']}",
        "{table[key]}",
    ),
    *(
        "{x!r}",
        "{x:>8}",
        "{x=}",
        "{x:}",
        "{x + x}",
        "{x, x}",
        "{(x)}",
        "{(thing).part}",
        "{x #1}",
        "{x#}",
        "{x}"[:2],
        "x}",
    ),
    *(
        "{print}",
        "{len(xs)}",
        "{xs.append(1)}",
        "{x if x else x}",
        "{*xs}",
        "{x;x}",
        "{lambda: x}",
        "{'x'}",
        "{1}",
        "{None}",
    ),
    *(
        "{\nx}",
        "{x\n}",
        "{x\\}",
        "{x\0}",
        '{"x": 1}',
        "{x for x in xs}",
        "{await x}",
        "{x:=1}",
        "{" + "x." * 200 + "x}",
    ),
)
"""What stays as it was typed."""


@st.composite
def templates(draw: st.DrawFn) -> tuple[str, str, dict[str, Any]]:
    """Draw a text with fields, what becomes of it, and the variables."""
    values = [draw(any_text), draw(st.sampled_from((*FIELDS, *KEPT))), draw(any_text)]
    inner = SimpleNamespace(part=values[0])
    names: dict[str, Any] = {
        "x": values[1],
        "n": 0,
        "größe": draw(st.integers() | st.floats() | st.none()),
        "_private": values[2],
        "thing": SimpleNamespace(part=values[1] + values[0], inner=inner),
        "xs": [values[0], SimpleNamespace(part=values[1])],
        "table": {"key": values[2], "a b": (0, values[1])},
    }
    typed, result = "", ""
    for piece in draw(
        st.lists(st.one_of(plain_text, st.sampled_from(tuple(FIELDS)), st.sampled_from(KEPT)), max_size=8)
    ):
        # Between two pieces stands a letter: `{` + `{x}` + `}` would be another thing.
        typed += f"{piece}·"
        result += f"{FIELDS[piece](names) if piece in FIELDS else piece}·"
    return typed, result, names


@settings(max_examples=200)
@given(templates())
def test_interpolation_changes_what_it_says_and_nothing_else(template: tuple[str, str, dict[str, Any]]) -> None:
    typed, result, names = template
    assert interpolate(typed, names) == result


@in_a_shell
@given(template=templates())
def test_a_cell_is_interpolated_where_it_was_asked_for(
    asked: Asked, shell: Any, template: tuple[str, str, dict[str, Any]]
) -> None:
    typed, result, names = template
    assume(typed)
    shell.user_ns.update(names)
    assert asked(f"%%infer -i\n{typed}") == result
    assert asked(f"%%infer\n{typed}") == typed


@given(value=any_text)
def test_what_was_put_in_is_not_looked_through_again(value: str) -> None:
    names = {"x": f"{{y}}{value}{{x}}", "y": "no"}
    assert interpolate("{{x}} {x}{x} {y", names) == f"{{{{x}}}} {names['x']}{names['x']} {{y"
    assert interpolate("{{{x}}}", names) == "{{{x}}}"
