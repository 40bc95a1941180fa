from __future__ import annotations

import pytest

from jupyter_infer.bench.step import PARTS
from jupyter_infer.engine.vllm_profile import decode_profile
from jupyter_infer.session import Session


def test_the_parts_of_a_decode_step_add_up_and_the_engine_is_as_it_was(session: Session) -> None:
    engine = session._worker.engine
    runner = engine._engine.model_executor.driver_worker.model_runner  # type: ignore[union-attr]
    before = dict(vars(runner))
    found = session._worker.ask(lambda owned: decode_profile(owned, tokens=8)).wait()  # type: ignore[arg-type]
    assert sum(found[f"{part}_ms"] for part in PARTS) == pytest.approx(found["step_ms"])
    assert min(found[f"{part}_ms"] for part in ("inputs", "sampling", "scheduling", "outputs")) > 0
    assert found["weights_ms"] > 0  # the names of the operations are still these
    assert found["attention_ms"] > 0
    assert {name: value for name, value in vars(runner).items() if callable(value)} == {
        name: value for name, value in before.items() if callable(value)
    }
    assert session.generate("Say hi", max_tokens=2).usage.output_tokens >= 1
