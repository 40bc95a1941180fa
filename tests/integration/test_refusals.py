"""What cannot run is refused alone, in one line, and the next request works."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_infer.errors import ConfigError, InferError, ModelError, NotEnoughMemory, PromptError
from jupyter_infer.magics.tables import describe
from jupyter_infer.models import default_model_here
from jupyter_infer.result import Refused, Result
from jupyter_infer.session import Session

from .tiny import SETTINGS, tiny_model


def words(session: Session, tokens: int) -> str:
    """A raw prompt of exactly so many tokens."""
    text = " a" * tokens
    assert len(session._worker.engine.render(text, template=False).token_ids) == tokens
    return text


@pytest.fixture(scope="module")
def back(session: Session) -> Iterator[None]:
    """Afterwards the default model is there again."""
    yield
    session.load(default_model_here(), kv_cache_memory_bytes=256 << 20)


@pytest.fixture(scope="module")
def small(session: Session, back: None) -> Session:
    """The engine with a context of 96 tokens."""
    session.load(max_model_len=96, kv_cache_memory_bytes=256 << 20)
    return session


def test_the_limit_is_the_context_less_one_token(small: Session) -> None:
    limit = small.info.max_model_len
    last = small.generate(words(small, limit - 1), template=False, ignore_eos=True)
    assert (last.record.output_tokens, last.finish_reason) == (1, "length")
    for tokens in (limit, limit + 1):
        with pytest.raises(PromptError, match=rf"{tokens} tokens.*context of {limit}"):
            small.generate(words(small, tokens), template=False)


def test_a_batch_runs_without_the_prompt_that_cannot(small: Session) -> None:
    limit = small.info.max_model_len
    for tokens in (limit, limit + 1):
        prompts = ["Hi", words(small, tokens), "Bye"]
        results = small.generate(prompts, template=False, max_tokens=2, ignore_eos=True)
        first, refused, last = results
        assert isinstance(first, Result)
        assert isinstance(refused, Refused)
        assert isinstance(last, Result)
        assert (first.record.prompt, last.record.prompt) == ("Hi", "Bye")
        assert (first.usage.output_tokens, last.usage.output_tokens) == (2, 2)
        assert refused.prompt == prompts[1]
        assert f"{tokens} tokens" in str(refused.error)
        assert f"context of {limit}" in str(refused.error)
        assert "1 refused" in results.status
        assert small.status().open_requests == 0


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


@pytest.mark.parametrize("content", [b"", b"GGUF", b"no such format " * 100])
def test_a_gguf_file_that_cannot_be_converted_leaves_the_engine_as_it_is(
    session: Session, tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "x.gguf").write_bytes(content)
    before = session.generate("Hi", max_tokens=1)
    with pytest.raises(InferError, match=r"x\.gguf") as caught:
        session.load(str(tmp_path / "x.gguf"))
    assert "\n" not in str(caught.value)
    again = session.generate("Hi", max_tokens=1)
    assert (again.record.model, again.record.load_ns) == (before.record.model, None)


# A pool that is smaller than the context; the engine that these need comes last.

POOL = {**SETTINGS, "num_gpu_blocks_override": 41}  # and one of them is vLLM's own


@pytest.fixture(scope="module")
def pool(session: Session, tmp_path_factory: pytest.TempPathFactory, back: None) -> Session:
    """A model with a context of 8,192 tokens, and a KV pool of 40 blocks."""
    session.load(tiny_model(tmp_path_factory.mktemp("models") / "tiny"), **POOL)
    return session


def test_the_context_is_what_the_pool_holds_and_that_is_said(pool: Session) -> None:
    info = pool.info
    assert (info.kv_blocks_total, info.block_size, info.max_model_len) == (40, 32, 40 * 32)
    assert "context 1,280 · KV pool 40 blocks × 32 tokens" in describe(info)


def test_a_prompt_that_fills_the_pool_runs_and_a_longer_one_is_refused_at_once(pool: Session) -> None:
    limit = 40 * 32
    full = pool.generate(words(pool, limit - 1), template=False, ignore_eos=True)
    assert (full.usage.output_tokens, full.finish_reason) == (1, "length")
    steps, kept = len(pool.steps), len(pool.history)
    for tokens in (limit, limit + 1, 5 * limit):
        with pytest.raises(PromptError, match=rf"{tokens:,} tokens.* 1,280 .*KV pool of 40 blocks") as caught:
            pool.generate(words(pool, tokens), template=False)
        assert "\n" not in str(caught.value)
    assert (len(pool.steps), len(pool.history)) == (steps, kept)
    first, refused, last = pool.generate(["Hi", words(pool, limit), "Hi"], template=False, max_tokens=2)
    assert isinstance(refused, Refused)
    assert [result.usage.output_tokens for result in (first, last)] == [2, 2]


def test_requests_that_fit_alone_run_one_after_the_other_in_a_pool_that_is_full(pool: Session) -> None:
    """None of them waits for ever, and whoever was preempted has all of its tokens."""
    prompts = [f"{number} " + words(pool, 600) for number in range(4)]
    results = pool.generate(prompts, template=False, max_tokens=48, ignore_eos=True)
    assert [result.usage.output_tokens for result in results] == [48] * 4


def test_a_context_above_the_pool_is_refused_in_one_line(pool: Session) -> None:
    with pytest.raises(NotEnoughMemory, match=r"2048.*1280.*smaller --max-model-len or a larger --kv") as caught:
        pool.load(pool.model, **POOL, max_model_len=2048)
    assert "\n" not in str(caught.value)
