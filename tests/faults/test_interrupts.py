"""SIGINT at every line that a cell runs, once and twice in a row: nothing runs on or is locked, and the next works."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from gate import WAIT
from IPython.core.interactiveshell import InteractiveShell

from jupyter_infer.handle import RequestHandle
from jupyter_infer.magics.infer import Interrupted
from jupyter_infer.result import Result
from jupyter_infer.results import Results

from .conftest import QUICK, Cells, on_engines, settled
from .interrupter import Interrupter, Line

CELLS = {
    "plain": "%%infer --max-tokens 3\nHi",
    "cold": "%%infer --max-tokens 3\nHi",
    "text": "%%infer -f text --max-tokens 3\nHi",
    "muted": "%%infer --max-tokens 3 --out kept\nHi;",
    "batch": "%%infer --split --max-tokens 2\none\n---\ntwo",
    "samples": "%%infer -n 2 --max-tokens 2 --no-chart\nHi",
    "json": "%%infer --json --max-tokens 2\nHi",
    "background": "%%infer -b --max-tokens 2\nHi",
    "conversation": "%%infer -c --max-tokens 2\nAnd?",
    "last": "%infer last",
    "load": "%infer load",
    "stop": "%infer stop",
}
ELSEWHERE = 15  # one in so many lines that work out, word and draw: they touch no engine


def core(line: Line) -> bool:
    """Whether a line is where a request is handed over, waited for and shown."""
    return line[0] in {"session.py", "loading.py", "handle.py", "batch.py", "interrupts.py", "magics/infer.py"} or (
        line[0].startswith(("display/", "engine/"))
    )


def prepare(cells: Cells, name: str) -> None:
    if name == "cold":
        cells.session.unload()
    if name == "conversation":
        cells.run("%%infer --max-tokens 1\nHi")


def right(outcome: Any, name: str) -> bool:
    """Whether a cell gave its answer, or said that it was interrupted."""
    if isinstance(outcome.error_in_exec, KeyboardInterrupt):
        return True
    if outcome.error_in_exec is not None:
        return False
    kinds = {"batch": Results, "background": RequestHandle, "plain": Result, "samples": Result, "conversation": Result}
    if kind := kinds.get(name):
        return isinstance(outcome.result, kind)
    return True


def interrupted(cells: Cells, name: str, line: Line, again: int | None = None) -> bool:
    """Interrupt a cell at a line; assert that it says so and that nothing is left. Return whether it came there."""
    prepare(cells, name)
    with Interrupter(line, again) as interrupter:
        try:
            outcome = cells.run(CELLS[name])
        except KeyboardInterrupt:
            assert line[0] == "magics/body.py" or again is not None, line  # where IPython itself catches none
            outcome = None
    if outcome is not None:
        assert right(outcome, name), (name, line, outcome.error_in_exec)
        if interrupter.hits:
            assert isinstance(outcome.error_in_exec, KeyboardInterrupt), (name, line)  # "Run all" stops at it
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler, (name, line)
    cells.well()
    return interrupter.hits > 0


@pytest.fixture
def lines(cells: Cells) -> Callable[[str], list[Line]]:
    """Return a function that says which lines a cell runs, those first that no other asked for runs."""
    seen: dict[Line, None] = {}

    def of(name: str) -> list[Line]:
        prepare(cells, name)
        with Interrupter() as noted:
            outcome = cells.run(CELLS[name])
        assert outcome.error_in_exec is None
        new = [line for line in noted.lines if line not in seen]
        seen.update(dict.fromkeys(new))
        return [line for number, line in enumerate(new) if core(line) or number % ELSEWHERE == 0]

    return of


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tracebacks in full take longer than what is tested."""
    monkeypatch.setattr(InteractiveShell, "showtraceback", lambda self, *args, **options: None)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("cells", QUICK, indirect=True)
def test_an_interrupt_at_any_line(cells: Cells, lines: Callable[[str], list[Line]]) -> None:
    struck = 0
    for name in CELLS:
        for line in lines(name):
            struck += interrupted(cells, name, line)
    assert struck > 300


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("cells", QUICK, indirect=True)
@pytest.mark.parametrize("again", [0, 4, 20])  # calls and returns after the first one
def test_two_interrupts_in_a_row(cells: Cells, lines: Callable[[str], list[Line]], again: int) -> None:
    struck = 0
    for name in ("plain", "cold", "background"):
        for line in [line for line in lines(name) if core(line)][again % 4 :: 12]:
            struck += interrupted(cells, name, line, again)
    assert struck > 10


# By time, on every engine.


@pytest.fixture
def front_end(cells: Cells, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Return a function that runs a cell and has it interrupted, as a front end does, when a moment is there."""

    def run(cell: str, moment: Callable[[], bool], times: int = 1) -> Any:
        over = threading.Event()

        def interrupt() -> None:
            settled(moment, "the moment never came")
            for _ in range(times):
                if not over.is_set():
                    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        try:
            outcome = cells.run(cell)
        finally:
            over.set()
            thread.join(WAIT)
        return outcome

    return run


LONG = "%%infer --max-tokens 1900 --ignore-eos\n"


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("moment", ["prefill", "decode", "batch"])
def test_an_interrupt_while_it_runs(cells: Cells, front_end: Callable[..., Any], moment: str, times: int) -> None:
    session = cells.session
    asked = len(session.history)

    def given() -> bool:
        return any(work.output_tokens for step in session.steps[seen:] for work in step.work)

    seen = len(session.steps)
    cell, when = {
        "prefill": (LONG + "word " * 800, lambda: session.status().open_requests == 1),
        "decode": (LONG + "Tell me a story.", given),
        "batch": (LONG.replace("\n", " --split\n") + "one\n---\ntwo\n---\nthree", given),
    }[moment]
    outcome = front_end(cell, when, times)
    assert isinstance(outcome.error_in_exec, Interrupted)
    [line] = outcome.error_in_exec._render_traceback_()
    assert line == "Interrupted: the text so far is kept; %infer last shows its times"
    settled(lambda: len(session.history) == asked + (3 if moment == "batch" else 1), "what it gave is not kept")
    assert {result.finish_reason for result in list(session.history)[asked:]} == {"abort"}
    cells.well()


@pytest.mark.parametrize(("cells", "times"), on_engines(2, 1), indirect=["cells"])
def test_an_interrupt_while_it_loads_leaves_a_load_that_the_next_cell_uses(
    cells: Cells, front_end: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    cells.session.unload()
    reached, go, loads = threading.Event(), threading.Event(), []

    def stand() -> None:
        loads.append(1)
        reached.set()
        assert go.wait(WAIT)

    cells.row.stages(monkeypatch, "KV pool", stand)
    outcome = front_end("%%infer\nHi", reached.is_set, times)
    assert isinstance(outcome.error_in_exec, Interrupted)
    assert str(outcome.error_in_exec) == "the model loads on; the next cell uses it, %infer unload ends it"
    assert cells.session.status().state == "loading"
    go.set()
    cells.well()
    assert loads == [1]
