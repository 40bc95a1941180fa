"""``jupyter infer bench …``: thin; each bench is a module of its own here."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

__all__ = ["add_benches"]

OVERHEAD = "Output tokens a second of %%infer in a real kernel, by those of a bare loop around the same engine."
SOAK = "Mixed requests from several threads, a fifth aborted, some refused; exit status 1 if anything leaks or is lost."
PEERS = (
    "Decode speed of ours ÷ that of vLLM as shipped, transformers and llama.cpp, each in a process of its own, in turn."
)
PATH = "Our own CPU time in a step and in an update of a cell, without vLLM; exit status 1 if any of it grows."
STEP = "Weights, attention, other operations, sampling, scheduling and the rest of a decode step, in milliseconds."
QUALITY = "How well bfloat16, float32 and rounded weights predict one text, and how often they choose the same token."
CHARTS = "Time to build each kind of chart, and bytes of what a notebook saves of it, without vLLM."


def add_benches(benches: Any) -> None:
    """Add the benches to the subparsers of ``bench``."""

    def bench(name: str, run: Any, does: str, about: str, *, model: bool = False) -> argparse.ArgumentParser:
        sub: argparse.ArgumentParser = benches.add_parser(name, help=does, description=about, allow_abbrev=False)
        sub.add_argument("--json", action="store_true", help="print one JSON object and nothing else on stdout")
        if model:
            sub.add_argument("-m", "--model", help="a short name, a hub id, a folder or a .gguf file")
        sub.set_defaults(run=run)
        return sub

    def count(parser: argparse.ArgumentParser, name: str, default: int, what: str) -> None:
        parser.add_argument(name, type=_positive, default=default, metavar="N", help=f"{what} ({default})")

    overhead = bench("overhead", _bench_overhead, "what %%%%infer costs beside a bare loop", OVERHEAD, model=True)
    count(overhead, "--pairs", 6, "runs of each, in turn")
    count(overhead, "--tokens", 64, "output tokens a request")
    soak = bench("soak", _bench_soak, "many mixed requests, and what they leave behind", SOAK, model=True)
    count(soak, "--requests", 300, "requests to run")
    path = bench("path", _bench_path, "what tracing, recording and displaying cost", PATH)
    count(path, "--steps", 400, "steps of a round")
    peers = bench("peers", _bench_peers, "our speed beside that of other engines", PEERS, model=True)
    peers.add_argument("--gguf", metavar="FILE", help="a GGUF file of the same model, for llama.cpp")
    peers.add_argument("--only", nargs="+", default=[], metavar="NAME", help="who takes part: ours, bf16, vllm, …")
    peers.add_argument("--beside-busy", action="store_true", help="decode once more, beside one busy process")
    count(peers, "--rounds", 3, "processes of each, in turn")
    count(peers, "--repeats", 3, "runs of each kind in a process")
    count(peers, "--tokens", 64, "output tokens a request")
    peers.add_argument(
        "--counts", type=_positive, nargs="+", default=[1, 4, 16, 32], metavar="N", help="requests at once (1 4 16 32)"
    )
    step = bench("step", _bench_step, "where a decode step goes", STEP, model=True)
    count(step, "--tokens", 128, "decode steps to measure")
    quality = bench("quality", _bench_quality, "what fewer bits cost in quality", QUALITY, model=True)
    quality.add_argument("--bits", type=int, nargs="+", default=[8], metavar="N", help="bits of the copies (8)")
    charts = bench("charts", _bench_charts, "how long charts take to build, and their size", CHARTS)
    count(charts, "--requests", 100, "requests of the run")
    count(charts, "--tokens", 100, "output tokens a request")
    count(charts, "--repeats", 5, "times each is built")


def _positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise ValueError(text)
    return number


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _bench_overhead(arguments: argparse.Namespace) -> int:
    from jupyter_infer.bench.overhead import measure_overhead, overhead_text

    found = measure_overhead(model=arguments.model, pairs=arguments.pairs, tokens=arguments.tokens, say=_say)
    print(json.dumps(found) if arguments.json else overhead_text(found))
    return 0


def _bench_peers(arguments: argparse.Namespace) -> int:
    from jupyter_infer.bench.peers.measure import measure_peers
    from jupyter_infer.bench.peers.runs import Plan
    from jupyter_infer.bench.peers.text import peers_text

    plan = Plan(
        tokens=arguments.tokens,
        rounds=arguments.rounds,
        repeats=arguments.repeats,
        counts=sorted(set(arguments.counts)),
        beside_busy=arguments.beside_busy,
    )
    found = measure_peers(model=arguments.model, plan=plan, only=arguments.only, gguf=arguments.gguf, say=_say)
    print(json.dumps(found) if arguments.json else peers_text(found))
    return 0


def _bench_soak(arguments: argparse.Namespace) -> int:
    from jupyter_infer.bench.soak import SETTINGS, as_it_must_be, measure_soak, soak_text
    from jupyter_infer.display import TerminalView
    from jupyter_infer.session import Session

    session = Session(arguments.model, **SETTINGS)
    session.load(progress=TerminalView(stream=sys.stderr).progress)
    found = measure_soak(session, requests=arguments.requests, say=_say)
    session.unload()
    print(json.dumps(found) if arguments.json else soak_text(found))
    return int(not as_it_must_be(found))


def _bench_path(arguments: argparse.Namespace) -> int:
    from jupyter_infer.bench.path import as_it_must_be, measure_path, path_text

    found = measure_path(steps=arguments.steps, say=_say)
    print(json.dumps(found) if arguments.json else path_text(found))
    return int(not as_it_must_be(found))


def _bench_step(arguments: argparse.Namespace) -> int:
    from jupyter_infer.bench.step import measure_step, step_text

    found = measure_step(model=arguments.model, tokens=arguments.tokens, say=_say)
    print(json.dumps(found) if arguments.json else step_text(found))
    return 0


def _bench_quality(arguments: argparse.Namespace) -> int:
    from jupyter_infer.bench.quality import measure_quality, quality_text

    found = measure_quality(model=arguments.model, bits=arguments.bits, say=_say)
    print(json.dumps(found) if arguments.json else quality_text(found))
    return 0


def _bench_charts(arguments: argparse.Namespace) -> int:
    from jupyter_infer.bench.charts import charts_text, measure_charts

    found = measure_charts(requests=arguments.requests, tokens=arguments.tokens, repeats=arguments.repeats, say=_say)
    print(json.dumps(found) if arguments.json else charts_text(found))
    return 0
