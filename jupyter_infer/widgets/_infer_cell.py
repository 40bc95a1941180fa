r"""A run as the text of an ``%%infer`` cell that asks the same: what `jupyter_infer.magics.line` reads back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

__all__ = ["infer_cell"]


def infer_cell(prompt: str, system: str = "", sampling: Mapping[str, Any] | None = None, model: str = "") -> str:
    """Return the text of a cell.

    Parameters
    ----------
    prompt
        What the cell asks.
    system
        The system message; an empty one is left out.
    sampling
        Sampling values of vLLM: temperature, top_p, top_k, max_tokens, seed, logprobs, stop and ignore_eos.
    model
        The model to use; an empty one is left out.
    """
    words = ["%%infer"]
    if model:
        words.append(f"-m {_quoted(model)}")
    if system:
        words.append(f"-s {_quoted(system)}")
    for name, value in (sampling or {}).items():
        option = f"--{name.replace('_', '-')}"
        if value is True:
            words.append(option)
        elif isinstance(value, list | tuple):
            words += [f"{option} {_quoted(text)}" for text in value]
        else:
            words.append(f"{option} {value!r}")
    # A final newline of a cell is no part of its prompt, so one that is meant is written twice.
    end = "\n" if prompt.endswith("\n") else ""
    return f"{' '.join(words)}\n{prompt}{end}"


def _quoted(text: str) -> str:
    r"""Return a text as a Python literal on one line. Not in ASCII: JSON's pairs of ``\ud83d`` are no Python."""
    return json.dumps(text, ensure_ascii=False)
