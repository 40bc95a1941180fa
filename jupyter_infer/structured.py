"""Structured outputs: what an answer must look like, and the value that it stands for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from jupyter_infer.errors import ConfigError, nearest

__all__ = ["FORMS", "constraint", "value_of"]

FORMS = {"json": "schema", "regex": "regex", "choice": "choices", "grammar": "grammar", "json_object": "JSON object"}
"""vLLM's kinds of structured output, and what people call each."""


def constraint(given: Any) -> dict[str, Any]:
    """Return a constraint with everything checked that can be checked without an engine.

    Parameters
    ----------
    given
        A mapping with one of `FORMS`: ``{"json": …}`` with a JSON schema as a mapping, as JSON text or as a Pydantic
        model; ``{"regex": "…"}``, which the whole answer has to match; ``{"choice": ["yes", "no"]}``; ``{"grammar":
        "…"}`` in EBNF; ``{"json_object": True}``.

    Returns
    -------
    dict
        The same as plain values, which survive a JSON round trip.

    Raises
    ------
    ConfigError
        If it is none of these, or the schema is none.
    """
    if not isinstance(given, Mapping):
        raise ConfigError(f"structured_outputs takes a mapping such as {{'choice': ['yes', 'no']}}, not {given!r:.60}")
    wanted = {kind: value for kind, value in given.items() if value is not None}
    for kind in wanted:
        if kind not in FORMS:
            raise ConfigError(f"unknown structured output {kind!r}{nearest(str(kind), FORMS)}")
    if len(wanted) != 1:
        raise ConfigError(f"structured_outputs takes one of {', '.join(FORMS)}; got {', '.join(wanted) or 'none'}")
    [(kind, value)] = wanted.items()
    checked = _checked(kind, value)
    try:
        json.dumps(checked, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ConfigError(f"half of a character is in the {FORMS[kind]}, and in no answer") from None
    return checked


def _checked(kind: str, value: Any) -> dict[str, Any]:
    """Return a constraint of one kind as plain values."""
    match kind, value:
        case "json", _:
            return {"json": _schema(value)}
        case "choice", [_, *_] if all(isinstance(choice, str) and choice for choice in value):
            return {"choice": list(value)}
        case "choice", _:
            raise ConfigError(f"the choices are a list of texts, none of them empty, not {value!r:.60}")
        case "json_object", True:
            return {"json_object": True}
        case (("regex" | "grammar"), str()) if value:
            return {kind: value}
    raise ConfigError(f"the {FORMS[kind]} cannot be {value!r:.60}")


def value_of(text: str, wanted: Mapping[str, Any], *, cut: bool = False) -> Any:
    """Return the value that an answer stands for: what its JSON says, or the text itself.

    Parameters
    ----------
    text
        The answer.
    wanted
        What `constraint` made of what was asked for.
    cut
        Whether the answer did not end by itself. Then only what cannot go on is a value: JSON that is closed, and a
        choice that begins no other.

    Raises
    ------
    ValueError
        If the answer does not fit, or may be a part of one. A regex and a grammar are the engine's to heed and are not
        checked again.
    """
    if "choice" in wanted:
        others = [choice for choice in wanted["choice"] if choice.startswith(text) and choice != text]
        if text not in wanted["choice"] or (cut and others):
            raise ValueError("it is none of the choices")
        return text
    if not ("json" in wanted or "json_object" in wanted):
        if cut:
            raise ValueError("only the engine knows whether it matches")
        return text
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if cut and isinstance(value, int | float) and not isinstance(value, bool):
        raise ValueError("digits may be missing")
    if "json" in wanted:
        _validator(wanted["json"]).validate(value)
    elif not isinstance(value, dict):
        raise ValueError("it is no JSON object")
    return value


def _schema(given: Any) -> dict[str, Any]:
    """Return a JSON schema as the mapping that it is."""
    schema = given
    try:
        if callable(getattr(schema, "model_json_schema", None)):  # a Pydantic model
            schema = schema.model_json_schema()
        if isinstance(schema, Mapping):
            schema = dict(schema)
        schema = json.loads(schema if isinstance(schema, str) else json.dumps(schema))
    except Exception as error:  # a model's own code, too
        why = f"{error}".splitlines() or [type(error).__name__]
        raise ConfigError(f"the schema is no JSON: {why[0]}") from None
    if not isinstance(schema, dict):
        raise ConfigError(f"a schema is a JSON object such as {{'type': 'integer'}}, not {given!r:.60}")
    try:
        _validator(schema)
    except ValueError as error:
        line = str(getattr(error, "message", error)).splitlines()[0]
        path = "".join(f"[{step!r}]" for step in getattr(error, "instance_path", ()))
        raise ConfigError(f"the schema is no JSON schema: {line[:200]}{path and f', at {path}'}") from None
    return schema


def _validator(schema: dict[str, Any]) -> Any:
    """Return what checks a value; what a schema refers to outside of itself is not fetched."""
    from jsonschema_rs import validator_for

    def refuse(uri: str) -> Any:
        raise ValueError(f"{uri} is not fetched; put it under $defs")

    return validator_for(schema, retriever=refuse)
