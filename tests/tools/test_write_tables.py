from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import write_tables

from jupyter_infer.bench.peers.contestants import ORDER
from jupyter_infer.bench.peers.report import report
from jupyter_infer.bench.peers.rounds import Rounds
from jupyter_infer.bench.peers.runs import Plan

PAGE = """# Speed

<!-- table: {name} from {file} -->
old
<!-- /table -->

The end.
"""


def _run(steps_s: float, *, beside: float) -> dict[str, Any]:
    """What a process measured whose batch of any size takes so many steps a second."""
    decode = {count: {"first_s": [0.5], "all_s": [0.5 + 4 / steps_s]} for count in ("1", "4")}
    busy = {count: {"first_s": [0.5], "all_s": [0.5 + 4 / beside]} for count in ("1", "4")}
    return {
        "import_s": 10.0,
        "load_s": 2.5,
        "facts": {"version": "engine 1", "weight_bytes": 269_000_000},
        "decode": decode,
        "beside_busy": busy,
        "prefill": {"32": [0.04], "512": [0.5]},
    }


@pytest.fixture
def peers() -> dict[str, Any]:
    """What the peers' bench prints, made by its own code."""
    plan = Plan(tokens=5, rounds=2, repeats=1, counts=(1, 4), prefill=(32, 512), beside_busy=True)
    runs = {
        "bf16": [_run(20, beside=10)] * 2,
        "int8": [_run(30, beside=5)] * 2,
        "vllm": [_run(10, beside=8), _run(20, beside=8)],
        "transformers": [_run(2_000, beside=1)] * 2,
    }
    rounds = Rounds(runs, {"vllm_all_cores": "died | of it"}, {"int8 compiled": "ConfigError: no"}, [
        {"sum_gbps": 20.0, "matvec_gbps": 10.0}
    ])  # fmt: skip
    machine = {"cpus": 2, "bf16_matmul": False, "architecture": "x86_64", "python": "3.11", "date": "2026-12-01"}
    return {**report(rounds, plan, {"llama_cpp": "not installed"}), "model": "tiny", "machine": machine}


class Docs:
    """A page with one table, and the folder beside it."""

    def __init__(self, folder: Path) -> None:
        self.page = folder / "speed.md"
        (folder / "bench").mkdir()
        self._bench = folder / "bench"

    def save(self, file: str, found: Any) -> None:
        (self._bench / file).write_text(json.dumps(found))

    def write(self, name: str, file: str = "peers.json") -> str:
        """Return the table as it is written."""
        self.page.write_text(PAGE.format(name=name, file=file))
        assert write_tables.main(["--check"], self.page) == 1
        assert write_tables.main([], self.page) == 0
        assert write_tables.main(["--check"], self.page) == 0
        text = self.page.read_text()
        assert text.startswith("# Speed\n\n<!-- table: ")
        assert text.endswith("<!-- /table -->\n\nThe end.\n")
        return text.split(" -->\n")[1].rpartition("<!--")[0]


@pytest.fixture
def docs(tmp_path: Path) -> Docs:
    return Docs(tmp_path)


def test_the_tables_of_the_repository_are_what_the_files_give() -> None:
    assert write_tables.main(["--check"]) == 0


def test_ratios_stand_beside_their_targets(docs: Docs, peers: dict[str, Any]) -> None:
    docs.save("peers.json", peers)
    docs.save("targets.json", {"ratio": {"vllm": {"1": 1.5}}, "beside_busy": {"vllm": {"4": 2}}})
    assert docs.write("ratios") == (
        "| at once | 1 | 4 |\n"
        "| --- | --- | --- |\n"
        "| ours ÷ vllm | 2 (target 1.5) | 2 |\n"
        "| ours ÷ vllm_all_cores | n/a | n/a |\n"
        "| ours ÷ transformers | 0.015 | 0.015 |\n"
        "| ours ÷ llama_cpp | n/a | n/a |\n"
        "| bf16 of ours ÷ vllm_all_cores | n/a | n/a |\n"
        "| our best setting | int8 | int8 |\n"
    )
    busy = docs.write("beside-busy").splitlines()
    assert busy[2] == "| ours ÷ vllm | 1.25 | 1.25 (target 2) |"
    assert busy[-1] == "| our best setting | bf16 | bf16 |"
    del peers["beside_busy"]
    docs.save("peers.json", peers)
    assert docs.write("beside-busy") == docs.write("beside-busy-decode") == write_tables.NOT_BUSY


