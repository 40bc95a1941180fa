"""Faults on every engine: a shell on a session of each, and what must be true after whatever went wrong.

A new engine is a row of `ENGINES`.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from conftest import use_session
from gate import WAIT
from IPython.core.displaypub import CapturingDisplayPublisher

from jupyter_infer.engine.scripted import Script, ScriptedEngine
from jupyter_infer.handle import RequestHandle
from jupyter_infer.result import Result
from jupyter_infer.session import Session


def count(prompt: str) -> list[str]:
    return [f"{prompt}:{number} " for number in range(2000)]


SCRIPT = Script(answer=count, step_ns=lambda tokens: 1_000_000)  # a request of 2000 tokens outlasts every fault
POOL = {"kv_cache_memory_bytes": 128 << 20}


@dataclass(frozen=True)
class Row:
    """What a fault has to know of an engine."""

    session: Callable[[], Session]
    """Makes one."""
    inside: Callable[[Any], tuple[object, str]]
    """Where a step of an engine can break in the middle: an object and the name of its method."""
    stages: Callable[[pytest.MonkeyPatch, str, Callable[[], None]], None]
    """Has a function called when a stage of a load begins."""
    owned: Callable[[Any], tuple[object, tuple[str, ...]]]
    """The methods that one thread alone may call."""
    quick: bool = False
    """Whether a load costs nothing, so that every case of every fault can have its own."""
    answer: Callable[[str], str] | None = None
    """The three tokens that a prompt is answered with; None where what a whole engine gave before is the right one."""


def scripted_session() -> Session:
    def factory(model: str, settings: Any, progress: Any) -> Any:
        def build(on_worker: Any) -> ScriptedEngine:
            build_stage()
            return ScriptedEngine(SCRIPT)

        return build

    return Session("scripted", factory=factory)


def build_stage() -> None:
    """Stand in the middle of a scripted load."""


def scripted_stages(monkeypatch: pytest.MonkeyPatch, stage: str, call: Callable[[], None]) -> None:
    monkeypatch.setattr(sys.modules[__name__], "build_stage", call)


def vllm_stages(monkeypatch: pytest.MonkeyPatch, stage: str, call: Callable[[], None]) -> None:
    from jupyter_infer.engine import vllm_quirks

    report = vllm_quirks.report_stages

    def reporting(executor: type, begin: Callable[[str], None]) -> type:
        def beginning(name: str) -> None:
            begin(name)
            if name == stage:
                call()

        return report(executor, beginning)

    monkeypatch.setattr(vllm_quirks, "report_stages", reporting)


ENGINES = {
    "scripted": Row(
        session=scripted_session,
        inside=lambda engine: (engine, "_finish"),
        stages=scripted_stages,
        owned=lambda engine: (engine, ("add", "abort", "step", "reset_prefix_cache", "close")),
        quick=True,
        answer=lambda prompt: "".join(count(prompt)[:3]),
    ),
    "vllm": Row(
        session=lambda: Session(**POOL),
        inside=lambda engine: (engine._engine.model_executor, "execute_model"),
        stages=vllm_stages,
        owned=lambda engine: (engine._engine, ("add_request", "abort_request", "step", "reset_prefix_cache")),
    ),
}
MARKS = {"vllm": (pytest.mark.integration,)}
QUICK = [pytest.param(name, marks=MARKS.get(name, ())) for name, row in ENGINES.items() if row.quick]


def on_engines(*cases: Any) -> list[Any]:
    """Return each case with each engine that loads quickly, and the first one with the others, as pytest takes them."""
    return [
        pytest.param(name, case, marks=MARKS.get(name, ()), id=f"{name}-{number}")
        for name, row in ENGINES.items()
        for number, case in enumerate(cases if row.quick else cases[:1])
    ]


def own_threads() -> list[str]:
    return sorted(thread.name for thread in threading.enumerate() if thread.name.startswith("jupyter-infer"))


def descriptors() -> list[str]:
    """Return what the open file descriptors of this process are."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{number}"))
        except OSError:  # the one that lists them
            continue
    return sorted(found)


def settled(look: Callable[[], bool], what: str) -> None:
    """Wait until it is so; fail a test in which it never is."""
    deadline = time.monotonic() + WAIT
    while not look():
        assert time.monotonic() < deadline, what
        time.sleep(0.002)


