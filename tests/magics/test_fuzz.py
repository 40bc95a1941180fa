"""Ten thousand cells that nobody would type: each is answered, or refused in one line, and leaves nothing behind."""

from __future__ import annotations

import gc
import io
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

from gate import WAIT, wait_for_drawing
from IPython.core.displaypub import CapturingDisplayPublisher

from jupyter_infer.engine.protocol import Rendered
from jupyter_infer.engine.scripted import Script, ScriptedEngine
from jupyter_infer.errors import ConfigError, InferError
from jupyter_infer.handle import RequestHandle
from jupyter_infer.magics.commands import COMMANDS
from jupyter_infer.magics.line import Option
from jupyter_infer.magics.options import OPTIONS
from jupyter_infer.result import Refused, Result
from jupyter_infer.results import Results
from jupyter_infer.session import Session

from .conftest import ask
from .test_fidelity import PIECES

CELLS = 10_000
FRONT_END_CELLS = 250
"""After so many cells the front end changes: a terminal, a notebook, a terminal, …"""
SEED = 20261130

VALUES: Mapping[str, tuple[str, ...]] = {
    "model": ("scripted", "other", "org/model", "'a b'", "''"),
    "temperature": ("0", "0.7", "2", "1e-9", "'0.5'"),
    "max_tokens": ("1", "3", "64", "1_000", "'2'"),
    "top_p": ("0.1", "1", "1.0"),
    "top_k": ("1", "40", "-1", "0"),
    "seed": ("0", "7", "-7", "123456789"),
    "n": ("1", "2", "3"),
    "logprobs": ("0", "5", "20", "21"),
    "stop": ("stop", "'\\n\\n'", '"\'"', "===", "'é'"),
    "regex": ("a+", "'[a-z]{3}'", "\\d"),
    "choice": ("yes", "'no way'"),
    "schema": ("schema", "x", "nowhere.json"),
    "sampling": (
        "min_p 0.05",
        "min-p 1",
        "min_p 'x'",
        "n 2",
        "nothing 1",
        "stop ['a','b']",
        "seed None",
        "max_tokens true",
    ),
    "prompts": ("texts", "empty", "x", "missing", "mixed"),
    "split": ("---", "'\\n'", "'\\n\\n'", "###", "''", ""),
    "out": ("kept", "_kept", "größe", "class", "not-a-name", "''"),
    "format": ("markdown", "text", "html"),
    "system": ("brief", "'be brief'", "'line\\nline'", "''", "'\\ud800'", "'\\0'"),
}
"""Values by option, most of them right ones."""

WRONG = (
    *(
        "many",
        "nan",
        "inf",
        "-inf",
        "1e999",
        "-1",
        "-0.0",
        "0x10",
        "٣",
        "1,5",
        "1" * 400,
        "9" * 5000,
        "true",
        "None",
        "[]",
        "{}",
    ),
    *(
        "''",
        '""',
        "'open",
        '"open',
        "'a'b",
        "'\\x'",
        "'\\N{nothing}'",
        "'\\",
        "--",
        "-",
        "=",
        "==",
        "--=",
        "'='",
        ";",
        "{x}",
        "$x",
    ),
    *(
        "[" * 300,
        "{" * 300,
        "-" * 300,
        "1if",
        "1or 2",
        "['\\d']",
        "\\",
        "\\n",
        "?",
        "??",
        "!",
        "#",
        "%",
        "\0",
        "\x1b[31m",
    ),
    *(
        "\ud800",
        "\u202e",
        "e\u0301",
        "👩‍👩‍👧",
        "\x85",
        "\v",
        "\f",
        "\x1c",
        "\u2028",
        "\xa0",
        "\ufeff",
        "\u200b",
        "語",
        "﹣t",
        "–t",
        "－－stop",
    ),
)
"""What is no value of most options, and no option."""

LINES: Mapping[str, tuple[str, ...]] = {
    "load": (
        "",
        "scripted",
        "other --max-model-len 512",
        "a b",
        "--model x",
        "--dtype=bfloat16",
        "--self 1",
        "--x 1 --x 2",
    ),
    "tokens": ("", "one two", "'one\\ntwo'", "'open", "'\\ud800'", "Why?", "{x} $x", "\0 \x1b[2J"),
    "price": ("", "0.4", "$1", "2/h", "clear", "-1", "nan", "inf", "dear", "1e300", "1e-300"),
    "clear": ("", "chat", "history", "cache", "all", "chat history"),
}
"""What stands after a command, right and wrong."""


