"""``%infer COMMAND``: what each prints, to the letter where it can be known."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import use_session
from gate import WAIT, Gate

from jupyter_infer.engine.quiet import LOGS
from jupyter_infer.engine.scripted import Script
from jupyter_infer.magics.tables import HISTORY_SHOWN, TOKENS_SHOWN, tokens_table
from jupyter_infer.models import CATALOG
from jupyter_infer.session import Session

from .conftest import ask


def count(prompt: str) -> list[str]:
    return [f"{prompt}:{number} " for number in range(400)]


def test_load_says_what_was_loaded(shell: Any, session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    ask(shell, "%infer load")
    out, err = capsys.readouterr()
    assert out == (
        "✓ scripted · scripted on none · none · context 4,096 · KV pool 256 blocks × 32 tokens · n/a threads · "
        "loaded in n/a\n"
    )
    assert err == "loading · model\n"
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


def test_a_semicolon_mutes_a_line(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    first = ask(shell, "%%infer\nOne")
    capsys.readouterr()
    assert ask(shell, "%infer last;") is None
    assert shell.user_ns["_"].record is first.record
    assert shell.user_ns["Out"][2] is shell.user_ns["_"]
    assert capsys.readouterr().out == ""
    ask(shell, "%infer last")
    assert capsys.readouterr().out.endswith(f"{first.status}\n")


def test_history_is_a_line_a_request(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    ask(shell, "%infer history")
    assert capsys.readouterr().out == "nothing was asked yet\n"
    ask(shell, "%%infer --max-tokens 2\nOne and\ntwo")
    ask(shell, "%%infer\nThree")
    capsys.readouterr()
    ask(shell, "%infer history")
    head, first, second = capsys.readouterr().out.splitlines()
    assert " ".join(head.split()) == "id prompt in → out cached TTFT decode e2e shared cost end"
    assert first.split()[:7] == ["r1", "One", "and", "two", "3", "→", "2"]
    assert first.endswith("length")
    assert second.split()[:5] == ["r2", "Three", "1", "→", "4"]
    assert second.endswith("stop")
    assert head.index("end") == first.index("length") == second.index("stop")


def test_a_long_history_shows_its_end(shell: Any, session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(HISTORY_SHOWN + 3):
        session.generate(f"number {number}")
    ask(shell, "%infer history")
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "… and 3 older ones"
    assert "number 3 " in lines[1]
    assert len(lines) == HISTORY_SHOWN + 2


@pytest.mark.parametrize("line", ["one two  three", '"one\\ttwo three"', "'one two three'"])
def test_tokens_are_shown_with_their_pieces(shell: Any, capsys: pytest.CaptureFixture[str], line: str) -> None:
    ask(shell, f"%infer tokens {line}")
    head, pieces = capsys.readouterr().out.splitlines()
    assert head.startswith("3 tokens of scripted · ")
    assert [piece.split(" ", 1)[1] for piece in pieces.split(" · ")] == ["'one'", "'two'", "'three'"]


@pytest.mark.parametrize(("line", "count"), [("print(1);", 1), ('"a", "b"', 2), ('"open', 1)])
def test_the_text_of_tokens_is_taken_as_typed(
    shell: Any, capsys: pytest.CaptureFixture[str], line: str, count: int
) -> None:
    ask(shell, f"%infer tokens {line}")
    assert f"{count} token{'s' * (count > 1)} of scripted · {len(line)} characters" in capsys.readouterr().out


def test_a_long_text_shows_its_first_tokens() -> None:
    text = tokens_table("m", "x" * 5000, [(1, "x")] * 5000)
    assert text.startswith("5,000 tokens of m · 5,000 characters")
    assert text.count("1 'x'") == TOKENS_SHOWN
    assert text.endswith(f"… and {5000 - TOKENS_SHOWN:,} more")


def test_models_are_the_catalogue(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    ask(shell, "%infer models")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:-1]] == [model.name for model in CATALOG]
    assert "0.27 GB" in lines[1]
    assert not any("on this machine" in line for line in lines)  # the tests' home is empty
    assert lines[-1].endswith("next is scripted")


def test_clear_forgets_what_it_is_told_to(shell: Any, session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    ask(shell, "%infer clear cache")
    assert capsys.readouterr().out == "no model is loaded, so nothing is cached\n"
    ask(shell, "%%infer\nHi")
    capsys.readouterr()
    ask(shell, "%infer clear cache")
    ask(shell, "%infer clear history")
    ask(shell, "%infer clear chat")
    assert capsys.readouterr().out.splitlines() == [
        "cached prefixes are forgotten",
        "1 result forgotten",
        "the conversation is forgotten",
    ]
    assert ("reset_prefix_cache", None) in session.engines[0].calls
    assert len(session.history) == 0


def test_version_names_what_it_stands_on(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    import IPython

    from jupyter_infer import __version__

    ask(shell, "%infer version")
    lines = capsys.readouterr().out.splitlines()
    assert f"jupyter-infer {__version__}" in lines
    assert f"ipython {IPython.__version__}" in lines
    assert lines[0].startswith("python 3.")
