"""An answer on a screen: few messages whatever the rate, every character of it, and nothing that it could do there."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from builders import make_record, make_sample
from IPython.core.displaypub import CapturingDisplayPublisher

from jupyter_infer import display
from jupyter_infer.display import BYTES_PER_S, UPDATES_PER_S, CellView, TerminalView, follow, printable, view_for
from jupyter_infer.errors import EngineFailed, PromptError
from jupyter_infer.handle import RequestHandle
from jupyter_infer.records import LoadStage, TokenEvent
from jupyter_infer.result import Refused


class Timeline:
    """A clock for `display`: its `sleep` passes the time, in which things happen."""

    def __init__(self) -> None:
        self.now = 0.0
        self.happen: Callable[[], None] = lambda: None

    def monotonic(self) -> float:
        return self.now

    def monotonic_ns(self) -> int:
        return round(self.now * 1e9)

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.happen()


@pytest.fixture
def timeline(monkeypatch: pytest.MonkeyPatch) -> Timeline:
    made = Timeline()
    monkeypatch.setattr(display, "time", made)
    return made


@pytest.fixture
def outputs(plain_shell: Any) -> list[dict[str, Any]]:
    """The display messages of a kernel, in order."""
    plain_shell.display_pub = CapturingDisplayPublisher()
    return plain_shell.display_pub.outputs


def texts_of(outputs: Sequence[dict[str, Any]]) -> list[str]:
    return [message["data"]["text/plain"] for message in outputs]


class Answer:
    """A request that answers with one piece a millisecond of the timeline."""

    def __init__(self, timeline: Timeline, pieces: Sequence[str], *, request_id: str = "r1") -> None:
        self.handle = RequestHandle(request_id, self.cancel)
        self.timeline, self.pieces, self.given = timeline, pieces, 0
        timeline.happen = self.give

    def give(self) -> None:
        while not self.handle.done and self.given < min(len(self.pieces), int(self.timeline.now * 1000)):
            step = self.given
            self.handle.event(TokenEvent(self.handle.request_id, 0, step, step, (step,), self.pieces[step]))
            self.given += 1
        if self.given == len(self.pieces) and not self.handle.done:
            self.handle.finished(make_record())

    def cancel(self) -> None:
        self.handle.finished(make_record(make_sample([], finish="abort")))


# The budget of messages.


def test_five_thousand_tokens_are_few_messages_and_the_whole_text(timeline: Timeline, outputs: list[Any]) -> None:
    pieces = [f"w{number} " for number in range(5000)]
    follow([Answer(timeline, pieces).handle], CellView())
    assert timeline.now == pytest.approx(5, abs=0.1)  # of the timeline
    assert 20 < len(outputs) <= UPDATES_PER_S * timeline.now + 2
    assert texts_of(outputs)[-1] == "".join(pieces)
    # One display, updated in place: the saved cell holds the text once.
    assert [message.get("update", False) for message in outputs] == [False] + [True] * (len(outputs) - 1)
    assert len({message["transient"]["display_id"] for message in outputs}) == 1


@pytest.mark.parametrize("letter", ["x", "語"])
def test_a_long_answer_is_shown_less_often(timeline: Timeline, outputs: list[Any], letter: str) -> None:
    """200 KB in one line: each message carries the whole text, so the rate falls as it grows."""
    size = len(letter.encode())
    pieces = [letter * (100 // size)] * 2000
    follow([Answer(timeline, pieces).handle], CellView())
    texts = texts_of(outputs)
    assert texts[-1] == "".join(pieces)
    sent = sum(len(text.encode()) for text in texts[:-2])
    assert sent <= BYTES_PER_S * timeline.now
    assert len(texts) > 5


def test_a_text_that_did_not_change_is_not_sent_again(timeline: Timeline, outputs: list[Any]) -> None:
    view = CellView()
    view.update(["a"])
    timeline.sleep(10)
    view.update(["a"])
    view.end(["a"])
    assert texts_of(outputs) == ["a"]


def test_the_end_is_shown_whatever_the_budget_says(timeline: Timeline, outputs: list[Any]) -> None:
    view = CellView()
    assert view.update(["a"]) is True
    assert view.update(["ab"]) is False
    view.end(["abc"])
    assert texts_of(outputs) == ["a", "abc"]


def test_a_load_shows_each_stage_and_few_of_its_details(timeline: Timeline, outputs: list[Any]) -> None:
    view = CellView()
    for percent in range(100):
        view.progress(LoadStage("model", f"convert {percent} %"))
        timeline.sleep(0.01)
    view.progress(LoadStage("import"))
    view.progress(LoadStage("config"))
    view.progress(LoadStage("ready"))
    texts = texts_of(outputs)
    assert texts[0] == "loading · model · convert 0 % · 0 s"
    assert texts[-2:] == ["loading · import · 1 s", "loading · config · 1 s"]
    assert len(texts) <= UPDATES_PER_S * 1 + 4


def test_the_answer_takes_the_place_of_the_load(timeline: Timeline, outputs: list[Any]) -> None:
    view = CellView()
    view.progress(LoadStage("weights"))
    follow([Answer(timeline, ["Hi"]).handle], view)
    assert texts_of(outputs)[-1] == "Hi"
    assert outputs[-1]["update"]


# What an answer is.


def test_control_characters_are_shown_not_obeyed() -> None:
    assert printable("a\x1b[31mred\x1b[0m\x07 b\rc\x00\x7f\x9b") == "a\\x1b[31mred\\x1b[0m\\x07 b\\x0dc\\x00\\x7f\\x9b"


def test_all_other_characters_are_kept() -> None:
    text = "a\tb\nc <img src=x onerror=1> **bold** $5 and $6 ünï 語 🙂 \u202e"
    assert printable(text) == text


def test_model_output_is_sent_as_plain_text_only(timeline: Timeline, outputs: list[Any]) -> None:
    pieces = ['<img src=x onerror="window.__p=1">', "\x1b[2J", "</pre><b>"]
    follow([Answer(timeline, pieces).handle], CellView())
    assert [set(message["data"]) for message in outputs] == [{"text/plain"}] * len(outputs)
    assert texts_of(outputs)[-1] == '<img src=x onerror="window.__p=1">\\x1b[2J</pre><b>'


def test_several_answers_are_numbered(timeline: Timeline, outputs: list[Any]) -> None:
    first = Answer(timeline, ["one"]).handle
    timeline.sleep(1)
    refused = Refused("long", PromptError("too long"))
    follow([first, refused], CellView())
    assert texts_of(outputs) == ["[1] one\n\n[2] PromptError: too long"]


def test_all_samples_of_a_request_are_shown(timeline: Timeline, outputs: list[Any]) -> None:
    handle = RequestHandle("r1", lambda: None, samples=2)
    handle.event(TokenEvent("r1", 0, 0, 0, (1,), "first"))
    handle.event(TokenEvent("r1", 1, 0, 0, (2,), "second"))
    handle.finished(make_record())
    follow([handle], CellView())
    assert texts_of(outputs) == ["[1] first\n\n[2] second"]


# When it was shown.


@pytest.mark.parametrize("pieces", [["Hi"], [f"w{n} " for n in range(300)]], ids=["at once", "streamed"])
@pytest.mark.parametrize("make", [CellView, lambda: TerminalView(io.StringIO())], ids=["cell", "terminal"])
def test_the_moment_it_was_shown_is_noted(
    timeline: Timeline, outputs: list[Any], make: Callable[[], Any], pieces: list[str]
) -> None:
    answer = Answer(timeline, pieces)
    follow([answer.handle], make())
    assert answer.handle.first_shown_ns is not None


def test_an_answer_without_text_was_never_shown(timeline: Timeline, outputs: list[Any]) -> None:
    answer = Answer(timeline, [""])
    follow([answer.handle], CellView())
    assert answer.handle.first_shown_ns is None


# Ends that are none.


def test_an_interrupt_cancels_keeps_the_text_and_goes_on(timeline: Timeline, outputs: list[Any]) -> None:
    answer = Answer(timeline, [f"w{n} " for n in range(1000)])
    give = timeline.happen

    def interrupted() -> None:
        give()
        if answer.given > 200 and not answer.handle.done:
            raise KeyboardInterrupt

    timeline.happen = interrupted
    with pytest.raises(KeyboardInterrupt):
        follow([answer.handle], CellView())
    assert answer.handle.done
    assert texts_of(outputs)[-1] == "".join(answer.pieces[: answer.given])


def test_an_interrupt_comes_back_though_the_step_goes_on(timeline: Timeline, outputs: list[Any]) -> None:
    handle, asked = RequestHandle("r1", lambda: asked.append(1)), []
    interrupts = iter([KeyboardInterrupt])

    def interrupted() -> None:
        if error := next(interrupts, None):
            raise error

    timeline.happen = interrupted
    with pytest.raises(KeyboardInterrupt):
        follow([handle], CellView())
    assert asked == [1]
    assert not handle.done
    assert timeline.now < 1  # it did not wait for the step


def test_a_request_that_failed_ends_the_display(timeline: Timeline, outputs: list[Any]) -> None:
    handle = RequestHandle("r1", lambda: None)
    handle.event(TokenEvent("r1", 0, 0, 0, (1,), "so far"))
    handle.failed(EngineFailed("the engine stopped"))
    follow([handle], CellView())  # whoever asks for the result gets the error
    assert texts_of(outputs) == ["so far"]


def wait_for_drawing() -> None:
    for thread in threading.enumerate():
        if thread.name == "jupyter-infer-display":
            thread.join(30)


def test_after_an_interrupt_the_result_is_shown_when_the_engine_let_go(outputs: list[Any]) -> None:
    handle = RequestHandle("r1", lambda: None)
    CellView().later([handle], lambda: "the result")
    assert texts_of(outputs) == ["■ interrupted …"]
    handle.finished(make_record())
    wait_for_drawing()
    assert texts_of(outputs) == ["■ interrupted …", "'the result'"]
    assert outputs[1]["update"]
    assert outputs[0]["transient"] == outputs[1]["transient"]


def test_after_an_interrupt_that_was_quick_the_result_is_shown_at_once(outputs: list[Any]) -> None:
    handle = RequestHandle("r1", lambda: None)
    handle.finished(make_record())
    CellView().later([handle], lambda: "the result")
    assert texts_of(outputs) == ["'the result'"]


def test_after_an_interrupt_a_failure_is_a_line(outputs: list[Any]) -> None:
    handle = RequestHandle("r1", lambda: None)
    CellView().later([handle], handle.record)
    handle.failed(EngineFailed("the engine stopped"))
    wait_for_drawing()
    assert texts_of(outputs)[-1] == "EngineFailed: the engine stopped"


# A terminal.


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
    TerminalView(stream).later([handle], lambda: "the result")
    assert stream.getvalue() == "'the result'\n"


def test_a_kernel_gets_a_display_and_a_terminal_gets_text(plain_shell: Any) -> None:
    assert isinstance(view_for(SimpleNamespace(kernel=object())), CellView)
    assert isinstance(view_for(plain_shell), TerminalView)
    assert isinstance(view_for(None), TerminalView)
