"""An answer in a cell: few messages whatever the rate, every character of it, and nothing that it could do there."""

from __future__ import annotations

from typing import Any

import pytest
from builders import make_record
from gate import wait_for_drawing
from IPython.core.displaypub import CapturingDisplayPublisher

from jupyter_infer.display import BYTES_PER_S, UPDATES_PER_S, CellView, follow
from jupyter_infer.display.cell import TAIL_CHARS
from jupyter_infer.errors import EngineFailed, PromptError
from jupyter_infer.handle import RequestHandle
from jupyter_infer.records import LoadStage, TokenEvent
from jupyter_infer.result import Refused

from .timeline import Answer, Timeline, texts_of

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
    view = CellView(markdown=False)
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


@pytest.mark.parametrize("letter", ["x", "語"])
def test_a_second_carries_300_kb_at_most(timeline: Timeline, outputs: list[Any], letter: str) -> None:
    """The end included, which carries the whole text once more, and the chart of 60 kB that comes with it."""
    sent: list[tuple[float, int]] = []
    for size in (10_000, 40_000, 100_000, 200_000):
        timeline.now = 0.0
        outputs.clear()
        view = CellView()
        spy = view._place.show

        def noted(data: Any, spy: Any = spy) -> None:
            spy(data)
            sent.append((timeline.now, len(str(outputs[-1]["data"]).encode())))

        view._place.show = noted  # type: ignore[method-assign]
        piece = letter * (100 // len(letter.encode()))
        follow([Answer(timeline, [piece] * (size // 100)).handle], view)
        end = sent[-1][0]
        last_second = sum(size for moment, size in sent if moment > end - 1)
        assert last_second + 60_000 <= 300_000
        sent.clear()


def test_a_long_text_is_shown_by_its_end_until_it_is_whole(timeline: Timeline, outputs: list[Any]) -> None:
    pieces = [f"w{number:04} " for number in range(4000)]
    follow([Answer(timeline, pieces).handle], CellView(markdown=False))
    whole = "".join(pieces)
    *growing, last = texts_of(outputs)
    assert last == whole
    assert growing[-1].startswith("… ")
    above, end = growing[-1].split("\n")
    assert len(end) == TAIL_CHARS
    shown = whole[: whole.index(end) + len(end)]
    assert above == f"… {len(shown) - TAIL_CHARS:,} characters above are shown at the end"


def test_a_cell_that_waits_says_so(timeline: Timeline, outputs: list[Any]) -> None:
    follow([Answer(timeline, [""] * 2000 + ["text"]).handle], CellView(markdown=False))
    texts = texts_of(outputs)
    assert texts[0].endswith(" tokens so far · 500 ms")
    assert texts[-1] == "text"


def test_a_cell_that_waits_for_its_first_token_says_so(timeline: Timeline, outputs: list[Any]) -> None:
    handle = RequestHandle("r1", lambda: None)

    def answer_late() -> None:
        if timeline.now > 2 and not handle.done:
            handle.finished(make_record())

    timeline.happen = answer_late
    follow([handle], CellView(markdown=False))
    texts = texts_of(outputs)
    assert texts[0] == "waiting for the first token · 500 ms"
    assert "waiting for the first token · 1.5 s" in texts
    assert texts[-1] == ""


# What an answer is.


@pytest.mark.parametrize("markdown", [True, False])
def test_model_output_is_text_or_escaped(timeline: Timeline, outputs: list[Any], markdown: bool) -> None:
    pieces = ['<img src=x onerror="window.__p=1">', "\x1b[2J", "</pre><b>"]
    follow([Answer(timeline, pieces).handle], CellView(markdown=markdown))
    assert {kind for message in outputs[:-1] for kind in message["data"]} <= {"text/plain"}
    html = outputs[-1]["data"].get("text/html")
    assert (html is not None) is markdown
    if html is not None:
        assert "&lt;img src=x onerror=" in html
        assert "&lt;/pre&gt;&lt;b&gt;" in html
        assert "<img" not in html
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


def test_the_whole_answer_is_rendered_and_kept_as_text(timeline: Timeline, outputs: list[Any]) -> None:
    follow([Answer(timeline, ["**bold** and ", "`code`"]).handle], CellView())
    assert outputs[-1]["data"]["text/plain"] == "**bold** and `code`"
    assert "<strong>bold</strong>" in outputs[-1]["data"]["text/html"]
    assert all("text/html" not in message["data"] for message in outputs[:-1])


def test_several_answers_are_rendered_apart(outputs: list[Any]) -> None:
    CellView().end(["**one", "two**"])
    html = outputs[-1]["data"]["text/html"]
    assert "[1]" in html
    assert "[2]" in html
    assert "<strong>" not in html
    assert texts_of(outputs) == ["[1] **one\n\n[2] two**"]


def test_an_answer_that_is_too_long_to_render_is_text(outputs: list[Any]) -> None:
    CellView().end(["*x* " * 20_000])
    assert set(outputs[-1]["data"]) == {"text/plain"}


def test_a_note_has_a_place_of_its_own(outputs: list[Any]) -> None:
    view = CellView(markdown=False)
    view.end(["answer"])
    view.note("a hint")
    assert texts_of(outputs) == ["answer", "a hint"]
    assert not outputs[-1].get("update")


# Later.


def test_after_an_interrupt_the_result_is_shown_when_the_engine_let_go(outputs: list[Any]) -> None:
    handle = RequestHandle("r1", lambda: None)
    CellView().later(lambda: handle.record() and "the result", "■ interrupted …")
    assert texts_of(outputs) == ["■ interrupted …"]
    handle.finished(make_record())
    wait_for_drawing()
    assert texts_of(outputs) == ["■ interrupted …", "'the result'"]
    assert outputs[1]["update"]
    assert outputs[0]["transient"] == outputs[1]["transient"]


def test_what_comes_later_is_not_caught_by_a_cell_that_captures(outputs: list[Any], plain_shell: Any) -> None:
    handle = RequestHandle("r1", lambda: None)
    view = CellView(markdown=False)
    view.update(["a"])
    view.later(lambda: handle.record() and "the result", "waiting")
    plain_shell.display_pub = CapturingDisplayPublisher()  # as %%capture does
    handle.finished(make_record())
    wait_for_drawing()
    view.end(["ab"])
    assert plain_shell.display_pub.outputs == []
    assert texts_of(outputs) == ["a", "waiting", "'the result'", "ab"]


def test_what_comes_later_can_be_nothing(outputs: list[Any]) -> None:
    CellView().later(lambda: None, "")
    wait_for_drawing()
    assert texts_of(outputs) == [""]


def test_texts_can_be_amended_and_a_load_taken_back(outputs: list[Any]) -> None:
    view = CellView()
    view.clear()
    assert outputs == []
    view.end(["so *far*"], plain=True)
    assert set(outputs[-1]["data"]) == {"text/plain"}
    view.amend(["so *far* and on"])
    assert "<em>far</em> and on" in outputs[-1]["data"]["text/html"]
    view.clear()
    assert texts_of(outputs)[-1] == ""


def test_an_empty_answer_leaves_the_others_rendered(outputs: list[Any]) -> None:
    CellView().end(["**a**", "", "b"])
    html = outputs[-1]["data"]["text/html"]
    assert "<strong>a</strong>" in html
    assert html.count("[2]") == 1


def test_after_an_interrupt_a_failure_is_a_line(outputs: list[Any]) -> None:
    handle = RequestHandle("r1", lambda: None)
    CellView().later(handle.record, "■ interrupted …")
    handle.failed(EngineFailed("the engine stopped"))
    wait_for_drawing()
    assert texts_of(outputs)[-1] == "EngineFailed: the engine stopped"
