"""A tiny Llama as a GGUF file, a hub on loopback, and a cache of its own for every test."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from jupyter_infer.models import hub

HIDDEN, HEADS, KV_HEADS, MIDDLE, LAYERS, CONTEXT = 32, 4, 2, 64, 2, 128
HEAD_DIM = HIDDEN // HEADS
CHAT = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep converted models, the hub's cache and what is known of the hub out of the user's and other tests' way."""
    from huggingface_hub import constants

    monkeypatch.setenv("JUPYTER_INFER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    # A port that nothing listens on: a test without the `fake_hub` fixture has no hub.
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(hub, "_answers", {})
    return tmp_path / "cache"


def byte_alphabet() -> list[str]:
    """Return GPT-2's character for each byte."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = iter(range(256, 512))
    return [chr(byte if byte in shown else next(rest)) for byte in range(256)]


TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *byte_alphabet(), "he", "ll", "hell", "hello", "ĠĠ"]
MERGES = ["h e", "l l", "he ll", "hell o", "Ġ Ġ"]
VOCAB = len(TOKENS)


def hugging_face_weights(*, tied: bool = True, seed: int = 0) -> dict[str, NDArray[np.float32]]:
    """Return random weights in Hugging Face's names and row order."""
    random = np.random.default_rng(seed)
    block = {
        "input_layernorm": (HIDDEN,),
        "self_attn.q_proj": (HIDDEN, HIDDEN),
        "self_attn.k_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
        "self_attn.v_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
        "self_attn.o_proj": (HIDDEN, HIDDEN),
        "post_attention_layernorm": (HIDDEN,),
        "mlp.gate_proj": (MIDDLE, HIDDEN),
        "mlp.up_proj": (MIDDLE, HIDDEN),
        "mlp.down_proj": (HIDDEN, MIDDLE),
    }
    shapes = {"model.embed_tokens.weight": (VOCAB, HIDDEN), "model.norm.weight": (HIDDEN,)}
    shapes |= {f"model.layers.{i}.{name}.weight": shape for i in range(LAYERS) for name, shape in block.items()}
    if not tied:
        shapes["lm_head.weight"] = (VOCAB, HIDDEN)
    return {name: random.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}


def permute(rows: NDArray[Any], heads: int) -> NDArray[Any]:
    """Reorder rows as llama.cpp's ``convert_hf_to_gguf.py`` does."""
    return rows.reshape(heads, 2, rows.shape[0] // heads // 2, -1).swapaxes(1, 2).reshape(rows.shape)


LLAMA_CPP_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def llama_cpp_name(name: str) -> str:
    """Return llama.cpp's name of a Hugging Face tensor."""
    stem = name.removesuffix(".weight")
    if not stem.startswith("model.layers."):
        return f"{LLAMA_CPP_NAMES[stem]}.weight"
    _, _, layer, inner = stem.split(".", 3)
    return f"blk.{layer}.{LLAMA_CPP_NAMES[inner]}.weight"


def write_gguf(
    path: Path,
    weights: dict[str, NDArray[np.float32]] | None = None,
    *,
    architecture: str = "llama",
    quantised: bool = False,
    metadata: dict[str, Any] | None = None,
    tensors: dict[str, NDArray[np.float32]] | None = None,
) -> Path:
    """Write a tiny Llama as llama.cpp would; `metadata` (None drops a key) and `tensors` are added to it."""
    from gguf import GGMLQuantizationType, GGUFWriter, quantize

    kept: dict[str, Any] = {
        f"{architecture}.block_count": LAYERS,
        f"{architecture}.context_length": CONTEXT,
        f"{architecture}.embedding_length": HIDDEN,
        f"{architecture}.feed_forward_length": MIDDLE,
        f"{architecture}.attention.head_count": HEADS,
        f"{architecture}.attention.head_count_kv": KV_HEADS,
        f"{architecture}.rope.dimension_count": HEAD_DIM,
        f"{architecture}.rope.freq_base": 10000.0,
        f"{architecture}.attention.layer_norm_rms_epsilon": 1e-5,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": TOKENS,
        "tokenizer.ggml.token_type": [3] * 3 + [1] * (VOCAB - 3),
        "tokenizer.ggml.merges": MERGES,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.chat_template": CHAT,
        **(metadata or {}),
    }
    writer = GGUFWriter(path, architecture)
    for key, value in kept.items():
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        elif value is not None:
            writer.add_array(key, value)
    for name, values in (weights if weights is not None else hugging_face_weights()).items():
        heads = {"q_proj": HEADS, "k_proj": KV_HEADS}.get(name.split(".")[-2])
        stored = permute(values, heads) if heads else values
        if quantised and stored.ndim == 2:
            kind = GGMLQuantizationType.Q8_0
            writer.add_tensor(llama_cpp_name(name), quantize(stored, kind), raw_dtype=kind)
        else:
            writer.add_tensor(llama_cpp_name(name), np.ascontiguousarray(stored))
    for name, values in (tensors or {}).items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture
def tiny_gguf(tmp_path: Path) -> Path:
    return write_gguf(tmp_path / "tiny.gguf")


@pytest.fixture
def model_folder(tmp_path: Path) -> Path:
    return make_model_folder(tmp_path / "some-model")


def make_model_folder(folder: Path) -> Path:
    """Write files that have a model's names."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"model_type": "llama"}')
    (folder / "tokenizer.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"x" * 100)
    return folder


class FakeHub:
    """What the hub client needs of a hub, over folders: revisions, file lists, files. `log` has each path asked for."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.log: list[str] = []
        self.status: dict[str, tuple[int, str]] = {}
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                owner.log.append(self.path)
                owner.answer(self)

            do_HEAD = do_GET

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        parts = request.path.split("?")[0].strip("/").split("/")
        if parts == [""]:
            return self.send(request, 200, b"")
        repo = "/".join(parts[2:4] if parts[0] == "api" else parts[:2])
        folder = self.root / repo
        if repo in self.status or not folder.is_dir():
            status, code = self.status.get(repo, (404, "RepoNotFound"))
            return self.send(request, status, b"", {"X-Error-Code": code, "X-Error-Message": code})
        sha = hashlib.sha1(repo.encode()).hexdigest()
        files = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
        if parts[0] == "api" and parts[4] == "revision":
            content: Any = {"id": repo, "sha": sha, "siblings": [{"rfilename": name} for name in files]}
            return self.send(request, 200, json.dumps(content).encode())
        if parts[0] == "api":
            content = [{"type": "file", "path": f, "size": (folder / f).stat().st_size, "oid": "0" * 40} for f in files]
            return self.send(request, 200, json.dumps(content).encode())
        body = (folder / "/".join(parts[4:])).read_bytes()
        etag = hashlib.sha1(body).hexdigest()
        return self.send(request, 200, body, {"X-Repo-Commit": sha, "ETag": f'"{etag}"'})

    @staticmethod
    def send(request: BaseHTTPRequestHandler, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        request.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            request.send_header(name, value)
        request.end_headers()
        if request.command == "GET":
            request.wfile.write(body)


@pytest.fixture
def fake_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    fake = FakeHub(tmp_path / "served")
    monkeypatch.setenv("HF_ENDPOINT", fake.url)
    yield fake
    fake.server.shutdown()
    fake.server.server_close()


@pytest.fixture
def reports() -> list[tuple[str, int, int]]:
    """Return a list; its ``append`` by three is a progress callback: ``lambda *report: reports.append(report)``."""
    return []
