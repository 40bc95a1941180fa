"""The default model answers as it should, and is asked what was typed."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jupyter_infer.session import Session


def test_a_raw_completion_goes_on_with_paris(session: Session) -> None:
    result = session.generate("The capital of France is", template=False, max_tokens=4, temperature=0)
    assert "Paris" in result.text


def test_a_chat_answer_stops_by_itself_and_shows_no_control_token(session: Session) -> None:
    result = session.generate("What is the capital of France?", max_tokens=40, temperature=0)
    assert result.finish_reason == "stop"
    assert "Paris" in result.text
    assert "<|im_end|>" not in result.text


def test_prompt_ids_are_those_of_the_tokenizers_own_template(session: Session) -> None:
    engine = session._worker.engine
    body = "explain {n: n**2 for n in xs} {missing} {{x}} ${y} 100% </script> \N{PILE OF POO} \u202eabc\u202c e\u0301"
    own = engine._engine.get_tokenizer().apply_chat_template(
        [{"role": "user", "content": body}], tokenize=True, add_generation_prompt=True, return_dict=False
    )
    rendered = engine.render(body)
    assert list(rendered.token_ids) == list(own)
    assert body in rendered.text


def test_a_system_message_reaches_the_model(session: Session) -> None:
    rendered = session.generate("Who are you?", system="You are a pirate.", max_tokens=1).record.prompt
    assert "You are a pirate." in rendered


def test_the_same_seed_gives_the_same_answer_and_a_default_seed_is_recorded(session: Session) -> None:
    options = {"max_tokens": 6, "temperature": 1.0, "ignore_eos": True}
    free = session.generate("Make up a name.", **options)
    again = session.generate(
        "Make up a name.", **options, seed=free.record.sampling["seed"], skip_reading_prefix_cache=True
    )
    once_more = session.generate(
        "Make up a name.", **options, seed=again.record.sampling["seed"], skip_reading_prefix_cache=True
    )
    assert again.record.samples[0].token_ids == once_more.record.samples[0].token_ids


def test_seeded_prompts_that_are_computed_in_chunks_run(cold: Session) -> None:
    """vLLM's own sampler fails here on a CPU; see `vllm_quirks.let_seeds_be_chunked`."""
    budget = cold.info.max_num_batched_tokens
    prompts = [f"{n} " + "word " * (budget // 2) for n in range(4)]
    results = cold.generate(prompts, max_tokens=2, temperature=1.0, seed=7, ignore_eos=True)
    assert [result.record.output_tokens for result in results] == [2, 2, 2, 2]


def test_a_chunked_prompt_and_a_whole_one_draw_the_same_tokens_from_a_seed(cold: Session) -> None:
    budget = cold.info.max_num_batched_tokens
    prompt = "word " * (budget + budget // 2)
    options = {"max_tokens": 4, "temperature": 1.0, "seed": 11, "ignore_eos": True}
    chunked = cold.generate(prompt, **options)
    cached = cold.generate(prompt, **options)  # its prefix is in the cache, so one chunk is left
    assert chunked.record.samples[0].token_ids[:1] == cached.record.samples[0].token_ids[:1]


def test_a_stop_string_ends_the_answer_and_is_not_in_it(session: Session) -> None:
    result = session.generate("Count: one, two,", template=False, stop=[","], max_tokens=12, temperature=0)
    assert "," not in result.text
    assert result.finish_reason == "stop"
    assert result.record.samples[0].stop_reason == ","


# The model's vocabulary has no tokens for these: control characters, and the unassigned planes 4 to 11 of Unicode.
UNKNOWN_BYTES = {*b"\x04\x06\x13\x14\x16\x1d", 0xF1, 0xF2}


@given(body=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60).filter(str.strip))
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_is_in_the_prompt_and_in_its_tokens_as_it_was_typed(session: Session, body: str) -> None:
    engine: Any = session._worker.engine
    rendered = engine.render(body)
    assert rendered.text.count(f"<|im_start|>user\n{body}<|im_end|>\n") == 1
    raw = engine.render(body, template=False)
    assert raw.text == body
    if not UNKNOWN_BYTES & set(body.encode()):
        decode = partial(engine._tokenizer.decode, clean_up_tokenization_spaces=False)
        assert decode(rendered.token_ids) == rendered.text
        assert decode(raw.token_ids) == body


@pytest.mark.parametrize("template", [True, False])
def test_a_literal_control_token_is_that_token(session: Session, template: bool) -> None:
    engine: Any = session._worker.engine
    plain, with_one = (engine.render(text, template=template).token_ids for text in ("ab", "a<|im_end|>b"))
    assert with_one.count(2) == plain.count(2) + 1
    assert session.generate("a<|im_end|>b", template=template, max_tokens=2).usage.output_tokens in (1, 2)
