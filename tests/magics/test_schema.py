from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from jupyter_infer.errors import ConfigError
from jupyter_infer.magics.schema import schema_in

INTEGER = {"type": "integer"}


class Model:
    @staticmethod
    def model_json_schema() -> dict[str, Any]:
        return INTEGER


def test_a_variable_is_a_schema() -> None:
    names = {"plain": INTEGER, "text": '{"type": "integer"}', "model": Model}
    assert [schema_in(name, names) for name in names] == [INTEGER, '{"type": "integer"}', Model]


def test_a_file_is_a_schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a b.json").write_text(json.dumps(INTEGER))
    assert schema_in(str(tmp_path / "a b.json"), {}) == INTEGER
    monkeypatch.chdir(tmp_path)
    assert schema_in("a b.json", {}) == INTEGER
    (tmp_path / "bom.json").write_text("\ufeff" + json.dumps(INTEGER), encoding="utf-8")
    assert schema_in("bom.json", {}) == INTEGER
    monkeypatch.setenv("HOME", str(tmp_path))
    assert schema_in("~/a b.json", {}) == INTEGER


def test_a_variable_goes_before_a_file_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("person").write_text('{"type": "string"}')
    assert schema_in("person", {"person": INTEGER}) == INTEGER


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("", "takes the name of a variable or of a file"),
        ("{folder}/deep.json", "is nested too deeply"),
        ("perso", "there is no variable and no file 'perso'; did you mean 'person'?"),
        ("number", "number is no mapping, JSON text or Pydantic model, but of type int"),
        ("Path", "of type type"),
        ("{folder}", "cannot be read: Is a directory"),
        ("{folder}/bad.json", "is no JSON file: Expecting value"),
        ("{folder}/latin.json", "is no JSON file: 'utf-8' codec"),
        ("a\0b", "is no JSON file: "),
        ("~nobody-of-this-name/x", "cannot be read: "),
        ('{{"type": "integer"}}', "there is no variable and no file"),
    ],
)
def test_what_is_no_schema_is_one_line(tmp_path: Path, name: str, says: str) -> None:
    (tmp_path / "bad.json").write_text("nope")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    (tmp_path / "latin.json").write_bytes(b'"\xe9"')
    with pytest.raises(ConfigError, match=re.escape(says)) as caught:
        schema_in(name.format(folder=tmp_path), {"person": INTEGER, "number": 3, "Path": Path})
    assert "\n" not in str(caught.value)
