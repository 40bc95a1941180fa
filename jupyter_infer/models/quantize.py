"""Int8 copies of a model's folder, made once by rounding to nearest.

Each row of a linear layer becomes whole numbers from -127 to 127 and a scale; the inputs of such a layer are rounded,
token by token, as it runs. The output layer is one of them. Where it is the embedding, too, the copy holds both: all of
it is read for every token, and one row of the embedding. Embeddings and norms stay as they are. The folder is in the
format of compressed-tensors (``int-quantized``), which vLLM reads. To make it takes no torch and no calibration text.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from jupyter_infer.errors import ModelError
from jupyter_infer.models._quant_files import StoredTensor, read_tensors
from jupyter_infer.models._quant_weights import write_quantized
from jupyter_infer.models.cache import Progress, fill
from jupyter_infer.models.folder import check_folder, weight_files
from jupyter_infer.models.resolve import ResolvedModel

__all__ = ["BITS", "QUANTIZER_VERSION", "quantized"]

BITS = (8,)
"""The widths that `quantized` makes."""

QUANTIZER_VERSION = 1
"""Raise it when a change makes another copy of the same model: copies of older versions are then not used."""

_FAMILY = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
_ATTENTION = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj")
_LINEAR = (*_ATTENTION, "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
_EMBEDDING, _HEAD = "model.embed_tokens.weight", "lm_head.weight"
_MULTIPLE = 16  # of the sides of a matrix: what the kernels of all devices take; vLLM fills up the vocabulary itself
_COPIED = {".json", ".jinja", ".model", ".txt", ".tiktoken"}
_INSTEAD = "load it without --bits"
_SAMPLE_BYTES = 1 << 16


def quantized(model: ResolvedModel, bits: int, *, progress: Progress | None = None) -> ResolvedModel:
    """Return a copy of `model` with weights of so many bits, made first unless it is there.

    Parameters
    ----------
    model
        A model of the Llama family (Llama, Mistral, Qwen 2 and 3, SmolLM2) with safetensors files of 16 or 32 bits.
    bits
        One of `BITS`.
    progress
        Called with the stage, bytes done and bytes in all.

    Returns
    -------
    ResolvedModel
        Of the same name and source, with the copy's folder and bytes.

    Raises
    ------
    ModelError
        The model is not one that can be rounded, or the disk is full; nothing half-made is left.
    """
    if bits not in BITS:
        raise ModelError(f"no copy of {bits} bits; bits are {' or '.join(map(str, BITS))}")
    try:
        config = json.loads((model.path / "config.json").read_text(encoding="utf-8"))
        _check_config(model.name, config)
        key = _key(model, bits)
        folder = fill(key, lambda place: _write(model, config, bits, place, progress), check_folder)
        return replace(model, path=folder, weight_bytes=check_folder(folder), bits=bits, kept_bytes=_kept(folder))
    except OSError as error:
        raise ModelError(f"cannot read {model.path}: {error.strerror or error}") from error


def _check_config(name: str, config: Mapping[str, Any]) -> None:
    if config.get("quantization_config"):
        raise ModelError(f"{name} is quantised already; {_INSTEAD}")
    architecture = (config.get("architectures") or ["model of no known architecture"])[0]
    if architecture not in _FAMILY:
        family = ", ".join(known.removesuffix("ForCausalLM") for known in _FAMILY)
        raise ModelError(f"{name} is a {architecture}, and only {family} can be quantised here; {_INSTEAD}")


def _write(model: ResolvedModel, config: dict[str, Any], bits: int, folder: Path, progress: Progress | None) -> None:
    if progress:
        progress("reading", 0, 0)
    tensors = read_tensors(weight_files(model.path))
    rounded = _rounded(model.name, tensors, config)
    for path in _small_files(model.path):
        shutil.copyfile(path, folder / path.name)
    write_quantized(tensors, rounded, folder / "model.safetensors", progress)
    changed = {"tie_word_embeddings": False, "quantization_config": _about(bits)}
    (folder / "config.json").write_text(json.dumps({**config, **changed}, indent=2) + "\n", encoding="utf-8")


def _rounded(name: str, tensors: Mapping[str, StoredTensor], config: Mapping[str, Any]) -> dict[str, str]:
    """Return which tensors of the copy are rounded, and from which each is made."""
    layers = range(int(config.get("num_hidden_layers", 0)))
    linear = [f"model.layers.{layer}.{inner}.weight" for layer in layers for inner in _LINEAR]
    if missing := [tensor for tensor in (_EMBEDDING, *linear) if tensor not in tensors]:
        raise ModelError(f"{name} cannot be quantised: it has no {missing[0]!r}; {_INSTEAD}")
    tied = _HEAD not in tensors or config.get("tie_word_embeddings", False)
    rounded = {tensor: tensor for tensor in linear} | {_HEAD: _EMBEDDING if tied else _HEAD}
    known = {*rounded, _EMBEDDING}
    for tensor in tensors.values():
        if tensor.name not in known and len(tensor.shape) > 1:
            raise ModelError(f"{name} cannot be quantised: {tensor.name!r} is no layer of a Llama; {_INSTEAD}")
    for made, source in rounded.items():
        tensor = tensors[source]
        if not tensor.is_float or len(tensor.shape) != 2:
            raise ModelError(f"{name} cannot be quantised: {source!r} is {tensor.dtype} {tensor.shape}; {_INSTEAD}")
        if tensor.shape[1] % _MULTIPLE or (made != _HEAD and tensor.shape[0] % _MULTIPLE):
            sides = f"{tensor.shape[0]} × {tensor.shape[1]}, not multiples of {_MULTIPLE}"
            raise ModelError(f"{name} cannot be quantised: {source!r} is {sides}; {_INSTEAD}")
    return rounded


def _about(bits: int) -> dict[str, Any]:
    rounded = {"num_bits": bits, "type": "int", "symmetric": True}
    return {
        "quant_method": "compressed-tensors",
        "format": "int-quantized",
        "quantization_status": "compressed",
        "config_groups": {
            "group_0": {
                "targets": ["Linear", "lm_head"],
                "weights": {**rounded, "strategy": "channel", "dynamic": False},
                "input_activations": {**rounded, "strategy": "token", "dynamic": True},
            }
        },
        "ignore": [],
    }


def _kept(folder: Path) -> int:
    tensors = read_tensors(weight_files(folder))
    scales = {f"{name}_scale" for name, tensor in tensors.items() if not tensor.is_float}
    return sum(tensor.size for name, tensor in tensors.items() if tensor.is_float and name not in scales)


def _small_files(folder: Path) -> list[Path]:
    """Return the files that go with the weights: tokenizer, chat template, generation config, licence."""
    files = [path for path in sorted(folder.iterdir()) if path.is_file() and not path.name.endswith(".index.json")]
    return [path for path in files if path.suffix in _COPIED or path.name.startswith(("LICENSE", "NOTICE"))]


def _key(model: ResolvedModel, bits: int) -> str:
    """Return a name that a copy of another model, of a changed one or by another version does not share.

    Of the weights it takes place, size, time and both ends, as for a GGUF file; of the small files the content.
    """
    about = hashlib.sha256(f"{model.path.resolve()}\n{bits}\n{QUANTIZER_VERSION}\n".encode())
    for path in weight_files(model.path):
        status = path.stat()
        about.update(f"{path.name}\n{status.st_size}\n{status.st_mtime_ns}\n".encode())
        with path.open("rb") as file:
            about.update(file.read(_SAMPLE_BYTES))
            file.seek(max(0, status.st_size - _SAMPLE_BYTES))
            about.update(file.read())
    for path in _small_files(model.path):
        about.update(path.name.encode() + path.read_bytes())
    stem = re.sub(r"[^\w.-]+", "-", model.name)[:80]
    return f"{stem}-int{bits}-{about.hexdigest()[:12]}"
