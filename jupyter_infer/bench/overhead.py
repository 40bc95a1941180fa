"""What ``%%infer`` costs: tokens a second in a real kernel, divided by those of a bare loop around the engine.

Both load on their own with the same settings, several times, because one load differs from the next. They forget
their prefix cache before each run and take turns, the order changing with each pair. A run in the kernel is timed by
the front end, from sending the cell to the kernel's "idle": it includes the cell's text, its messages and its chart. A
run of a `Playground` that a front end shows is timed by that one, too, from sending the request to the state "done". A
run of the bare loop is timed around the loop.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from jupyter_infer.bench.bare import BareProcess
from jupyter_infer.bench.kernel import BenchKernel, CellRun
from jupyter_infer.bench.synthetic import CALLS, STEP_NS

__all__ = ["measure_overhead", "overhead_text"]

BATCHES = (1, 16)
LOADS = 3
SYNTHETIC_TOKENS = 512
TOPICS = ("rain", "bread", "trains", "owls", "glass", "salt", "maps", "ships", "snow", "bees", "clocks", "ink")
Say = Callable[[str], None]


def measure_overhead(
    *, model: str | None = None, pairs: int = 5, tokens: int = 64, synthetic_tokens: int = SYNTHETIC_TOKENS, say: Say
) -> dict[str, Any]:
    """Return ratios (medians over the pairs) and everything that they were made of.

    Parameters
    ----------
    model
        What to load; None for this machine's default.
    pairs
        Runs of each, in turn; rounded up to as many for each load.
    tokens
        Output tokens a request.
    synthetic_tokens
        The same for steps that only pass the time.
    say
        Told what is being done.
    """
    each = -(-pairs // LOADS)
    pairs = each * LOADS
    say("loading in the kernel")
    with BenchKernel() as kernel:
        kernel.run("%load_ext jupyter_infer")
        kernel.run(f"%infer load {model!r}" if model else "%infer load")
        kernel.run("import jupyter_infer as ji")
        info = kernel.value("{'name': ji.current_session().model, 'settings': ji.current_session().info.settings}")
        path = kernel.value(f"str(__import__('jupyter_infer.models').models.resolve({info['name']!r}).path)")
        parts = []
        for load in range(LOADS):  # one load differs from the next by as much as what is measured here
            say(f"load {load + 1} of {LOADS}")
            if load:
                kernel.run("%infer unload")
                kernel.run(f"%infer load {model!r}" if model else "%infer load")
            with BareProcess({"model": path, "settings": info["settings"]}) as bare:
                parts.append(_pairs(kernel, bare, each, tokens, say))
        real = {count: _joined([part[count] for part in parts]) for count in parts[0]}
        real_beside = _beside_busy_cell(kernel, pairs, max(2, tokens // 4), say)
        kernel.run(f"from jupyter_infer.bench.synthetic import use_synthetic; use_synthetic({synthetic_tokens})")
        with BareProcess({"synthetic": synthetic_tokens}) as bare:
            synthetic = _pairs(kernel, bare, pairs, synthetic_tokens, say, what="3 ms steps")
        synthetic_beside = _beside_busy_cell(kernel, pairs, synthetic_tokens, say, what="3 ms steps")
    return {
        "ratio": {count: found["ratio"] for count, found in real.items()},
        "model": info["name"],
        "settings": info["settings"],
        "tokens": tokens,
        "pairs": pairs,
        "runs": real,
        "beside_busy_cell": real_beside,
        "synthetic": {
            "step_ms": STEP_NS / 1e6,
            "calls_a_step": CALLS,
            "tokens": synthetic_tokens,
            "ratio": {count: found["ratio"] for count, found in synthetic.items()},
            "runs": synthetic,
            "beside_busy_cell": synthetic_beside,
        },
    }


def overhead_text(found: dict[str, Any]) -> str:
    """Return what was measured as a table."""
    made = found["synthetic"]
    lines = [
        "%%infer, and one request through a Playground that is shown, ÷ a bare loop, output tokens a second;",
        f"medians of {found['pairs']} pairs (lowest to highest), and all runs together",
        "",
        f"  {'requests':>10}  {'ratio':<29}{'ours':>9}{'bare':>9}   most in a second",
    ]
    for name, runs in ((found["model"], found["runs"]), (f"{made['step_ms']:g} ms steps", made["runs"])):
        lines.append(name)
        for count, run in runs.items():
            spread = f"{run['ratio']:.3f} ({min(run['ratios']):.3f} to {max(run['ratios']):.3f})"
            spread += f", {run['ratio_of_all']:.3f}"
            ours, bare = statistics.median(run["ours_tps"]), statistics.median(run["bare_tps"])
            peak = f"{run['peak_messages']} messages, {run['peak_bytes'] / 1e3:,.0f} kB"
            lines.append(f"  {count:>10}  {spread:<29}{ours:>9,.1f}{bare:>9,.1f}   {peak}")
    lines += ["", "decode speed of one --background request beside a busy cell ÷ beside an idle kernel"]
    for name, beside in (
        (found["model"], found["beside_busy_cell"]),
        (f"{made['step_ms']:g} ms steps", made["beside_busy_cell"]),
    ):
        lines.append(f"  {name}: {beside['ratio']:.3f} ({min(beside['ratios']):.3f} to {max(beside['ratios']):.3f})")
    return "\n".join(lines)


def _pairs(
    kernel: BenchKernel, bare: BareProcess, pairs: int, tokens: int, say: Say, what: str = "the engine"
) -> dict[str, Any]:
    cells = {str(count): _cell_runs(kernel, bare, pairs, count, tokens, say, what) for count in BATCHES}
    return {**cells, "playground": _playground_runs(kernel, bare, pairs, tokens, say, what)}


def _cell_runs(
    kernel: BenchKernel, bare: BareProcess, pairs: int, count: int, tokens: int, say: Say, what: str
) -> dict[str, Any]:
    prompts = _prompts(count)
    kernel.run(f"prompts = {prompts!r}")
    line = f"%%infer --no-template -t 0 --ignore-eos --max-tokens {tokens}"

    def ours() -> CellRun:
        return kernel.run(f"{line} --prompts prompts\n" if count > 1 else f"{line}\n{prompts[0]}")

    return _pair_runs(kernel, bare, ours, prompts, pairs, tokens, say, f"{what}, {count} at once")


def _playground_runs(
    kernel: BenchKernel, bare: BareProcess, pairs: int, tokens: int, say: Say, what: str
) -> dict[str, Any]:
    """Return the runs of one request through a `Playground` whose view is this process."""
    asked = {"prompt": _prompts(1)[0], "temperature": 0, "max_tokens": tokens, "ignore_eos": True}
    kernel.run("import jupyter_infer as ji; playground = ji.Playground(); display(playground)")
    widget = kernel.value("playground.model_id")
    kernel.show(widget)
    if not kernel.value("playground._view_count"):
        raise RuntimeError("the playground does not know that it is shown")
    kernel.press(widget, "run", asked)
    prompts = [kernel.value("playground.result.record.prompt")]  # as the model reads it: a playground has the template

    def ours() -> CellRun:
        return kernel.press(widget, "run", asked)

    found = _pair_runs(kernel, bare, ours, prompts, pairs, tokens, say, f"{what}, in a playground")
    kernel.run("playground.close()")
    return found


def _pair_runs(
    kernel: BenchKernel,
    bare: BareProcess,
    ours: Callable[[], CellRun],
    prompts: Sequence[str],
    pairs: int,
    tokens: int,
    say: Say,
    what: str,
) -> dict[str, Any]:
    runs: list[CellRun] = []
    bare_tps: list[float] = []

    def mine() -> None:
        kernel.run("%infer clear cache")
        runs.append(ours())

    def theirs() -> None:
        done, seconds = bare.run(prompts, tokens)
        if done != len(prompts) * tokens:
            raise RuntimeError(f"the bare loop gave {done} tokens, and {len(prompts) * tokens} were asked for")
        bare_tps.append(done / seconds)

    for pair in range(-1, pairs):  # the first one warms up and is not counted
        say(f"{what}: {'warm-up' if pair < 0 else f'pair {pair + 1} of {pairs}'}")
        for run in (mine, theirs) if pair % 2 == 0 else (theirs, mine):
            run()
    ours_tps = [len(prompts) * tokens / run.seconds for run in runs]
    ratios = [mine / other for mine, other in zip(ours_tps[1:], bare_tps[1:], strict=True)]
    peaks = [run.peak() for run in runs]
    made = {
        "ratios": ratios,
        "ours_tps": ours_tps[1:],
        "bare_tps": bare_tps[1:],
        "peak_messages": max(messages for messages, _ in peaks),
        "peak_bytes": max(size for _, size in peaks),
    }
    return _joined([made])


def _joined(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the runs of several loads as one, with the ratios of all of them."""
    lists = {name: [value for part in parts for value in part[name]] for name in ("ratios", "ours_tps", "bare_tps")}
    return {
        "ratio": statistics.median(lists["ratios"]),
        "ratio_of_all": statistics.harmonic_mean(lists["ours_tps"]) / statistics.harmonic_mean(lists["bare_tps"]),
        **lists,
        **{name: max(part[name] for part in parts) for name in ("peak_messages", "peak_bytes")},
    }


