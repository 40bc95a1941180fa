"""Where a decode step of one request goes, at each precision, eager and compiled: the parts of a step in milliseconds.

Each is loaded in a process of its own, as `%infer load` loads it. What the parts are is said in
`jupyter_infer.engine.vllm_profile.decode_profile`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from jupyter_infer.bench.peers.ours import OURS
from jupyter_infer.bench.peers.process import PeerFailed, PeerProcess
from jupyter_infer.errors import EngineFailed
from jupyter_infer.kernelspec import kernel_env
from jupyter_infer.models import default_model_here, resolve

__all__ = ["PARTS", "main", "measure_step", "step_text"]

PARTS = ("weights", "attention", "operations", "inputs", "sampling", "scheduling", "outputs", "rest")

Say = Callable[[str], None]


def measure_step(*, model: str | None = None, tokens: int = 128, say: Say) -> dict[str, Any]:
    """Return ``{"model": name, "tokens": n, "steps": {SETTING: {"step_ms": x, "weights_ms": x, …}},
    "failed": {SETTING: why}}``.

    Parameters
    ----------
    model
        What to load; None for this machine's default.
    tokens
        Decode steps to measure.
    say
        Told what is being done.
    """
    name, failed = model or default_model_here(), {}
    found, steps = resolve(name), {}
    for setting, settings in OURS.items():
        say(f"{setting}: loading, and running {tokens} steps twice")
        load = {"model": name, "settings": settings, "tokens": tokens}
        command = [sys.executable, "-m", "jupyter_infer.bench.step"]
        try:
            with PeerProcess(setting, command, load, environ={**os.environ, **kernel_env()}) as process:
                steps[setting] = process.ready
        except PeerFailed as error:
            failed[setting] = error.line
    if not steps:
        raise EngineFailed(f"no setting could be measured: {next(iter(failed.values()))}")
    return {"model": found.name, "tokens": tokens, "steps": steps, "failed": failed}


def step_text(found: Mapping[str, Any]) -> str:
    """Return what was measured as a table."""
    lines = [f"{found['model']}, a decode step of one request, ms", ""]
    lines.append(f"  {'':<15}{'step':>8}" + "".join(f"{part:>12}" for part in PARTS))
    for setting, of in found["steps"].items():
        lines.append(f"  {setting:<15}{of['step_ms']:>8.2f}" + "".join(f"{of[f'{part}_ms']:>12.2f}" for part in PARTS))
    lines += [f"{setting}: {why}" for setting, why in found["failed"].items()]
    return "\n".join(lines)


def main() -> None:
    """Answer the one question of stdin, what to load, with where its steps go; nothing else may write to stdout."""
    from jupyter_infer.engine.vllm_load import prepare
    from jupyter_infer.engine.vllm_profile import decode_profile

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what vLLM prints goes to stderr
    load = json.loads(sys.stdin.readline())
    engine = prepare(load["model"], load["settings"], lambda stage: None)(lambda stage: None)
    if engine.info.not_compiled:
        sys.exit(engine.info.not_compiled)
    print(json.dumps(decode_profile(engine, tokens=load["tokens"])), file=answers, flush=True)


if __name__ == "__main__":
    main()
