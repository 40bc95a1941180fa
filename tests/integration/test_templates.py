"""What becomes of a prompt with tokenizers and templates that the default model does not have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from conftest import use_session
from IPython.core.displaypub import CapturingDisplayPublisher

from jupyter_infer.errors import PromptError
from jupyter_infer.models import default_model_here
from jupyter_infer.session import Session

from .tiny import SETTINGS, tiny_model

USER = {"role": "user", "content": "hello"}
TALKS = [
    [USER],
    [{"role": "system", "content": "be brief"}, USER],
    [USER, {"role": "assistant", "content": "Hi."}, {"role": "user", "content": "And you?"}],
]


@pytest.fixture(scope="module")
def back(session: Session) -> Iterator[None]:
    """Afterwards the default model is there again."""
    yield
    session.load(default_model_here(), kv_cache_memory_bytes=256 << 20)


@pytest.fixture(scope="module")
def with_bos(session: Session, tmp_path_factory: pytest.TempPathFactory, back: None) -> Session:
    session.load(tiny_model(tmp_path_factory.mktemp("models") / "with-bos", bos=True), **SETTINGS)
    return session


@pytest.fixture(scope="module")
def base(session: Session, tmp_path_factory: pytest.TempPathFactory, back: None) -> Session:
    session.load(tiny_model(tmp_path_factory.mktemp("models") / "base", template=False), **SETTINGS)
    return session


def own(session: Session) -> Any:
    """Return the tokenizer that vLLM has of the loaded model."""
    return session._worker.engine._engine.get_tokenizer()  # type: ignore[union-attr]


@pytest.mark.parametrize("messages", TALKS)
def test_the_first_token_is_not_doubled_by_the_template(with_bos: Session, messages: list[dict[str, str]]) -> None:
    tokenizer = own(with_bos)
    ids = tokenizer.apply_chat_template(messages, tokenize=True, add_generation_prompt=True, return_dict=False)
    rendered = with_bos._worker.engine.render(messages)  # type: ignore[union-attr]
    assert list(rendered.token_ids) == list(ids)
    assert rendered.token_ids[0] == tokenizer.bos_token_id
    assert rendered.token_ids.count(tokenizer.bos_token_id) == 1
    assert with_bos.chat(messages, max_tokens=1).usage.prompt_tokens == len(ids)


def test_a_raw_completion_begins_with_it_once(with_bos: Session) -> None:
    tokenizer = own(with_bos)
    ids = with_bos._worker.engine.render("hello", template=False).token_ids  # type: ignore[union-attr]
    assert ids == (tokenizer.bos_token_id, *tokenizer.encode("hello", add_special_tokens=False))
    assert with_bos.generate("hello", template=False, max_tokens=1).usage.prompt_tokens == len(ids)


@pytest.mark.parametrize("template", [True, False])
@pytest.mark.parametrize("prompt", ["", " \n\t "])
def test_an_empty_prompt_is_refused_also_where_a_token_would_stand_before_it(
    with_bos: Session, prompt: str, template: bool
) -> None:
    before = len(with_bos.history)
    with pytest.raises(PromptError, match="empty"):
        with_bos.generate(prompt, template=template)
    assert len(with_bos.history) == before


def test_a_model_without_a_template_goes_on_with_the_text_as_typed(base: Session) -> None:
    body = "Hello {x}\n  <|im_start|>user"
    rendered = base._worker.engine.render(body)  # type: ignore[union-attr]
    assert list(rendered.token_ids) == own(base).encode(body)
    record = base.generate(body, max_tokens=1).record
    assert (record.prompt, record.prompt_tokens) == (body, len(rendered.token_ids))


def test_a_model_without_a_template_drops_no_system_message(base: Session) -> None:
    before = len(base.history)
    for ask in (
        lambda: base.generate("Hello", system="be brief"),
        lambda: base.chat([{"role": "system", "content": "be brief"}, USER]),
        lambda: base.chat(TALKS[2]),
    ):
        with pytest.raises(PromptError, match="no chat template") as caught:
            ask()
        assert "\n" not in str(caught.value)
    assert len(base.history) == before


def test_a_cell_with_a_system_message_is_one_line_there(
    base: Session, plain_shell: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use_session(base, monkeypatch)
    plain_shell.run_line_magic("load_ext", "jupyter_infer")
    plain_shell.run_cell("%%infer -s 'be brief' --max-tokens 1\nHello")
    shown = capsys.readouterr()
    assert "Traceback" not in shown.out + shown.err
    assert [line for line in shown.out.splitlines() if "no chat template" in line] == shown.out.splitlines()


def test_a_cell_says_that_the_model_has_no_template(
    base: Session, plain_shell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_session(base, monkeypatch)
    plain_shell.run_line_magic("load_ext", "jupyter_infer")
    plain_shell.kernel = object()
    plain_shell.display_pub = CapturingDisplayPublisher()
    plain_shell.run_cell("%%infer --max-tokens 1\nHello")
    said = "has no chat template: the text was completed as it stands"
    shown = [str(message["data"].get("text/plain")) for message in plain_shell.display_pub.outputs]
    assert len([text for text in shown if said in text]) == 1
    plain_shell.display_pub.outputs.clear()
    plain_shell.run_cell("%%infer --no-template --max-tokens 1\nHello")
    assert said not in str(plain_shell.display_pub.outputs)
    assert any("no chat template" in notice for notice in base.info.notices)  # type: ignore[union-attr]
