from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import psutil
import pytest

from jupyter_infer.doctor import frontend
from jupyter_infer.doctor.finding import Finding

VERSIONS = {
    "anywidget": "0.11.0",
    "ipywidgets": "8.1.9",
    "plotly": "7.1.0",
    "ipykernel": "7.4.0",
    "jupyterlab": "4.6.6",
}
TAIL = "share/jupyter/labextensions"


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    """An environment of our own with all packages and no lab extension; no server."""
    monkeypatch.delenv("JPY_PARENT_PID", raising=False)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "env"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "env/bin/python"))
    monkeypatch.setattr(
        "jupyter_core.paths.jupyter_path", lambda _: [str(tmp_path / "env" / TAIL), str(tmp_path / "user")]
    )
    monkeypatch.setattr(frontend, "pip", lambda arguments, python=None: f"{python or 'python'} -m pip {arguments}")
    monkeypatch.setattr(frontend, "installed", VERSIONS.get)
    monkeypatch.setattr(frontend, "failure", lambda *_: None)


def add_extensions(folder: Path, *, anywidget: str | None = "0.11.0") -> None:
    versions = {"anywidget": anywidget, "@jupyter-widgets/jupyterlab-manager": "5.0.16", "jupyterlab-plotly": "7.1.0"}
    for name, version in versions.items():
        if version:
            (folder / name).mkdir(parents=True)
            (folder / name / "package.json").write_text(json.dumps({"name": name, "version": version}))


def lab():
    return list(frontend.jupyterlab())


@pytest.mark.parametrize(("version", "state"), [("7.0.0", "ok"), ("6.30.1", "warn"), (None, "fail")])
def test_ipykernel(monkeypatch, version, state):
    monkeypatch.setattr(frontend, "installed", lambda _: version)
    (finding,) = frontend.ipykernel()
    assert finding.state == state


def test_widgets_that_are_there():
    (finding,) = frontend.widgets()
    assert finding == Finding("widgets", "ok", "anywidget 0.11.0, ipywidgets 8.1.9, plotly 7.1.0")


def test_widgets_that_are_missing(monkeypatch):
    monkeypatch.setattr(frontend, "installed", {**VERSIONS, "plotly": None}.get)
    (finding,) = frontend.widgets()
    assert finding == Finding("widgets", "fail", "plotly not installed", "python -m pip install plotly")


def test_widgets_that_are_broken(monkeypatch):
    monkeypatch.setattr(frontend, "failure", lambda *_: "ImportError: traitlets")
    (finding,) = frontend.widgets()
    assert (finding.state, finding.found) == ("fail", "cannot be imported: ImportError: traitlets")


def test_lab_extensions_that_are_there(tmp_path):
    add_extensions(tmp_path / "user")
    version, extensions = lab()
    assert version == Finding("JupyterLab", "ok", "4.6.6")
    assert extensions.state == "ok"
    assert "jupyterlab-plotly 7.1.0" in extensions.found


def test_lab_extensions_that_are_missing():
    _, extensions = lab()
    assert extensions.state == "warn"
    assert extensions.fix == "python -m pip install anywidget ipywidgets plotly"


def test_an_extension_that_cannot_be_read_is_looked_for_further_on(tmp_path):
    broken = tmp_path / "env" / TAIL / "anywidget"
    broken.mkdir(parents=True)
    (broken / "package.json").write_text("{")
    add_extensions(tmp_path / "user")
    assert lab()[1].state == "ok"


def test_an_anywidget_of_another_minor_version(tmp_path):
    add_extensions(tmp_path / "user", anywidget="0.9.18")
    _, extensions = lab()
    assert (extensions.state, extensions.fix) == ("warn", 'python -m pip install "anywidget==0.11.0"')


@pytest.mark.parametrize(("version", "state"), [("4.3.9", "warn"), ("4.4.0", "ok"), (None, "ok")])
def test_jupyterlab_itself(monkeypatch, version, state):
    monkeypatch.setattr(frontend, "installed", {**VERSIONS, "jupyterlab": version}.get)
    assert lab()[0].state == state


@pytest.fixture
def server(monkeypatch, tmp_path):
    """A server in an environment of its own that started this kernel."""

    class Process:
        def __init__(self, pid: int) -> None:
            assert pid == 4711

        def cmdline(self) -> list[str]:
            return [str(tmp_path / "hub/bin/python3.12"), str(tmp_path / "hub/bin/jupyter-lab")]

    monkeypatch.setenv("JPY_PARENT_PID", "4711")
    monkeypatch.setattr(psutil, "Process", Process)
    return tmp_path / "hub"


def test_extensions_count_where_the_server_runs(server, tmp_path):
    add_extensions(tmp_path / "env" / TAIL)
    place, extensions = lab()
    assert str(server) in place.found
    assert extensions.state == "warn"
    assert extensions.fix == f"{server}/bin/python3.12 -m pip install anywidget ipywidgets plotly"
    add_extensions(server / TAIL)
    assert lab()[1].state == "ok"


def test_a_server_of_this_environment_is_not_another(server, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(server / "bin/python"))
    assert lab()[0].found == "4.6.6"


def test_a_server_that_is_gone(monkeypatch):
    monkeypatch.setenv("JPY_PARENT_PID", str(2**22 + 1))
    assert lab()[0].found == "4.6.6"


def test_a_parent_that_is_no_python(monkeypatch):
    monkeypatch.setenv("JPY_PARENT_PID", str(os.getpid()))
    monkeypatch.setattr(psutil.Process, "cmdline", lambda _: ["/usr/bin/bash"])
    assert lab()[0].found == "4.6.6"
