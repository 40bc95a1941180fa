"""The int8 copy of the default model in vLLM, on whatever this machine multiplies with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_infer.errors import ConfigError, ModelError
from jupyter_infer.models import default_model_here, resolve
from jupyter_infer.models.quantize import quantized
from jupyter_infer.session import Session

POOL = 256 << 20
SURE = "The capital of France is"
"""The model gives " Paris" more than half of the probability after this, in each precision and on each kind of CPU."""


@pytest.fixture(scope="module")
def back(session: Session) -> Iterator[None]:
    """Afterwards the default model is there again."""
    yield
    session.load(default_model_here(), kv_cache_memory_bytes=POOL)


def test_the_copy_answers_and_is_smaller(session: Session, back: None) -> None:
    plain = session.info
    assert plain is not None
    # No default of the machine: the same precision beside both.
    info = session.load(default_model_here(), bits=8, kv_cache_memory_bytes=POOL, dtype=plain.dtype)
    assert (info.model, info.dtype) == (plain.model, plain.dtype)
    assert info.weight_bytes < plain.weight_bytes
    assert any("int8 weights" in notice for notice in info.notices)
    assert "bits" not in info.settings
    assert session.generate(SURE, template=False, temperature=0, max_tokens=4).text.startswith(" Paris")
    assert session.history[-1].record.model == plain.model


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_it_runs_beside_either_precision(session: Session, back: None, dtype: str) -> None:
    if dtype == "float32" and "amx_tile" in Path("/proc/cpuinfo").read_text():
        pytest.skip("vLLM's int8 kernel for AMX takes inputs of 16 bits; float32 is chosen where there is no AVX-512")
    session.load(default_model_here(), bits=8, kv_cache_memory_bytes=POOL, dtype=dtype)
    batch = session.generate([SURE, "Count: one, two, three,"], template=False, temperature=0, max_tokens=4)
    assert batch[0].text.startswith(" Paris")
    assert batch[1].text.strip()


def test_a_width_that_is_not_made_leaves_the_engine(session: Session, back: None) -> None:
    before = session.info
    with pytest.raises(ConfigError, match=r"--bits takes 8, not 3"):
        session.load(default_model_here(), bits=3)
    assert session.info == before


def test_what_vllm_cannot_run_is_one_line(session: Session, back: None, monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.model_executor.layers.quantization.compressed_tensors.compressed_tensors import CompressedTensorsConfig

    def too_old(*args: object, **kwargs: object) -> None:
        raise RuntimeError("Quantization scheme is not supported for the current GPU. Min capability: 75.")

    monkeypatch.setattr(CompressedTensorsConfig, "_check_scheme_supported", staticmethod(too_old))
    with pytest.raises(ConfigError, match=r"with 8 bits here: Quantization scheme .*; load it without --bits"):
        session.load(default_model_here(), bits=8, kv_cache_memory_bytes=POOL)


def test_a_copy_of_a_copy_is_refused(session: Session) -> None:
    copy = quantized(resolve(default_model_here()), 8)
    with pytest.raises(ModelError, match=r"is quantised already; load it without --bits"):
        quantized(resolve(copy.path), 8)
