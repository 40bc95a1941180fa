"""What is installed beside us, by the packages' metadata: nothing is imported for it."""

from __future__ import annotations

import importlib.metadata

__all__ = ["installed"]


def installed(distribution: str) -> str | None:
    """Return the version of `distribution` in this environment, or None."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
