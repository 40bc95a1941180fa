"""The options of ``%%infer``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from jupyter_infer.errors import ConfigError
from jupyter_infer.magics.line import Option

__all__ = ["OPTIONS", "sampling_of"]

OPTIONS = (
    Option(("-m", "--model"), "MODEL", "use this model; it is loaded if another one is"),
    Option(("-s", "--system"), "TEXT", "a system message before the prompt"),
    Option(("-t", "--temperature"), "X", "0 always takes the likeliest token"),
    Option(("--max-tokens",), "N", "output tokens at most (256)"),
    Option(("--seed",), "N", "the same seed gives the same answer"),
)

_NUMBERS: Mapping[str, Callable[[str], Any]] = {"temperature": float, "max_tokens": int, "seed": int}


def sampling_of(options: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sampling values among the options, as numbers where they are numbers.

    Raises
    ------
    ConfigError
        If a number is none.
    """
    values = dict(others)
    for name, number in _NUMBERS.items():
        if name in options:
            try:
                values[name] = number(options[name])
            except ValueError:
                word = "a whole number" if number is int else "a number"
                raise ConfigError(f"--{name.replace('_', '-')} takes {word}, not {options[name]!r}") from None
    return values
