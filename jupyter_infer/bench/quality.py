"""What fewer bits cost in quality: how well each precision of a model predicts one text that comes with the package.

Each precision is loaded in a process of its own and reads the text once, from left to right:

* **perplexity** is ``exp`` of the mean, over all tokens but the first, of minus the natural logarithm of the
  probability that the model gave to the token that stands there. Lower is better; it is about this text and this
  model's tokens, so it compares precisions of one model and not one model with another.
* **agreement** is the share of those places where the likeliest next token is the same as in bfloat16.

One text of a thousand tokens tells apart differences of some percent, not of some tenths.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Any

from jupyter_infer.bench.peers.process import PeerFailed, PeerProcess
from jupyter_infer.errors import EngineFailed
from jupyter_infer.kernelspec import kernel_env
from jupyter_infer.models import ResolvedModel, default_model_here, resolve
from jupyter_infer.models.quantize import BITS, quantized

__all__ = ["main", "measure_quality", "quality_of", "quality_text", "sample_text"]

LONGEST = 2048
"""How many tokens of the text are read at most."""

REFERENCE = "bf16"

Say = Callable[[str], None]
Scores = Mapping[str, Sequence[float]]


def measure_quality(*, model: str | None = None, bits: Sequence[int] = BITS, say: Say) -> dict[str, Any]:
    """Return tokens, and for bfloat16, float32 and each copy what `quality_of` says.

    Parameters
    ----------
    model
        What to load; None for this machine's default.
    bits
        The widths of the copies.
    say
        Told what is being done.

    Raises
    ------
    ModelError
        The model cannot be had, or not be quantised.
    EngineFailed
        It cannot be loaded; the message says why.
    """
    found = resolve(model or default_model_here())
    loads: dict[str, tuple[ResolvedModel, dict[str, Any]]] = {
        REFERENCE: (found, {"dtype": "bfloat16"}),
        "float32": (found, {"dtype": "float32"}),
    }
    for width in dict.fromkeys(bits):
        say(f"int{width}: the copy")
        loads[f"int{width}"] = (quantized(found, width), {})
    scores = {}
    for name, (copy, settings) in loads.items():
        say(f"{name}: loading, and reading the text")
        scores[name] = _scores(name, copy, settings)
    return {"model": found.name, **quality_of(scores)}


def quality_of(scores: Mapping[str, Scores]) -> dict[str, Any]:
    """Return ``{"tokens": n, "bf16": {"perplexity": x}, NAME: {"perplexity": x, "agreement": share}, …}``.

    Parameters
    ----------
    scores
        By precision, bfloat16 (``"bf16"``) among them: ``{"logprobs": […], "best": […]}``, a value for each token.
    """
    best = scores[REFERENCE]["best"]
    made: dict[str, Any] = {"tokens": len(best)}
    for name, of in scores.items():
        made[name] = {"perplexity": math.exp(-math.fsum(of["logprobs"]) / len(best))}
        if name != REFERENCE:
            made[name]["agreement"] = sum(a == b for a, b in zip(of["best"], best, strict=True)) / len(best)
    return made


def quality_text(found: Mapping[str, Any]) -> str:
    """Return what was measured as a table."""
    lines = [f"{found['model']}, {found['tokens']:,} tokens of one text", ""]
    lines.append(f"  {'weights':<9}{'perplexity':>11}{'to bf16':>10}{'agreement':>11}")
    for name, of in found.items():
        if isinstance(of, Mapping):
            change = of["perplexity"] / found[REFERENCE]["perplexity"] - 1
            change_text = "" if name == REFERENCE else f"{change:+.1%}"
            agreement = f"{of['agreement']:.1%}" if "agreement" in of else ""
            lines.append(f"  {name:<9}{of['perplexity']:>11.3f}{change_text:>10}{agreement:>11}".rstrip())
    lines += ["", "perplexity: lower is better; agreement: the likeliest next token is the same as in bf16"]
    return "\n".join(lines)


def sample_text() -> str:
    """Return the text that is read."""
    return (files("jupyter_infer.bench") / "quality.txt").read_text(encoding="utf-8")


def _scores(name: str, model: ResolvedModel, settings: dict[str, Any]) -> Scores:
    command = [sys.executable, "-m", "jupyter_infer.bench.quality"]
    load = {"model": {**asdict(model), "path": str(model.path)}, "settings": settings}
    try:
        with PeerProcess(name, command, load, environ={**os.environ, **kernel_env()}) as process:
            return process.ready
    except PeerFailed as failed:
        raise EngineFailed(failed.line) from failed


def main() -> None:
    """Answer the one question of stdin, what to load, with what it scores; nothing else may write to stdout."""
    from jupyter_infer.engine.vllm_scores import token_scores

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what vLLM prints goes to stderr
    load = json.loads(sys.stdin.readline())
    model = ResolvedModel(**{**load["model"], "path": Path(load["model"]["path"])})
    logprobs, best = token_scores(model, load["settings"], sample_text(), longest=LONGEST)
    print(json.dumps({"logprobs": logprobs, "best": best}), file=answers, flush=True)


if __name__ == "__main__":
    main()
