"""Models: from a name to a local folder in the Hugging Face layout, and the default for a machine."""

from __future__ import annotations

from jupyter_infer.models.cache import Progress, cache_dir
from jupyter_infer.models.catalog import CATALOG, CatalogModel, default_model, known_models
from jupyter_infer.models.folder import check_folder
from jupyter_infer.models.gguf import convert_gguf
from jupyter_infer.models.here import default_model_here
from jupyter_infer.models.hub import hub_answers
from jupyter_infer.models.resolve import ResolvedModel, Source, canonical_name, on_disk, resolve

__all__ = [
    "CATALOG",
    "CatalogModel",
    "Progress",
    "ResolvedModel",
    "Source",
    "cache_dir",
    "canonical_name",
    "check_folder",
    "convert_gguf",
    "default_model",
    "default_model_here",
    "hub_answers",
    "known_models",
    "on_disk",
    "resolve",
]