def test_the_other_tables_say_what_was_measured(docs: Docs, peers: dict[str, Any]) -> None:
    docs.save("peers.json", peers)
    assert "| vllm | 15 (10 to 20) | 60 (40 to 80) |\n" in docs.write("decode")
    assert "| transformers | 2,000 (2,000 to 2,000) | 8,000 (8,000 to 8,000) |\n" in docs.write("decode")
    assert "| int8 compiled | n/a | n/a |\n" in docs.write("decode")
    assert "| vllm | 8 (8 to 8) | 32 (32 to 32) |\n" in docs.write("beside-busy-decode")
    assert "| bf16 | 269 | 74.3 | 20 | 27 % |\n" in docs.write("ceiling")
    assert "| vllm | 10.0 + 2.5 | 10.0 + 2.5 |\n" in docs.write("load")
    assert docs.write("prefill").splitlines()[0] == "|  | TTFT, ms | 32 tokens, tok/s | 512 tokens, tok/s |"
    assert "| int8 | 40 | 800 | 1,024 |\n" in docs.write("prefill")
    assert docs.write("absent") == (
        "- llama_cpp: not installed\n- int8 compiled: ConfigError: no\n- vllm_all_cores: died | of it\n"
    )
    setting = docs.write("setting")
    assert setting.startswith(
        "Measured 2026-12-01: tiny, prompts of 32 tokens, 5 output tokens, greedy; 2 rounds, 1 runs"
    )
    assert "without bf16 products" in setting
    assert setting.endswith("engine 1.\n")
    assert {"bf16", "vllm"} < set(ORDER)


def test_what_a_step_costs_is_a_table(docs: Docs) -> None:
    steps = {"tracing_us_a_step": {"1": 40.4}, "recording_us_a_step": {"1": 1234.5}}
    old = {"steps": 10_000, "requests": 500, "tracing_us_a_step": {"1": 41}, "recording_us_a_step": {"1": 1300}}
    docs.save("path.json", {**steps, "display_us_an_update": {"100000": 900.2}, "old_session": old})
    assert docs.write("path", "path.json") == (
        "| CPU time a step | requests | µs | after 500 requests, 10,000 steps, µs |\n"
        "| --- | --- | --- | --- |\n"
        "| tracing | 1 | 40 | 41 |\n"
        "| recording | 1 | 1,234 | 1,300 |\n"
    )
    assert "| 100,000 | 900 |\n" in docs.write("display", "path.json")


def test_quality_stands_beside_speed(docs: Docs, peers: dict[str, Any]) -> None:
    found = {"model": "tiny", "tokens": 1000, "bf16": {"perplexity": 20.0}}
    docs.save("quality.json", found | {"int8": {"perplexity": 20.5, "agreement": 0.956}})
    assert docs.write("quality", "quality.json").splitlines()[-1] == "| int8 | 20.500 | +2.5 % | 95.6 % | n/a | n/a |"
    docs.save("peers.json", peers)
    assert docs.write("quality", "quality.json") == (
        "| weights (1,000 tokens) | perplexity | to bf16 | agreement | decode, tok/s | compiled, tok/s |\n"
        "| --- | --- | --- | --- | --- | --- |\n"
        "| bf16 | 20.000 | n/a | n/a | 20 | n/a |\n"
        "| int8 | 20.500 | +2.5 % | 95.6 % | 30 | n/a |\n"
    )


def test_a_file_that_is_not_there_is_said(docs: Docs) -> None:
    assert docs.write("ratios", "never.json") == "Not measured yet (docs/bench/never.json).\n"


def test_a_table_by_hand_is_found(docs: Docs, peers: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    docs.save("peers.json", peers)
    docs.write("ratios")
    docs.page.write_text(docs.page.read_text().replace("| 2 |", "| 3 |"))
    before = docs.page.read_text()
    assert write_tables.main(["--check"], docs.page) == 1
    assert "a table is not what its file gives" in capsys.readouterr().out
    assert docs.page.read_text() == before


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("<!-- table: speeds from peers.json -->\n<!-- /table -->\n", "no table 'speeds'; there is: setting"),
        ("<!-- table: ratios from peers.json -->\nno end\n", "a table has no end"),
        ("<!-- table: ratios from peers.txt -->\n<!-- /table -->\n", "a table has no end, or its first line is not"),
        ("<!-- table: ratios from other.json -->\n<!-- /table -->\n", "KeyError: 'best'"),
    ],
)
def test_a_mistake_on_the_page_is_named(docs: Docs, text: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    docs.save("other.json", {"some": "thing"})
    docs.page.write_text(text)
    assert write_tables.main([], docs.page) == 1
    printed = capsys.readouterr()
    assert says in printed.out + printed.err
    assert docs.page.read_text() == text


def test_an_unknown_option_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert write_tables.main(["--chek"]) == 2
    assert "'--chek'" in capsys.readouterr().err
