"""Reading requests while they run: the moment that their text was shown, interrupts, failures."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
from builders import make_record

from jupyter_infer.display import CellView, TerminalView, follow, wait_for
from jupyter_infer.errors import EngineFailed, PromptError
from jupyter_infer.handle import RequestHandle
from jupyter_infer.records import TokenEvent
from jupyter_infer.result import Refused

from .timeline import Answer, Timeline, texts_of

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


def test_an_answer_that_is_not_streamed_is_shown_once(timeline: Timeline, outputs: list[Any]) -> None:
    pieces = [f"w{n} " for n in range(3000)]
    follow([Answer(timeline, pieces).handle], CellView(markdown=False), stream=False)
    *before, last = [message["data"]["text/plain"] for message in outputs]
    assert last == "".join(pieces)
    assert before
    assert all(text.endswith("s") and " tokens so far · " in text for text in before)


def test_a_display_that_fails_leaves_nothing_running(timeline: Timeline) -> None:
    answer = Answer(timeline, ["a "] * 1000)
    view = TerminalView(io.StringIO())
    view.update = lambda texts: 1 / 0  # type: ignore[method-assign,assignment,return-value]
    with pytest.raises(ZeroDivisionError):
        follow([answer.handle], view)
    assert answer.handle.done


def test_waiting_for_a_batch_shows_nothing_and_an_interrupt_stops_it(timeline: Timeline, outputs: list[Any]) -> None:
    answer = Answer(timeline, ["a"] * 10)
    wait_for([answer.handle, Refused("x", PromptError("empty"))])
    assert answer.handle.done
    assert outputs == []
    handle = RequestHandle("r2", lambda: handle.finished(make_record()))

    def interrupted() -> None:
        if not handle.done:
            raise KeyboardInterrupt

    timeline.happen = interrupted
    with pytest.raises(KeyboardInterrupt):
        wait_for([handle])
    assert handle.done
