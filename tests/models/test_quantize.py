"""The int8 copy of a tiny random Llama: its numbers, its names, what it is not made of, and that it is made once."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from jupyter_infer.errors import ModelError
from jupyter_infer.models import ResolvedModel, cache, quantize
from jupyter_infer.models._gguf_weights import to_bfloat16
from jupyter_infer.models._quant_files import StoredTensor, header_bytes, read_tensors
from jupyter_infer.models.folder import check_folder
from jupyter_infer.models.quantize import quantized
from tests.models.conftest import HEADS, HIDDEN, KV_HEADS, LAYERS, MIDDLE, VOCAB, hugging_face_weights

Weights = dict[str, NDArray[np.float32]]

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "intermediate_size": MIDDLE,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "vocab_size": VOCAB,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
}
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
LINEAR = [
    f"model.layers.{layer}.{name}.weight"
    for layer in range(LAYERS)
    for name in (
        *(f"self_attn.{part}_proj" for part in "qkvo"),
        *(f"mlp.{part}_proj" for part in ("gate", "up", "down")),
    )
]


def store(path: Path, weights: Weights, dtype: str) -> None:
    raw = {
        name: (to_bfloat16(values) if dtype == "BF16" else values.astype("<f2" if dtype == "F16" else "<f4")).tobytes()
        for name, values in weights.items()
    }
    head = header_bytes({name: (dtype, weights[name].shape, len(data)) for name, data in raw.items()})
    path.write_bytes(head + b"".join(raw.values()))


def write_model(
    folder: Path, weights: Weights | None = None, *, dtype: str = "BF16", shards: int = 1, **config: Any
) -> ResolvedModel:
    """Write a folder in the Hugging Face layout."""
    folder.mkdir(parents=True)
    weights = hugging_face_weights() if weights is None else weights
    (folder / "config.json").write_text(json.dumps({**CONFIG, **config}))
    (folder / "generation_config.json").write_text('{"eos_token_id": 2}')
    (folder / "tokenizer.json").write_text('{"model": {}}')
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    (folder / "LICENSE").write_text("free")
    (folder / "README.md").write_text("# A model")
    if shards == 1:
        store(folder / "model.safetensors", weights, dtype)
    else:
        parts = {f"model-{part}.safetensors": list(weights)[part::shards] for part in range(shards)}
        for name, tensors in parts.items():
            store(folder / name, {tensor: weights[tensor] for tensor in tensors}, dtype)
        index = {"weight_map": {tensor: name for name, tensors in parts.items() for tensor in tensors}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return ResolvedModel("tiny", folder, "folder", check_folder(folder))


def stored(folder: Path) -> dict[str, StoredTensor]:
    return read_tensors([folder / "model.safetensors"])


def raw(tensor: StoredTensor) -> NDArray[Any]:
    kind = {"I8": "i1", "F32": "<f4", "BF16": "<u2", "F16": "<f2"}[tensor.dtype]
    return np.frombuffer(b"".join(tensor.chunks()), kind).reshape(tensor.shape)


@pytest.mark.parametrize("dtype", ["BF16", "F16", "F32"])
@pytest.mark.parametrize("shards", [1, 3])
def test_every_weight_is_within_half_a_step_of_the_source(tmp_path: Path, dtype: str, shards: int) -> None:
    weights = hugging_face_weights()
    model = write_model(tmp_path / "m", weights, dtype=dtype, shards=shards)
    copy = quantized(model, 8)
    tensors, sources = stored(copy.path), read_tensors(sorted(model.path.glob("*.safetensors")))
    for name in [*LINEAR, HEAD]:
        source = sources[EMBEDDING if name == HEAD else name]
        exact = source.rows(0, source.shape[0])
        whole, scale = raw(tensors[name]), raw(tensors[f"{name}_scale"])
        assert (whole.dtype, whole.shape, scale.shape) == (np.int8, exact.shape, (exact.shape[0], 1))
        np.testing.assert_array_equal(scale, np.abs(exact).max(axis=1, keepdims=True) / np.float32(127))
        assert np.all(np.abs(whole * scale - exact) <= scale * (0.5 + 1e-4))
        assert np.all(np.abs(whole).max(axis=1) == 127)
    for name in set(sources) - set(LINEAR):
        assert raw(tensors[name]).tobytes() == raw(sources[name]).tobytes()
    expected = {*sources, HEAD, *(f"{name}_scale" for name in (*LINEAR, HEAD))}
    assert set(tensors) == expected


def test_a_row_of_zeros_stays_one_and_an_infinite_value_is_refused(tmp_path: Path) -> None:
    weights = hugging_face_weights()
    weights[LINEAR[0]][3] = 0
    weights[LINEAR[0]][4] = 1e-40
    tensors = stored(quantized(write_model(tmp_path / "m", weights, dtype="F32"), 8).path)
    assert not raw(tensors[LINEAR[0]])[3:5].any()
    assert raw(tensors[f"{LINEAR[0]}_scale"])[3:5].tolist() == [[1.0], [1.0]]
    weights[LINEAR[1]][0, 0] = np.inf
    with pytest.raises(ModelError, match=r"k_proj.weight' holds a value that is not finite"):
        quantized(write_model(tmp_path / "n", weights), 8)
    assert [path.name for path in (tmp_path / "cache/models").iterdir() if path.is_dir()] == [
        tensors[HEAD].path.parent.name
    ]


def test_the_config_says_what_vllm_needs(tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    copy = quantized(write_model(tmp_path / "m", dtype="F32"), 8)
    config = json.loads((copy.path / "config.json").read_text())
    about = config.pop("quantization_config")
    assert config == {**CONFIG, "tie_word_embeddings": False}
    assert (about["quant_method"], about["format"], about["ignore"]) == ("compressed-tensors", "int-quantized", [])
    (group,) = about["config_groups"].values()
    assert group["targets"] == ["Linear", "lm_head"]
    kind = {"num_bits": 8, "type": "int", "symmetric": True}
    assert group["weights"] == {**kind, "strategy": "channel", "dynamic": False}
    assert group["input_activations"] == {**kind, "strategy": "token", "dynamic": True}
    assert load_file(copy.path / "model.safetensors").keys() == stored(copy.path).keys()  # by the format's own reader
    assert sorted(path.name for path in copy.path.iterdir()) == [
        "LICENSE",
        "chat_template.jinja",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
    ]


def test_a_copy_is_the_same_model_and_smaller(tmp_path: Path) -> None:
    weights = hugging_face_weights(tied=False)
    model = write_model(tmp_path / "m", weights, tie_word_embeddings=False)
    copy = quantized(model, 8)
    assert (copy.name, copy.source, copy.bits) == ("tiny", "folder", 8)
    assert copy.weight_bytes == check_folder(copy.path) < model.weight_bytes
    assert copy.kept_bytes == sum(2 * values.size for name, values in weights.items() if name not in (*LINEAR, HEAD))
    exact, tensors = weights[HEAD], stored(copy.path)
    assert np.abs(raw(tensors[HEAD]) * raw(tensors[f"{HEAD}_scale"]) - exact).max() < np.abs(exact).max() / 50


def test_a_stored_head_that_the_config_ties_is_the_embedding(tmp_path: Path) -> None:
    weights = hugging_face_weights(tied=False)  # some files hold both, and vLLM reads the embedding then
    tensors = stored(quantized(write_model(tmp_path / "m", weights, dtype="F32"), 8).path)
    scale = np.abs(weights[EMBEDDING]).max(axis=1, keepdims=True) / np.float32(127)
    np.testing.assert_array_equal(raw(tensors[f"{HEAD}_scale"]), scale)


def test_a_second_call_makes_nothing_and_a_changed_source_a_new_copy(tmp_path: Path) -> None:
    model = write_model(tmp_path / "m")
    said: list[tuple[str, int, int]] = []
    first = quantized(model, 8, progress=lambda *step: said.append(step))
    assert said[0] == ("reading", 0, 0)
    stage, done, total = said[-1]
    assert stage == "quantising"
    assert done == total > 0
    said.clear()
    assert quantized(model, 8, progress=lambda *step: said.append(step)) == first
    assert said == []
    shutil.rmtree(model.path)
    other = quantized(write_model(tmp_path / "m", hugging_face_weights(seed=1)), 8)
    assert other.path != first.path
    (model.path / "tokenizer.json").write_text('{"model": {"vocab": {}}}')
    assert quantized(model, 8).path not in (first.path, other.path)


def test_what_is_stopped_half_way_leaves_nothing(tmp_path: Path) -> None:
    model = write_model(tmp_path / "m")

    def stop(stage: str, done: int, total: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        quantized(model, 8, progress=stop)
    assert [path for path in (tmp_path / "cache/models").iterdir() if path.is_dir()] == []
    assert stored(quantized(model, 8).path)


def test_a_small_disk_is_told_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = write_model(tmp_path / "m")
    monkeypatch.setattr(cache.shutil, "disk_usage", lambda folder: shutil._ntuple_diskusage(1, 1, 1000))  # type: ignore[attr-defined]
    with pytest.raises(ModelError, match=r"has 0 MB free; set JUPYTER_INFER_CACHE to a folder with room"):
        quantized(model, 8)
    assert [path for path in (tmp_path / "cache/models").iterdir() if path.is_dir()] == []


EXPERT = "model.layers.0.mlp.experts.gate_up_proj"


def with_expert() -> Weights:
    return {**hugging_face_weights(), EXPERT: np.zeros((2, 16, 16), np.float32)}


def narrow() -> Weights:
    weights = hugging_face_weights()
    for layer in range(LAYERS):
        name = f"model.layers.{layer}.mlp.down_proj.weight"
        weights[name] = weights[name][:, :40]
    return weights


@pytest.mark.parametrize(
    ("weights", "config", "says"),
    [
        (None, {"quantization_config": {"quant_method": "gptq"}}, "tiny is quantised already; load it without --bits"),
        (None, {"architectures": ["MixtralForCausalLM"]}, "tiny is a MixtralForCausalLM, and only Llama, Mistral, "),
        (None, {"architectures": []}, "tiny is a model of no known architecture, and only Llama, "),
        (with_expert, {}, f"{EXPERT!r} is no layer of a Llama; load it without --bits"),
        (None, {"num_hidden_layers": LAYERS + 1}, f"it has no 'model.layers.{LAYERS}.self_attn.q_proj.weight'"),
        (narrow, {}, "'model.layers.0.mlp.down_proj.weight' is 32 × 40, not multiples of 16; load it without --bits"),
    ],
)
def test_a_model_that_cannot_be_rounded_is_refused_in_one_line(
    tmp_path: Path, weights: Any, config: dict[str, Any], says: str
) -> None:
    model = write_model(tmp_path / "m", weights and weights(), **config)
    with pytest.raises(ModelError) as caught:
        quantized(model, 8)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("keep", [4, 400, -100])
def test_a_damaged_file_is_told(tmp_path: Path, keep: int) -> None:
    model = write_model(tmp_path / "m")
    path = model.path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ModelError, match=r"model.safetensors is damaged \(.*\); download the model again"):
        quantized(model, 8)


def test_a_pickle_is_not_read(tmp_path: Path) -> None:
    model = write_model(tmp_path / "m")
    (model.path / "model.safetensors").rename(model.path / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"pytorch_model.bin cannot be quantised: .* safetensors files only"):
        quantized(model, 8)


def test_other_widths_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no copy of 3 bits; bits are 8"):
        quantized(write_model(tmp_path / "m"), 3)


def test_rows_are_rounded_in_pieces_as_in_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = write_model(tmp_path / "m")
    whole = (quantized(model, 8).path / "model.safetensors").read_bytes()
    monkeypatch.setattr("jupyter_infer.models._quant_weights._CHUNK_ELEMENTS", 3 * HIDDEN)
    monkeypatch.setattr("jupyter_infer.models._quant_files._CHUNK_BYTES", 7)
    monkeypatch.setattr(quantize, "QUANTIZER_VERSION", quantize.QUANTIZER_VERSION + 1)
    assert (quantized(model, 8).path / "model.safetensors").read_bytes() == whole
