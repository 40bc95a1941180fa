"""From what a user calls a model to a local folder that vLLM can load."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from jupyter_infer.errors import ModelError, nearest
from jupyter_infer.models.cache import Progress
from jupyter_infer.models.catalog import CATALOG, CatalogModel, known_models
from jupyter_infer.models.folder import check_folder
from jupyter_infer.models.gguf import convert_gguf
from jupyter_infer.models.hub import cached_snapshot, download_snapshot, hub_answers
from jupyter_infer.models.wheel import cached_wheel_model, convert_wheel

__all__ = ["ResolvedModel", "Source", "canonical_name", "on_disk", "resolve"]

Source = Literal["folder", "gguf", "hub", "wheel"]

_HUB_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """A model on this machine.

    Attributes
    ----------
    name
        What to show: the short name, the hub id, or the name of the file or folder.
    path
        An absolute folder in the Hugging Face layout.
    source
        Where it came from.
    weight_bytes
        Size of its weight files.
    bits
        Bits of a weight of a linear layer where they were rounded, else None.
    kept_bytes
        How many bytes of the weights were not rounded; None where none were.
    """

    name: str
    path: Path
    source: Source
    weight_bytes: int
    bits: int | None = None
    kept_bytes: int | None = None


def resolve(name: str | os.PathLike[str], *, progress: Progress | None = None) -> ResolvedModel:
    """Return the model `name` as a local folder, downloaded and converted first where that is needed.

    Parameters
    ----------
    name
        A short name (case does not matter), an existing folder, a ``.gguf`` file, or a hub id ``org/name``. A short
        name goes before a folder of that name, which ``./name`` reaches; a folder goes before a hub id.
    progress
        Called with the stage, bytes done and bytes in all; may be called from another thread.

    Raises
    ------
    ModelError
        No such model, or it cannot be had; one line that says what to type.
    """
    text = os.fspath(name).strip()
    if model := _short(text):
        return _from_catalog(model, progress)
    try:
        os.fsencode(text)
    except UnicodeEncodeError:  # half of a surrogate pair
        raise ModelError(f"no model {text!r}: no file can have this name") from None
    # os.path, because pathlib raises on names that are too long and on users who do not exist.
    path = Path(os.path.expanduser(text))
    if text and os.path.isdir(path):
        path = path.absolute()
        return _resolved(path.resolve().name, path, "folder")
    if path.suffix.lower() == ".gguf":
        if not os.path.isfile(path):
            raise ModelError(f"no file {path}{_near_files(path)}")
        return _resolved(path.name, convert_gguf(path.absolute(), progress=progress), "gguf")
    if _HUB_ID.fullmatch(text):
        return _resolved(text, download_snapshot(text, progress=progress), "hub")
    if "/" in text or os.sep in text:
        raise ModelError(f"no folder {path}{_near_files(path)}")
    near = nearest(text.lower(), known_models())
    hint = f"{near} Or give" if near else f"; give one of {', '.join(known_models())},"
    raise ModelError(f"no model {text!r}{hint} a hub id (org/name), a model folder or a .gguf file")


def canonical_name(name: str) -> str:
    """Return the one name of a model that has several: its short name, else an absolute path, else itself."""
    text = name.strip()
    for model in CATALOG:
        if text.lower() == model.name or text == model.hub_id:
            return model.name
    path = os.path.expanduser(text)
    return os.path.realpath(path) if os.path.exists(path) else text


def on_disk(model: CatalogModel) -> bool:
    """Return whether a model of the catalogue can be loaded without fetching it."""
    return cached_wheel_model(model) is not None or cached_snapshot(model.hub_id) is not None


def _short(text: str) -> CatalogModel | None:
    return next((model for model in CATALOG if model.name == text.lower()), None)


def _from_catalog(model: CatalogModel, progress: Progress | None) -> ResolvedModel:
    """Return what is on the machine already, else from the hub, else from the wheel."""
    if folder := cached_wheel_model(model):
        return _resolved(model.name, folder, "wheel")
    if folder := cached_snapshot(model.hub_id):
        return _resolved(model.name, folder, "hub")
    if model.wheel is None:
        return _resolved(model.name, download_snapshot(model.hub_id, progress=progress), "hub")
    if hub_answers():
        try:
            return _resolved(model.name, download_snapshot(model.hub_id, progress=progress), "hub")
        except ModelError:
            pass  # a hub that answers but does not deliver (a proxy, a rate limit): the wheel has the same model
    return _resolved(model.name, convert_wheel(model, progress=progress), "wheel")


def _resolved(name: str, folder: Path, source: Source) -> ResolvedModel:
    return ResolvedModel(name=name, path=folder, source=source, weight_bytes=check_folder(folder))


def _near_files(path: Path) -> str:
    try:
        return nearest(path.name, [entry.name for entry in path.parent.iterdir()])
    except OSError:
        return ""
