"""What the bench of charts measures, and the made-up run that it draws."""

from __future__ import annotations

import json

import pytest

from jupyter_infer.bench.charts import AIM_BYTES, charts_text, made_run, measure_charts
from jupyter_infer.charts import KINDS
from jupyter_infer.cli import main


def test_the_made_up_run_is_whole_and_has_what_charts_are_about() -> None:
    run = made_run(12, 20)
    assert run.complete
    assert len(run.requests) == 12
    assert {record.output_tokens for record in run.requests} == {20}
    assert any(len(step.work) > 4 for step in run.steps)
    assert any(work.prefill_tokens for step in run.steps for work in step.work)
    assert 0 < run.utilisation <= 1


def test_every_kind_is_built_and_weighed() -> None:
    said: list[str] = []
    found = measure_charts(requests=4, tokens=5, repeats=1, say=said.append)
    assert set(found["charts"]) == set(KINDS)
    assert all(figures["bytes"] > 1000 and figures["build_ms"] > 0 for figures in found["charts"].values())
    assert said == ["a run of 4 requests of 5 tokens", *KINDS]
    json.dumps(found, allow_nan=False)


def test_the_table_marks_what_is_over_its_aim() -> None:
    charts = {"phases": {"build_ms": 20.4, "bytes": 18_400}, "tokens": {"build_ms": 151, "bytes": AIM_BYTES + 600}}
    text = charts_text({"requests": 100, "tokens": 100, "steps": 1316, "charts": charts})
    assert text.splitlines() == [
        "100 requests × 100 tokens in 1,316 steps",
        "",
        "  chart      build, ms      kB",
        "  phases            20      18",
        "  tokens           151     301  aim 150 ms, aim 300 kB",
    ]


def test_the_command_prints_one_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "charts", "--requests", "2", "--tokens", "3", "--repeats", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["requests"] == 2
