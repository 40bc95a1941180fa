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
JSON_HELP = "print one JSON object and nothing else on stdout"


def add_benches(benches: Any) -> None:
    """Add the benches to the subparsers of ``bench``."""
    overhead = benches.add_parser(
        "overhead", help="what %%%%infer costs beside a bare loop", description=OVERHEAD, allow_abbrev=False
    )
    overhead.add_argument("--json", action="store_true", help=JSON_HELP)
    overhead.add_argument("-m", "--model", help="a short name, a hub id, a folder or a .gguf file")
    overhead.add_argument("--pairs", type=_positive, default=6, metavar="N", help="runs of each, in turn (6)")
    overhead.add_argument("--tokens", type=_positive, default=64, metavar="N", help="output tokens a request (64)")
    overhead.set_defaults(run=_bench_overhead)
    soak = benches.add_parser("soak", help="many mixed requests, and what they leave behind", description=SOAK)
    soak.add_argument("--json", action="store_true", help=JSON_HELP)
    soak.add_argument("-m", "--model", help="a short name, a hub id, a folder or a .gguf file")
    soak.add_argument("--requests", type=_positive, default=300, metavar="N", help="requests to run (300)")
    soak.set_defaults(run=_bench_soak)
    path = benches.add_parser("path", help="what tracing, recording and displaying cost", description=PATH)
    path.add_argument("--json", action="store_true", help=JSON_HELP)
    path.add_argument("--steps", type=_positive, default=400, metavar="N", help="steps of a round (400)")
    path.set_defaults(run=_bench_path)
    peers = benches.add_parser(
        "peers", help="our speed beside that of other engines", description=PEERS, allow_abbrev=False
    )
    peers.add_argument("--json", action="store_true", help=JSON_HELP)
    peers.add_argument("-m", "--model", help="a short name, a hub id, a folder or a .gguf file")
    peers.add_argument("--gguf", metavar="FILE", help="a GGUF file of the same model, for llama.cpp")
    peers.add_argument("--only", nargs="+", default=[], metavar="NAME", help="who takes part: ours, bf16, vllm, …")
    peers.add_argument("--beside-busy", action="store_true", help="decode once more, beside one busy process")
    peers.add_argument("--rounds", type=_positive, default=3, metavar="N", help="processes of each, in turn (3)")
    peers.add_argument("--repeats", type=_positive, default=3, metavar="N", help="runs of each kind in a process (3)")
    peers.add_argument("--tokens", type=_positive, default=64, metavar="N", help="output tokens a request (64)")
    peers.add_argument(
        "--counts", type=_positive, nargs="+", default=[1, 4, 16, 32], metavar="N", help="requests at once (1 4 16 32)"
    )
    peers.set_defaults(run=_bench_peers)
    step = benches.add_parser("step", help="where a decode step goes", description=STEP)
    step.add_argument("--json", action="store_true", help=JSON_HELP)
    step.add_argument("-m", "--model", help="a short name, a hub id, a folder or a .gguf file")
    step.add_argument("--tokens", type=_positive, default=128, metavar="N", help="decode steps to measure (128)")
    step.set_defaults(run=_bench_step)
    quality = benches.add_parser("quality", help="what fewer bits cost in quality", description=QUALITY)
    quality.add_argument("--json", action="store_true", help=JSON_HELP)
    quality.add_argument("-m", "--model", help="a short name, a hub id, a folder or a .gguf file")
    quality.add_argument("--bits", type=int, nargs="+", default=[8], metavar="N", help="bits of the copies (8)")
    quality.set_defaults(run=_bench_quality)
    charts = benches.add_parser("charts", help="how long charts take to build, and their size", description=CHARTS)
    charts.add_argument("--json", action="store_true", help=JSON_HELP)
    charts.add_argument("--requests", type=_positive, default=100, metavar="N", help="requests of the run (100)")
    charts.add_argument("--tokens", type=_positive, default=100, metavar="N", help="output tokens a request (100)")
    charts.add_argument("--repeats", type=_positive, default=5, metavar="N", help="times each is built (5)")
    charts.set_defaults(run=_bench_charts)


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
