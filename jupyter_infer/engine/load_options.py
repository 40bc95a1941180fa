"""What `%infer load` takes beside vLLM's own settings: another precision of the weights, and compiling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jupyter_infer.errors import ConfigError
from jupyter_infer.models.quantize import BITS

__all__ = ["LoadOptions", "split_options"]


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """Options of a load that are ours.

    Attributes
    ----------
    bits
        Load a copy of the model whose weights have so many bits, made first if need be; None loads it as it is.
    compile
        Compile the model with `torch.compile`: minutes the first time, seconds later, and faster steps.
    """

    bits: int | None = None
    compile: bool = False


def split_options(settings: Mapping[str, Any]) -> tuple[LoadOptions, dict[str, Any]]:
    """Return what is ours of the settings of a load, and what is vLLM's.

    Raises
    ------
    ConfigError
        If a value of ours is none that it can have.
    """
    rest = dict(settings)
    bits, compiled = rest.pop("bits", None), rest.pop("compile", False)
    if bits is not None and (type(bits) is not int or bits not in BITS):
        raise ConfigError(f"--bits takes {' or '.join(map(str, BITS))}, not {bits!r}")
    if not isinstance(compiled, bool):
        raise ConfigError(f"--compile is true or false, not {compiled!r}")
    if compiled and rest.get("enforce_eager"):
        raise ConfigError("--compile and --enforce-eager exclude each other; leave one out")
    return LoadOptions(bits, compiled), rest
