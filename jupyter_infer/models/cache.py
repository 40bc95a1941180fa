"""Folders that are either whole or absent: where converted models are kept.

A folder is built beside its place under the name ``KEY.tmp`` and renamed when it is whole, so a killed build is never
taken for a model. The builder holds the file lock ``KEY.lock``, which the system releases when a process dies: a second
process waits and finds the result, and whoever gets the lock of a leftover ``.tmp`` may delete it.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from jupyter_infer.errors import ModelError

__all__ = ["Progress", "cache_dir", "cached", "fill", "require_space"]

Progress = Callable[[str, int, int], None]
"""What long work reports to: the stage as text, bytes done, bytes in all (0 when unknown). May come from any thread."""

_FULL = {errno.ENOSPC, errno.EDQUOT}
_MOVE = "set JUPYTER_INFER_CACHE to a folder with room"


def cache_dir() -> Path:
    """Return the folder of what this package keeps: ``$JUPYTER_INFER_CACHE``, else the user's cache folder."""
    if named := os.environ.get("JUPYTER_INFER_CACHE"):
        return Path(named).expanduser().absolute()
    from platformdirs import user_cache_path

    return user_cache_path("jupyter-infer", appauthor=False)


def _place(key: str) -> Path:
    return cache_dir() / "models" / key


def cached(key: str, check: Callable[[Path], object]) -> Path | None:
    """Return the folder `key` if it is there and `check` does not raise a `ModelError` on it, else None."""
    place = _place(key)
    if not place.is_dir():
        return None
    try:
        check(place)
    except ModelError:
        return None
    return place


def fill(key: str, build: Callable[[Path], None], check: Callable[[Path], object]) -> Path:
    """Return the folder `key`, built first unless a good one is there.

    Parameters
    ----------
    key
        Its name; everything that its content depends on must be in it.
    build
        Called with an empty folder to fill. What it raises leaves nothing behind.
    check
        Raises a `ModelError` on a folder that is not good.

    Raises
    ------
    ModelError
        The disk is full or the cache cannot be written, or `build` raised it.
    """
    if place := cached(key, check):
        return place
    from filelock import FileLock

    place = _place(key)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(place.parent)
        with FileLock(place.parent / f"{key}.lock"):
            if cached(key, check) is None:
                _build(place, build, check)
    except OSError as error:
        if error.errno in _FULL:
            raise ModelError(f"the disk of {cache_dir()} is full; {_MOVE}") from error
        raise ModelError(f"cannot write to {cache_dir()} ({error.strerror or error}); {_MOVE}") from error
    return place


def _build(place: Path, build: Callable[[Path], None], check: Callable[[Path], object]) -> None:
    building = place.with_name(f"{place.name}.tmp")
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir()
    try:
        build(building)
        check(building)
        if place.exists():  # a damaged one: `cached` refused it
            shutil.rmtree(place)
        building.rename(place)
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _remove_leftovers(parent: Path) -> None:
    from filelock import FileLock, Timeout

    for leftover in parent.glob("*.tmp"):
        try:
            with FileLock(parent / f"{leftover.stem}.lock", timeout=0):
                shutil.rmtree(leftover, ignore_errors=True)
        except Timeout:  # its builder is alive
            continue


def require_space(folder: Path, needed: int) -> None:
    """Raise a `ModelError` now if the disk of `folder` cannot take `needed` bytes, before minutes are spent."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        room = f"{needed / 1e6:,.0f} MB and the disk of {cache_dir()} has {free / 1e6:,.0f} MB free"
        raise ModelError(f"the model needs {room}; {_MOVE}")
