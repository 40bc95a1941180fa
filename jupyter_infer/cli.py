"""``jupyter infer …``: demo, fetch, quantize, doctor, bench, kernel install. Thin: the work is done elsewhere."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from jupyter_infer._version import __version__
from jupyter_infer.bench.commands import add_benches
from jupyter_infer.errors import ConfigError, InferError

if TYPE_CHECKING:
    from jupyter_infer.records import EngineInfo

__all__ = ["main"]

DEMO_PROMPT = "Why is the sky blue? Answer in two sentences."


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit status: 0, 1 for a failure that is said in one line, 2 for wrong usage."""
    arguments = _parser().parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except InferError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="jupyter infer", description="vLLM in the notebook kernel, and where its time goes", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"jupyter-infer {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Any, does: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=does, description=does, allow_abbrev=False)
        sub.add_argument("--json", action="store_true", help="print one JSON object and nothing else on stdout")
        sub.set_defaults(run=run)
        return sub

    demo = command("demo", _demo, "answer one prompt and show where the time and the money went")
    demo.add_argument("prompt", nargs="?", default=DEMO_PROMPT)
    demo.add_argument("-m", "--model", help="a short name, a hub id, a folder or a .gguf file")
    demo.add_argument("--max-tokens", type=int, default=64, metavar="N")
    demo.add_argument("-t", "--temperature", type=float, default=0.0, metavar="X")
    fetch = command("fetch", _fetch, "get and convert a model ahead of time")
    fetch.add_argument("model", nargs="?", help="the default model of this machine, if left out")
    fetch.add_argument("--compile", action="store_true", help="compile it as well: minutes now, seconds in a load")
    fetch.add_argument("--bits", type=int, metavar="N", help="with --compile: its copy with weights of N bits")
    quantize = command("quantize", _quantize, "make the copy of a model with fewer bits that load --bits uses")
    quantize.add_argument("model", nargs="?", help="the default model of this machine, if left out")
    quantize.add_argument("--bits", type=int, default=8, metavar="N", help="bits of a weight (8)")
    command("doctor", _doctor, "find what is wrong with this installation, and say what to type")
    bench = commands.add_parser("bench", help="measure this installation")
    add_benches(bench.add_subparsers(required=True, metavar="BENCH"))
    kernel = commands.add_parser("kernel", help="the Jupyter kernel with the right environment")
    kernels = kernel.add_subparsers(required=True, metavar="COMMAND")
    install = kernels.add_parser("install", help="install it", allow_abbrev=False)
    install.add_argument("--json", action="store_true", help="print one JSON object and nothing else on stdout")
    install.add_argument("--sys-prefix", action="store_true", help="into this Python's environment, not the user's")
    install.set_defaults(run=_kernel_install)
    return parser


def _demo(arguments: argparse.Namespace) -> int:
    from jupyter_infer.display import TerminalView, follow
    from jupyter_infer.session import Session

    session = Session(arguments.model)
    view = TerminalView(stream=sys.stderr if arguments.json else sys.stdout)
    info = session.load(progress=view.progress)
    if not arguments.json:
        print(f"> {arguments.prompt}\n")
    begun_ns = time.monotonic_ns()
    handle = session.submit(arguments.prompt, max_tokens=arguments.max_tokens, temperature=arguments.temperature)
    ended: list[int] = []
    handle.when_done(lambda: ended.append(time.monotonic_ns()))  # a stopwatch, without the drawing
    follow([handle], view)
    result = session.result(handle)
    wall_ns = ended[0] - begun_ns
    if arguments.json:
        print(json.dumps(_demo_json(session, result, wall_ns, info), ensure_ascii=False))
    else:
        print(_demo_text(result, wall_ns, info))
    session.unload()
    return 0


def _demo_json(session: Any, result: Any, wall_ns: int, info: Any) -> dict[str, Any]:
    """Return the demo's figures; a time that was not measured is null."""
    from jupyter_infer.frames import request_figures

    found, status = request_figures(result.record, result.price, result.api_price), session.status()
    tokens = ("text", "model", "prompt_tokens", "cached_tokens", "output_tokens")
    times = ("queued_s", "prefill_s", "decode_s", "ttft_s", "tpot_s", "e2e_s")
    return {
        **{name: found[name] for name in (*tokens, *times)},
        "wall_s": wall_ns / 1e9,
        "load_s": None if info.load_ns is None else info.load_ns / 1e9,
        "shared_s": found["shared_s"],
        "cost_usd": found["shared_usd"],
        "price": str(result.price),
        "finish_reason": found["finish_reason"],
        "rss_bytes": status.rss_bytes,
        "kv_blocks_total": info.kv_blocks_total,
        "kv_blocks_free": status.kv_blocks_free,
    }


