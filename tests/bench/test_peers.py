"""The peers' bench, with peers that speak the protocol and say how long they would have taken."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

from jupyter_infer.bench.peers import contestants as contestants_module
from jupyter_infer.bench.peers import runs
from jupyter_infer.bench.peers.contestants import LLAMA_PYTHON, Contestant, chosen, contestants
from jupyter_infer.bench.peers.measure import measure_peers
from jupyter_infer.bench.peers.ours import OURS
from jupyter_infer.bench.peers.process import PeerFailed, PeerProcess, busy_process
from jupyter_infer.bench.peers.prompts import WORDS, Prompt, PromptMaker
from jupyter_infer.bench.peers.ratios import best, decode_tps, figure, ratio
from jupyter_infer.bench.peers.report import report
from jupyter_infer.bench.peers.rounds import run_rounds
from jupyter_infer.bench.peers.runs import Plan
from jupyter_infer.bench.peers.text import peers_text
from jupyter_infer.cli import main
from jupyter_infer.errors import ConfigError, ModelError
from jupyter_infer.kernelspec import kernel_env
from jupyter_infer.models import ResolvedModel

FAKE = """
import json, os, sys, time

def answer(**values):
    print(json.dumps(values), flush=True)

load = json.loads(sys.stdin.readline())
with open(load["log"], "a") as log:
    log.write(load["name"] + "\\n")
if load.get("fails") == "load":
    sys.exit("this model is no model")
if load.get("unavailable"):
    answer(unavailable=load["unavailable"])
    sys.exit()
answer(facts=load.get("facts", {}), import_s=1.0, load_s=load.get("load_s", 2.0))
for line in sys.stdin:
    question = json.loads(line)
    prompts, tokens = question["prompts"], question["tokens"]
    if load.get("fails") == "run" and len(prompts) > 1:
        raise MemoryError("no room for two")
    if load.get("fails") == "hang":
        time.sleep(60)
    slower = 4 if os.path.exists(load["log"] + ".busy") else 1
    prefill_s = sum(len(prompt) for prompt in prompts) / 1000
    answer(
        tokens=len(prompts) * tokens - (load.get("fails") == "short"),
        seconds=prefill_s + slower * (tokens - 1) / load.get("steps_s", 10),
    )
"""

PLAN = Plan(tokens=5, rounds=1, repeats=2, counts=(1, 4), prefill=(8, 50))
GGUF = "/no/where.Q4_1.gguf"


def make(count: int, tokens: int, seed: int) -> list[Prompt]:
    return [Prompt("a " * tokens, tuple(range(tokens))) for _ in range(count)]


def quietly(line: str) -> None:
    pass


class Fakes:
    """Makes contestants that say what they are told to say; `started` lists them in order."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "log"
        self._script = folder / "fake.py"
        self._script.write_text(FAKE)

    def __call__(self, name: str, most: int | None = None, **load: Any) -> Contestant:
        load = {"name": name, "log": str(self.log), **load}
        return Contestant(name, (sys.executable, str(self._script)), load, dict(os.environ), most)

    @property
    def started(self) -> list[str]:
        return self.log.read_text().split()


@pytest.fixture
def fake(tmp_path: Path) -> Fakes:
    return Fakes(tmp_path)


def measured(
    entrants: Sequence[Contestant], plan: Plan = PLAN, skipped: dict[str, str] | None = None, **options: Any
) -> Any:
    return report(run_rounds(entrants, plan, make, quietly, **options), plan, skipped or {})


# Ratios.


def test_decode_is_what_the_tokens_after_the_first_took() -> None:
    assert decode_tps(4, 11, [1.0, 9.0, 1.2], [3.0, 3.2, 50.0]) == 4 * 10 / (3.2 - 1.2)
    assert decode_tps(1, 1, [1.0], [1.0]) is None
    assert decode_tps(1, 4, [1.0], [0.9]) is None  # noise is more than what was measured
    assert decode_tps(1, 4, [], []) is None


def test_a_ratio_is_of_medians_and_its_spread_is_of_rounds() -> None:
    ours, theirs = figure([10.0, 30.0, 20.0]), figure([5.0, 10.0, None])
    assert ratio(ours, theirs) == {"median": 20 / 7.5, "min": 2.0, "max": 3.0, "runs": [2.0, 3.0]}
    assert ratio(None, theirs) is None
    assert figure([None]) is None


