"""A process that steps an engine in a bare loop, with nothing of ours around it.

``python -m jupyter_infer.bench.bare`` reads a JSON object a line and answers with one: first the load, then runs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from jupyter_infer.bench.peers.process import PeerProcess
from jupyter_infer.bench.peers.serve import Peer, serve
from jupyter_infer.kernelspec import kernel_env

__all__ = ["BareProcess", "main"]

Run = Callable[[Sequence[str], int], int]


class BareProcess:
    """The process, seen from outside; use it as a context.

    Parameters
    ----------
    load
        ``{"model": path, "settings": {…}}`` for vLLM, ``{"synthetic": tokens}`` for steps that pass the time.
    """

    def __init__(self, load: dict[str, Any]) -> None:
        command = [sys.executable, "-m", "jupyter_infer.bench.bare"]
        self._process = PeerProcess("the bare loop", command, load, environ={**os.environ, **kernel_env()})

    def __enter__(self) -> BareProcess:
        self._process.__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        self._process.__exit__(*exc)

    def run(self, prompts: Sequence[str], tokens: int) -> tuple[int, float]:
        """Return the output tokens of a run and its seconds, from the first request to the last token."""
        answer = self._process.ask({"prompts": list(prompts), "tokens": tokens})
        return answer["tokens"], answer["seconds"]


class Bare(Peer):
    """The loop itself."""

    def __init__(self, load: dict[str, Any]) -> None:
        super().__init__()
        self._run, self._reset = _loaded(load)

    def prepare(self, question: dict[str, Any]) -> None:
        """Forget the prefix cache."""
        self._reset()

    def run(self, question: dict[str, Any]) -> int:
        """Run texts to the end and return the number of output tokens."""
        return self._run(question["prompts"], question["tokens"])


def main() -> None:
    """Answer the questions of stdin; nothing else may write to stdout."""
    serve(Bare)


def _loaded(load: dict[str, Any]) -> tuple[Run, Callable[[], object]]:
    if "synthetic" in load:
        return _synthetic(load["synthetic"]), lambda: None
    from jupyter_infer.engine.vllm_bare import bare_loop

    return bare_loop(load["model"], load["settings"])


def _synthetic(tokens: int) -> Run:
    from jupyter_infer.bench.synthetic import synthetic_engine
    from jupyter_infer.engine.protocol import EngineRequest

    engine = synthetic_engine(tokens)

    def run(prompts: Sequence[str], tokens: int) -> int:
        for index, prompt in enumerate(prompts):
            engine.add(EngineRequest(f"r{index}", prompt, engine.render(prompt), {"max_tokens": tokens}))
        count = 0
        while engine.has_unfinished():
            count += sum(len(output.token_ids) for output in engine.step().outputs)
        return count

    return run


if __name__ == "__main__":
    main()
