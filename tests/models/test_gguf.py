from __future__ import annotations

import contextlib
import json
import os
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from jupyter_infer.errors import ModelError
from jupyter_infer.models import cache, convert_gguf
from jupyter_infer.models._gguf_weights import row_order, to_bfloat16

from .conftest import (
    CONTEXT,
    HEAD_DIM,
    HEADS,
    HIDDEN,
    KV_HEADS,
    LAYERS,
    MIDDLE,
    VOCAB,
    hugging_face_weights,
    write_gguf,
)


def assert_weights(folder: Path, expected: dict[str, NDArray[np.float32]]) -> None:
    """Assert that torch reads the `expected` values, rounded by torch, from the safetensors file in `folder`."""
    torch = pytest.importorskip("torch")
    converted = pytest.importorskip("safetensors.torch").load_file(folder / "model.safetensors")
    assert converted.keys() == expected.keys()
    for name, values in expected.items():
        assert torch.equal(converted[name], torch.from_numpy(values).to(torch.bfloat16)), name


def config_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "config.json").read_text())


@pytest.mark.parametrize("tied", [True, False])
def test_weights_come_back_as_they_were_before_llama_cpp(tmp_path: Path, tied: bool) -> None:
    original = hugging_face_weights(tied=tied)
    folder = convert_gguf(write_gguf(tmp_path / "model.gguf", original))
    assert_weights(folder, original)
    assert config_of(folder)["tie_word_embeddings"] is tied


def test_quantised_weights_equal_the_dequantised_ones(tmp_path: Path) -> None:
    from gguf import GGMLQuantizationType, dequantize, quantize

    kind = GGMLQuantizationType.Q8_0
    original = hugging_face_weights()
    kept = {
        name: values if values.ndim == 1 else dequantize(quantize(values, kind), kind)
        for name, values in original.items()
    }
    assert_weights(convert_gguf(write_gguf(tmp_path / "model.gguf", original, quantised=True)), kept)


def test_chunks_do_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = hugging_face_weights()
    monkeypatch.setattr("jupyter_infer.models._gguf_weights._CHUNK_ELEMENTS", 5 * HIDDEN)
    assert_weights(convert_gguf(write_gguf(tmp_path / "model.gguf", original)), original)


def test_config_states_what_the_metadata_states(tiny_gguf: Path) -> None:
    folder = convert_gguf(tiny_gguf)
    config = config_of(folder)
    expected = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": MIDDLE,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "vocab_size": VOCAB,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    assert expected.items() <= config.items()
    assert "rope_scaling" not in config
    generation = json.loads((folder / "generation_config.json").read_text())
    assert (generation["bos_token_id"], generation["eos_token_id"]) == (1, 2)


def rotate_pairs(x: NDArray[Any], position: int) -> NDArray[Any]:
    """Rotate dimensions 2i and 2i + 1 together, as llama.cpp does for this architecture."""
    angle = position / 10000.0 ** (np.arange(0, HEAD_DIM, 2) / HEAD_DIM)
    even, odd = x[..., ::2], x[..., 1::2]
    return np.stack([even * np.cos(angle) - odd * np.sin(angle), even * np.sin(angle) + odd * np.cos(angle)], -1)


def rotate_halves(x: NDArray[Any], position: int) -> NDArray[Any]:
    """Rotate dimensions i and i + d/2 together, as Hugging Face and vLLM do."""
    angle = position / 10000.0 ** (np.arange(0, HEAD_DIM, 2) / HEAD_DIM)
    first, second = np.split(x, 2, axis=-1)
    rotated = [first * np.cos(angle) - second * np.sin(angle), first * np.sin(angle) + second * np.cos(angle)]
    return np.concatenate(rotated, -1)


