"""The tensors of a Llama GGUF file as one bf16 safetensors file with Hugging Face's names, streamed.

Rows are read, dequantised, rounded and written a few megabytes at a time, so the peak of memory does not grow with the
model. One file at any size: sharding serves uploads, and neither vLLM nor the disk needs it.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_infer.errors import ModelError
from jupyter_infer.models.cache import require_space

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from jupyter_infer.models._gguf_file import GgufFile, GgufTensor
    from jupyter_infer.models.cache import Progress

__all__ = ["hugging_face_name", "row_order", "to_bfloat16", "write_weights"]

_CHUNK_ELEMENTS = 1 << 20
_TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_IN_BLOCK = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_NOT_WEIGHTS = {"rope_freqs.weight"}  # the config states them


def hugging_face_name(name: str) -> str | None:
    """Return the Hugging Face name of a Llama tensor in llama.cpp's naming, or None if there is none."""
    if match := re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight", name):
        inner = _IN_BLOCK.get(match[2])
        return inner and f"model.layers.{match[1]}.{inner}.weight"
    outer = _TOP.get(name.removesuffix(".weight"))
    return outer and f"{outer}.weight"


def row_order(name: str, config: dict[str, Any]) -> NDArray[np.int64] | None:
    """Return which row of the file each row of a q or k projection comes from, or None where the order is the same.

    Hugging Face rotates dimension *i* of a head together with *i + d/2*, llama.cpp (and Meta) *2i* with *2i + 1*, and
    llama.cpp's converter moves the rows to suit. This is the inverse of its ``permute``: row ``j·d/2 + i`` of a head is
    row ``2i + j`` in the file. k has its own, smaller number of heads.
    """
    import numpy as np

    if name.endswith(".attn_q.weight"):
        heads = config["num_attention_heads"]
    elif name.endswith(".attn_k.weight"):
        heads = config["num_key_value_heads"]
    else:
        return None
    half = config["head_dim"] // 2
    return np.arange(heads * half * 2).reshape(heads, half, 2).swapaxes(1, 2).reshape(-1)


def to_bfloat16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Return the bits of `values` rounded to bfloat16, to nearest, ties to even, as torch does it."""
    import numpy as np

    bits = values.view(np.uint32)
    rounded = ((bits + (0x7FFF + ((bits >> 16) & 1))) >> 16).astype(np.uint16)
    rounded[np.isnan(values)] = 0x7FC0
    return rounded


def write_weights(file: GgufFile, config: dict[str, Any], path: Path, progress: Progress | None = None) -> None:
    """Write the tensors of `file` to the safetensors file `path`.

    Raises
    ------
    ModelError
        A tensor is missing, unknown, or not of the shape that `config` gives it; or the disk is too small.
    """
    names = _names(file, config)
    total = sum(2 * math.prod(tensor.shape) for tensor in names.values())
    require_space(path.parent, total)
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    done = 0
    for name, tensor in names.items():
        size = 2 * math.prod(tensor.shape)
        header[name] = {"dtype": "BF16", "shape": tensor.shape, "data_offsets": [done, done + size]}
        done += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        done = 0
        for tensor in names.values():
            for chunk in _chunks(file, tensor, config):
                done += out.write(chunk.data)
                if progress:
                    progress("converting", done, total)
        # The folder is renamed into place next, and must not outlive a power cut without its content.
        out.flush()
        os.fsync(out.fileno())


def _chunks(file: GgufFile, tensor: GgufTensor, config: dict[str, Any]) -> Iterator[NDArray[np.uint16]]:
    order = row_order(tensor.name, config)
    step = max(1, _CHUNK_ELEMENTS // tensor.shape[-1])
    for start in range(0, tensor.rows, step):
        yield to_bfloat16(file.rows(tensor, start, min(start + step, tensor.rows), order))


def _names(file: GgufFile, config: dict[str, Any]) -> dict[str, GgufTensor]:
    expected = _shapes(config)
    names: dict[str, GgufTensor] = {}
    for tensor in file.tensors.values():
        if tensor.name in _NOT_WEIGHTS:
            continue
        name = hugging_face_name(tensor.name)
        if name is None or name not in expected:
            raise ModelError(f"{file.path.name} cannot be converted: a Llama has no {tensor.name!r}")
        if tensor.shape != expected[name]:
            shapes = f"{tensor.shape}, and its metadata says {expected[name]}"
            raise ModelError(f"{file.path.name} is damaged: {tensor.name!r} has the shape {shapes}")
        names[name] = tensor
    if missing := [name for name in expected if name not in names]:
        raise ModelError(f"{file.path.name} is damaged: it has no tensor for {missing[0]!r}; download it again")
    return names


def _shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    hidden, middle, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    queries = config["num_attention_heads"] * config["head_dim"]
    keys = config["num_key_value_heads"] * config["head_dim"]
    block = {
        "input_layernorm": (hidden,),
        "self_attn.q_proj": (queries, hidden),
        "self_attn.k_proj": (keys, hidden),
        "self_attn.v_proj": (keys, hidden),
        "self_attn.o_proj": (hidden, queries),
        "post_attention_layernorm": (hidden,),
        "mlp.gate_proj": (middle, hidden),
        "mlp.up_proj": (middle, hidden),
        "mlp.down_proj": (hidden, middle),
    }
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (vocab, hidden), "model.norm.weight": (hidden,)}
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (vocab, hidden)
    for layer in range(config["num_hidden_layers"]):
        shapes |= {f"model.layers.{layer}.{name}.weight": shape for name, shape in block.items()}
    return shapes
