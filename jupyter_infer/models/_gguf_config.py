"""A GGUF file's metadata as the ``config.json`` of a Hugging Face Llama, or one line that says what does not map."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from jupyter_infer.errors import ModelError

if TYPE_CHECKING:
    from jupyter_infer.models._gguf_file import GgufFile

__all__ = ["generation_config", "llama_config"]

# Each changes what the model computes and has no place in a LlamaConfig, unless it has this value.
_NEUTRAL = {
    "expert_count": 0,
    "attention.sliding_window": 0,
    "attention.scale": 0,
    "attention.clamp_kqv": 0,
    "attention.causal": True,
    "use_parallel_residual": False,
    "logit_scale": 0,
    "embedding_scale": 0,
    "residual_scale": 0,
    "rope.scale_linear": 1,
}
_REQUIRED = object()


def llama_config(file: GgufFile) -> dict[str, Any]:
    """Return the `LlamaConfig` fields that `file` states.

    Raises
    ------
    ModelError
        The architecture is not Llama, a field is missing, or a setting has no counterpart in a Hugging Face Llama.
    """
    name, metadata = file.path.name, file.metadata
    architecture = metadata.get("general.architecture")
    if architecture != "llama":
        raise ModelError(f"{name} is of the architecture {architecture!r}; only GGUF files of 'llama' can be converted")
    if metadata.get("split.count", 1) > 1:
        raise ModelError(f"{name} is one of {metadata['split.count']} parts; merge them with llama-gguf-split first")

    def read(key: str, default: Any = _REQUIRED) -> Any:
        value = metadata.get(f"llama.{key}", default)
        if value is _REQUIRED:
            raise ModelError(f"{name} cannot be converted: its metadata has no llama.{key}")
        if isinstance(value, list):
            if len(set(value)) != 1:
                raise ModelError(f"{name} cannot be converted: llama.{key} differs from layer to layer")
            return value[0]
        return value

    for key, neutral in _NEUTRAL.items():
        if (value := read(key, neutral)) != neutral:
            raise ModelError(f"{name} cannot be converted: llama.{key} is {value}, which a Llama config cannot state")
    heads, hidden = read("attention.head_count"), read("embedding_length")
    head_dim = read("attention.key_length", hidden // heads)
    for key in ("attention.value_length", "rope.dimension_count"):
        if (value := read(key, head_dim)) != head_dim:
            raise ModelError(f"{name} cannot be converted: llama.{key} is {value} and the heads have {head_dim}")
    embedding = file.tensors.get("token_embd.weight")
    config: dict[str, Any] = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": hidden,
        "intermediate_size": read("feed_forward_length"),
        "num_hidden_layers": read("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": read("attention.head_count_kv", heads),
        "head_dim": head_dim,
        "max_position_embeddings": read("context_length"),
        "rms_norm_eps": read("attention.layer_norm_rms_epsilon"),
        "rope_theta": read("rope.freq_base", 10000.0),
        # A padded embedding has more rows than there are tokens, and the rows are what counts.
        "vocab_size": embedding.shape[0] if embedding else read("vocab_size"),
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "attention_bias": False,
        "mlp_bias": False,
        "torch_dtype": "bfloat16",
        **_token_ids(metadata),
    }
    if scaling := _rope_scaling(file, config):
        config["rope_scaling"] = scaling
    return config


def generation_config(file: GgufFile) -> dict[str, Any]:
    """Return ``generation_config.json``: the ids that begin, pad and end a text (also those that end a turn)."""
    config = _token_ids(file.metadata)
    ends = [file.metadata.get(f"tokenizer.ggml.{kind}_token_id") for kind in ("eos", "eot", "eom")]
    distinct = list(dict.fromkeys(token for token in ends if token is not None))
    if len(distinct) > 1:
        config["eos_token_id"] = distinct
    return config


def _token_ids(metadata: dict[str, Any]) -> dict[str, Any]:
    names = {"bos_token_id": "bos", "eos_token_id": "eos", "pad_token_id": "padding"}
    return {field: metadata.get(f"tokenizer.ggml.{key}_token_id") for field, key in names.items()}


def _rope_scaling(file: GgufFile, config: dict[str, Any]) -> dict[str, Any] | None:
    metadata = file.metadata
    kind, factor = metadata.get("llama.rope.scaling.type", "none"), metadata.get("llama.rope.scaling.factor")
    if "rope_freqs.weight" in file.tensors:
        if kind != "none":
            raise ModelError(f"{file.path.name} cannot be converted: it states {kind!r} rope scaling and rope factors")
        return _llama3_scaling(file, config)
    if kind == "none":
        return None
    original = metadata.get("llama.rope.scaling.original_context_length")
    if kind == "linear" and factor:
        return {"rope_type": "linear", "factor": factor}
    if kind == "yarn" and factor and original:
        scaling = {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": original}
        attention = metadata.get("llama.rope.scaling.attn_factor")
        return scaling | ({"attention_factor": attention} if attention else {})
    raise ModelError(f"{file.path.name} cannot be converted: its rope scaling ({kind!r}) has no counterpart")


def _llama3_scaling(file: GgufFile, config: dict[str, Any]) -> dict[str, Any] | None:
    """Return the Llama 3 rope scaling whose factors the file holds as a tensor instead of stating its parameters.

    llama.cpp divides each frequency by its factor; the factors follow from `factor` and three constants that every
    Llama 3.x shares, so they are computed again and compared.
    """
    tensor = file.tensors["rope_freqs.weight"]
    found = [float(value) for value in file.rows(tensor, 0, tensor.rows, None).reshape(-1)]
    if all(value == 1 for value in found):
        return None
    low, high, original, factor = 1.0, 4.0, 8192, max(found)
    for i, value in enumerate(found):
        wavelength = 2 * math.pi * config["rope_theta"] ** (2 * i / config["head_dim"])
        blend = min(max((original / wavelength - low) / (high - low), 0.0), 1.0)
        if not math.isclose(value, 1 / ((1 - blend) / factor + blend), rel_tol=1e-3):
            raise ModelError(f"{file.path.name} cannot be converted: its rope factors are not those of Llama 3")
    return {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": low,
        "high_freq_factor": high,
        "original_max_position_embeddings": original,
    }