def test_attention_scores_are_those_of_the_files_layout() -> None:
    random = np.random.default_rng(0)
    config = {"num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM}
    q_rows, k_rows = random.standard_normal((HIDDEN, HIDDEN)), random.standard_normal((KV_HEADS * HEAD_DIM, HIDDEN))
    q_order, k_order = row_order("blk.0.attn_q.weight", config), row_order("blk.0.attn_k.weight", config)
    x, y = random.standard_normal((2, HIDDEN))
    q, k = (q_rows @ x).reshape(HEADS, HEAD_DIM), (k_rows @ y).reshape(KV_HEADS, HEAD_DIM)
    theirs_q, theirs_k = rotate_pairs(q, 7).reshape(HEADS, -1), rotate_pairs(k, 3).reshape(KV_HEADS, -1)
    q, k = (q_rows[q_order] @ x).reshape(HEADS, HEAD_DIM), (k_rows[k_order] @ y).reshape(KV_HEADS, HEAD_DIM)
    ours_q, ours_k = rotate_halves(q, 7), rotate_halves(k, 3)
    group = HEADS // KV_HEADS
    theirs = (theirs_q * theirs_k.repeat(group, 0)).sum(-1)
    np.testing.assert_allclose((ours_q * ours_k.repeat(group, 0)).sum(-1), theirs)
    assert row_order("blk.0.attn_v.weight", config) is None


def test_rounding_is_torchs() -> None:
    torch = pytest.importorskip("torch")
    bits = np.random.default_rng(0).integers(0, 2**32, 100_000, dtype=np.uint32)
    values = np.concatenate([bits.view(np.float32), np.float32([0, -0.0, np.inf, -np.inf, np.nan, 1.00390625, 3e38])])
    expected = torch.from_numpy(values).to(torch.bfloat16)
    found = torch.from_numpy(to_bfloat16(values).view(np.int16)).view(torch.bfloat16)
    assert torch.equal(found.isnan(), expected.isnan())
    numbers = ~expected.isnan()
    assert torch.equal(found[numbers].view(torch.int16), expected[numbers].view(torch.int16))


def test_a_second_conversion_is_the_first(tiny_gguf: Path, reports: list[tuple[str, int, int]]) -> None:
    folder = convert_gguf(tiny_gguf, progress=lambda *report: reports.append(report))
    assert reports[0] == ("reading", 0, 0)
    stage, done, total = reports[-1]
    assert (stage, done) == ("converting", total)
    assert [done for _, done, _ in reports] == sorted(done for _, done, _ in reports)
    reports.clear()
    assert convert_gguf(tiny_gguf, progress=lambda *report: reports.append(report)) == folder
    assert reports == []


def test_another_file_of_the_same_name_size_and_time_is_another_model(tmp_path: Path) -> None:
    folders = []
    for seed in (0, 1):
        place = tmp_path / str(seed)
        place.mkdir()
        path = write_gguf(place / "model.gguf", hugging_face_weights(seed=seed))
        os.utime(path, (0, 0))
        folders.append(convert_gguf(path))
    assert folders[0] != folders[1]


def test_a_copy_is_the_same_model(tiny_gguf: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    copy = shutil.copy2(tiny_gguf, tmp_path / "elsewhere" / tiny_gguf.name)
    assert convert_gguf(Path(copy)) == convert_gguf(tiny_gguf)


def refuse(path: Path, message: str) -> None:
    with pytest.raises(ModelError, match=message) as raised:
        convert_gguf(path)
    assert "\n" not in str(raised.value)
    models = cache.cache_dir() / "models"
    assert [entry.name for entry in models.iterdir() if entry.suffix != ".lock"] == []


def test_another_architecture_is_named(tmp_path: Path) -> None:
    refuse(write_gguf(tmp_path / "m.gguf", architecture="qwen3"), "architecture 'qwen3'; only GGUF files of 'llama'")


@pytest.mark.parametrize("content", [b"", b"GGUF", b"not a model, but long enough to be one" * 10])
def test_garbage(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    refuse(path, r"m\.gguf is not a GGUF file")


@pytest.mark.parametrize("version", [1, 4, 0x03000000])
def test_another_version(tiny_gguf: Path, version: int) -> None:
    content = bytearray(tiny_gguf.read_bytes())
    content[4:8] = struct.pack("<I", version)
    tiny_gguf.write_bytes(content)
    refuse(tiny_gguf, "is GGUF version")


def test_a_file_cut_short_anywhere(tiny_gguf: Path) -> None:
    content = tiny_gguf.read_bytes()
    for length in [*range(24, len(content) - 1, len(content) // 50), len(content) - 32]:
        tiny_gguf.write_bytes(content[:length])
        refuse(tiny_gguf, "cut short|damaged")


def test_a_damaged_header_never_shows_a_traceback(tiny_gguf: Path) -> None:
    content = tiny_gguf.read_bytes()
    random = np.random.default_rng(0)
    for position in random.integers(8, 6000, 60):
        damaged = bytearray(content)
        damaged[position] ^= 0xFF
        tiny_gguf.write_bytes(damaged)
        with contextlib.suppress(ModelError):  # some bytes may hold anything, those of the chat template say
            shutil.rmtree(convert_gguf(tiny_gguf))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot read"):
        convert_gguf(tmp_path / "absent.gguf")


def test_a_full_disk_is_noticed_before_the_work(tiny_gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))
    refuse(tiny_gguf, "MB free; set JUPYTER_INFER_CACHE")


def test_a_disk_that_fills_up(tiny_gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    refuse(tiny_gguf, "is full; set JUPYTER_INFER_CACHE")


def test_an_interrupted_conversion_leaves_nothing(tiny_gguf: Path, own_cache: Path) -> None:
    def interrupt(stage: str, done: int, total: int) -> None:
        if stage == "converting" and done > total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert_gguf(tiny_gguf, progress=interrupt)
    assert [path.suffix for path in (own_cache / "models").iterdir()] == [".lock"]


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"blk.0.attn_q.bias": np.zeros(HIDDEN, np.float32)}, r"a Llama has no 'blk\.0\.attn_q\.bias'"),
        ({"blk.9.attn_v.weight": np.zeros((16, HIDDEN), np.float32)}, r"a Llama has no 'blk\.9"),
        ({"output.weight": np.zeros((3, HIDDEN), np.float32)}, r"'output\.weight' has the shape \(3, 32\)"),
    ],
)
def test_tensors_without_a_place(tmp_path: Path, tensors: dict[str, Any], message: str) -> None:
    refuse(write_gguf(tmp_path / "m.gguf", tensors=tensors), message)


def test_a_missing_tensor(tmp_path: Path) -> None:
    weights = hugging_face_weights()
    del weights["model.layers.1.mlp.up_proj.weight"]
    refuse(write_gguf(tmp_path / "m.gguf", weights), r"no tensor for 'model\.layers\.1\.mlp\.up_proj\.weight'")


def test_a_tensor_type_that_cannot_be_dequantised(tmp_path: Path) -> None:
    weights = hugging_face_weights()
    weights["model.norm.weight"] = weights["model.norm.weight"].astype(np.float64)
    refuse(write_gguf(tmp_path / "m.gguf", weights), "its tensors are F64")
