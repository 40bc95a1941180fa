from __future__ import annotations

import os

import pytest

from jupyter_infer import hardware
from jupyter_infer.hardware import Gpu


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch):
    """A machine without a GPU, whatever the real one has."""
    monkeypatch.setattr(hardware, "gpu", lambda: None)


@pytest.fixture
def h200(monkeypatch):
    """A machine with a GPU."""
    monkeypatch.setattr(hardware, "gpu", lambda: Gpu("NVIDIA H200", 150_000_000_000))


@pytest.fixture
def stub(tmp_path, monkeypatch):
    """Return a function that writes a module which this process and its children find before any real one."""
    folder = tmp_path / "stubs"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)

    def write(name: str, source: str = "") -> None:
        *parents, leaf = name.split(".")
        package = folder
        for parent in parents:
            package /= parent
            package.mkdir(exist_ok=True)
            (package / "__init__.py").touch()
        (package / leaf).mkdir(exist_ok=True)
        (package / leaf / "__init__.py").write_text(source)

    return write


@pytest.fixture
def states():
    """Return a function that maps what a check yields to name → state."""
    return lambda findings: {finding.name: finding.state for finding in findings}
