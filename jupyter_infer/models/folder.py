"""Check that a folder is a whole model in the Hugging Face layout: config, weights, tokenizer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jupyter_infer.errors import ModelError

__all__ = ["check_folder", "weight_files"]

_INDEX = "model.safetensors.index.json"
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "tekken.json", "vocab.json", "vocab.txt", "spiece.model")


def check_folder(folder: Path) -> int:
    """Return the bytes of the weight files in `folder`.

    Raises
    ------
    ModelError
        A file is missing or cannot be parsed; the message names it.
    """
    if not (folder / "config.json").is_file():
        ggufs = sorted(folder.glob("*.gguf"))
        hint = f"; give its GGUF file instead: {ggufs[0]}" if ggufs else ""
        raise ModelError(f"no model in {folder}: config.json is missing{hint}")
    _read_json(folder / "config.json")
    if not any((folder / name).is_file() for name in _TOKENIZERS):
        raise ModelError(f"no whole model in {folder}: its tokenizer is missing (tokenizer.json or tokenizer.model)")
    return sum(path.stat().st_size for path in weight_files(folder))


def weight_files(folder: Path) -> list[Path]:
    """Return the weight files of `folder`; raise a `ModelError` as `check_folder` does."""
    if (folder / _INDEX).is_file():
        try:
            names = sorted(set(_read_json(folder / _INDEX)["weight_map"].values()))
        except (KeyError, AttributeError, TypeError) as error:
            raise ModelError(f"{folder / _INDEX} names no weight files; download the model again") from error
        for name in names:
            if not (folder / name).is_file():
                raise ModelError(f"no whole model in {folder}: {name} is missing; download it again")
        return [folder / name for name in names]
    # Mistral's repositories hold the same weights twice; vLLM reads the Hugging Face files.
    files = [path for path in sorted(folder.glob("*.safetensors")) if not path.name.startswith("consolidated")]
    files = files or sorted(folder.glob("*.safetensors")) or sorted(folder.glob("pytorch_model*.bin"))
    if not files:
        raise ModelError(f"no whole model in {folder}: its weights are missing (model.safetensors)")
    if empty := [path.name for path in files if path.stat().st_size == 0]:
        raise ModelError(f"no whole model in {folder}: {empty[0]} is empty; download it again")
    return files


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"cannot read {path}: it is not JSON; download the model again") from error
    if not isinstance(content, dict):
        raise ModelError(f"cannot read {path}: it is not a JSON object; download the model again")
    return content
