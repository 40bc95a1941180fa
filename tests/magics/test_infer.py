"""``%%infer`` and ``%infer`` in IPython: the prompt as typed, a line for a mistake, an interrupt that costs nothing."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from conftest import use_session
from gate import WAIT, Gate
from IPython.core.displaypub import CapturingDisplayPublisher
from IPython.core.error import UsageError

from jupyter_infer.display import CellView, TerminalView
from jupyter_infer.engine.quiet import LOGS
from jupyter_infer.engine.scripted import Script
from jupyter_infer.errors import ConfigError, EngineFailed, ModelError, PromptError
from jupyter_infer.magics import InferMagics, register
from jupyter_infer.magics.infer import Interrupted
from jupyter_infer.records import LoadStage
from jupyter_infer.result import Result
from jupyter_infer.session import Session

BRACES = "explain {n: n**2 for n in xs} {missing} {{x}} ${y} 100%"


def count(prompt: str) -> list[str]:
    return [f"{prompt}:{number} " for number in range(400)]


def ask(shell: Any, cell: str) -> Any:
    """Run a cell; return its value, or raise what it raised."""
    outcome = shell.run_cell(cell, store_history=True)
    if outcome.error_in_exec is not None:
        raise outcome.error_in_exec
    return outcome.result


def prompt_of(shell: Any, cell: str) -> str:
    """Return the prompt that reached the engine."""
    return ask(shell, cell).record.prompt


# The prompt.


@pytest.mark.parametrize(
    "body",
    [
        BRACES,
        "one\n\n  two\n\tthree ",
        "%time is money\n!ls\n?x",
        "\\n 'quotes' \"and\" \\",
        "  indented",
        "\n\nafter two empty lines",
        "What does this print?\n>>> x = [1]\n>>> x\n... \n[1]",
        ">>> 1 + 1",
        "In [1]: x = 2\n   ...: y = 3",
        "%%infer twice",
        "日本語 🙂 \u202eabc\u202c e\u0301",
        "form\x0cfeed and \u2028 line",
    ],
)
def test_the_prompt_is_the_body_as_typed(shell: Any, body: str) -> None:
    shell.user_ns["x"] = 1
    assert prompt_of(shell, f"%%infer --max-tokens 1\n{body}") == body


@pytest.mark.parametrize(("typed", "prompt"), [("Hi", "Hi"), ("Hi\n", "Hi"), ("Hi\n\n", "Hi\n"), ("Hi \n", "Hi ")])
def test_one_final_newline_is_dropped(shell: Any, typed: str, prompt: str) -> None:
    assert prompt_of(shell, f"%%infer\n{typed}") == prompt


@pytest.mark.parametrize("head", ["%%infer", "%%infer ", "%%infer   --max-tokens 2  ", "\n\n%%infer", "%%infer\t-t 0"])
def test_the_first_line_is_the_options(shell: Any, head: str) -> None:
    assert prompt_of(shell, f"{head}\nHi") == "Hi"


def test_options_are_not_expanded_from_the_users_variables(shell: Any) -> None:
    shell.user_ns["x"] = 1
    assert ask(shell, "%%infer --system '{x} $x'\nHi").record.prompt == "{x} $x\nHi"


def test_a_magic_that_is_called_by_code_gets_its_body_too(shell: Any) -> None:
    shell.user_ns["body"] = BRACES
    assert ask(shell, "get_ipython().run_cell_magic('infer', '--max-tokens 1', body)").record.prompt == BRACES


def test_other_cells_are_as_ipython_makes_them(shell: Any) -> None:
    assert ask(shell, ">>> 1 + 1") == 2
    assert shell.transform_cell("%%infernal\nx") == "get_ipython().run_cell_magic('infernal', '', 'x\\n')\n"
    assert shell.transform_cell("%%infer?") == "get_ipython().run_line_magic('pinfo', '%%infer')\n"


def test_a_cell_is_complete_when_ipython_says_so(shell: Any) -> None:
    assert shell.check_complete("%%infer\nHi") == ("incomplete", "")
    assert shell.check_complete("%%infer\nHi\n\n")[0] == "complete"


# The answer.


def test_the_value_of_the_cell_is_the_result(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    result = ask(shell, "%%infer --max-tokens 3 -t 0\nWhy?")
    assert isinstance(result, Result)
    assert result.record.sampling == {"max_tokens": 3, "temperature": 0.0}
    out, err = capsys.readouterr()
    answer, _, rest = out.partition("\n")
    assert answer == "Hello, world"  # the answer first, then the value with its status line
    assert result.status in rest
    assert err == "loading · ready\n" or err == ""


def test_stderr_is_empty_and_stdout_the_answer_alone(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    ask(shell, "%infer load")
    capsys.readouterr()
    ask(shell, "%%infer\nWhy?\n\n")
    shell.run_cell("%%infer\nWhy?", silent=True)  # without the value
    out, err = capsys.readouterr()
    assert out.endswith("Hello, world.\n")
    assert err == ""


def test_in_a_kernel_the_answer_is_a_display(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    shell.kernel = object()
    shell.display_pub = CapturingDisplayPublisher()
    ask(shell, "%infer load")
    capsys.readouterr()
    del shell.display_pub.outputs[:]
    shell.run_cell("%%infer\nWhy?", silent=True)
    assert shell.display_pub.outputs[-1]["data"] == {"text/plain": "Hello, world."}
    assert capsys.readouterr() == ("", "")


def test_any_engine_value_can_be_given(shell: Any) -> None:
    result = ask(shell, "%%infer --n 2 --top-p=0.9 --max-tokens 1 --seed 5\nHi")
    assert result.record.sampling == {"n": 2, "top_p": 0.9, "max_tokens": 1, "seed": 5}
    assert len(result.texts) == 2


def test_a_model_is_loaded_if_another_one_is(shell: Any, session: Session) -> None:
    wanted: list[str] = []
    build = session._factory
    session._factory = lambda model, *rest: wanted.append(model) or build(model, *rest)  # type: ignore[func-returns-value]
    ask(shell, "%%infer -m other\nHi")
    ask(shell, "%%infer -m other\nHi")
    assert wanted == ["other"]


# Mistakes.


@pytest.mark.parametrize(
    ("cell", "says"),
    [
        ("%%infer\n  \n\t\n", "PromptError: the prompt is empty; write the question below the %%infer line"),
        ("%%infer Why?\nHi", "ConfigError: 'Why?' is no option; the prompt goes below the %%infer line"),
        ("%%infer --max-tokens many\nHi", "ConfigError: --max-tokens takes a whole number, not 'many'"),
        ("%%infer --max-tokens\nHi", "ConfigError: --max-tokens needs a value: --max-tokens N"),
        ("%%infer --max-token 3\nHi", "ConfigError: unknown sampling value 'max_token'; did you mean 'max_tokens'"),
        ("%%infer -T 3\nHi", "ConfigError: unknown option '-T'; %infer help lists them"),
        ("%%infer --system 'open\nHi", "ConfigError: a quote is not closed, or text touches it: 'open"),
        ("%%infer --prompt x\nHi", "ConfigError: unknown option '--prompt'; %infer help lists them"),
        ("%%infer --progress x\nHi", "ConfigError: unknown option '--progress'; %infer help lists them"),
        ("%infer lod", "ConfigError: unknown command 'lod'; did you mean 'load'"),
        ("%infer frobnicate", "ConfigError: unknown command 'frobnicate'; there is: load, unload, status"),
        ("%infer load a b", "ConfigError: one model at a time; got a, b"),
        ("%infer load --model x", "ConfigError: the model stands first; type %infer load MODEL"),
        ("%infer unload now", "ConfigError: %infer unload takes nothing more; got 'now'"),
        ("%infer last", "ConfigError: nothing was asked yet; write a question in a %%infer cell"),
    ],
)
def test_a_mistake_is_one_line_and_the_next_cell_works(
    shell: Any, session: Session, capsys: pytest.CaptureFixture[str], cell: str, says: str
) -> None:
    outcome = shell.run_cell(cell)
    assert isinstance(outcome.error_in_exec, (ConfigError, PromptError))
    out, err = capsys.readouterr()
    (line,) = (out + err).strip().splitlines()
    assert line.startswith(says)
    assert "Traceback" not in out + err
    assert len(session.history) == 0
    assert ask(shell, "%%infer\nHi").text == "Hello, world."


def test_a_cell_without_a_body_is_one_line_of_ipythons_own(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert isinstance(shell.run_cell("%%infer\n").error_in_exec, UsageError)
    out, err = capsys.readouterr()
    (line,) = (out + err).strip().splitlines()
    assert "the cell body is empty. Did you mean the line magic %infer" in line


def test_a_model_that_is_not_there_is_one_line(
    shell: Any, session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    def unknown(model: str, *rest: Any) -> Any:
        raise ModelError(f"unknown model {model!r}; did you mean 'smollm2-135m'?")

    session._factory = unknown
    assert isinstance(shell.run_cell("%infer load smolm2").error_in_exec, ModelError)
    assert capsys.readouterr().out.strip() == "ModelError: unknown model 'smolm2'; did you mean 'smollm2-135m'?"


def test_an_engine_that_breaks_is_one_line_and_the_next_cell_loads_again(
    plain_shell: Any, scripted_session: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    session = scripted_session(Script(fail_at_step=1, step_ns=lambda tokens: 0))
    use_session(session, monkeypatch)
    plain_shell.run_line_magic("load_ext", "jupyter_infer")
    assert isinstance(plain_shell.run_cell("%%infer\nHi").error_in_exec, EngineFailed)
    out, err = capsys.readouterr()
    assert "EngineFailed: the engine stopped: RuntimeError: scripted failure" in out
    assert "Traceback" not in out + err
    session._factory = scripted_session()._factory
    assert ask(plain_shell, "%%infer\nHi").text == "Hello, world."


def test_a_fault_of_ours_keeps_its_traceback(
    shell: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(InferMagics, "_status", lambda self, rest: 1 / 0)
    assert isinstance(shell.run_cell("%infer status").error_in_exec, ZeroDivisionError)
    assert "Traceback" in capsys.readouterr().out


# Commands.


def test_load_says_what_was_loaded(shell: Any, session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    ask(shell, "%infer load")
    out, err = capsys.readouterr()
    assert out == (
        "✓ scripted · scripted on none · none · context 4,096 · KV pool 256 blocks × 32 tokens · n/a threads · "
        "loaded in n/a\n"
    )
    assert err == ""
    assert session.info is not None


def test_load_takes_a_model_and_engine_settings(shell: Any, session: Session) -> None:
    wanted: list[Any] = []
    build = session._factory
    session._factory = lambda *asked: wanted.append(asked[:2]) or build(*asked)  # type: ignore[func-returns-value]
    ask(shell, "%infer load org/model --max-model-len 2048 --dtype=bfloat16 --enforce-eager")
    assert wanted == [("org/model", {"max_model_len": 2048, "dtype": "bfloat16", "enforce_eager": True})]
    ask(shell, "%infer   load\t other")
    assert wanted[1:] == [("other", {})]


def test_status_before_and_after_a_load(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    ask(shell, "%infer status")
    before = capsys.readouterr().out.splitlines()
    assert before[0] == "state      unloaded"
    assert before[1].startswith("memory ")
    ask(shell, "%%infer\nHi\n")
    capsys.readouterr()
    ask(shell, "%infer status")
    after = capsys.readouterr().out.splitlines()
    assert after[:5] == [
        "state      idle",
        "model      scripted (scripted on none, none)",
        "context    4,096 tokens, at most 512 a step",
        "requests   0 open, at most 256 at once",
        "KV pool    256 of 256 blocks free",
    ]
    assert after[5].endswith(" since the load")


def test_unload_frees_the_engine(shell: Any, session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    ask(shell, "%infer load")
    engine = session.engines[0]
    ask(shell, "%infer unload")
    assert capsys.readouterr().out.endswith("unloaded\n")
    assert engine.closed
    ask(shell, "%infer unload")


def test_stop_counts_what_it_stopped(
    plain_shell: Any, scripted_session: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gate = Gate()
    session = scripted_session(Script(answer=count), sleep=gate.sleep)
    use_session(session, monkeypatch)
    plain_shell.run_line_magic("load_ext", "jupyter_infer")
    ask(plain_shell, "%infer stop")
    assert capsys.readouterr().out == "nothing runs\n"
    handles = session.submit_batch(["a", "b"])
    gate.wait()
    stop = session._worker.stop

    def stop_then_open() -> Any:
        reply = stop()
        gate.open()
        return reply

    monkeypatch.setattr(session._worker, "stop", stop_then_open)
    ask(plain_shell, "%infer stop")
    assert capsys.readouterr().out == "stopped 2 requests\n"
    assert {handle.record(WAIT).finish_reason for handle in handles} == {"abort"}


def test_last_is_the_last_result_again(shell: Any) -> None:
    first = ask(shell, "%%infer\nOne")
    second = ask(shell, "%%infer\nTwo")
    assert first is not second
    assert ask(shell, "%infer last") is second


def test_logs_are_what_the_engine_printed(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    LOGS.clear()
    ask(shell, "%infer logs")
    assert capsys.readouterr().out == "no logs yet: nothing was loaded\n"
    LOGS.append("INFO vllm: loading weights")
    ask(shell, "%infer logs")
    assert capsys.readouterr().out == "INFO vllm: loading weights\n"
    LOGS.clear()


@pytest.mark.parametrize("line", ["%infer help", "%infer", "%infer "])
def test_help_is_there(shell: Any, capsys: pytest.CaptureFixture[str], line: str) -> None:
    ask(shell, line)
    out = capsys.readouterr().out
    assert "--max-tokens N" in out
    assert "load [MODEL]" in out


# The extension.


def test_loading_the_extension_twice_does_no_harm(shell: Any) -> None:
    shell.run_line_magic("load_ext", "jupyter_infer")
    shell.run_line_magic("reload_ext", "jupyter_infer")
    register(shell)
    assert prompt_of(shell, "%%infer\n>>> x") == ">>> x"
    ours = [
        transform
        for transform in shell.input_transformers_cleanup
        if "jupyter_infer" in str(getattr(transform, "__module__", ""))
    ]
    assert len(ours) == 1


def test_unloading_the_extension_undoes_loading_it(
    plain_shell: Any, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_session(session, monkeypatch)
    before = list(plain_shell.input_transformers_cleanup)
    plain_shell.run_line_magic("load_ext", "jupyter_infer")
    ask(plain_shell, "%infer load")
    engine = session.engines[0]
    plain_shell.run_line_magic("unload_ext", "jupyter_infer")
    assert engine.closed
    assert plain_shell.find_line_magic("infer") is None
    assert plain_shell.find_cell_magic("infer") is None
    assert plain_shell.input_transformers_cleanup == before
    plain_shell.run_line_magic("load_ext", "jupyter_infer")
    assert ask(plain_shell, "%%infer\nHi").text == "Hello, world."


# Interrupts.


@pytest.fixture
def interrupted(
    plain_shell: Any, scripted_session: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[Any], tuple[Any, Session]]]:
    """Return a function that runs a long cell and interrupts it, as a front end does, when five tokens are shown."""
    gate = Gate()
    session = scripted_session(Script(answer=count, step_ns=lambda tokens: 0), sleep=gate.sleep)
    use_session(session, monkeypatch)
    plain_shell.run_line_magic("load_ext", "jupyter_infer")
    session.load()
    waiting = threading.Event()

    def run(view: Any) -> tuple[Any, Session]:
        update = view.update

        def watching(self: Any, texts: Any) -> bool:
            shown = update(self, texts)
            if shown and texts[0].count(":") >= 5:
                waiting.set()
            return shown

        monkeypatch.setattr(view, "update", watching)

        def front_end() -> None:
            gate.let(5)
            assert waiting.wait(WAIT)
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=front_end)
        thread.start()
        cancel = session._worker.cancel

        def cancelled(request_id: str) -> None:
            cancel(request_id)
            gate.open()

        monkeypatch.setattr(session._worker, "cancel", cancelled)
        outcome = plain_shell.run_cell("%%infer --max-tokens 400\nfirst", store_history=True)
        thread.join(WAIT)
        return outcome, session

    yield run
    gate.open()


def check_aftermath(shell: Any, session: Session) -> None:
    """The first one is kept and marked, its blocks are free, and the next cell has only its own answer."""
    (first,) = session.history
    assert first.finish_reason == "abort"
    assert first.usage.output_tokens == 6  # five were shown, one was on its way
    assert first.status.startswith("■")
    assert session.status().kv_blocks_free == session.info.kv_blocks_total
    assert session.status().open_requests == 0
    second = ask(shell, "%%infer --max-tokens 5\nsecond")
    assert second.text == "second:0 second:1 second:2 second:3 second:4 "
    assert second.usage.output_tokens == 5


def test_an_interrupt_in_a_terminal(interrupted: Any, plain_shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    outcome, session = interrupted(TerminalView)
    out, err = capsys.readouterr()
    assert isinstance(outcome.error_in_exec, Interrupted)
    assert isinstance(outcome.error_in_exec, KeyboardInterrupt)  # "Run all" stops at it
    assert out.startswith("first:0 first:1 first:2 first:3 first:4 ")
    assert "Interrupted: the text so far is kept; %infer last shows its times" in out
    assert "Traceback" not in out + err
    check_aftermath(plain_shell, session)


def test_an_interrupt_in_a_kernel(interrupted: Any, plain_shell: Any) -> None:
    plain_shell.kernel = object()
    plain_shell.display_pub = CapturingDisplayPublisher()
    outcome, session = interrupted(CellView)
    assert isinstance(outcome.error_in_exec, Interrupted)
    session._worker.ask(lambda engine: None).wait(WAIT)
    texts = [message["data"]["text/plain"] for message in plain_shell.display_pub.outputs]
    assert any(text.startswith("first:0 first:1 first:2 first:3 first:4 ") for text in texts)
    assert texts[-1].startswith("■ scripted · ")  # the result of what there is, in the interrupted cell
    assert "interrupted" in texts[-1]
    check_aftermath(plain_shell, session)


def test_an_interrupt_while_it_loads_gives_the_prompt_back(
    shell: Any, session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    go = threading.Event()
    build = session._factory("scripted", {}, lambda stage: None)

    def slow(progress: Any) -> Any:
        progress(LoadStage("weights"))
        os.kill(os.getpid(), signal.SIGINT)
        assert go.wait(WAIT)
        return build(progress)

    session._factory = lambda *wanted: slow
    outcome = shell.run_cell("%%infer\nHi")
    assert isinstance(outcome.error_in_exec, KeyboardInterrupt)
    go.set()
    assert ask(shell, "%%infer\nHi").text == "Hello, world."
    assert len(session.engines) == 1  # the load went on, and was used
    assert len(session.history) == 1


def test_naming_the_model_that_is_loaded_keeps_it_and_its_settings(shell: Any, session: Session) -> None:
    session.load("scripted", max_model_len=2048)
    shell.run_cell("%%infer -m scripted\nHi")
    assert session._loaded == ("scripted", {"max_model_len": 2048})
    assert len(session.engines) == 1  # type: ignore[attr-defined]
