"""What cannot run is refused alone, in one line, and the next request works."""

from __future__ import annotations

import pytest

from jupyter_infer.errors import ConfigError, ModelError, PromptError
from jupyter_infer.result import Refused, Result
from jupyter_infer.session import Session


def words(session: Session, tokens: int) -> str:
    """A raw prompt of exactly so many tokens."""
    text = " a" * tokens
    assert len(session._worker.engine.render(text, template=False).token_ids) == tokens
    return text


@pytest.fixture(scope="module")
def small(session: Session) -> Session:
    """The engine with a context of 96 tokens."""
    session.load(max_model_len=96, kv_cache_memory_bytes=256 << 20)
    yield session
    session.load(kv_cache_memory_bytes=256 << 20)


def test_the_limit_is_the_context_less_one_token(small: Session) -> None:
    limit = small.info.max_model_len
    last = small.generate(words(small, limit - 1), template=False, ignore_eos=True)
    assert (last.record.output_tokens, last.finish_reason) == (1, "length")
    for tokens in (limit, limit + 1):
        with pytest.raises(PromptError, match=rf"{tokens} tokens.*context of {limit}"):
            small.generate(words(small, tokens), template=False)


def test_a_batch_runs_without_the_prompt_that_cannot(small: Session) -> None:
    prompts = ["Hi", words(small, small.info.max_model_len + 1), "Bye"]
    first, refused, last = small.generate(prompts, template=False, max_tokens=2)
    assert isinstance(first, Result)
    assert isinstance(refused, Refused)
    assert isinstance(last, Result)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"temperature": -1}, "temperature"),
        ({"top_p": 3}, "top_p"),
        ({"max_token": 3}, "did you mean 'max_tokens'"),
        ({"max_model_len": 3}, "%infer load smollm2-135m --max-model-len"),
        ({"output_kind": 1}, "streamed as deltas"),
        ({"allowed_token_ids": [10**9]}, "allowed_token_ids"),
        ({"temperature": "hot"}, "temperature|str"),
    ],
)
def test_a_bad_sampling_value_is_one_line(session: Session, options: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        session.generate("Hi", **options)
    assert "\n" not in str(caught.value)
    assert session.generate("Hi", max_tokens=1).record.output_tokens == 1


@pytest.mark.parametrize("prompt", ["", " \n\t "])
def test_an_empty_prompt_is_refused(session: Session, prompt: str) -> None:
    before = len(session.history)
    with pytest.raises(PromptError, match="empty"):
        session.generate(prompt)
    assert len(session.history) == before


def test_a_hundred_thousand_words_are_refused_with_both_numbers(session: Session) -> None:
    with pytest.raises(PromptError, match=r"100,0\d\d tokens.*context of"):
        session.generate("word " * 100_000)


@pytest.mark.parametrize(
    ("model", "settings", "error", "says"),
    [
        ("smolm2-135m", {}, ModelError, "smollm2-135m"),
        (None, {"max_model_lne": 100}, ConfigError, "did you mean 'max_model_len'"),
        (None, {"scheduler_cls": "x"}, ConfigError, "observes the scheduler"),
        (None, {"max_model_len": 10**8}, ConfigError, "max_model_len"),
        (None, {"block_size": "many"}, ConfigError, "block_size"),
        (None, {"kv_cache_memory_bytes": "256MB"}, ConfigError, "kv_cache_memory_bytes"),
        (None, {"max_num_batched_tokens": "many"}, ConfigError, "many"),
        (None, {"gpu_memory_utilization": 3}, ConfigError, "gpu_memory_utilization"),
    ],
)
def test_a_load_that_fails_is_one_line_and_the_next_request_works(
    session: Session, model: str | None, settings: dict[str, object], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says) as caught:
        session.load(model, **settings)
    assert "\n" not in str(caught.value)
    assert session.generate("Hi", max_tokens=1).record.output_tokens == 1
