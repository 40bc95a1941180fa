"""What every widget can rely on: keywords that are checked, requests that are answered, a form without a script."""

from __future__ import annotations

import gc
import logging
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import traitlets
from IPython.core.displaypub import CapturingDisplayPublisher

import jupyter_infer as ji
from jupyter_infer.errors import InferError, PromptError
from jupyter_infer.session import Session
from jupyter_infer.widgets import InferWidget, _base
from jupyter_infer.widgets._messages import answer
from jupyter_infer.widgets._ticker import Ticker
from tests.conftest import use_session

VIEW = "application/vnd.jupyter.widget-view+json"
WAIT = 10

Sent = Callable[[InferWidget], list[dict[str, Any]]]


class Echo(InferWidget):
    """Says what it is told."""

    front_end = "engine_status"  # any bundle will do
    word: str = traitlets.Unicode("n/a").tag(sync=True)
    number: int = traitlets.Int(0).tag(sync=True)

    def handle(self, kind: str, payload: dict[str, Any]) -> Mapping[str, Any] | None:
        match kind:
            case "echo":
                return payload
            case "nothing":
                return None
            case "mistake":
                raise PromptError("the prompt is empty;\ntype one")
            case "fault":
                raise ZeroDivisionError("ours")
        return super().handle(kind, payload)

    def summary(self) -> str:
        return f"Echo: {self.word}"

    def static_html(self) -> str:
        return "<p>echo</p>"


# How one is made.


def test_an_unknown_keyword_names_the_near_one(session: Session) -> None:
    with pytest.raises(TypeError, match=r"Echo\(\) got an unexpected keyword argument 'wrod'; did you mean 'word'\?"):
        Echo(session=session, wrod="x")


