"""The quality benchmark: its figures from given scores, its text, and its process; no model."""

from __future__ import annotations

import math
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from jupyter_infer import cli
from jupyter_infer.bench import quality
from jupyter_infer.bench.quality import measure_quality, quality_of, quality_text, sample_text
from jupyter_infer.errors import EngineFailed
from jupyter_infer.models import ResolvedModel

SCORES = {
    "bf16": {"logprobs": [math.log(0.5)] * 4, "best": [1, 2, 3, 4]},
    "int8": {"logprobs": [math.log(0.25), math.log(0.25), 0.0, 0.0], "best": [1, 2, 9, 4]},
}
MODEL = ResolvedModel("tiny", Path("/nowhere"), "folder", 100)


def test_perplexity_is_the_geometric_mean_and_agreement_a_share() -> None:
    found = quality_of(SCORES)
    assert found == {
        "tokens": 4,
        "bf16": {"perplexity": pytest.approx(2.0)},
        "int8": {"perplexity": pytest.approx(2.0), "agreement": 0.75},
    }


def test_the_table_says_both() -> None:
    text = quality_text({"model": "tiny", **quality_of(SCORES)})
    assert "tiny, 4 tokens of one text" in text
    (row,) = (line for line in text.splitlines() if "int8" in line)
    assert row.split() == ["int8", "2.000", "+0.0%", "75.0%"]


def test_the_text_comes_with_the_package() -> None:
    text = sample_text()
    assert 3000 < len(text) < 6000
    assert "def " in text
    assert text.isprintable() or "\n" in text


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ResolvedModel, dict[str, Any]]]:
    """What was loaded; no process is started."""
    loads: list[tuple[str, ResolvedModel, dict[str, Any]]] = []

    def scores(name: str, model: ResolvedModel, settings: dict[str, Any]) -> quality.Scores:
        loads.append((name, model, settings))
        return SCORES["int8" if model.bits else "bf16"]

    monkeypatch.setattr(quality, "_scores", scores)
    monkeypatch.setattr(quality, "resolve", lambda name: MODEL)
    monkeypatch.setattr(quality, "quantized", lambda model, bits: ResolvedModel("tiny", model.path, "folder", 60, bits))
    return loads


def test_each_precision_is_loaded_once(asked: Any) -> None:
    said: list[str] = []
    found = measure_quality(model="tiny", bits=[8, 8], say=said.append)
    assert [(name, model.bits, settings) for name, model, settings in asked] == [
        ("bf16", None, {"dtype": "bfloat16"}),
        ("float32", None, {"dtype": "float32"}),
        ("int8", 8, {}),
    ]
    assert found["float32"]["agreement"] == 1.0
    assert list(found) == ["model", "tokens", "bf16", "float32", "int8"]
    assert said[0] == "int8: the copy"


def test_the_command_prints_one_object(asked: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "quality", "--bits", "8", "--json"]) == 0
    out, err = capsys.readouterr()
    assert out.count("\n") == 1
    assert out.startswith('{"model": "tiny", "tokens": 4, "bf16": {')
    assert "reading the text" in err


def test_a_process_that_cannot_load_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    with pytest.raises(EngineFailed, match=r"^int8 ended with status 1$"):
        quality._scores("int8", MODEL, {})