@dataclass
class Cells:
    """A shell as a kernel has it, with the extension on a session of one engine."""

    name: str
    row: Row
    shell: Any
    session: Session
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    descriptors: int = 0
    answers: dict[str, str] = field(default_factory=dict)

    def run(self, cell: str) -> Any:
        """Run a cell as IPython does."""
        return self.shell.run_cell(cell, store_history=True)

    def ask(self, cell: str) -> Any:
        """Run a cell; return its value, or raise what it raised."""
        outcome = self.run(cell)
        if outcome.error_in_exec is not None:
            raise outcome.error_in_exec
        return outcome.result

    def line_of(self, cell: str, kind: type[BaseException]) -> str:
        """Return the one line that a cell which cannot run says."""
        error = self.run(cell).error_in_exec
        assert isinstance(error, kind), repr(error)
        [line] = error._render_traceback_()
        assert "\n" not in line
        return line

    def running(self, tokens: int = 2, line: str = "") -> RequestHandle:
        """Begin a request in the background that does not end by itself; return when it has given so many tokens."""
        handle = self.ask(f"%%infer -b --max-tokens 1900 --ignore-eos {line}\nlong{next(self.numbers)}")
        assert len(list(itertools.islice(handle, tokens))) == tokens
        return handle

    def answers_right(self) -> None:
        """Assert that a cell gives its own answer: three tokens and nothing of another request."""
        prompt = f"ask{next(self.numbers)}" if self.row.answer else "What is the capital of France?"
        result = self.ask(f"%%infer -t 0 --max-tokens 3 --ignore-eos --no-chart\n{prompt}")
        assert isinstance(result, Result)
        assert (result.usage.output_tokens, result.finish_reason) == (3, "length")
        right = self.row.answer(prompt) if self.row.answer else ANSWERS.setdefault(self.name, result.text)
        assert result.text == right
        assert prompt in result.record.prompt

    def quiet(self) -> None:
        """Assert that nothing runs, holds blocks or was left open."""
        settled(lambda: "jupyter-infer-display" not in own_threads(), "a display waits for ever")
        settled(lambda: self.session.status().open_requests == 0, "a request runs on")
        if (info := self.session.info) is not None:
            free = self.session._worker.ask(lambda engine: engine.kv_blocks_free()).wait(WAIT)
            assert free == info.kv_blocks_total
        settled(lambda: own_threads() == ["jupyter-infer-engine"] * (info is not None), f"threads: {own_threads()}")

    def well(self) -> None:
        """Assert that all is as if nothing had happened: nothing is left of before, and the next cell works."""
        settled(lambda: self.session.status().open_requests == 0, "a request runs on")
        self.answers_right()
        assert self.run("%infer last;").error_in_exec is None
        self.quiet()
        if self.descriptors:
            settled(lambda: len(descriptors()) <= self.descriptors, f"{self.descriptors} before: {descriptors()}")


ANSWERS: dict[str, str] = {}
"""What a whole engine answered, where no script says it."""


@pytest.fixture(scope="package")
def kept() -> Iterator[dict[str, Session]]:
    """The sessions of engines that take long to load, by the name of their row."""
    sessions: dict[str, Session] = {}
    yield sessions
    for session in sessions.values():
        session.unload()


@pytest.fixture(params=[pytest.param(name, marks=MARKS.get(name, ())) for name in ENGINES])
def cells(
    request: pytest.FixtureRequest, plain_shell: Any, kept: dict[str, Session], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Cells]:
    """A shell on a loaded engine of each kind; afterwards it must be as well as before."""
    name = request.param
    row = ENGINES[name]
    if row.quick:
        session = row.session()
    elif (session := kept.get(name)) is None:
        session = kept[name] = row.session()
        session.load(take_over=True)  # from the tests that were before
    use_session(session, monkeypatch)
    plain_shell.run_line_magic("load_ext", "jupyter_infer")
    plain_shell.kernel = object()
    plain_shell.display_pub = CapturingDisplayPublisher()
    made = Cells(name, row, plain_shell, session)
    made.answers_right()
    made.quiet()
    made.descriptors = len(descriptors())
    yield made
    if row.quick:
        session.unload()
    else:
        session.stop()
