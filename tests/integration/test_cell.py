"""``%%infer`` with its options on the real engine, in a shell that looks like a kernel's."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from conftest import use_session
from IPython.core.displaypub import CapturingDisplayPublisher

from jupyter_infer.config import DEFAULT_MAX_TOKENS
from jupyter_infer.handle import RequestHandle
from jupyter_infer.result import Refused, Result
from jupyter_infer.results import Results
from jupyter_infer.session import Session

README = Path(__file__).parents[2] / "README.md"


@pytest.fixture
def shell(plain_shell: Any, session: Session, monkeypatch: pytest.MonkeyPatch) -> Any:
    use_session(session, monkeypatch)
    plain_shell.run_line_magic("load_ext", "jupyter_infer")
    plain_shell.kernel = object()
    plain_shell.display_pub = CapturingDisplayPublisher()
    return plain_shell


def ask(shell: Any, line: str, body: str = "Hi") -> Any:
    outcome = shell.run_cell(f"%%infer {line}\n{body}", store_history=True)
    if outcome.error_in_exec is not None:
        raise outcome.error_in_exec
    return outcome.result


def refused(shell: Any, line: str, body: str = "Hi") -> str:
    """Return the one line that a cell says; the next one works."""
    outcome = shell.run_cell(f"%%infer {line}\n{body}")
    assert outcome.error_in_exec is not None
    text = str(outcome.error_in_exec)
    assert "\n" not in text
    return text


def test_braces_and_all_reach_the_model_as_typed(shell: Any) -> None:
    shell.user_ns["x"] = 1
    body = "explain {n: n**2 for n in xs} {missing} {{x}} ${y} 100% </script> 🙂"
    assert body in ask(shell, "--max-tokens 1", body).record.prompt
    assert "100 1" in ask(shell, "-i --max-tokens 1", "100 {x}").record.prompt


def test_the_shown_text_is_the_answer_and_ends_as_the_status_line_says(shell: Any) -> None:
    result = ask(shell, "-t 0 --max-tokens 20", "Count from 1 to 50")
    assert shell.display_pub.outputs[-1]["data"]["text/plain"] == result.text
    assert "truncated at --max-tokens 20" in result.status
    stopped = ask(shell, "-t 0 --max-tokens 60", "What is the capital of France?")
    assert stopped.status.endswith("· stop")


def test_a_cell_without_options_has_room_for_an_answer_and_says_when_it_was_cut(shell: Any) -> None:
    result = ask(shell, "", "Count from 1 to 10.")
    limit = result.record.sampling["max_tokens"]
    assert limit == DEFAULT_MAX_TOKENS > 16  # vLLM's own default
    (documented,) = re.findall(r"^\| `--max-tokens N` \| .*\((\d+)\)", README.read_text(), re.MULTILINE)
    assert int(documented) == limit
    cut = result.finish_reason == "length"
    assert cut == (result.usage.output_tokens == limit)
    shown = " ".join(str(form) for form in result._repr_mimebundle_().values())
    assert ("truncated at --max-tokens" in shown) == ("truncated" in result.status) == cut


def test_sampling_options_do_what_they_say(shell: Any) -> None:
    several = ask(shell, "-n 3 --seed 1 -t 1 --max-tokens 6 --ignore-eos --top-p 0.9 --top-k 40", "Make up a name.")
    assert len(set(several.texts)) > 1
    assert several.usage.output_tokens == 18
    stop = ask(shell, '--no-template -t 0 --max-tokens 12 --stop ", " --stop ","', "Count: one, two,")
    assert stop.finish_reason == "stop"
    assert "," not in stop.text
    raw = ask(shell, "--no-template -t 0 --max-tokens 4", "The capital of France is")
    assert "Paris" in raw.text
    assert raw.record.prompt == "The capital of France is"
    kept = ask(shell, "--sampling min_p 0.1 --max-tokens 2").record.sampling
    assert kept["min_p"] == 0.1


def test_a_warm_prefix_is_marked_and_can_be_left_out(shell: Any, cold: Session) -> None:
    body = "Remember: " + "apple pear plum " * 40
    first, warm = ask(shell, "--max-tokens 1", body), ask(shell, "--max-tokens 1", body)
    assert first.usage.cached_tokens == 0
    block = cold.info.block_size
    assert warm.usage.cached_tokens == block * ((warm.usage.prompt_tokens - 1) // block) > 0
    assert f"warm: {warm.usage.cached_tokens} cached" in warm.status
    left_out = ask(shell, "--max-tokens 1 --no-cache", body)
    assert left_out.usage.cached_tokens == 0
    assert "warm" not in left_out.status


def test_a_conversation_is_remembered(shell: Any) -> None:
    first = ask(shell, "-s 'Answer in one word.' -t 0 --max-tokens 8", "What is the capital of France?")
    second = ask(shell, "-c -t 0 --max-tokens 8", "And of Italy?")
    for part in ("Answer in one word.", "capital of France", first.text.strip(), "And of Italy?"):
        assert part in second.record.prompt


def test_a_batch_runs_together_and_refuses_alone(shell: Any, session: Session) -> None:
    shell.user_ns["qs"] = ["One fruit?", "word " * 200_000, "", "One colour?"]
    results = ask(shell, "--prompts qs -t 0 --max-tokens 4 --ignore-eos", "")
    assert isinstance(results, Results)
    assert [type(item) for item in results] == [Result, Refused, Refused, Result]
    together = [step for step in results.steps if len(step.work) == 2]
    assert together
    assert len(ask(shell, "--split --max-tokens 2", "a\n---\nb\n---\nc").done) == 3


def test_the_background_returns_at_once(shell: Any, session: Session) -> None:
    handle = ask(shell, "-b -t 0 --max-tokens 24 --ignore-eos", "Count.")
    assert isinstance(handle, RequestHandle)
    beside = ask(shell, "-t 0 --max-tokens 4 --ignore-eos", "Beside.")  # in the same steps
    assert beside.usage.output_tokens == 4
    result = handle.result(120)
    assert result.usage.output_tokens == 24
    assert any(len(step.work) == 2 for step in result.steps)


def test_json_can_be_read_and_its_phases_sum_up(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    ask(shell, "--json -t 0 --max-tokens 3 --ignore-eos")
    found = json.loads(capsys.readouterr().out.splitlines()[0])
    assert found["output_tokens"] == 3
    assert found["queued_s"] + found["prefill_s"] + found["decode_s"] == pytest.approx(found["e2e_s"], rel=1e-9)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--top-p 5", "top_p"),
        ("--top-k -7", "top_k"),
        ("-t -1", "temperature"),
        ("--max-tokens 0", "max_tokens"),
        ("-n 0", "n must be"),
        ("--stop ''", "stop"),
        ("--sampling nonsense 1", "unknown sampling value 'nonsense'"),
        ("--sampling detokenize false", "'detokenize' cannot be set"),
        ("--sampling max_model_len 9", "type: %infer load smollm2-135m --max-model-len"),
        ("--max-model-len 9", "%infer load --max-model-len 9"),
        ("-m no-such-model", "no model 'no-such-model'"),
    ],
)
def test_bad_values_are_one_line_and_the_next_cell_works(shell: Any, line: str, says: str) -> None:
    assert says in refused(shell, line)
    assert ask(shell, "--max-tokens 1").usage.output_tokens == 1


def test_tokens_are_those_of_the_models_tokenizer(session: Session) -> None:
    text = "Hello 🙂 wörld, 日本 \n\n  x"
    found = session.tokens(text)
    own = session._worker.engine._engine.get_tokenizer().encode(text)
    assert [token for token, _ in found] == own
    plain = [piece for _, piece in found if not piece.endswith(")")]  # the others are parts of one character
    assert all(piece in text for piece in plain)
