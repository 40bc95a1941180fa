"""A model of two small layers with random weights: a tokenizer or a pool does the same there, and it loads at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jupyter_infer.models import default_model_here, resolve

BOS = "<|endoftext|>"
SETTINGS: dict[str, Any] = {"load_format": "dummy", "kv_cache_memory_bytes": 16 << 20}
"""Engine settings that such a model is loaded with."""


def tiny_model(folder: Path, *, template: bool = True, bos: bool = False) -> str:
    """Write such a model with the default model's tokenizer; return its folder.

    Parameters
    ----------
    folder
        Where to; it is made.
    template
        Whether it has a chat template.
    bos
        Whether the tokenizer puts a token before a text, and the template, too: as Llama 3 and Gemma have it.
    """
    source = resolve(default_model_here()).path
    config, tokenizer, about = (
        json.loads((source / name).read_text()) for name in ("config.json", "tokenizer.json", "tokenizer_config.json")
    )
    config |= {"num_hidden_layers": 2, "hidden_size": 128, "intermediate_size": 256}
    config |= {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 64}
    if bos:
        (number,) = (token["id"] for token in tokenizer["added_tokens"] if token["content"] == BOS)
        first, text = {"SpecialToken": {"id": BOS, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}
        tokenizer["post_processor"] = {
            "type": "TemplateProcessing",
            "single": [first, text],
            "pair": [first, text, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {BOS: {"id": BOS, "ids": [number], "tokens": [BOS]}},
        }
        about |= {"bos_token": BOS, "add_bos_token": True, "chat_template": "{{ bos_token }}" + about["chat_template"]}
    if not template:
        del about["chat_template"]
    folder.mkdir(parents=True)
    for name, value in {"config.json": config, "tokenizer.json": tokenizer, "tokenizer_config.json": about}.items():
        (folder / name).write_text(json.dumps(value))
    (folder / "model.safetensors").write_bytes(b"random weights are read from nowhere")
    return str(folder)