def test_the_best_is_the_highest_median_and_nobody_where_nothing_is_known() -> None:
    speeds = {"a": {"1": figure([9.0, 1.0, 1.0])}, "b": {"1": figure([2.0])}, "c": {"1": None}}
    assert best(speeds, "1") == "b"
    assert best(speeds, "4") is None


def test_ratios_are_of_our_best_setting_and_name_it(fake: Fakes) -> None:
    found = measured(
        [
            fake("bf16", steps_s=10, facts={"weight_bytes": 1_000}),
            fake("int8", steps_s=30, facts={"weight_bytes": 600, "unread_bytes": 100}),
            fake("int8 compiled", steps_s=20),
            fake("vllm", steps_s=20),
            fake("vllm_all_cores", steps_s=5),
            fake("llama_cpp", most=1, steps_s=60),
        ],
        skipped={"transformers": "not today"},
        probe=fake("probe", facts={"sum_gbps": 40e-6, "matvec_gbps": 10e-6, "threads": 2}),
    )
    approx = pytest.approx
    assert found["ratio"]["vllm"] == {"1": approx(1.5), "4": approx(1.5)}
    assert found["ratio"]["vllm_all_cores"] == {"1": approx(6), "4": approx(6)}
    assert found["ratio"]["llama_cpp"] == {"1": approx(0.5), "4": approx(2)}  # four of ours by its single one
    assert found["ratio"]["transformers"] is None
    assert found["best"] == {"1": "int8", "4": "int8"}
    assert found["like_for_like"]["ratio"] == {"1": approx(2), "4": approx(2)}
    assert found["like_for_like"]["best"] == {"1": "bf16", "4": "bf16"}
    bf16 = found["ours"]["bf16"]
    assert bf16["decode_tps"]["4"]["median"] == approx(40)
    assert bf16["ttft_s"]["median"] == approx(0.008)
    assert bf16["prefill_tps"]["50"]["median"] == approx(1000)
    assert bf16["ceiling_tps"] == approx(40)
    assert bf16["of_ceiling"] == approx(0.25)
    assert found["ours"]["int8"]["read_bytes"] == 500  # its embedding table is not read
    assert found["ours"]["int8"]["of_ceiling"] == approx(30 / 80)
    assert found["ours"]["int8 compiled"]["of_ceiling"] is None
    assert list(found["peers"]["llama_cpp"]["decode_tps"]) == ["1"]
    json.dumps(found)
    text = peers_text(found | {"model": "tiny"})
    assert "our best setting                int8          int8" in text
    assert "transformers (skipped): not today" in text


def test_the_order_rotates_and_the_first_load_is_the_cold_one(fake: Fakes) -> None:
    entrants = [fake("bf16"), fake("vllm", load_s=7), fake("transformers")]
    plan = Plan(tokens=2, rounds=3, repeats=1, counts=(1,), prefill=(8,))
    found = measured(entrants, plan, probe=fake("probe", facts={"sum_gbps": 1, "matvec_gbps": 2}))
    assert fake.started == [
        "probe", "bf16", "vllm", "transformers",
        "probe", "vllm", "transformers", "bf16",
        "probe", "transformers", "bf16", "vllm",
    ]  # fmt: skip
    load = found["peers"]["vllm"]["load"]
    assert load["cold"] == load["warm"] == {"import_s": 1.0, "load_s": 7}
    assert len(load["runs"]) == len(found["peers"]["vllm"]["decode_tps"]["1"]["runs"]) == 3
    assert found["probe"]["gbps"] == 2


# Failures.


@pytest.mark.parametrize(
    ("fails", "says"),
    [
        ("load", "vllm ended with status 1: this model is no model"),
        ("run", "vllm ended with status 1: MemoryError: no room for two"),
        ("hang", "vllm did not answer within 2 s"),
        ("short", "vllm gave 1 tokens, and 2 were asked for"),
    ],
)
def test_a_peer_that_fails_is_one_line_and_the_others_go_on(fake: Fakes, fails: str, says: str) -> None:
    entrants = [fake("vllm", fails=fails), fake("bf16")]
    plan = Plan(tokens=5, rounds=2, repeats=1, counts=(1, 4), prefill=(8,))
    said: list[str] = []
    rounds = run_rounds(entrants, plan, make, said.append, limit_s=2)
    found = report(rounds, plan, {})
    assert found["failed"] == {"vllm": says}
    assert [line for line in said if says in line] == [f"round 1 of 2: vllm: failed: {says}"]
    assert found["ratio"]["vllm"] == {"1": None, "4": None}
    assert found["best"] == {"1": "bf16", "4": "bf16"}
    assert fake.started.count("vllm") == 1
    assert fake.started.count("bf16") == 2
    peers_text(found | {"model": "tiny"})


