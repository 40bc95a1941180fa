from __future__ import annotations

import pytest

from jupyter_infer.models.catalog import CATALOG, default_model, known_models

GIB = 2**30


@pytest.mark.parametrize(
    ("memory", "hub", "name"),
    [
        (None, True, "smollm2-135m"),
        (None, False, "smollm2-135m"),
        (80 * GIB, False, "smollm2-135m"),
        (1 * GIB, True, "smollm2-135m"),
        (100, True, "smollm2-135m"),
        (4 * GIB, True, "qwen3-0.6b"),
        (8 * GIB, True, "qwen3-1.7b"),
        (16 * GIB, True, "qwen3-4b"),
        (24 * GIB, True, "qwen3-4b"),
        (40 * GIB, True, "qwen3-8b"),
        (141 * GIB, True, "qwen3-8b"),
    ],
)
def test_default_takes_at_most_half_of_the_gpu(memory: int | None, hub: bool, name: str) -> None:
    assert default_model(memory, hub) == name


def test_names_are_lower_case_and_sorted_by_size() -> None:
    assert known_models()[0] == "smollm2-135m"
    assert all(name == name.lower() for name in known_models())
    assert len(set(known_models())) == len(CATALOG)
    assert [model.weight_bytes for model in CATALOG] == sorted(model.weight_bytes for model in CATALOG)
