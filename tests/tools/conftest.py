"""The scripts of `tools/` as modules, and programs that stand in for the ones they call."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import setup_env  # noqa: E402

Program = Callable[[str, str], Path]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout that holds a pyproject.toml and nothing else."""
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    (checkout / "pyproject.toml").write_text("one = 1\n")
    monkeypatch.setattr(setup_env, "ROOT", checkout)
    monkeypatch.setattr(setup_env, "answers", lambda url: False)
    monkeypatch.chdir(checkout)
    return checkout


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    """Write a shell script that alone is on PATH beside the system's own programs, which it may use."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def write(name: str, script: str) -> Path:
        path = folder / name
        path.write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{script}\n")
        path.chmod(0o755)
        return path

    return write


class FakeVenv:
    """A folder that looks like an environment; its Python answers from files and writes down what it was asked."""

    def __init__(self, folder: Path, version: tuple[int, int] = sys.version_info[:2]) -> None:
        self.folder = folder
        (folder / "bin").mkdir(parents=True)
        (folder / "pyvenv.cfg").write_text("home = /usr/bin\n")
        (folder / "version").write_text(f"{version[0]} {version[1]}\n")
        self.fails_at()
        python = folder / "bin" / "python"
        python.write_text(
            f"""#!/bin/sh
PATH=/usr/bin:/bin
cd {folder}
echo "$*" >> calls
case "$*" in
  *sys.version_info*) cat version ;;
  "-m pip"*) cat pip-says; exit $(cat pip-status) ;;
  *) while read -r word; do case "$*" in *"$word"*) exit 1 ;; esac; done < fails-at ;;
esac
"""
        )
        python.chmod(0o755)
        self.pip_answers(0, "")

    def pip_answers(self, status: int, text: str) -> None:
        (self.folder / "pip-status").write_text(str(status))
        (self.folder / "pip-says").write_text(text)

    def fails_at(self, *words: str) -> None:
        """Let commands that hold one of these words fail, pip's aside."""
        (self.folder / "fails-at").write_text("".join(f"{word}\n" for word in words))

    def pip_calls(self) -> list[str]:
        """Return the pip commands since the last look."""
        calls = self.folder / "calls"
        lines = calls.read_text().splitlines() if calls.exists() else []
        calls.unlink(missing_ok=True)
        return [line for line in lines if line.startswith("-m pip")]


@pytest.fixture
def fake_venv(root: Path) -> FakeVenv:
    return FakeVenv(root / ".venv")


@pytest.fixture
def as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
