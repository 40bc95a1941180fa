"""Answers in a form that was asked for, and forms that cannot be: refused alone, whatever was asked before."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from conftest import use_session

from jupyter_infer.errors import ConfigError
from jupyter_infer.result import Result
from jupyter_infer.session import Session

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 1, "maximum": 99},
    },
    "required": ["name", "age"],
}
ASK = "Give me a person as JSON, a colour or a number."


def answer(session: Session, form: dict[str, Any], **options: Any) -> Result:
    return session.generate(ASK, **{"max_tokens": 48, "temperature": 0, "structured_outputs": form, **options})


def test_an_answer_fits_its_schema(session: Session) -> None:
    result = answer(session, {"json": PERSON})
    assert result.finish_reason == "stop"
    assert result.parsed == json.loads(result.text)
    assert set(result.parsed) == {"name", "age"}
    assert 1 <= result.parsed["age"] <= 99


def test_an_answer_is_one_of_the_choices(session: Session) -> None:
    result = answer(session, {"choice": ["red", "green", "blue"]}, temperature=1.5, n=4)
    assert result.parsed in ("red", "green", "blue")
    assert set(result.texts) <= {"red", "green", "blue"}


def test_the_whole_answer_matches_the_regex(session: Session) -> None:
    result = answer(session, {"regex": r"[A-Z]{2}-\d{3}"}, temperature=1.5)
    assert result.text == result.parsed
    assert (result.text[2], result.text[:2].isupper(), result.text[3:].isdigit(), len(result.text)) == (
        *("-", True, True),
        6,
    )


def test_a_cut_answer_has_no_value(session: Session) -> None:
    result = answer(session, {"json": PERSON}, max_tokens=4)
    assert (result.finish_reason, result.parsed) == ("length", None)
    assert "truncated at --max-tokens 4" in result.status


# Each is refused for what it is; none may be an answer that is empty and calls itself finished.
REFUSED = [
    ({"regex": "(["}, "Unclosed '\\['"),
    ({"regex": "(?=a)b"}, "Lookahead"),
    ({"regex": r"(a)\1"}, "Backreference"),
    ({"regex": r"[^\s\S]"}, "can write nothing that fits the regex"),
    ({"regex": "a\0b"}, "NUL"),
    ({"json": {"type": "strin"}}, "no JSON schema"),
    ({"json": {"type": "string", "minLength": 5, "maxLength": 2}}, "minLength 5 is greater"),
    ({"json": {"enum": []}}, "must not be empty"),
    ({"json": {"type": "integer", "multipleOf": 7}}, "not supported by xgrammar"),
    ({"json": {"$ref": "#/$defs/none"}}, "does not exist"),
    ({"json": json.loads('{"items":' * 70 + "{}" + "}" * 70)}, "nested too deep"),
    ({"grammar": 'root ::= "a'}, "Invalid grammar"),
    ({"grammar": "root ::= other"}, "Invalid grammar"),
    ({"choice": []}, "a list of texts"),
]
FINE = [
    ({"json": {"enum": [17, 18]}}, int),
    ({"regex": r"\d{2}"}, str),
    ({"choice": ["yes", "no"]}, str),
    ({"grammar": 'root ::= "a" | "b"'}, str),
]


@pytest.mark.parametrize("index", range(2))
def test_what_was_asked_before_changes_nothing(session: Session, index: int) -> None:
    """In both orders of a fresh engine: there is one grammar backend, and its first user must not choose for others."""
    session.unload()
    orders = [itertools.cycle(FINE), itertools.cycle(reversed(FINE))]
    fine = orders[index]
    for form, says in REFUSED if index else reversed(REFUSED):
        with pytest.raises(ConfigError, match=says) as caught:
            answer(session, form)
        assert "\n" not in str(caught.value)
        kept, kind = next(fine)
        result = answer(session, kept)
        assert (result.finish_reason, type(result.parsed)) == ("stop", kind)
    status = session.status()
    assert (status.open_requests, status.kv_blocks_free) == (0, session.info.kv_blocks_total)  # type: ignore[union-attr]


def test_a_form_that_cannot_be_harms_nobody_who_runs_beside_it(session: Session) -> None:
    beside = session.submit("Count to one hundred.", max_tokens=40, ignore_eos=True)
    next(iter(beside))
    for form in ({"regex": r"[^\s\S]"}, {"regex": "(["}):
        with pytest.raises(ConfigError):
            answer(session, form)
    assert beside.record(60).output_tokens == 40


def test_a_cell_asks_for_a_form(session: Session, plain_shell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    use_session(session, monkeypatch)
    plain_shell.run_line_magic("load_ext", "jupyter_infer")
    plain_shell.user_ns["person"] = PERSON
    for line, kind in (("--schema person", dict), ("--choice yes --choice no", str), (r"--regex \d{4}", str)):
        outcome = plain_shell.run_cell(f"%%infer -t 0 --max-tokens 48 {line}\n{ASK}")
        assert isinstance(outcome.result.parsed, kind)
    outcome = plain_shell.run_cell(f"%%infer --regex ([\n{ASK}")
    assert isinstance(outcome.error_in_exec, ConfigError)


# What a form forces the model to write shows what the engine does to text on its way.

HARD = (
    "👩‍👩‍👧‍👦 flag 🇩🇪 é e\u0301 ﷽ \u202eright\u202c to left שלום",
    "tab\tnewline\nreturn\rescape\x1b[31m bell\x07 nul-like \x7f",
    "<|im_end|> </script> {x} $5 \\n ` ``` ",
    "🚲" * 9,
)


@pytest.mark.parametrize("text", HARD)
def test_text_comes_through_in_deltas_as_the_model_wrote_it(session: Session, text: str) -> None:
    handle = session.submit(ASK, max_tokens=120, temperature=0, structured_outputs={"choice": [text]})
    shown = list(itertools.accumulate(event.text for event in handle))
    assert shown[-1] == text
    assert all(text.startswith(state) for state in shown)  # no half of a character is ever there


@pytest.mark.parametrize("tokens", range(1, 9))
def test_an_answer_that_is_cut_in_a_character_has_whole_characters(session: Session, tokens: int) -> None:
    result = answer(session, {"choice": ["🚲" * 9]}, max_tokens=tokens)
    assert result.usage.output_tokens == tokens
    assert set(result.text) <= {"🚲"}


@pytest.mark.parametrize(
    ("stop", "text"),
    [
        ("Wed Thu", "Mon Tue "),
        (["Fri", "ue"], "Mon T"),
        ("Thu Sat", "Mon Tue Wed Thu Fri"),
        ("M", ""),
        ("Fri", "Mon Tue Wed Thu "),
    ],
)
def test_no_part_of_a_stop_string_is_ever_shown(session: Session, stop: str | list[str], text: str) -> None:
    days = "Mon Tue Wed Thu Fri"
    handle = session.submit(ASK, max_tokens=40, temperature=0, stop=stop, structured_outputs={"choice": [days]})
    shown = list(itertools.accumulate(event.text for event in handle))
    assert shown[-1] == text
    assert all(text.startswith(state) for state in shown)
    result = session.result(handle)
    assert result.finish_reason == "stop"
    first = next(event for event in result.record.samples[0].events if event.token_ids)
    assert result.record.first_token_ns == first.time_ns  # the first token, though its text may be held back
