from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import NoReturn

import pytest

from jupyter_infer.errors import ModelError
from jupyter_infer.models import hub, hub_answers
from jupyter_infer.models.hub import cached_snapshot, download_snapshot

from .conftest import FakeHub, make_model_folder

pytest.importorskip("huggingface_hub")


@pytest.fixture
def served(fake_hub: FakeHub) -> Path:
    folder = make_model_folder(fake_hub.root / "org" / "model")
    (folder / "README.md").write_text("read me")
    (folder / "pytorch_model.bin").write_bytes(b"pickle")
    make_model_folder(folder / "onnx")
    return folder


def refuse(repo: str, message: str) -> None:
    with pytest.raises(ModelError, match=message) as raised:
        download_snapshot(repo)
    assert "\n" not in str(raised.value)


def test_a_hub_is_asked_once(fake_hub: FakeHub) -> None:
    assert hub_answers()
    assert hub_answers()
    assert fake_hub.log == ["/"]


def test_offline_is_not_asked(fake_hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert not hub_answers()
    assert fake_hub.log == []


def test_a_closed_port_does_not_answer() -> None:
    assert not hub_answers()


@pytest.mark.parametrize("endpoint", ["nonsense", "http://[", "file:///"])
def test_an_address_that_is_none(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    assert not hub_answers() or endpoint == "file:///"


def test_a_name_look_up_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    freed = threading.Event()

    def hang(*_: object, **__: object) -> NoReturn:
        freed.wait(60)
        raise socket.gaierror

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    assert not hub_answers(timeout=0.05)
    (probe,) = (thread for thread in threading.enumerate() if thread.name == "jupyter-infer-hub-probe")
    freed.set()
    probe.join()


def test_download(served: Path, fake_hub: FakeHub, reports: list[tuple[str, int, int]]) -> None:
    assert cached_snapshot("org/model") is None
    folder = download_snapshot("org/model", progress=lambda *report: reports.append(report))
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors", "tokenizer.json"]
    assert (folder / "model.safetensors").read_bytes() == (served / "model.safetensors").read_bytes()
    assert {stage for stage, _, _ in reports} == {"downloading"}
    assert reports[-1][1] == reports[-1][2] > 100
    fake_hub.log.clear()
    assert download_snapshot("org/model") == cached_snapshot("org/model") == folder
    assert fake_hub.log == []


def test_download_draws_no_bars(served: Path, capfd: pytest.CaptureFixture[str]) -> None:
    download_snapshot("org/model")
    assert capfd.readouterr() == ("", "")


def test_what_is_cached_needs_no_hub(served: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = download_snapshot("org/model")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert download_snapshot("org/model") == folder


def test_a_download_that_was_cut_is_taken_up(served: Path) -> None:
    folder = download_snapshot("org/model")
    (folder / "model.safetensors").unlink()
    assert cached_snapshot("org/model") is None
    assert (download_snapshot("org/model") / "model.safetensors").exists()


def test_no_such_model(fake_hub: FakeHub) -> None:
    refuse("org/absent", "the hub has no model org/absent; if it is private, type: !hf auth login")


def test_gated(served: Path, fake_hub: FakeHub) -> None:
    fake_hub.status["org/model"] = (403, "GatedRepo")
    refuse("org/model", "org/model is gated: accept its terms")


def test_a_hub_that_fails(served: Path, fake_hub: FakeHub) -> None:
    fake_hub.status["org/model"] = (500, "Broken")
    refuse("org/model", "cannot download org/model: ")


def test_no_safetensors(served: Path) -> None:
    (served / "model.safetensors").unlink()
    refuse("org/model", "weights are missing")


def test_no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse("org/model", r"the hub \(http://127\.0\.0\.1:9\) does not answer; give a model folder")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    refuse("org/model", "HF_HUB_OFFLINE is set")


def test_an_endpoint_may_end_in_a_slash(fake_hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", f"{fake_hub.url}/")
    assert hub.hub_endpoint() == fake_hub.url
