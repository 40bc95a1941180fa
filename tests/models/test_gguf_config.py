from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jupyter_infer.errors import ModelError
from jupyter_infer.models._gguf_config import generation_config, llama_config
from jupyter_infer.models._gguf_file import read_gguf

from .conftest import HEAD_DIM, HEADS, write_gguf


def config(tmp_path: Path, metadata: dict[str, Any], **tensors: Any) -> dict[str, Any]:
    return llama_config(read_gguf(write_gguf(tmp_path / "m.gguf", metadata=metadata, tensors=tensors)))


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"llama.block_count": None}, r"no llama\.block_count"),
        ({"llama.expert_count": 8}, r"llama\.expert_count is 8"),
        ({"llama.attention.sliding_window": 4096}, "sliding_window is 4096"),
        ({"llama.logit_scale": 0.5}, "logit_scale"),
        ({"llama.rope.dimension_count": 4}, "dimension_count is 4 and the heads have 8"),
        ({"llama.attention.value_length": 16}, "value_length is 16"),
        ({"llama.attention.head_count_kv": [1, 2]}, "differs from layer to layer"),
        ({"llama.rope.scaling.type": "longrope", "llama.rope.scaling.factor": 2.0}, r"rope scaling \('longrope'\)"),
        ({"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 2.0}, r"rope scaling \('yarn'\)"),
        ({"split.count": 3}, "one of 3 parts"),
    ],
)
def test_what_a_llama_config_cannot_state_is_refused(tmp_path: Path, metadata: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        config(tmp_path, metadata)


def test_defaults_where_nothing_is_stated(tmp_path: Path) -> None:
    absent = ("attention.head_count_kv", "rope.freq_base", "rope.dimension_count")
    metadata: dict[str, Any] = {f"llama.{key}": None for key in absent}
    found = config(tmp_path, {**metadata, "llama.expert_count": 0, "llama.attention.causal": True})
    assert found["num_key_value_heads"] == HEADS
    assert found["rope_theta"] == 10000.0
    assert found["head_dim"] == HEAD_DIM


def test_the_same_number_in_every_layer_is_one_number(tmp_path: Path) -> None:
    assert config(tmp_path, {"llama.attention.head_count_kv": [2, 2]})["num_key_value_heads"] == 2


def test_heads_need_not_divide_the_width(tmp_path: Path) -> None:
    found = config(
        tmp_path,
        {"llama.attention.key_length": 16, "llama.attention.value_length": 16, "llama.rope.dimension_count": 16},
    )
    assert found["head_dim"] == 16


def test_rope_scaling(tmp_path: Path) -> None:
    linear = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}
    assert config(tmp_path, linear)["rope_scaling"] == {"rope_type": "linear", "factor": 4.0}
    yarn = {
        "llama.rope.scaling.type": "yarn",
        "llama.rope.scaling.factor": 4.0,
        "llama.rope.scaling.original_context_length": 32,
    }
    assert config(tmp_path, yarn)["rope_scaling"] == {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 32,
    }
    assert "rope_scaling" not in config(tmp_path, {"llama.rope.scaling.type": "none"})


def llama3_factors(factor: float, theta: float, dim: int) -> np.ndarray:
    """Return the divisors as ``convert_hf_to_gguf.py`` writes them."""
    factors = []
    for frequency in 1.0 / theta ** (np.arange(0, dim, 2) / dim):
        wavelength = 2 * np.pi / frequency
        if wavelength < 8192 / 4.0:
            factors.append(1.0)
        elif wavelength > 8192 / 1.0:
            factors.append(factor)
        else:
            smooth = (8192 / wavelength - 1.0) / (4.0 - 1.0)
            factors.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(factors, np.float32)


def test_llama3_rope_factors_become_its_scaling(tmp_path: Path) -> None:
    big = {
        "llama.rope.freq_base": 500000.0,
        "llama.attention.key_length": 64,
        "llama.attention.value_length": 64,
        "llama.rope.dimension_count": 64,
    }
    factors = llama3_factors(32.0, 500000.0, 64)
    assert np.unique(factors).size > 1
    found = config(tmp_path, big, **{"rope_freqs.weight": factors})
    assert found["rope_scaling"] == {
        "rope_type": "llama3",
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    with pytest.raises(ModelError, match="not those of Llama 3"):
        config(tmp_path, big, **{"rope_freqs.weight": factors + 1})
    with pytest.raises(ModelError, match="'linear' rope scaling and rope factors"):
        config(tmp_path, {**big, "llama.rope.scaling.type": "linear"}, **{"rope_freqs.weight": factors})
    assert "rope_scaling" not in config(tmp_path, big, **{"rope_freqs.weight": np.ones(32, np.float32)})


def test_ends_of_a_turn_end_a_text_too(tmp_path: Path) -> None:
    metadata = {"tokenizer.ggml.eot_token_id": 0, "tokenizer.ggml.eom_token_id": 2}
    file = read_gguf(write_gguf(tmp_path / "m.gguf", metadata=metadata))
    assert generation_config(file)["eos_token_id"] == [2, 0]
    assert llama_config(file)["eos_token_id"] == 2
