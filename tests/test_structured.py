from __future__ import annotations

import re
from types import MappingProxyType
from typing import Any

import pytest

from jupyter_infer.errors import ConfigError
from jupyter_infer.structured import FORMS, constraint, value_of

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


class Person:
    """What is asked of a Pydantic model."""

    @staticmethod
    def model_json_schema() -> dict[str, Any]:
        return PERSON


class Unfinished:
    @staticmethod
    def model_json_schema() -> dict[str, Any]:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("given", "plain"),
    [
        ({"json": PERSON}, {"json": PERSON}),
        ({"json": '{"type": "integer"}'}, {"json": {"type": "integer"}}),
        ({"json": Person}, {"json": PERSON}),
        ({"json": MappingProxyType({"maximum": 2**64})}, {"json": {"maximum": 2**64}}),
        ({"json": {"enum": (1, 2)}}, {"json": {"enum": [1, 2]}}),
        ({"regex": r"\d+"}, {"regex": r"\d+"}),
        ({"choice": ("yes", "no")}, {"choice": ["yes", "no"]}),
        ({"choice": ["yes"], "regex": None}, {"choice": ["yes"]}),
        ({"grammar": 'root ::= "a"'}, {"grammar": 'root ::= "a"'}),
        ({"json_object": True}, {"json_object": True}),
    ],
)
def test_a_constraint_is_plain_values(given: Any, plain: Any) -> None:
    assert constraint(given) == plain
    assert constraint(plain) == plain


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("json", "takes a mapping such as {'choice': ['yes', 'no']}, not 'json'"),
        ({}, "takes one of json, regex, choice, grammar, json_object; got none"),
        ({"regex": "a", "choice": ["b"]}, "got regex, choice"),
        ({"schema": {}}, "unknown structured output 'schema'"),
        ({"choices": ["a"]}, "did you mean 'choice'?"),
        ({3: 4}, "unknown structured output 3"),
        ({"choice": []}, "the choices are a list of texts, none of them empty, not []"),
        ({"choice": ["yes", ""]}, "none of them empty"),
        ({"choice": [1, 2]}, "a list of texts"),
        ({"choice": "yes"}, "a list of texts, none of them empty, not 'yes'"),
        ({"choice": ["yes", "\ud800"]}, "half of a character is in the choices"),
        ({"regex": "[\udc00a]"}, "half of a character is in the regex"),
        ({"regex": ""}, "the regex cannot be ''"),
        ({"regex": 3}, "the regex cannot be 3"),
        ({"grammar": ""}, "the grammar cannot be ''"),
        ({"json_object": False}, "the JSON object cannot be False"),
        ({"json": "{nope"}, "the schema is no JSON: Expecting property name"),
        ({"json": {"enum": {1, 2}}}, "the schema is no JSON: Object of type set"),
        ({"json": Unfinished}, "the schema is no JSON: NotImplementedError"),
        ({"json": "[1]"}, "a schema is a JSON object such as {'type': 'integer'}, not '[1]'"),
        ({"json": True}, "a schema is a JSON object"),
        ({"json": {"type": "strin"}}, 'the schema is no JSON schema: "strin" is not valid'),
        ({"json": {"properties": {"a": {"minimum": "x"}}}}, """of type "number", at ['properties']['a']['minimum']"""),
        ({"json": {"pattern": "(["}}, '"([" is not a "regex"'),
        ({"json": {"$ref": "#/$defs/none"}}, "Pointer '/$defs/none' does not exist"),
        ({"json": {"$ref": "http://127.0.0.1:9/a.json"}}, "is not fetched; put it under $defs"),
    ],
)
def test_what_is_no_constraint_is_one_line(given: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(says)) as caught:
        constraint(given)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "wanted", "value"),
    [
        ('{"name": "Ada", "age": 36}', {"json": PERSON}, {"name": "Ada", "age": 36}),
        (" [1, 2]\n", {"json": {"type": "array"}}, [1, 2]),
        ("null", {"json": {"type": "null"}}, None),
        ("yes", {"choice": ["yes", "no"]}, "yes"),
        ("123", {"regex": r"\d+"}, "123"),
        ("a", {"grammar": 'root ::= "a"'}, "a"),
        ('{"a": 1}', {"json_object": True}, {"a": 1}),
    ],
)
def test_an_answer_stands_for_a_value(text: str, wanted: dict[str, Any], value: Any) -> None:
    assert value_of(text, wanted) == value


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('{"name": "Ada", "age": 3', {"json": PERSON}),  # cut
        ('{"name": "Ada"}', {"json": PERSON}),
        ('{"name": "Ada", "age": -1}', {"json": PERSON}),
        ("", {"json": {}}),
        ('"text"', {"json": {"not": {"type": "string"}}}),
        ("[1]", {"json_object": True}),
        ("ye", {"choice": ["yes", "no"]}),
        ("", {"choice": ["yes", "no"]}),
    ],
)
def test_an_answer_that_does_not_fit_has_none(text: str, wanted: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"."):
        value_of(text, wanted)


def test_every_form_has_a_name_for_people() -> None:
    assert set(FORMS) == {"json", "regex", "choice", "grammar", "json_object"}
