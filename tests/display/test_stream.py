"""An answer as text on a stream: the answer alone, progress beside it."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest
from builders import make_record

from jupyter_infer.display import CellStreamView, CellView, TerminalView, follow, view_for
from jupyter_infer.handle import RequestHandle
from jupyter_infer.records import LoadStage

from .timeline import Answer, Timeline


def test_a_terminal_gets_the_answer_alone_on_stdout(timeline: Timeline) -> None:
    stream, progress = io.StringIO(), io.StringIO()
    view = TerminalView(stream, progress)
    for stage in ("import", "import", "weights", "ready"):
        view.progress(LoadStage(stage))
    view.progress(LoadStage("model", "convert 10 %"))  # a percentage is for a terminal that can take it back
    pieces = [f"w{n}\x1b " for n in range(200)]
    follow([Answer(timeline, pieces).handle], view)
    assert stream.getvalue() == "".join(pieces).replace("\x1b", "\\x1b") + "\n"
    assert progress.getvalue() == "loading · import\nloading · weights\n"


def test_a_real_terminal_gets_one_line_of_progress_that_is_taken_back() -> None:
    stream, progress = io.StringIO(), io.StringIO()
    progress.isatty = lambda: True  # type: ignore[method-assign]
    view = TerminalView(stream, progress)
    view.progress(LoadStage("weights", "half"))
    view.end(["Hi"])
    assert progress.getvalue() == "\r\x1b[Kloading · weights · half\r\x1b[K"
    assert stream.getvalue() == "Hi\n"


def test_several_answers_are_written_to_a_terminal_at_the_end() -> None:
    stream = io.StringIO()
    view = TerminalView(stream)
    assert view.update(["a", "b"]) is False
    view.end(["a", "b"])
    assert stream.getvalue() == "[1] a\n\n[2] b\n"


def test_a_terminal_waits_for_the_step_of_an_interrupted_request() -> None:
    stream, handle = io.StringIO(), RequestHandle("r1", lambda: None)
    handle.finished(make_record())
    TerminalView(stream).later(lambda: "the result", "■ interrupted …")
    assert stream.getvalue() == "'the result'\n"


def test_a_terminal_writes_a_note_beside_the_answer() -> None:
    stream, progress = io.StringIO(), io.StringIO()
    view = TerminalView(stream, progress)
    view.end(["Hi"])
    view.note("a hint")
    assert (stream.getvalue(), progress.getvalue()) == ("Hi\n", "a hint\n")


# Plain text in a cell.


def test_plain_text_in_a_cell_is_deltas_on_stdout_within_the_budget(timeline: Timeline, outputs: list[Any]) -> None:
    stream, written = io.StringIO(), []
    write = stream.write
    stream.write = lambda text: written.append(text) or write(text)  # type: ignore[method-assign,func-returns-value]
    pieces = [f"w{n}\x1b " for n in range(5000)]
    follow([Answer(timeline, pieces).handle], CellStreamView(stream))
    assert stream.getvalue() == "".join(pieces).replace("\x1b", "\\x1b") + "\n"
    assert 20 < len(written) <= 12 * timeline.now + 2
    assert outputs == []


def test_plain_text_in_a_cell_takes_the_place_of_the_load(
    timeline: Timeline, outputs: list[Any], plain_shell: Any
) -> None:
    stream = io.StringIO()
    view = CellStreamView(stream)
    view.progress(LoadStage("import"))
    assert [message["data"]["text/plain"] for message in outputs] == ["loading · import · 0 s"]
    view.end(["Hi"])
    assert [message["data"]["text/plain"] for message in outputs][1:] == [""]  # and what else was printed stays
    assert stream.getvalue() == "Hi\n"


@pytest.mark.parametrize(
    ("kernel", "format", "background", "kind"),
    [
        (True, None, False, CellView),
        (True, "markdown", False, CellView),
        (True, "text", False, CellStreamView),
        (True, "text", True, CellView),  # another cell's stdout is no place for it
        (False, None, False, TerminalView),
        (False, "markdown", False, TerminalView),
        (False, "text", True, TerminalView),
    ],
)
def test_each_front_end_gets_the_view_that_suits_it(
    plain_shell: Any, kernel: bool, format: str | None, background: bool, kind: type
) -> None:
    shell = SimpleNamespace(kernel=object()) if kernel else plain_shell
    assert type(view_for(shell, format, in_place=background)) is kind
