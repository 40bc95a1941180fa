from __future__ import annotations

import json
from pathlib import Path

import pytest

from jupyter_infer.errors import ModelError
from jupyter_infer.models import check_folder


def test_bytes_of_the_weights(model_folder: Path) -> None:
    assert check_folder(model_folder) == 100


def test_consolidated_copies_are_not_counted(model_folder: Path) -> None:
    (model_folder / "consolidated.safetensors").write_bytes(b"x" * 100)
    assert check_folder(model_folder) == 100


def test_pytorch_weights_are_accepted_where_there_are_no_others(model_folder: Path) -> None:
    (model_folder / "model.safetensors").rename(model_folder / "pytorch_model.bin")
    assert check_folder(model_folder) == 100


def test_shards_are_those_of_the_index(model_folder: Path) -> None:
    (model_folder / "model.safetensors").unlink()
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors", "c": "model-2.safetensors"}}
    (model_folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (model_folder / "model-1.safetensors").write_bytes(b"x" * 7)
    with pytest.raises(ModelError, match=r"model-2\.safetensors is missing"):
        check_folder(model_folder)
    (model_folder / "model-2.safetensors").write_bytes(b"x" * 8)
    assert check_folder(model_folder) == 15
    (model_folder / "model.safetensors.index.json").write_text("{}")
    with pytest.raises(ModelError, match="names no weight files"):
        check_folder(model_folder)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("config.json", r"config\.json is missing"),
        ("tokenizer.json", "tokenizer is missing"),
        ("model.safetensors", "weights are missing"),
    ],
)
def test_a_missing_file_is_named(model_folder: Path, name: str, message: str) -> None:
    (model_folder / name).unlink()
    with pytest.raises(ModelError, match=message):
        check_folder(model_folder)


@pytest.mark.parametrize("content", ["{", "[]"])
def test_a_config_that_is_no_object(model_folder: Path, content: str) -> None:
    (model_folder / "config.json").write_text(content)
    with pytest.raises(ModelError, match=r"cannot read .*config\.json"):
        check_folder(model_folder)


def test_empty_weights(model_folder: Path) -> None:
    (model_folder / "model.safetensors").write_bytes(b"")
    with pytest.raises(ModelError, match=r"model\.safetensors is empty"):
        check_folder(model_folder)


def test_a_folder_of_gguf_files_says_what_to_give(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    with pytest.raises(ModelError, match=r"give its GGUF file instead: .*model\.gguf"):
        check_folder(tmp_path)
