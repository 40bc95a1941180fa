"""How long a chart takes to build, and how large it is: what a notebook waits for and keeps."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from jupyter_infer.charts import KINDS, draw
from jupyter_infer.engine.ledger import Ledger
from jupyter_infer.engine.protocol import EngineRequest
from jupyter_infer.engine.scripted import Script, ScriptedEngine, VirtualClock
from jupyter_infer.pricing import DEFAULT_PRICE, MachinePrice
from jupyter_infer.records import RequestRecord, StepRecord
from jupyter_infer.run import Run, header_of

__all__ = ["AIM_BYTES", "AIM_MS", "charts_text", "made_run", "measure_charts"]

AIM_MS, AIM_BYTES = 150, 300_000
APART_NS = 40_000_000  # between arrivals
COMPARED = 6  # runs of a comparison
MS = 1_000_000
WORDS = ("The", "sky", "looks", "blue", "since", "air", "scatters", "short", "waves", "more", "than", "long", "ones")
"""Of an answer; as long as tokens are."""


def measure_charts(*, requests: int, tokens: int, repeats: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Return the time to build each kind of chart and the bytes of what the notebook saves of it.

    Parameters
    ----------
    requests, tokens
        Requests of the run, and output tokens of each.
    repeats
        How often each chart is built; the median counts, and the first time, with Plotly's import, does not.
    say
        Told what is done.
    """
    say(f"a run of {requests} requests of {tokens} tokens")
    run = made_run(requests, tokens)
    # Repeats of two settings, a little apart.
    runs = [made_run(requests, tokens, step_ms=15 + number % 2 + number / 10) for number in range(COMPARED)]
    runs[::2] = [replace(other, header=replace(other.header, price=MachinePrice(1.0))) for other in runs[::2]]
    draw("phases", [run])
    found: dict[str, dict[str, float]] = {}
    for kind in KINDS:
        say(kind)
        shown = runs if kind == "compare" else [run]
        times, size = [], 0
        for _ in range(repeats):
            begun = time.perf_counter()
            bundle = draw(kind, shown, title="bench")._repr_mimebundle_()
            times.append((time.perf_counter() - begun) * 1e3)
            size = len(json.dumps(bundle, ensure_ascii=False, separators=(",", ":")).encode())
        found[kind] = {"build_ms": statistics.median(times), "bytes": size}
    return {"requests": requests, "tokens": tokens, "steps": len(run.steps), "repeats": repeats, "charts": found}


def made_run(requests: int, tokens: int, *, step_ms: float = 15) -> Run:
    """Return a run of the scripted engine on a virtual clock: chunked prefill, a full batch, and a pool that fills."""
    clock = VirtualClock(1_000_000_000)
    script = Script(
        answer=lambda prompt: [WORDS[number % len(WORDS)] + " " for number in range(tokens + 1)],
        step_ns=lambda count: round(step_ms * MS) + 40_000 * count,
        blocks=max(64, requests * (tokens + 120) // 48, tokens // 32 + 10),  # two thirds of what they need
        max_model_len=tokens + 1024,
    )
    engine, ledger = ScriptedEngine(script, clock=clock), Ledger("scripted")
    waiting = [(clock() + number * APART_NS, number) for number in range(requests)]
    records: list[RequestRecord] = []
    steps: list[StepRecord] = []
    while waiting or engine.has_unfinished():
        while waiting and (waiting[0][0] <= clock() or not engine.has_unfinished()):
            arrival, number = waiting.pop(0)
            clock.now_ns = max(clock.now_ns, arrival)
            words = f"{number} " + "word " * (20 + 37 * number % 180)
            request = EngineRequest(f"r{number + 1}", words[:60], engine.render(words), {"max_tokens": tokens})
            engine.add(request)
            ledger.open(request, arrival_ns=arrival, enqueued_ns=clock(), load_ns=None)
        result = engine.step()
        steps += result.steps
        records += ledger.book(result)[1]
    records.sort(key=lambda record: record.arrival_ns)
    return Run(header_of(engine.info, DEFAULT_PRICE, None, records), tuple(records), tuple(steps))


def charts_text(found: dict[str, Any]) -> str:
    """Return what was measured as a table."""
    shape = f"{found['requests']:,} requests × {found['tokens']:,} tokens in {found['steps']:,} steps"
    lines = [shape, "", f"  {'chart':<10}{'build, ms':>10}{'kB':>8}"]
    for kind, figures in found["charts"].items():
        over = [
            f"aim {aim}"
            for value, limit, aim in (
                (figures["build_ms"], AIM_MS, f"{AIM_MS} ms"),
                (figures["bytes"], AIM_BYTES, f"{AIM_BYTES // 1000} kB"),
            )
            if value > limit
        ]
        lines.append(
            f"  {kind:<10}{figures['build_ms']:>10.0f}{figures['bytes'] / 1e3:>8.0f}  {', '.join(over)}".rstrip()
        )
    return "\n".join(lines)