def test_a_setting_that_does_not_exist_says_why_and_is_tried_once(fake: Fakes) -> None:
    plan = Plan(tokens=5, rounds=2, repeats=1, counts=(1,), prefill=(8,))
    found = measured([fake("int8", unavailable="ConfigError: unknown engine setting 'bits'"), fake("bf16")], plan)
    assert found["ours"]["int8"] == {"unavailable": "ConfigError: unknown engine setting 'bits'"}
    assert found["best"] == {"1": "bf16"}
    assert fake.started == ["int8", "bf16", "bf16"]


def test_what_a_peer_started_ends_with_it(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(
        "import json, subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "sys.stdin.readline(); print(json.dumps({'child': child.pid}), flush=True); sys.stdin.read()\n"
    )
    with PeerProcess("parent", (sys.executable, str(script)), {}) as process:
        child = psutil.Process(process.ready["child"])
    with contextlib.suppress(psutil.TimeoutExpired):
        child.wait(10)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


# Beside a busy process.


@pytest.fixture
def busy(fake: Fakes, monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """The busy processes of a test; the fakes are four times slower beside one."""
    started: list[subprocess.Popen[bytes]] = []
    note = Path(f"{fake.log}.busy")

    @contextlib.contextmanager
    def noted() -> Iterator[None]:
        with busy_process() as process:
            assert process.poll() is None
            started.append(process)
            note.touch()
            try:
                yield
            finally:
                note.unlink()

    monkeypatch.setattr(runs, "busy_process", noted)
    return started


def test_decode_beside_a_busy_process_is_apart(fake: Fakes, busy: list[subprocess.Popen[bytes]]) -> None:
    plan = Plan(tokens=5, rounds=2, repeats=1, counts=(1,), prefill=(8,), beside_busy=True)
    found = measured([fake("bf16", steps_s=20), fake("vllm", steps_s=10)], plan)
    assert found["ours"]["bf16"]["decode_tps"]["1"]["median"] == pytest.approx(20)
    assert found["beside_busy"]["decode_tps"]["bf16"]["1"]["median"] == pytest.approx(5)
    assert found["beside_busy"]["ratio"]["vllm"] == {"1": pytest.approx(2)}
    assert len(busy) == 4
    assert all(process.returncode is not None for process in busy)
    assert "beside a busy process" in peers_text(found | {"model": "tiny"})


def test_the_busy_process_ends_with_whoever_started_it() -> None:
    with busy_process() as process:
        assert process.stdin is not None
        process.stdin.close()  # as when this process dies
        assert process.wait(30) == 0


# Who takes part.


def test_names_are_chosen_and_a_wrong_one_is_named() -> None:
    assert set(chosen([])) == {*OURS, "vllm", "vllm_all_cores", "transformers", "llama_cpp"}
    assert chosen(["vllm", "ours"])[:2] == ["bf16", "vllm"]
    with pytest.raises(ConfigError, match="nobody is called 'transformer'; did you mean 'transformers'"):
        chosen(["transformer"])


def test_the_command_tells_a_wrong_name_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "peers", "--only", "int9"]) == 1
    assert capsys.readouterr().err.startswith("ConfigError: nobody is called 'int9'; did you mean 'int8'")


@pytest.fixture
def model(tmp_path: Path) -> ResolvedModel:
    return ResolvedModel(name="tiny", path=tmp_path / "tiny", source="folder", weight_bytes=1)


