"""The kernel, the widgets, and JupyterLab with its halves of them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
from packaging.version import Version

from jupyter_infer.doctor.finding import Finding
from jupyter_infer.doctor.probe import failure, installed, pip

__all__ = ["ipykernel", "jupyterlab", "widgets"]

IMPORT_TIMEOUT_S = 60.0
PACKAGES = ("anywidget", "ipywidgets", "plotly")
# Folder of the lab extension → the package that brings it.
LAB_EXTENSIONS = {
    "anywidget": "anywidget",
    "@jupyter-widgets/jupyterlab-manager": "ipywidgets",
    "jupyterlab-plotly": "plotly",
}
FIRST_LAB = "4.4"


def ipykernel() -> Iterator[Finding]:
    """Yield whether buttons work while a cell runs."""
    version = installed("ipykernel")
    if version is None:
        yield Finding("ipykernel", "fail", "not installed", pip("install ipykernel"))
    elif Version(version) < Version("7"):
        found = f"{version}: a button waits for the running cell; 7 has subshells, in which it does not"
        yield Finding("ipykernel", "warn", found, pip('install "ipykernel>=7"'))
    else:
        yield Finding("ipykernel", "ok", f"{version}: buttons work while a cell runs (subshells)")


def widgets() -> Iterator[Finding]:
    """Yield whether the Python halves of widgets and charts are there."""
    versions = {name: installed(name) for name in PACKAGES}
    missing = [name for name, version in versions.items() if version is None]
    if missing:
        fix = pip(f"install {' '.join(missing)}")
        yield Finding("widgets", "fail", f"{', '.join(missing)} not installed", fix)
    elif why := failure(f"import {', '.join(PACKAGES)}", IMPORT_TIMEOUT_S):
        fix = pip(f"install --upgrade {' '.join(PACKAGES)}")
        yield Finding("widgets", "fail", f"cannot be imported: {why}", fix)
    else:
        yield Finding("widgets", "ok", ", ".join(f"{name} {version}" for name, version in versions.items()))


def jupyterlab() -> Iterator[Finding]:
    """Yield whether JupyterLab has its halves of them, which counts where the server runs.

    That can be another environment than the kernel's.
    """
    python = _server_python()
    if python is None:
        version = installed("jupyterlab")
        if version is None:
            yield Finding(
                "JupyterLab", "ok", "not in this environment; the checks below hold for servers that share it"
            )
        elif Version(version) < Version(FIRST_LAB):
            fix = pip(f'install "jupyterlab>={FIRST_LAB}"')
            yield Finding("JupyterLab", "warn", f"{version}; {FIRST_LAB} or newer is needed", fix)
        else:
            yield Finding("JupyterLab", "ok", version)
    else:
        yield Finding("JupyterLab", "ok", f"the server runs in another environment: {python}")
    yield _lab_extensions(_folders(python), python)


def _lab_extensions(folders: list[Path], python: str | None) -> Finding:
    found = {name: _version(name, folders) for name in LAB_EXTENSIONS}
    missing = [name for name, version in found.items() if version is None]
    if missing:
        fix = pip(f"install {' '.join(LAB_EXTENSIONS[name] for name in missing)}", python)
        return Finding("lab extensions", "warn", f"JupyterLab has no {', '.join(missing)}", fix)
    text = ", ".join(f"{name} {version}" for name, version in found.items())
    here, there = installed("anywidget"), found["anywidget"]
    # anywidget's front end serves the minor version that it was built with and no other.
    if here and there and Version(here).release[:2] != Version(there).release[:2]:
        fix = pip(f'install "anywidget=={here}"', python)
        return Finding("lab extensions", "warn", f"anywidget is {here} in the kernel and {there} in JupyterLab", fix)
    return Finding("lab extensions", "ok", text)


def _version(extension: str, folders: list[Path]) -> str | None:
    for folder in folders:
        try:
            return str(json.loads((folder / extension / "package.json").read_text(encoding="utf-8"))["version"])
        except (OSError, ValueError, KeyError):
            continue
    return None


def _folders(python: str | None) -> list[Path]:
    """Return where JupyterLab looks for extensions: in the server's environment, not in this one, if they differ."""
    from jupyter_core.paths import jupyter_path

    folders = [Path(folder) for folder in jupyter_path("labextensions")]
    if python is None:
        return folders
    ours, tail = Path(sys.prefix), Path("share/jupyter/labextensions")
    return [Path(python).parent.parent / tail, *(folder for folder in folders if folder != ours / tail)]


def _server_python() -> str | None:
    """Return the Python of the server that started this kernel, if it is of another environment than ours."""
    parent = os.environ.get("JPY_PARENT_PID", "")
    if not parent.isdecimal():
        return None
    try:
        command = psutil.Process(int(parent)).cmdline()
    except psutil.Error:
        return None
    # Not the resolved executable: in a virtual environment that is a link to the system's.
    python = Path(command[0]) if command else None
    if python is None or not python.is_absolute() or not python.name.startswith("python"):
        return None
    return None if python.parent == Path(sys.executable).parent else str(python)