def _demo_text(result: Any, wall_ns: int, info: Any) -> str:
    from jupyter_infer.metrics import DEFINITIONS
    from jupyter_infer.numbers import format_ns, format_share
    from jupyter_infer.pricing import format_usd

    times, money = result.phases, result.cost
    lines = ["", result.status, ""]
    for name, duration, usd in (
        ("queued", times.queued_ns, money.queued_usd),
        ("prefill", times.prefill_ns, money.prefill_usd),
        ("decode", times.decode_ns, money.decode_usd),
        ("e2e", times.e2e_ns, money.wall_usd),
    ):
        share = format_share(duration, times.e2e_ns)
        lines.append(f"  {name:<8}{format_ns(duration):>9} {share:>6} {format_usd(usd):>10}  {DEFINITIONS[name]}")
    lines += [
        f"  wall    {format_ns(wall_ns):>9}                    what a stopwatch around the call showed",
        f"  load    {format_ns(info.load_ns):>9}                    once, before the request; in no phase",
        "",
        f"price: {result.price} ({result.price.source})",
        *info.notices,
    ]
    return "\n".join(lines)


@contextlib.contextmanager
def _bar(name: str) -> Iterator[Callable[[str, int, int], None]]:
    """Show on stderr, if that is a terminal, what getting a model reports."""
    from tqdm import tqdm

    with tqdm(total=0, unit="B", unit_scale=True, desc=name, file=sys.stderr, leave=False, disable=None) as bar:

        def progress(stage: str, done: int, total: int) -> None:
            bar.set_description(f"{stage} {name}", refresh=False)
            bar.total, bar.n = total or None, done
            bar.update(0)

        yield progress


def _fetch(arguments: argparse.Namespace) -> int:
    from jupyter_infer.models import default_model_here, resolve

    if arguments.bits and not arguments.compile:
        raise ConfigError("--bits goes with --compile; a copy alone is made by: jupyter infer quantize")
    name = arguments.model or default_model_here()
    with _bar(name) as progress:
        model = resolve(name, progress=progress)
    compiled = _compiled(name, arguments.bits) if arguments.compile else None
    if arguments.json:
        told = (
            {}
            if compiled is None
            else {"notices": compiled.notices, "load_s": compiled.load_ns and compiled.load_ns / 1e9}
        )
        print(json.dumps({**asdict(model), "path": str(model.path), **told}))
    else:
        print(f"{model.name} is in {model.path} ({model.weight_bytes / 1e6:,.0f} MB, from the {model.source})")
        if compiled is not None:
            print(*compiled.notices, sep="\n")
    return int(compiled is not None and compiled.not_compiled is not None)


def _compiled(name: str, bits: int | None) -> EngineInfo:
    """Load a model compiled, so that the next load finds it, and unload it."""
    from jupyter_infer.display import TerminalView
    from jupyter_infer.session import Session

    settings: dict[str, Any] = {"compile": True} if bits is None else {"compile": True, "bits": bits}
    session = Session()
    info = session.load(name, progress=TerminalView(stream=sys.stderr).progress, **settings)
    session.unload()
    return info


def _quantize(arguments: argparse.Namespace) -> int:
    from jupyter_infer.models import default_model_here, resolve
    from jupyter_infer.models.quantize import quantized

    name = arguments.model or default_model_here()
    with _bar(name) as progress:
        model = quantized(resolve(name, progress=progress), arguments.bits, progress=progress)
    if arguments.json:
        print(json.dumps({**asdict(model), "path": str(model.path)}))
    else:
        size = f"{model.weight_bytes / 1e6:,.0f} MB"
        print(f"{model.name} is in {model.path} ({size}; %infer load {name} --bits {model.bits} takes it)")
    return 0


def _doctor(arguments: argparse.Namespace) -> int:
    from jupyter_infer.doctor import examine, render

    findings = examine()
    if arguments.json:
        print(json.dumps({"findings": [asdict(finding) for finding in findings]}))
    else:
        print(render(findings))
    return int(any(finding.state == "fail" for finding in findings))


def _kernel_install(arguments: argparse.Namespace) -> int:
    from jupyter_infer.kernelspec import DISPLAY_NAME, install_kernel, kernel_env

    path = install_kernel(prefix=sys.prefix if arguments.sys_prefix else None)
    if arguments.json:
        print(json.dumps({"path": str(path), "env": kernel_env()}))
    else:
        print(f"installed in {path}; choose {DISPLAY_NAME!r} in the notebook's kernel menu")
    return 0