def test_peers_run_as_they_are_shipped(model: ResolvedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in kernel_env() | {"VLLM_CPU_OMP_THREADS_BIND": ""}:
        monkeypatch.setenv(name, "7")
    found, _ = contestants(["bf16", "vllm", "vllm_all_cores", "transformers"], model, tmp_path, asked="tiny")
    ours, stock, all_cores, transformers = found
    assert dict(ours.environ) == dict(ours.environ) | kernel_env()
    assert not any(name in peer.environ for peer in (stock, all_cores, transformers) for name in kernel_env())
    tuned = {name: value for name, value in all_cores.environ.items() if name not in stock.environ}
    assert tuned == {"VLLM_CPU_NUM_OF_RESERVED_CPU": "0"}
    caches = [peer.environ["VLLM_CACHE_ROOT"] for peer in found]
    assert len(set(caches)) == len(caches)
    assert all(cache.startswith(str(tmp_path)) for cache in caches)
    assert [peer.is_ours for peer in found] == [True, False, False, False]


def test_no_llama_cpp_is_told_and_skipped(
    model: ResolvedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "modules"
    broken.mkdir()
    (broken / "llama_cpp.py").write_text("raise ImportError('built for another machine')")
    monkeypatch.setenv("PYTHONPATH", str(broken))
    monkeypatch.delenv(LLAMA_PYTHON, raising=False)
    found, skipped = contestants(["llama_cpp"], model, tmp_path, asked="tiny", gguf=GGUF)
    assert found == []
    assert "cannot import llama_cpp (ImportError: built for another machine)" in skipped["llama_cpp"]
    assert measured(found, skipped=skipped)["ratio"]["llama_cpp"] is None
    monkeypatch.setenv(LLAMA_PYTHON, str(tmp_path / "no python"))
    _, skipped = contestants(["llama_cpp"], model, tmp_path, asked="tiny", gguf=GGUF)
    assert "names no Python" in skipped["llama_cpp"]


def test_llama_cpp_runs_in_a_python_that_has_nothing_of_ours(
    model: ResolvedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "jupyter_infer.py").write_text("raise ImportError('not here')")
    (modules / "llama_cpp.py").write_text(
        "import itertools\n"
        "__version__ = '9'\n"
        "class Llama:\n"
        "    def __init__(self, **settings): self.settings = settings\n"
        "    def reset(self): self.forgot = True\n"
        "    def generate(self, ids, temp):\n"
        "        assert self.forgot and temp == 0 and self.settings['n_batch'] == 512; self.forgot = False\n"
        "        return itertools.repeat(7)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(modules))
    (llama,), skipped = contestants(["llama_cpp"], model, tmp_path, asked="tiny", gguf=GGUF)
    rounds = run_rounds([llama], PLAN, make, quietly)
    assert (rounds.failed, skipped) == ({}, {})
    (run,) = rounds.runs["llama_cpp"]
    assert list(run["decode"]) == ["1"]
    assert run["facts"]["version"] == "llama-cpp-python 9"
    assert run["facts"]["dtype"] == "Q4_1"
    _, skipped = contestants(["llama_cpp"], model, tmp_path, asked="org/other")
    assert skipped["llama_cpp"] == "there is no GGUF file of org/other; name one with --gguf"
    assert contestants_module._gguf("x/y.gguf", tmp_path) == os.path.abspath("x/y.gguf")


# Prompts.


def _save(vocabulary: dict[str, int], folder: Path) -> PromptMaker:
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="?"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    folder.mkdir(exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    return PromptMaker(folder)


def test_prompts_have_exactly_so_many_tokens(tmp_path: Path) -> None:
    maker = _save({word: index for index, word in enumerate((*WORDS, "?"))}, tmp_path / "tiny")
    prompts = maker.make(3, 33, seed=1)
    assert [len(prompt.ids) for prompt in prompts] == [33] * 3
    assert [[WORDS[index] for index in prompt.ids] for prompt in prompts] == [prompt.text.split() for prompt in prompts]
    assert len(set(prompts)) == 3
    assert maker.make(3, 33, seed=1) == prompts
    assert maker.make(3, 33, seed=2) != prompts


def test_a_model_without_a_tokenizer_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"holds no tokenizer\.json"):
        PromptMaker(tmp_path)


@pytest.mark.integration
def test_real_engines_are_measured() -> None:
    plan = Plan(tokens=4, rounds=1, repeats=1, counts=(1,), prefill=(16,))
    said: list[str] = []
    found = measure_peers(plan=plan, only=["bf16", "transformers"], say=said.append)
    assert found["failed"] == found["unavailable"] == {}, said
    assert found["best"] == {"1": "bf16"}
    assert set(found["ours"]) == {"bf16"}
    assert set(found["peers"]) == {"transformers"}
    for one in (found["ours"]["bf16"], found["peers"]["transformers"]):
        assert one["dtype"].endswith("bfloat16")
        assert one["prefill_tps"]["16"]["median"] > 0
        assert one["load"]["cold"]["load_s"] > 0
        assert one["load"]["warm"] is None
    assert found["ours"]["bf16"]["ceiling_tps"] > 0
    assert found["ratio"]["vllm"] == {"1": None}
    assert json.loads(json.dumps(found)) == found
    assert peers_text(found)


def test_a_peer_that_died_is_told_with_its_log() -> None:
    with (
        pytest.raises(PeerFailed, match="one\ntwo"),
        PeerProcess("it", (sys.executable, "-c", "exit('one\\ntwo')"), {}),
    ):
        pass