def _beside_busy_cell(
    kernel: BenchKernel, pairs: int, tokens: int, say: Say, what: str = "the engine"
) -> dict[str, Any]:
    """Return the decode speed of a background request while a cell computes, by that while none does."""
    speeds: dict[str, list[float]] = {"busy": [], "idle": []}
    line = f"%%infer -b -o job --no-template -t 0 --ignore-eos --no-cache --max-tokens {tokens}"
    wait = {"busy": "while not job.done: pass", "idle": "job.result().text[:0]"}
    for pair in range(pairs):
        say(f"{what}, beside a busy cell: pair {pair + 1} of {pairs}")
        for state in ("busy", "idle") if pair % 2 else ("idle", "busy"):
            kernel.run(f"{line}\n{_prompts(1)[0]}")
            kernel.run(wait[state])
            speeds[state].append(kernel.value("job.result().phases.decode_tps"))
    ratios = [busy / idle for busy, idle in zip(speeds["busy"], speeds["idle"], strict=True)]
    return {"ratio": statistics.median(ratios), "ratios": ratios, **{f"{name}_tps": v for name, v in speeds.items()}}


def _prompts(count: int) -> Sequence[str]:
    return [f"{number + 1}. Some facts about {TOPICS[number % len(TOPICS)]}, for a class:" for number in range(count)]
