"""``%%infer`` and ``%infer`` in IPython: the prompt as typed, a line for a mistake, an interrupt that costs nothing."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from conftest import use_session
from gate import WAIT, Gate, wait_for_drawing
from IPython.core.displaypub import CapturingDisplayPublisher

from jupyter_infer.batch import BatchHandle
from jupyter_infer.display import CellView, TerminalView
from jupyter_infer.engine.scripted import Script
from jupyter_infer.errors import ConfigError, EngineFailed, ModelError, PromptError
from jupyter_infer.handle import RequestHandle
from jupyter_infer.magics import register
from jupyter_infer.magics.infer import Interrupted
from jupyter_infer.records import LoadStage
from jupyter_infer.result import Result
from jupyter_infer.results import Results
from jupyter_infer.session import Session

from .conftest import ask, shown

BRACES = "explain {n: n**2 for n in xs} {missing} {{x}} ${y} 100%"


def count(prompt: str) -> list[str]:
    return [f"{prompt}:{number} " for number in range(400)]


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
    assert err == "loading · model\n"


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
    data = shell.display_pub.outputs[-1]["data"]
    assert data["text/plain"] == "Hello, world."
    assert "<p>Hello, world.</p>" in data["text/html"]
    assert capsys.readouterr() == ("", "")


def test_sampling_values_reach_the_engine(shell: Any) -> None:
    line = "-n 2 --top-p=0.9 --top-k 5 --max-tokens 1 --seed 5 --stop '\\n' --stop end --ignore-eos --no-cache"
    result = ask(shell, f"%%infer {line} --logprobs 2 --sampling min-p 0.1\nHi")
    assert result.record.sampling == {
        "n": 2,
        "top_p": 0.9,
        "top_k": 5,
        "max_tokens": 1,
        "seed": 5,
        "stop": ["\n", "end"],
        "ignore_eos": True,
        "skip_reading_prefix_cache": True,
        "min_p": 0.1,
        "logprobs": 2,
    }
    assert all(event.logprobs for sample in result.record.samples for event in sample.events)
    assert len(result.texts) == 2


def test_a_model_is_loaded_if_another_one_is(shell: Any, session: Session) -> None:
    wanted: list[str] = []
    build = session._factory
    session._factory = lambda model, *rest: wanted.append(model) or build(model, *rest)  # type: ignore[func-returns-value]
    ask(shell, "%%infer -m other\nHi")
    ask(shell, "%%infer -m other\nHi")
    assert wanted == ["other"]


# Options.


def test_a_default_is_set_by_configuration(shell: Any) -> None:
    shell.run_line_magic("config", "InferMagics.max_tokens = 2")
    assert ask(shell, "%%infer\nHi").text == "Hello,"
    assert ask(shell, "%%infer --max-tokens 3\nHi").text == "Hello, world"


def test_defaults_come_from_ipythons_configuration(
    plain_shell: Any, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_session(session, monkeypatch)
    plain_shell.config.InferMagics.system = "be brief"
    plain_shell.run_line_magic("load_ext", "jupyter_infer")
    assert ask(plain_shell, "%%infer\nHi").record.prompt == "be brief\nHi"


def test_the_value_is_kept_under_a_name(shell: Any) -> None:
    result = ask(shell, "%%infer -o answer\nHi")
    assert shell.user_ns["answer"] is result
    assert shell.user_ns["_"] is result
    assert shell.user_ns["Out"][1] is result


def test_a_batch_is_results(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    results = ask(shell, "%%infer --split -o both\none\n---\ntwo")
    assert isinstance(results, Results)
    assert [result.record.prompt for result in results] == ["one", "two"]
    assert shell.user_ns["both"] is results
    assert capsys.readouterr().out.startswith("[1] Hello, world.\n\n[2] Hello, world.\n")


def test_a_list_is_a_batch_and_a_bad_prompt_is_refused_alone(shell: Any) -> None:
    shell.user_ns["qs"] = ["one", " ", "word " * 5000]
    results = ask(shell, "%%infer --prompts qs")
    assert results.texts == ("Hello, world.", None, None)


def test_json_is_one_object_on_stdout_and_nothing_else(kernel: Any, capsys: pytest.CaptureFixture[str]) -> None:
    ask(kernel, "%infer load")
    capsys.readouterr()
    del kernel.display_pub.outputs[:]
    result = ask(kernel, "%%infer --json --max-tokens 2\nHi")
    found = json.loads(capsys.readouterr().out)
    assert found["text"] == "Hello,"
    assert found["texts"] == ["Hello,"]
    assert found["output_tokens"] == 2
    assert found["price"] == "$0.05/h assumed"
    assert kernel.display_pub.outputs == []
    assert result is None
    assert kernel.user_ns["_"].phases.e2e_ns / 1e9 == found["e2e_s"]


def test_json_of_a_batch_is_a_list(kernel: Any, capsys: pytest.CaptureFixture[str]) -> None:
    ask(kernel, "%infer load")
    capsys.readouterr()
    kernel.user_ns["qs"] = ["Hi", ""]
    ask(kernel, "%%infer --json --prompts qs")
    good, bad = json.loads(capsys.readouterr().out)
    assert good["text"] == "Hello, world."
    assert bad["error"].startswith("PromptError: the prompt is empty")


@pytest.mark.parametrize(
    ("line", "kinds"),
    [
        ("", {"text/plain", "text/html", "application/vnd.plotly.v1+json"}),
        ("--no-chart", {"text/plain"}),
    ],
)
def test_the_value_shows_as_much_as_was_asked_for(kernel: Any, line: str, kinds: set[str]) -> None:
    result = ask(kernel, f"%%infer -o kept {line}\nHi")
    data, _ = kernel.display_formatter.format(result)
    assert set(data) == kinds
    for same in (kernel.user_ns["kept"], ask(kernel, "%infer last")):  # asked for again, it shows itself as ever
        assert set(kernel.display_formatter.format(same)[0]) >= {"text/html"}


@pytest.mark.parametrize("cell", ["%%infer --no-chart ;\nHi", "%%infer;\nHi", "%%infer\nHi;"])
def test_a_semicolon_mutes_the_value_and_keeps_it(shell: Any, capsys: pytest.CaptureFixture[str], cell: str) -> None:
    assert ask(shell, cell) is None
    assert capsys.readouterr().out == "Hello, world.\n"
    result = shell.user_ns["_"]
    assert shell.user_ns["Out"][1] is result
    assert result.record.prompt == cell.partition("\n")[2]
    assert set(shell.display_formatter.format(result)[0]) >= {"text/html"}


def test_plain_text_in_a_cell_is_stdout(kernel: Any, capsys: pytest.CaptureFixture[str]) -> None:
    ask(kernel, "%infer load")
    capsys.readouterr()
    del kernel.display_pub.outputs[:]
    kernel.run_cell("%%infer -f text\nHi", silent=True)
    assert capsys.readouterr().out == "Hello, world.\n"
    assert kernel.display_pub.outputs == []


def test_a_hint_stands_apart_from_the_answer(kernel: Any) -> None:
    kernel.user_ns["x"] = 5
    ask(kernel, "%%infer\nwhat is {x}?")
    assert shown(kernel)[-1] == "hint: {x} was sent as typed; %%infer -i puts the value of x in its place"
    assert ask(kernel, "%%infer -i\nwhat is {x}?").record.prompt == "what is 5?"


# A conversation.


def test_a_conversation_goes_on(shell: Any) -> None:
    ask(shell, "%%infer -s 'be brief'\nOne")
    assert ask(shell, "%%infer -c\nTwo").record.prompt == "be brief\nOne\nHello, world.\nTwo"
    assert ask(shell, "%%infer -c\nThree").record.prompt.count("Hello, world.") == 2
    assert ask(shell, "%%infer\nFour").record.prompt == "Four"
    assert ask(shell, "%%infer -c\nFive").record.prompt == "Four\nHello, world.\nFive"


@pytest.mark.parametrize(
    "cell", ["%infer clear chat", "%%infer -n 2\nHi", "%%infer --split\nHi", "%%infer --no-template\nHi"]
)
def test_there_is_nothing_to_continue_after(shell: Any, cell: str) -> None:
    ask(shell, "%%infer\nOne")
    ask(shell, cell)
    with pytest.raises(ConfigError, match="there is no conversation to continue"):
        ask(shell, "%%infer -c\nTwo")


def test_a_mistake_leaves_the_conversation_as_it_was(shell: Any) -> None:
    ask(shell, "%%infer\nOne")
    for cell in ("%%infer --max-tokens x\nTwo", "%%infer --sampling no_such 1\nTwo", f"%%infer\n{'word ' * 5000}"):
        with pytest.raises((ConfigError, PromptError)):
            ask(shell, cell)
    assert ask(shell, "%%infer -c\nTwo").record.prompt == "One\nHello, world.\nTwo"


def test_an_answer_in_the_background_is_no_part_of_the_conversation(shell: Any) -> None:
    ask(shell, "%%infer\nOne")
    ask(shell, "%%infer -b\nBeside").result()
    assert ask(shell, "%%infer -c\nTwo").record.prompt == "One\nHello, world.\nTwo"


def test_an_empty_system_message_is_one_too(shell: Any) -> None:
    ask(shell, '%%infer -s ""\nOne')
    assert ask(shell, "%%infer -c\nTwo").record.prompt == "\nOne\nHello, world.\nTwo"


# The background.


def test_a_background_cell_returns_a_handle_and_its_text_comes_to_it(
    plain_shell: Any, scripted_session: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gate = Gate()
    use_session(scripted_session(Script(answer=count), sleep=gate.sleep), monkeypatch)
    plain_shell.run_line_magic("load_ext", "jupyter_infer")
    ask(plain_shell, "%infer load")
    capsys.readouterr()
    plain_shell.kernel = object()
    plain_shell.display_pub = CapturingDisplayPublisher()
    handle = ask(plain_shell, "%%infer -b --max-tokens 3 -o job\nfirst")
    assert isinstance(handle, RequestHandle)
    assert plain_shell.user_ns["job"] is handle
    assert not handle.done
    assert shown(plain_shell) == ["…", "▷ in the background …"]
    capsys.readouterr()
    ask(plain_shell, "print('x')")
    assert capsys.readouterr().out == "x\n"
    gate.open()
    assert handle.result(WAIT).text == "first:0 first:1 first:2 "
    wait_for_drawing()
    text, status = shown(plain_shell)
    assert text == "first:0 first:1 first:2 "
    assert status == handle.result().status
    assert all(message.get("update") for message in plain_shell.display_pub.outputs[2:])
    assert capsys.readouterr() == ("", "")


def test_a_background_batch_is_a_handle_of_all(shell: Any) -> None:
    handle = ask(shell, "%%infer -b --split\none\n---\ntwo")
    assert isinstance(handle, BatchHandle)
    assert handle.result(WAIT).texts == ("Hello, world.", "Hello, world.")
    assert handle.done


def test_a_muted_background_cell_shows_its_text_alone(kernel: Any) -> None:
    ask(kernel, "%infer load")
    del kernel.display_pub.outputs[:]
    assert ask(kernel, "%%infer -b ;\nHi") is None
    assert kernel.user_ns["_"].result(WAIT).text == "Hello, world."
    wait_for_drawing()
    assert shown(kernel) == ["Hello, world.", ""]


def test_the_last_result_of_a_batch_is_the_batch(shell: Any, session: Session) -> None:
    batch = ask(shell, "%%infer --split\na\n---\nb")
    assert list(ask(shell, "%infer last")) == list(batch)
    newer = session.generate("from a script")
    assert ask(shell, "%infer last") is newer
    ask(shell, "%infer clear history")
    with pytest.raises(ConfigError, match="nothing was asked yet"):
        ask(shell, "%infer last")


def test_a_load_through_an_option_is_in_the_record(shell: Any) -> None:
    ask(shell, "%infer load")
    assert ask(shell, "%%infer -m other\nHi").record.load_ns is not None
    assert ask(shell, "%%infer -m other\nHi").record.load_ns is None


def test_json_is_whole_whatever_the_answer(
    plain_shell: Any, scripted_session: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = "a\x85b\ud800 ü🙂\x1b"
    use_session(scripted_session(Script(answer=lambda prompt: [answer])), monkeypatch)
    plain_shell.run_line_magic("load_ext", "jupyter_infer")
    plain_shell.user_ns["x"] = 1
    ask(plain_shell, "%infer load")
    capsys.readouterr()
    ask(plain_shell, "%%infer --json\n{x}")  # and no hint
    out, err = capsys.readouterr()
    assert json.loads(out.splitlines()[0])["text"] == answer
    assert "hint" not in out + err


# Mistakes.


def test_half_a_surrogate_pair_is_one_line(shell: Any) -> None:
    with pytest.raises(PromptError, match="half of a surrogate pair"):
        ask(shell, "%%infer -s '\\ud800'\nHi")
    shell.user_ns["qs"] = ["a\ud800b", "good"]
    assert ask(shell, "%%infer --prompts qs").texts == (None, "Hello, world.")


@pytest.mark.parametrize(
    ("cell", "says"),
    [
        ("%%infer\n  \n\t\n", "PromptError: the prompt is empty; write the question below the %%infer line"),
        ("%%infer Why?\nHi", "ConfigError: 'Why?' is no option; the prompt goes below the %%infer line"),
        ("%%infer --max-tokens many\nHi", "ConfigError: --max-tokens takes a whole number, not 'many'"),
        ("%%infer --max-tokens\nHi", "ConfigError: --max-tokens needs a value: --max-tokens N"),
        ("%%infer --max-token 3\nHi", "ConfigError: unknown option '--max-token'; did you mean '--max-tokens'?"),
        ("%%infer -T 3\nHi", "ConfigError: unknown option '-T'; %infer help lists them"),
        ("%%infer --system 'open\nHi", "ConfigError: a quote is not closed, or text touches it: 'open"),
        ("%%infer\n", "PromptError: the prompt is empty; write the question below the %%infer line"),
        ("%%infer", "PromptError: the prompt is empty; write the question below the %%infer line"),
        ("%%infer --max-model-len 9\nHi", "ConfigError: unknown option '--max-model-len'; did you mean"),
        ("%%infer -c\nHi", "ConfigError: there is no conversation to continue; ask without --continue first"),
        ("%%infer --no-template -s x\nHi", "ConfigError: a system message needs the chat template; leave out"),
        ("%%infer --prompts qs", "ConfigError: --prompts: there is no variable 'qs'"),
        ("%%infer --sampling system x\nHi", "ConfigError: unknown sampling value 'system'"),
        ("%%infer -t=0\nHi", "ConfigError: '-t=0': a short option has no equals sign; write -t 0"),
        ("%infer tokens '\\ud800'", "PromptError: the text holds half of a surrogate pair (\\ud800)"),
        ("%infer lod", "ConfigError: unknown command 'lod'; did you mean 'load'"),
        ("%infer frobnicate", "ConfigError: unknown command 'frobnicate'; there is: load, unload, status"),
        ("%infer load a b", "ConfigError: one model at a time; got a, b"),
        ("%infer load --model x", "ConfigError: unknown option '--model': the model stands first; type %infer load"),
        ("%infer clear", "ConfigError: %infer clear takes chat, history or cache; got ''"),
        ("%infer clear all", "ConfigError: %infer clear takes chat, history or cache; got 'all'"),
        ("%infer price dear", "ConfigError: %infer price takes dollars an hour, such as 0.40, or clear; got 'dear'"),
        ("%infer price -1", "ConfigError: %infer price takes dollars an hour, such as 0.40, or clear; got '-1'"),
        ("%infer tokens", "ConfigError: %infer tokens TEXT: give the text; a quoted one is a Python string"),
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
    monkeypatch.setattr("jupyter_infer.magics.commands.describe_status", lambda status: 1 / 0)
    assert isinstance(shell.run_cell("%infer status").error_in_exec, ZeroDivisionError)
    assert "Traceback" in capsys.readouterr().out


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
    assert [type(found).__name__ for found in shell.configurables].count("InferMagics") == 1


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
    wait_for_drawing()
    text, status = shown(plain_shell)
    assert text == "first:0 first:1 first:2 first:3 first:4 first:5 "  # the one that was on its way, too
    assert status.startswith("■ scripted · ")  # the result of what there is, in the interrupted cell
    assert "interrupted" in status
    assert ask(plain_shell, "%infer last").record is session.history[-1].record
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


def test_an_answer_in_a_form_is_shown_as_it_is(kernel: Any, session: Session) -> None:
    """Markdown would take the indentation of JSON."""
    kernel.user_ns["person"] = {"type": "object"}
    for line in ("--schema person", "--choice yes --choice no", "-f markdown --choice yes"):
        kernel.display_pub.outputs.clear()
        result = ask(kernel, f"%%infer {line}\nHi")
        assert result.parsed is None  # the script heeds no form, and that is said
        assert "does not fit the" in result.status
        rendered = [message for message in kernel.display_pub.outputs if "<div" in message["data"].get("text/html", "")]
        assert bool(rendered) is ("markdown" in line)
