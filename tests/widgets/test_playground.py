"""The playground without a browser: runs, what is sent of them, their history, and the cell that asks the same."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
import traitlets

from jupyter_infer.engine.protocol import Progress
from jupyter_infer.engine.scripted import Script, ScriptedEngine
from jupyter_infer.errors import ConfigError, EngineBusy, InferError, PromptError
from jupyter_infer.magics.ask import read_ask
from jupyter_infer.magics.body import _CELL
from jupyter_infer.records import Alternative, LoadStage, TokenEvent, TokenLogprob
from jupyter_infer.session import Session
from jupyter_infer.widgets import Playground
from jupyter_infer.widgets import playground as module
from jupyter_infer.widgets._base import _keep_routes
from jupyter_infer.widgets._infer_cell import infer_cell
from jupyter_infer.widgets._token_log import TokenLog
from tests.conftest import FAST
from tests.gate import WAIT, Gate

EVIL = '<img src=x onerror="window.__p=1"><script>window.__p=2</script>[a](javascript:window.__p=3)</pre><b>'


def shown_text(widget: Playground) -> str:
    return "".join(entry[0] for entry in (*widget._settled, *widget._recent, *widget._latest))


def ask(widget: Playground, kind: str, **payload: Any) -> dict[str, Any]:
    """Ask as a view does, and return its reply."""
    replies: list[dict[str, Any]] = []
    widget.send = lambda content, buffers=None: replies.append(content)  # type: ignore[method-assign]
    widget._on_message(widget, {"kind": kind, "id": "v-1", "payload": payload}, [])
    (reply,) = replies
    return reply


def run(widget: Playground, prompt: str = "Say hello", **traits: Any) -> Any:
    for name, value in traits.items():
        setattr(widget, name, value)
    widget.prompt = prompt
    started = widget.run()
    return started.result(WAIT)


def test_it_begins_with_what_it_is_given_and_knows_no_figures(session: Session) -> None:
    widget = Playground(session, prompt="Hi", temperature=0, stop_strings=["\n"])
    assert widget.session is session
    assert widget.sampling == {"temperature": 0, "stop": ["\n"]}
    assert (widget.state, widget.result, widget.history) == ("idle", None, [])
    assert widget._engine == [["model", "scripted"], ["engine", "not loaded; the first run loads it"]]
    assert set(widget._figures.values()) == {None, ""}
    with pytest.raises(TypeError, match=r"'temprature'.*'temperature'"):
        Playground(session, temprature=1)


def test_a_run_from_python_returns_at_once_and_ends_with_the_record_s_figures(
    scripted_session: Callable[..., Session],
) -> None:
    gate = Gate()
    widget = Playground(scripted_session(sleep=gate.sleep), prompt="Say hello", max_tokens=3)
    started = widget.run()
    assert not started.done
    gate.wait()
    widget.tick()
    assert (widget.state, shown_text(widget)) == ("running", "")
    assert widget._figures["queued_ns"] > 0
    assert widget._figures["ttft_ns"] is None
    gate.let(2)
    assert widget.tick() is True
    assert shown_text(widget) == "Hello,"
    assert widget._figures["output_tokens"] == 2
    assert widget._figures["tokens_per_s"] > 0
    assert widget._figures["shared_usd"] is None
    gate.open()
    result = started.result(WAIT)
    assert (widget.state, shown_text(widget)) == ("done", "Hello, world")
    assert widget.result is result
    assert widget._figures["ttft_ns"] == result.phases.ttft_ns
    assert widget._figures["shared_usd"] == result.cost.shared_usd
    assert widget._status == result.status
    assert widget._engine[-1] == ["threads", "n/a"]


def test_every_token_is_sent_with_its_time_and_its_step(session: Session) -> None:
    widget = Playground(session)
    record = run(widget).record
    events = record.samples[0].events
    first = record.first_token_ns
    assert [tuple(entry) for entry in widget._latest] == [
        (event.text, (event.time_ns - first) // 1000, event.step, len(event.token_ids)) for event in events
    ]


def test_a_second_run_is_refused_until_the_first_is_over(scripted_session: Callable[..., Session]) -> None:
    gate = Gate()
    widget = Playground(scripted_session(sleep=gate.sleep), prompt="one")
    first = widget.run()
    gate.wait()
    with pytest.raises(EngineBusy, match="run 1 of this playground goes on; stop it, or wait, to run again"):
        widget.run()
    assert "goes on; stop it, or wait, to clear it" in ask(widget, "clear")["error"]
    assert "run 1 of this playground goes on" in ask(widget, "run", prompt="two")["error"]
    gate.open()
    first.result(WAIT)
    assert run(widget, "two").record.label == "two"


def test_stop_keeps_what_was_answered(scripted_session: Callable[..., Session]) -> None:
    gate = Gate()
    widget = Playground(scripted_session(sleep=gate.sleep), prompt="one", ignore_eos=True)
    assert widget.stop() is False
    started = widget.run()
    gate.let(2)
    assert ask(widget, "stop")["payload"] == {"stopped": True}
    gate.open()
    result = started.result(WAIT)
    widget.tick()
    assert widget.state == "stopped"
    assert result.finish_reason == "abort"
    assert shown_text(widget) == result.text
    assert result.text.startswith("Hello,")


def test_a_model_that_loads_shows_its_stages_and_a_stop_leaves_it_loading() -> None:
    reading, go_on = threading.Event(), threading.Event()

    def build(progress: Progress) -> ScriptedEngine:
        progress(LoadStage("weights", "0.3 of 0.5 GB", time_ns=1))
        reading.set()
        assert go_on.wait(WAIT)
        return ScriptedEngine(FAST)

    session = Session("first", factory=lambda model, values, progress: build)
    widget = Playground(session, prompt="one")
    started = widget.run()
    assert reading.wait(WAIT)
    while started.stage is None or started.stage.stage != "weights":
        threading.Event().wait(0.01)
    widget.tick()
    assert (widget.state, widget._stage) == ("loading", "weights, 0.3 of 0.5 GB")
    assert widget._engine[1] == ["engine", "loading"]
    widget.stop()
    with pytest.raises(EngineBusy, match="stopped before anything was asked; a model that was loading loads on"):
        started.result(WAIT)
    widget.tick()
    assert widget.state == "stopped"
    again = widget.run()
    go_on.set()
    assert again.result(WAIT).text == "Hello, world."
    session.unload()


@pytest.mark.parametrize("prompt", ["", " \n"])
def test_an_empty_prompt_is_refused_in_one_line(session: Session, prompt: str) -> None:
    widget = Playground(session, prompt=prompt)
    for asked in (widget.run, widget.cell):
        with pytest.raises(PromptError, match="the prompt is empty"):
            asked()
    assert ask(widget, "run")["error"] == "PromptError: the prompt is empty; write one, then run it"


def test_what_the_engine_refuses_is_one_line_of_the_widget(session: Session) -> None:
    widget = Playground(session, prompt="word " * 5_000)
    with pytest.raises(PromptError):
        widget.run().result(WAIT)
    assert widget.state == "failed"
    assert widget.error
    assert "\n" not in widget.error
    assert (widget.result, widget.history) == (None, [])
    assert run(widget).text == "Hello, world."
    assert widget.error == ""


def test_a_model_that_cannot_be_loaded_is_one_line_of_the_widget() -> None:
    def build(*_: Any) -> Any:
        raise ConfigError("there is no such model")

    widget = Playground(Session("none", factory=build), prompt="one")
    with pytest.raises(ConfigError):
        widget.run().result(WAIT)
    assert widget.state == "failed"
    assert widget.error == "there is no such model"
    widget.session.unload()


def test_a_view_runs_with_what_it_sends_along(session: Session) -> None:
    widget = Playground(session)
    assert ask(widget, "run", prompt="Hi", temperature=0.5, seed=3, ignore_eos=False)["payload"] == {"number": 1}
    assert widget._run is not None
    record = widget._run.result(WAIT).record
    assert (record.label, record.sampling["temperature"], record.sampling["seed"]) == ("Hi", 0.5, 3)
    reply = ask(widget, "run", prompt="Hi", seed="three")
    assert reply["error"].startswith("ConfigError: ")
    assert "seed" in reply["error"]
    assert widget.seed == 3
    assert "knows no request 'dance'" in ask(widget, "dance")["error"]


def test_clear_takes_the_answer_away_and_leaves_what_is_asked_and_the_history(session: Session) -> None:
    widget = Playground(session, temperature=0.0)
    run(widget)
    widget.clear()
    assert (widget.state, shown_text(widget), widget._status, widget.result) == ("idle", "", "", None)
    assert set(widget._figures.values()) == {None, ""}
    assert (widget.prompt, widget.temperature, len(widget.history)) == ("Say hello", 0, 1)


def test_the_history_keeps_pinned_runs_and_compares_two(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RUNS_KEPT", 3)
    widget = Playground(session)
    results = [run(widget, f"number {n}", seed=n) for n in (1, 2)]
    assert ask(widget, "pin", number=1, on=True)["payload"] == {}
    widget.compared = [1, 2]
    assert [side["text"] for side in widget._beside] == [result.text for result in results]
    assert [side["settings"] for side in widget._beside] == ["seed 1", "seed 2"]
    results += [run(widget, f"number {n}") for n in (3, 4, 5)]
    assert [row["number"] for row in widget._history] == [1, 3, 4, 5]
    assert widget.history == [results[0], *results[2:]]
    assert (widget.pinned, widget.compared) == ([1], [1])
    for number in (4, 5):
        ask(widget, "compare", number=number, on=True)
    assert widget.compared == [4, 5]
    ask(widget, "compare", number=4, on=False)
    assert [side["number"] for side in widget._beside] == [5]
    widget.use(1)
    assert (widget.prompt, widget.seed, widget.stop_strings) == ("number 1", 1, [])
    assert "the history has no run 2" in ask(widget, "pin", number=2, on=True)["error"]


def test_an_answer_of_5000_tokens_is_sent_a_few_times_and_not_once_a_tick() -> None:
    log = TokenLog()
    kinds = (log.entries, log.odds)
    sent, before = [0, 0], [growing.parts for growing in kinds]
    for n in range(5_000):
        said = TokenLogprob(f"{n} ", -0.25, 2, (Alternative(7, " other", -0.125),))
        log.add([TokenEvent("r1", 0, n, 1_000_000 * n, (n,), f"{n} ", logprobs=(said,))])
        if n % 12 == 0:
            for kind, growing in enumerate(kinds):
                sent[kind] += sum(
                    len(part) for part, last in zip(growing.parts, before[kind], strict=True) if part is not last
                )
                before[kind] = growing.parts
    assert "".join(entry[0] for part in log.entries.parts for entry in part) == "".join(f"{n} " for n in range(5_000))
    assert [odd[0][0] for part in log.odds.parts for odd in part] == [f"{n} " for n in range(5_000)]
    assert max(sent) < 16 * 5_000


def odds(widget: Playground) -> list[Any]:
    return [*widget._odds_settled, *widget._odds_recent, *widget._odds_latest]


def test_how_likely_tokens_were_is_sent_only_if_it_was_asked_for(
    session: Session, sent: Callable[..., list[dict[str, Any]]]
) -> None:
    widget = Playground(session)
    messages = sent(widget)
    assert {event.logprobs for event in run(widget).record.samples[0].events} == {None}
    assert odds(widget) == []
    assert [message for message in messages if "odds" in json.dumps(message, default=str)] == []
    events = run(widget, logprobs=2).record.samples[0].events
    assert len(odds(widget)) == len(events) == len(widget._latest)
    for odd, event in zip(odds(widget), events, strict=True):
        (said,) = event.logprobs or ()
        others = [(other.text, round(other.logprob or 0, 4)) for other in said.alternatives]
        assert odd == [(event.text, round(said.logprob or 0, 4), said.rank, others)]
    assert widget._history[-1]["settings"] == "logprobs 2"
    assert run(widget, logprobs=None).record.sampling.get("logprobs") is None
    assert odds(widget) == []
    widget.use(2)
    assert (widget.logprobs, widget.sampling) == (2, {"logprobs": 2})


def test_a_token_without_a_text_of_its_own_is_sent_by_its_number_and_what_is_not_known_is_none() -> None:
    log = TokenLog()
    said = TokenLogprob("", None, None, (Alternative(8, None, -0.123456), Alternative(9, " x", None)))
    log.add([TokenEvent("r1", 0, 0, 1, (7,), "", logprobs=(said,)), TokenEvent("r1", 0, 1, 2, (), "tail", logprobs=())])
    assert log.odds.parts[2] == [[(7, None, None, [(8, -0.1235), (" x", None)])], []]


@pytest.mark.parametrize(("asked", "says"), [(21, "logprobs can be"), (-1, "logprobs can be")])
def test_a_number_of_alternatives_that_cannot_be_is_one_line_of_the_widget(
    session: Session, asked: int, says: str
) -> None:
    widget = Playground(session, logprobs=asked)
    widget.prompt = "Hi"
    with pytest.raises(ConfigError, match=says):
        widget.run().result(WAIT)
    assert (widget.state, "\n" in widget.error) == ("failed", False)
    assert widget.error.startswith(says)


def test_a_shade_is_one_of_two(session: Session) -> None:
    widget = Playground(session)
    assert widget.shade == "itl"
    widget.shade = "logprob"
    with pytest.raises(traitlets.TraitError, match=r"any of \['itl', 'logprob'\], not the str 'rank'"):
        widget.shade = "rank"


def test_a_look_at_a_run_reads_what_is_new_and_no_longer_the_steps_once_it_has_begun(
    scripted_session: Callable[..., Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()
    session = scripted_session(sleep=gate.sleep)
    widget = Playground(session, prompt="Say hello")
    started = widget.run()
    gate.let(2)
    widget.tick()
    figures = widget._figures
    looks: list[int] = []
    assert started.handle is not None
    read = started.handle.events_after
    monkeypatch.setattr(started.handle, "events_after", lambda seen: looks.append(seen) or read(seen))
    monkeypatch.setattr(Session, "steps", property(lambda session: pytest.fail("all steps were read again")))
    widget.tick()
    assert looks == [2]
    assert widget._figures["queued_ns"] == figures["queued_ns"]
    assert widget._figures["decode_ns"] > figures["decode_ns"]
    monkeypatch.undo()
    gate.open()
    record = started.result(WAIT).record
    assert figures["prefill_ns"] == record.first_token_ns - record.started_ns


def test_what_failed_lasts_no_longer(scripted_session: Callable[..., Session]) -> None:
    widget = Playground(scripted_session(Script(fail_at_step=3, step_ns=lambda tokens: 0)), prompt="Say hello")
    with pytest.raises(InferError):
        widget.run().result(WAIT)
    before = dict(widget._figures)
    widget.tick()
    assert widget.state == "failed"
    assert widget._figures == before
    assert before["output_tokens"] > 0


def test_a_flood_sends_a_message_a_tick_and_the_whole_text(
    scripted_session: Callable[..., Session], sent: Callable[..., list[dict[str, Any]]]
) -> None:
    pieces = ["x" * 100] * 2_000  # 200 kB
    session = scripted_session(Script(lambda prompt: pieces, step_ns=lambda tokens: 0))
    session.load()
    widget = Playground(session, max_tokens=3_000)
    messages = sent(widget)
    widget.prompt = "go"
    del messages[:]
    started, ticks = widget.run(), 1
    while not started.done:
        widget.tick()
        ticks += 1
    started.result(WAIT)
    assert len(messages) <= ticks + 3
    assert shown_text(widget) == "".join(pieces)
    assert len(widget.static_html()) < 8_000


def test_text_of_a_model_is_text_in_the_static_form(scripted_session: Callable[..., Session]) -> None:
    session = scripted_session(Script(lambda prompt: [EVIL, " end"], step_ns=lambda tokens: 0))
    widget = Playground(session)
    run(widget, EVIL)
    html = widget.static_html()
    assert "<img" not in html
    assert "<script" not in html
    assert "&lt;img src=x" in html
    assert "done" in widget.state
    assert "\n" not in widget.summary()


def test_what_is_sent_is_json_without_a_number_that_is_none(session: Session) -> None:
    widget = Playground(session, max_tokens=1)
    run(widget, max_tokens=1)
    assert widget._figures["tokens_per_s"] is None
    json.dumps(widget.get_state(), allow_nan=False, default=str)
    assert "n/a tok/s" in widget.static_html() or "n/a" in widget.static_html()


@pytest.mark.parametrize(
    ("prompt", "system", "sampling"),
    [
        ("Why is the sky blue?", "", {}),
        ("two\nlines\n", "be brief", {"temperature": 0.0, "max_tokens": 5}),
        (
            "\n  ends in blank lines\n\n\n",
            "say \"no\" \\ and 'yes'",
            {"stop": ["\n\n", "-5", "--seed", '"', "\\", ";"]},
        ),
        ("%%infer --seed 1\n>>> x", "two\nlines; \t é 😀 \u2028 \x85 \x0c \x00", {"seed": -1, "ignore_eos": True}),
        ("Hi", "", {"seed": 1, "logprobs": 5}),
        ("{name} --- ;", "-x", {"top_p": 1e-05, "top_k": -1, "temperature": 1.5, "stop": ["😀", "a b"]}),
    ],
)
def test_the_cell_asks_the_same(prompt: str, system: str, sampling: dict[str, Any]) -> None:
    cell = infer_cell(prompt, system, sampling, model="a model")
    found = _CELL.fullmatch(cell if cell.endswith("\n") else f"{cell}\n")  # as IPython ends a cell
    assert found is not None
    asked = read_ask(found["options"].removeprefix(" "), found["body"], {}, {})
    assert asked.prompts == (prompt,)
    assert asked.system == (system or None)
    assert asked.sampling == sampling
    assert asked.model == "a model"


def test_the_cell_runs_in_ipython(shell: Any, session: Session) -> None:
    widget = Playground(session, prompt="Say\n\nhello\n", system='a "b"', stop_strings=["\n\n"], max_tokens=2)
    shell.run_cell(ask(widget, "cell")["payload"]["text"]).raise_error()
    record = session.history[-1].record
    assert record.label == "Say\n\nhello\n"
    assert (record.sampling["stop"], record.sampling["max_tokens"]) == (["\n\n"], 2)
    assert 'a "b"' in record.prompt


def test_a_run_goes_on_without_a_view_and_lets_the_widget_go(session: Session) -> None:
    widget = Playground(session)
    result = run(widget)
    assert widget.state == "done"
    assert widget.summary() == f"Playground · {result.status}"


def test_a_view_s_message_goes_to_the_shell_that_the_view_chose() -> None:
    """Else Stop would wait for the end of a running cell, because the widget's own thread sent something last."""

    class Comm:
        _reply_subshell_id = None  # of the main shell, where the cell runs

        def _reply_subshell_for(self, data: object, default: object) -> object:
            return getattr(self, "_reply_subshell_id", default)

    comm: Any = Comm()
    _keep_routes(comm)
    assert comm._reply_subshell_for({}, "a subshell") == "a subshell"
    _keep_routes(None)
