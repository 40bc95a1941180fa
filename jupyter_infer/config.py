"""Names and values as people type them: `--max-model-len 2048` is `max_model_len=2048`."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from jupyter_infer.errors import ConfigError, nearest

__all__ = ["DEFAULT_MAX_TOKENS", "check_names", "field_name", "parse_value"]

DEFAULT_MAX_TOKENS = 256
"""Output tokens when nobody says; vLLM's own 16 cuts answers in mid-sentence."""


def field_name(name: str) -> str:
    """Return an option's name as the field of that name: leading dashes dropped, dashes inside as underscores."""
    return name.lstrip("-").replace("-", "_")


def parse_value(text: str) -> Any:
    """Return a typed value as the Python literal that it is (also `true`, `false`, `none`, `null`), else as text."""
    words = {"true": True, "false": False, "none": None, "null": None}
    if text.strip().lower() in words:
        return words[text.strip().lower()]
    try:
        with warnings.catch_warnings():  # it may be no Python at all
            warnings.simplefilter("ignore")
            return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text


def check_names(given: Mapping[str, Any], known: Iterable[str], owned: Mapping[str, str], what: str) -> None:
    """Check that all names are known and ours to set.

    Parameters
    ----------
    given
        Names and values that somebody typed.
    known
        All names that exist.
    owned
        Names that cannot be set here, each with the reason.
    what
        What they are, for the message: ``"engine setting"``.

    Raises
    ------
    ConfigError
        For the first name that is owned (with the reason) or unknown (with the near ones).
    """
    names = set(known)
    for name in given:
        if name in owned:
            raise ConfigError(f"{what} {name!r} cannot be set: {owned[name]}")
        if name not in names:
            raise ConfigError(f"unknown {what} {name!r}{nearest(name, names) or '; %infer help lists the common ones'}")
