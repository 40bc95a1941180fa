"""What a look at a long answer costs, counted and not timed: characters worked on, and events read."""

from __future__ import annotations

import io
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from builders import make_record
from hypothesis import given
from hypothesis import strategies as st

from jupyter_infer.display import CellStreamView, CellView, TerminalView, cell, follow, text
from jupyter_infer.display.cell import TAIL_CHARS
from jupyter_infer.display.text import Growth, joined, tail
from jupyter_infer.handle import RequestHandle
from jupyter_infer.records import TokenEvent

from .timeline import Timeline

PIECE = "wörd \x1b"


@pytest.fixture
def worked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The length of every text that is searched for control characters or encoded."""
    found: list[int] = []
    control, size = text._CONTROL, text.utf8_size

    def sub(escape: Any, given: str) -> str:
        found.append(len(given))
        return control.sub(escape, given)

    def utf8_size(given: str) -> int:
        found.append(len(given))
        return size(given)

    monkeypatch.setattr(text, "_CONTROL", SimpleNamespace(sub=sub))
    monkeypatch.setattr(text, "utf8_size", utf8_size)
    monkeypatch.setattr(cell, "utf8_size", utf8_size)
    return found


@pytest.mark.parametrize("answers", [1, 3])
def test_an_update_of_a_cell_works_on_its_end_whatever_the_length(
    timeline: Timeline, outputs: list[Any], worked: list[int], answers: int
) -> None:
    view, texts = CellView(), [""] * answers
    for length in (1_000, 10_000, 100_000, 1_000_000):
        texts = [so_far + PIECE * (length // len(PIECE)) for so_far in texts]
        timeline.sleep(1_000)
        assert view.update(texts)
        for _ in range(10):
            texts = [so_far + PIECE for so_far in texts]
            timeline.sleep(1_000)
            worked.clear()
            assert view.update(texts)
            assert sum(worked) < 3 * TAIL_CHARS + 100  # of the end: searched, and with its escapes encoded
    view.end(texts)
    assert outputs[-1]["data"]["text/plain"] == joined(texts)


@pytest.mark.parametrize("make", [TerminalView, CellStreamView])
def test_a_stream_works_on_what_is_new_whatever_the_length(
    timeline: Timeline, plain_shell: Any, worked: list[int], make: Callable[[Any], Any]
) -> None:
    stream, so_far = io.StringIO(), PIECE * 20_000
    view = make(stream)
    view.update([so_far])
    for _ in range(10):
        so_far += PIECE
        timeline.sleep(1_000)
        worked.clear()
        assert view.update([so_far])
        assert sum(worked) == len(PIECE)
    worked.clear()
    view.end([so_far + "."])
    assert sum(worked) == 1
    assert stream.getvalue() == joined([so_far + "."]) + "\n"


@pytest.mark.parametrize("samples", [1, 8])
def test_each_event_is_read_once(
    timeline: Timeline, outputs: list[Any], monkeypatch: pytest.MonkeyPatch, samples: int
) -> None:
    handle, read = RequestHandle("r1", lambda: None, samples=samples), []
    events_after = RequestHandle.events_after

    def spied(self: RequestHandle, seen: int) -> list[TokenEvent]:
        read.append(len(found := events_after(self, seen)))
        return found

    steps = iter(range(2_000))

    def give() -> None:
        step = next(steps, None)
        if step is None:
            return
        for sample in range(samples):
            handle.event(TokenEvent("r1", sample, step, step, (step,), f"{sample} "))
        if step == 1_999:
            handle.finished(make_record())

    monkeypatch.setattr("jupyter_infer.display.loop.RequestHandle.events_after", spied)
    timeline.happen = give
    follow([handle], CellView(markdown=False))
    assert outputs[-1]["data"]["text/plain"] == joined([f"{sample} " * 2_000 for sample in range(samples)])
    assert sum(read) == 2_000 * samples


LETTERS = st.text(st.sampled_from("ab \n\x1b\ud800é語🙂"), max_size=40)


@given(looks=st.lists(st.lists(LETTERS, min_size=3, max_size=3), min_size=1, max_size=5), limit=st.integers(1, 60))
def test_what_is_counted_and_cut_is_what_the_whole_would_be(looks: list[list[str]], limit: int) -> None:
    for answers in (1, 3):
        growth, texts = Growth(), [""] * answers
        for new in looks:
            texts = [so_far + more for so_far, more in zip(texts, new, strict=False)]
            whole = joined(texts)
            chars, size = growth.look(texts)
            assert (chars, size) == (len(whole), len(whole.encode()))
            shown = tail(texts, chars, limit)
            left_out = f"… {chars - limit:,} characters above are shown at the end\n"
            assert shown == (whole if chars <= limit else left_out + whole[-limit:])


def test_a_text_that_does_not_go_on_is_counted_anew() -> None:
    growth = Growth()
    assert growth.look(["…"]) == (1, 3)  # a cell in the background, before its request has a text
    assert growth.look(["\x1bab"]) == (6, 6)
    assert growth.look(["a"]) == (1, 1)
    assert growth.look(["a", ""]) == (11, 11)  # two numbers and what is between
