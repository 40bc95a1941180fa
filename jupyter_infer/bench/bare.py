"""A process that steps an engine in a bare loop, with nothing of ours around it.

``python -m jupyter_infer.bench.bare`` reads a JSON object a line and answers with one: first the load, then runs.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any, TextIO

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
        self._load = load

    def __enter__(self) -> BareProcess:
        self._log = tempfile.TemporaryFile("w+", errors="replace")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "jupyter_infer.bench.bare"],
            env={**os.environ, **kernel_env()},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        try:
            self._ask(self._load)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self._end()

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()

    def run(self, prompts: Sequence[str], tokens: int) -> tuple[int, float]:
        """Return the output tokens of a run and its seconds, from the first request to the last token."""
        answer = self._ask({"prompts": list(prompts), "tokens": tokens})
        return answer["tokens"], answer["seconds"]

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # what it died of is said below
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            status = self._process.wait()
            self._log.seek(0)
            raise RuntimeError(f"the bare loop ended with status {status}:\n{self._log.read()[-2000:]}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def main() -> None:
    """Answer the questions of stdin; nothing else may write to stdout."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what an engine prints goes to stderr
    run, reset = _loaded(json.loads(sys.stdin.readline()))
    _answer(answers, {})
    for line in sys.stdin:
        question = json.loads(line)
        reset()
        begun = time.monotonic()
        tokens = run(question["prompts"], question["tokens"])
        _answer(answers, {"tokens": tokens, "seconds": time.monotonic() - begun})


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


def _answer(stream: TextIO, answer: dict[str, Any]) -> None:
    stream.write(json.dumps(answer) + "\n")
    stream.flush()


if __name__ == "__main__":
    main()