class Checking(ScriptedEngine):
    """A scripted engine that refuses sampling values as vLLM does."""

    def admit(self, prompt: Rendered, sampling: Mapping[str, Any]) -> Mapping[str, Any]:
        values = super().admit(prompt, sampling)
        for name, kind, least in (
            ("n", int, 1),
            ("max_tokens", int, 1),
            ("temperature", float | int, 0),
            ("top_p", float | int, 0),
            ("top_k", int, -1),
            ("min_p", float | int, 0),
        ):
            value = values.get(name)
            if value is not None and not (isinstance(value, kind) and least <= value <= 10**6):  # type: ignore[operator]
                raise ConfigError(f"{name} cannot be {value!r:.60}")
        return values


class Cells:
    """Draws cells, the same ones in each run."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def draw(self) -> str:
        if self.random.random() < 0.12:
            return self.command()
        space = self.random.choice((" ", " ", " ", "  ", "\t"))
        return f"%%infer{space}{self.line()}\n{self.body()}"

    def line(self) -> str:
        words = [self.option() for _ in range(self.random.choice((0, 0, 1, 1, 1, 2, 2, 3, 5)))]
        line = self.random.choice((" ", " ", "  ", "\t")).join(words)
        while self.random.random() < 0.2:
            line = self.changed(line)
        return f"{line};" if self.random.random() < 0.05 else line

    def option(self) -> str:
        option: Option = self.random.choice(OPTIONS)
        name = self.random.choice(option.names)
        if self.random.random() < 0.1:
            name = self.changed(name)
        chance = self.random.random()
        if chance < 0.8:
            value = self.random.choice(VALUES.get(option.field, WRONG)) if option.value else ""
        elif chance < 0.9:
            value = self.random.choice(WRONG)
        else:
            text = self.text()
            value = self.random.choice(("", text, repr(text)))
        if self.random.random() < 0.05:
            name = self.random.choice((*WRONG, "word", value))
        return f"{name}{self.random.choice((' ', ' ', ' ', '=', '  ', '= '))}{value}" if value else name

    def body(self) -> str:
        if self.random.random() < 0.04:
            return self.random.choice(("", "\n", " \n\t", "\r\n", "\x1c", "\u2028"))
        return self.text() + self.random.choice(("", "", "\n", "word", " ;", "\n---\nword", "{x} {thing} {texts[0]}"))

    def text(self) -> str:
        pieces = [self.random.choice(PIECES) for _ in range(self.random.choice((1, 2, 3, 8)))]
        if self.random.random() < 0.03:
            pieces.append(self.random.choice(("\ud800", "\udfff", "word " * 5000, "{" * 5000, "{x}" * 500)))
        return "".join(pieces)

    def changed(self, text: str) -> str:
        """Return a text with a slip of the pen, or a worse one."""
        at = self.random.randint(0, len(text))
        before, after = text[:at], text[at:]
        new = self.random.choice((*"'\"=-;\\{ ", self.random.choice(WRONG), chr(self.random.randrange(0x3000))))
        return self.random.choice(
            (before + new + after, before + after[1:], before + new + after[1:], text + text[:at])
        )

    def command(self) -> str:
        name = self.random.choice(tuple(COMMANDS))
        rest = self.random.choice(
            (*LINES.get(name, ("", "", "now")), self.random.choice(WRONG), self.line(), self.text())
        )
        line = f"{self.changed(name) if self.random.random() < 0.1 else name} {rest}"
        if self.random.random() < 0.5 and line.isprintable() and not {"'", '"', "?", "\\"} & set(line):
            return f"%infer {line}"
        return f"get_ipython().run_line_magic('infer', {line!r})"  # IPython reads some lines as something else


def test_ten_thousand_cells_are_answered_or_refused_in_one_line(shell: Any, session: Session) -> None:
    """Protects the one promise to who types: an answer, or one line of ours that says what is wrong, never a traceback.

    And the one to who comes after: whatever was typed before, no request is left open, no block of the KV pool taken,
    no thread running, no engine unclosed, and a plain cell still answers. The cells are drawn from the table of
    options, so an option that is added is tried with everything, too.
    """
    cells, outcomes, engines = Cells(SEED), Counter[str](), list[ScriptedEngine]()
    session._factory = factory(engines)
    note_handles(session)
    shell.run_line_magic("config", "InferMagics.chart = False")
    ask(shell, "%%infer\nHi")
    threads = set(threading.enumerate())
    for number in range(CELLS):
        in_notebook = number // FRONT_END_CELLS % 2
        shell.kernel, shell.display_pub = object() if in_notebook else None, CapturingDisplayPublisher()
        shell.user_ns.update(
            x=1, texts=["one", "two"], empty=[], mixed=["good", "", "\ud800"], thing={}, schema={"type": "string"}
        )
        cell = cells.draw()
        try:
            outcomes[check(shell, session, cell)] += 1
        except BaseException as error:
            error.add_note(f"cell {number}: {cell!r}")
            raise
    assert outcomes.total() == CELLS >= 10_000
    assert outcomes["answer"] > CELLS / 4, outcomes
    assert outcomes["ConfigError"] > CELLS / 4, outcomes
    assert outcomes["PromptError"] > CELLS / 50, outcomes
    assert set(outcomes) <= {"answer", "command", "ConfigError", "PromptError"}, outcomes

    shell.kernel = None
    wait_for_drawing()
    assert ask(shell, "%%infer -t 0\nHi").text == "Hello, world."
    assert session.status().open_requests == 0
    assert session.status().kv_blocks_free == Script().blocks
    assert all(engine.closed for engine in engines[:-1])
    assert not [found for found in gc.get_objects() if type(found) is RequestHandle and not found.done]
    ask(shell, "%infer unload")
    assert engines[-1].closed
    for thread in set(threading.enumerate()) - threads:
        thread.join(10)
        assert not thread.is_alive(), thread


def check(shell: Any, session: Session, cell: str) -> str:
    """Run a cell, check that it went right, and return how it went."""
    out, err, handles = io.StringIO(), io.StringIO(), session.handles  # type: ignore[attr-defined]
    handles.clear()
    with redirect_stdout(out), redirect_stderr(err):
        outcome = shell.run_cell(cell)
    error, value = outcome.error_in_exec, outcome.result
    assert error is None or all(handle.done for handle in handles)
    for handle in handles:  # it may run in the background
        handle.record(WAIT)
    wait_until(lambda: session._worker.open_requests == 0)
    assert outcome.error_before_exec is None
    assert "Traceback" not in out.getvalue() + err.getvalue()
    assert all(line.startswith(("loading · ", "hint: ")) for line in err.getvalue().splitlines() if line), (
        err.getvalue()
    )
    if error is not None:
        assert isinstance(error, InferError), repr(error)
        assert not {"\n", "\r"} & set(str(error)), str(error)
        assert out.getvalue().endswith(f"{type(error).__name__}: {error}\n")
        return type(error).__name__
    wait_for_drawing()
    if isinstance(value, Result) and cell.startswith("%%infer"):
        _, body = re.split(r"\r\n|\r|\n", cell, maxsplit=1)
        assert "{" in body or value.record.prompt.endswith(body.removesuffix("\n"))
    for result in [value] if isinstance(value, Result) else value if isinstance(value, Results) else ():
        assert isinstance(result, Refused) or all("Hello, world.".startswith(text) for text in result.texts)
    return "answer" if cell.startswith("%%infer") else "command"


def note_handles(session: Session) -> None:
    """Let `session.handles` list the requests that it took."""
    session.handles, prepare = [], session._prepare  # type: ignore[attr-defined]

    def noted(*given: Any, **options: Any) -> Any:
        submission = prepare(*given, **options)
        session.handles.append(submission.sink)  # type: ignore[attr-defined]
        return submission

    session._prepare = noted  # type: ignore[method-assign]


def wait_until(condition: Callable[[], bool]) -> None:
    for _ in range(1000 * WAIT):
        if condition():
            return
        time.sleep(0.001)
    raise AssertionError("it does not come true")


def factory(engines: list[ScriptedEngine]) -> Callable[..., Any]:
    def build(on_worker: Any) -> ScriptedEngine:
        engines.append(Checking(Script(step_ns=lambda tokens: 0), sleep=lambda ns: None))
        return engines[-1]

    return lambda model, values, progress: build
