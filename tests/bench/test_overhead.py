"""The overhead benchmark, with steps that only pass the time: a real kernel, a real bare loop, and no model."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jupyter_infer.bench.bare import BareProcess
from jupyter_infer.bench.kernel import BenchKernel, CellRun
from jupyter_infer.bench.overhead import _beside_busy_cell, _cell_runs, _joined, _playground_runs, overhead_text

TOKENS = 12


@pytest.fixture(scope="module")
def kernel() -> Iterator[BenchKernel]:
    with BenchKernel() as kernel:
        kernel.run("%load_ext jupyter_infer")
        kernel.run(f"from jupyter_infer.bench.synthetic import use_synthetic; use_synthetic({TOKENS})")
        yield kernel


@pytest.mark.parametrize("count", [1, 16])
def test_both_sides_run_every_token_of_every_pair(kernel: BenchKernel, count: int) -> None:
    said: list[str] = []
    with BareProcess({"synthetic": TOKENS}) as bare:
        found = _cell_runs(kernel, bare, 3, count, TOKENS, said.append, "steps")
    assert len(found["ratios"]) == len(found["ours_tps"]) == len(found["bare_tps"]) == 3
    assert found["ratio"] == sorted(found["ratios"])[1] > 0
    assert said[0].endswith("warm-up")
    requests = kernel.value("[r.usage.output_tokens for r in __import__('jupyter_infer').current_session().history]")
    assert requests[-count:] == [TOKENS] * count


def test_a_playground_that_is_shown_runs_every_token_of_every_pair(kernel: BenchKernel) -> None:
    with BareProcess({"synthetic": TOKENS}) as bare:
        found = _playground_runs(kernel, bare, 3, TOKENS, lambda line: None, "steps")
    assert len(found["ratios"]) == len(found["ours_tps"]) == 3
    assert found["ratio"] == sorted(found["ratios"])[1] > 0
    assert 2 <= found["peak_messages"] <= 20
    requests = kernel.value("[r.usage.output_tokens for r in __import__('jupyter_infer').current_session().history]")
    assert requests[-5:] == [TOKENS] * 5  # the first one tells the prompt, the second one warms up
    assert kernel.value("playground.shown") is False


def test_a_widget_that_refuses_is_an_error(kernel: BenchKernel) -> None:
    kernel.run("import jupyter_infer as ji; empty = ji.Playground()")
    with pytest.raises(RuntimeError, match="the prompt is empty; write one, then run it"):
        kernel.press(kernel.value("empty.model_id"), "run", {})


def test_a_background_request_runs_beside_a_busy_cell_and_beside_none(kernel: BenchKernel) -> None:
    found = _beside_busy_cell(kernel, 1, TOKENS, lambda line: None)
    assert found["ratio"] == found["busy_tps"][0] / found["idle_tps"][0] > 0


def test_a_cell_that_fails_is_an_error(kernel: BenchKernel) -> None:
    with pytest.raises(RuntimeError, match="the cell '1 / 0' failed: ZeroDivisionError: division by zero"):
        kernel.run("1 / 0")
    assert kernel.value("1 + 1") == 2


def test_a_bare_loop_that_dies_says_what_of() -> None:
    with pytest.raises(RuntimeError, match="TypeError"), BareProcess({"synthetic": "many"}) as bare:
        bare.run(["Hi"], 2)


def test_the_peak_of_a_cell_is_its_busiest_second() -> None:
    assert CellRun(3.0, [(0.1, 10), (0.9, 10), (1.05, 5), (2.5, 100)], "").peak() == (3, 100)
    assert CellRun(1.0, [], "").peak() == (0, 0)


def test_runs_of_several_loads_are_one_list() -> None:
    first = {"ratios": [0.9], "ours_tps": [9.0], "bare_tps": [10.0], "peak_messages": 5, "peak_bytes": 100}
    second = {"ratios": [1.0, 1.1], "ours_tps": [10, 11], "bare_tps": [10, 10], "peak_messages": 7, "peak_bytes": 50}
    found = _joined([first, second])
    assert found["ratio"] == 1.0
    assert found["ratio_of_all"] == pytest.approx(3 / (1 / 9 + 1 / 10 + 1 / 11) / 10)
    assert (found["peak_messages"], found["peak_bytes"]) == (7, 100)
    beside = {"ratio": 0.5, "ratios": [0.4, 0.6]}
    runs = {"1": found}
    made = {"step_ms": 3.0, "runs": runs, "beside_busy_cell": beside}
    text = overhead_text({"model": "tiny", "pairs": 3, "runs": runs, "beside_busy_cell": beside, "synthetic": made})
    assert "1.000 (0.900 to 1.100)" in text
    assert "tiny: 0.500 (0.400 to 0.600)" in text