def test_it_shows_the_session_that_cells_share_unless_one_is_given(
    scripted_session: Callable[..., Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    shared, other = scripted_session(), scripted_session()
    use_session(shared, monkeypatch)
    assert Echo().session is Echo(session=None).session is shared
    assert Echo(session=other).session is other
    with pytest.raises(traitlets.TraitError):
        Echo(session="smollm2-135m")


def test_its_session_and_nothing_of_it_is_sent(session: Session) -> None:
    assert {"word", "_esm", "_view_count"} <= set(Echo(session=session).get_state())
    assert "session" not in Echo(session=session).get_state()


def test_without_a_bundle_it_says_what_to_type(
    session: Session, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(_base, "STATIC", tmp_path)

    class Unbuilt(InferWidget):
        front_end = "unbuilt"

    with pytest.raises(InferError, match="is not built; type: "):
        Unbuilt(session=session)


def test_without_anywidget_the_extension_loads_and_a_widget_says_what_to_type() -> None:
    code = (
        "import sys; sys.modules['anywidget'] = None\n"
        "import jupyter_infer as ji\n"
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "ji.load_ipython_extension(InteractiveShell.instance())\n"
        "try: ji.EngineStatus\nexcept ji.InferError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("widgets need anywidget; type: pip install anywidget\n", 0), done.stderr


def test_all_names_are_there() -> None:
    from jupyter_infer import widgets

    for name in widgets.__all__:
        assert getattr(widgets, name) is not None
    assert set(widgets.__all__) <= set(dir(widgets))
    assert ji.EngineStatus is widgets.EngineStatus
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = widgets.nothing


# Requests and replies.


def ask(widget: InferWidget, content: Any) -> None:
    """Send what a view would send."""
    widget._handle_custom_msg(content, [])


def replies(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [message["content"] for message in messages if message["method"] == "custom"]


def test_a_request_gets_its_reply(session: Session, sent: Sent) -> None:
    widget = Echo(session=session)
    messages = sent(widget)
    ask(widget, {"kind": "echo", "id": "v-1", "payload": {"word": "hi"}})
    ask(widget, {"kind": "nothing", "id": "v-2", "payload": {}})
    assert replies(messages) == [
        {"kind": "reply", "id": "v-1", "payload": {"word": "hi"}},
        {"kind": "reply", "id": "v-2", "payload": {}},
    ]


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ({"kind": "mistake", "id": "1", "payload": {}}, "PromptError: the prompt is empty;\\ntype one"),
        ({"kind": "fault", "id": "1", "payload": {}}, "ZeroDivisionError: ours"),
        ({"kind": "unheard of", "id": "1", "payload": {}}, "ConfigError: Echo knows no request 'unheard of'"),
        ({"kind": "echo", "id": "1"}, "ConfigError: a request has a kind and a payload"),
        ({"kind": 3, "id": "1", "payload": {}}, "ConfigError: a request has a kind and a payload"),
    ],
)
def test_a_failure_is_a_reply_of_one_line_and_the_next_request_is_answered(
    session: Session, sent: Sent, content: dict[str, Any], error: str, caplog: pytest.LogCaptureFixture
) -> None:
    widget = Echo(session=session)
    messages = sent(widget)
    ask(widget, content)
    ask(widget, {"kind": "echo", "id": "2", "payload": {}})
    assert replies(messages) == [
        {"kind": "reply", "id": "1", "error": error},
        {"kind": "reply", "id": "2", "payload": {}},
    ]
    assert bool(caplog.records) == (content["kind"] == "fault")  # a fault of ours keeps its traceback


@pytest.mark.parametrize("content", [None, "text", {}, {"kind": "echo"}, {"kind": "echo", "id": 3, "payload": {}}])
def test_what_is_no_request_is_passed_over(content: Any) -> None:
    assert answer(lambda kind, payload: payload, content) is None


def test_an_event_has_a_kind(session: Session, sent: Sent) -> None:
    widget = Echo(session=session)
    messages = sent(widget)
    widget.tell("tokens", {"text": "a"})
    assert replies(messages) == [{"kind": "tokens", "id": "", "payload": {"text": "a"}}]


# Traits.


def test_push_sends_what_changed_in_one_message(session: Session, sent: Sent) -> None:
    widget = Echo(session=session)
    messages = sent(widget)
    assert widget.push(word="a", number=1)
    assert widget.push(word="a", number=2)
    assert not widget.push(word="a", number=2)
    assert [message["state"] for message in messages] == [{"word": "a", "number": 1}, {"number": 2}]


# Where no widget is drawn.


@pytest.fixture
def outputs(plain_shell: Any, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The display messages of a kernel, in order."""
    plain_shell.display_pub = CapturingDisplayPublisher()
    monkeypatch.setattr(_base, "_in_kernel", lambda: True)
    return plain_shell.display_pub.outputs


def test_a_view_and_its_static_form_are_two_outputs(session: Session, outputs: list[dict[str, Any]]) -> None:
    from IPython.display import display

    widget = Echo(session=session, word="hi")
    display(widget)
    view, static = (output["data"] for output in outputs)
    assert view == {VIEW: view[VIEW], "text/plain": "", "text/html": ""}
    assert view[VIEW]["model_id"] == widget._id == widget.get_state()["_id"]
    assert set(static) == {"text/plain", "text/html"}
    assert static["text/plain"] == "Echo: hi"
    assert static["text/html"].startswith(f'<div class="ji-still-{widget._id}"><p>echo</p>')
    assert static["text/html"].count(_base.HINT) == 1


def test_a_terminal_gets_the_line_only(plain_shell: Any, session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    from IPython.display import display

    display(Echo(session=session, word="hi"))
    assert capsys.readouterr().out == "Echo: hi\n"


def test_only_the_static_form_is_refreshed_wherever_it_was_shown(
    session: Session, outputs: list[dict[str, Any]]
) -> None:
    from IPython.display import display

    widget = Echo(session=session)
    widget.refresh()
    assert outputs == []  # it was shown nowhere
    display(widget)
    display(widget)
    widget._view_count = 1  # a view is no reason not to: it is the static form that is saved
    widget.word = "later"
    widget.refresh()
    assert [output["data"]["text/plain"] for output in outputs[4:]] == ["Echo: later"] * 2
    assert [output["transient"] for output in outputs[4:]] == [output["transient"] for output in outputs[1:4:2]]
    assert not any(VIEW in output["data"] for output in outputs[4:])


def test_a_closed_widget_shows_its_static_form(session: Session, outputs: list[dict[str, Any]]) -> None:
    from IPython.display import display

    widget = Echo(session=session)
    widget.close()
    display(widget)
    (output,) = outputs
    assert set(output["data"]) == {"text/plain", "text/html"}
    assert not widget.shown


def test_two_widgets_have_two_static_forms(session: Session) -> None:
    one, other = Echo(session=session), Echo(session=session, model_id="0123abc")
    assert other._id == other.model_id == "0123abc"
    assert one._id == one.model_id != other._id


def test_the_bundle_is_there_for_whoever_asks(session: Session) -> None:
    data, _ = Echo(session=session)._repr_mimebundle_()
    assert set(data) == {VIEW, "text/plain", "text/html"}
    assert data["text/plain"] == "Echo: n/a"
    assert repr(Echo(session=session)) == "<Echo: n/a>"


# The ticker.


class Clockwork:
    """Ticks, and tells a test of it."""

    def __init__(self, *, fails: bool = False) -> None:
        self.shown, self.fails, self.ticks = True, fails, 0
        self.ticked = threading.Event()
        self.thread = ""

    def tick(self) -> bool:
        self.ticks += 1
        self.thread = threading.current_thread().name
        self.ticked.set()
        if self.fails:
            raise ZeroDivisionError("ours")
        return True

    def wait(self) -> None:
        self.ticked.clear()
        assert self.ticked.wait(WAIT)


@pytest.fixture
def ticker() -> Iterator[Ticker]:
    made = Ticker(0.001, 0.001)
    yield made
    made.add(Hidden := Clockwork())
    Hidden.shown = False
    ended(made)


def ended(ticker: Ticker) -> None:
    thread = ticker._thread
    if thread is not None:
        thread.join(WAIT)
    assert not ticker.running


def test_one_thread_ticks_for_all_and_ends_with_the_last(ticker: Ticker) -> None:
    first, second = Clockwork(), Clockwork()
    for widget in (first, second, first):
        ticker.add(widget)
    first.wait()
    second.wait()
    assert first.thread == second.thread == "jupyter-infer-widgets"
    first.shown = False
    second.wait()
    second.shown = False
    ended(ticker)
    second.shown = True
    ticker.add(second)
    second.wait()
    ticker.remove(second)
    ended(ticker)


def test_a_widget_that_nobody_has_is_not_kept(ticker: Ticker) -> None:
    widget = Clockwork()
    ticker.add(widget)
    widget.wait()
    gone = weakref.ref(widget)
    del widget
    ended(ticker)
    gc.collect()
    assert gone() is None


def test_a_widget_that_fails_stops_no_other(ticker: Ticker, caplog: pytest.LogCaptureFixture) -> None:
    bad, good = Clockwork(fails=True), Clockwork()
    with caplog.at_level(logging.ERROR):
        ticker.add(bad)
        ticker.add(good)
        bad.ticked.wait(WAIT)
        good.wait()
        good.wait()
    assert bad.ticks == 1
    assert "ZeroDivisionError" in caplog.text
    good.shown = False


def test_a_widget_ticks_while_views_are_there(session: Session) -> None:
    class Counting(Echo):
        front_end = "engine_status"
        ticked = threading.Event()

        def tick(self) -> bool:
            self.ticked.set()
            return False

    widget = Counting(session=session)
    assert not widget.shown
    widget._view_count = 1  # as a front end says
    assert widget.ticked.wait(WAIT)
    widget._view_count = 2
    widget._view_count = 1
    assert widget.shown
    widget._view_count = 0
    assert not widget.shown
