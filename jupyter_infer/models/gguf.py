"""Convert a GGUF file of a Llama-family model to a Hugging Face folder, once.

vLLM 0.32 loads no GGUF file. The folder holds bf16 weights (lossless for what the quantisation kept, to bf16's 8 bits),
config, generation config and tokenizer, all from the file itself. It needs neither torch nor transformers.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from jupyter_infer.errors import ModelError
from jupyter_infer.models.cache import Progress, fill
from jupyter_infer.models.folder import check_folder

__all__ = ["CONVERTER_VERSION", "convert_gguf", "write_folder"]

CONVERTER_VERSION = 1
"""Raise it when a change makes another folder of the same file: folders of older versions are then not used."""

_SAMPLE_BYTES = 1 << 16


def convert_gguf(path: Path, *, progress: Progress | None = None) -> Path:
    """Return the folder that the GGUF file `path` converts to, converted now unless it was before.

    Parameters
    ----------
    path
        A ``.gguf`` file whose architecture is ``llama``.
    progress
        Called with the stage, bytes done and bytes in all.

    Raises
    ------
    ModelError
        The file cannot be read or converted, or the disk is full; nothing half-made is left.
    """
    try:
        key = _key(path)
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror or error}") from error
    return fill(key, lambda folder: write_folder(path, folder, progress=progress), check_folder)


def write_folder(path: Path, folder: Path, *, progress: Progress | None = None) -> None:
    """Write the Hugging Face files of the GGUF file `path` into `folder`."""
    from jupyter_infer.models._gguf_config import generation_config, llama_config
    from jupyter_infer.models._gguf_file import read_gguf
    from jupyter_infer.models._gguf_tokenizer import write_tokenizer
    from jupyter_infer.models._gguf_weights import write_weights

    if progress:
        progress("reading", 0, 0)
    file = read_gguf(path)
    try:
        config = llama_config(file)
        write_tokenizer(file, folder)
        _write_json(folder / "config.json", config)
        _write_json(folder / "generation_config.json", generation_config(file))
    except (ModelError, OSError, MemoryError):
        raise
    except Exception as error:
        # The metadata is a stranger's: a value of a wrong type or range surfaces wherever it is first used.
        reason = str(error).strip().split("\n")[0]
        raise ModelError(f"{path.name} cannot be converted: its metadata is damaged ({reason})") from error
    write_weights(file, config, folder / "model.safetensors", progress)


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _key(path: Path) -> str:
    """Return a name that another file, a changed one or another converter does not share.

    The whole content would take a second per gigabyte to hash. Both ends are added to size and time, because fine-tunes
    of one model have the same size, and some archives give every file the same time.
    """
    status = path.stat()
    with path.open("rb") as file:
        head = file.read(_SAMPLE_BYTES)
        file.seek(max(0, status.st_size - _SAMPLE_BYTES))
        ends = hashlib.sha256(head + file.read()).hexdigest()
    about = f"{path.name}\n{status.st_size}\n{status.st_mtime_ns}\n{ends}\n{CONVERTER_VERSION}"
    return f"{path.stem[:80]}-{hashlib.sha256(about.encode()).hexdigest()[:12]}"
