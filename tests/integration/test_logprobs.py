"""Log-probabilities of the real model: each event has those of its own tokens, whatever a step gave."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

import jupyter_infer as ji
from jupyter_infer.errors import ConfigError
from jupyter_infer.records import RequestRecord, TokenEvent
from jupyter_infer.session import Session

PROMPT = "Name three colours."


@pytest.fixture
def another(session: Session) -> Iterator[Session]:
    """The session to be loaded with other settings; the next file gets the usual ones."""
    yield session
    session.unload()


def spelled(session: Session, token_id: int) -> str:
    """Return the text of one token alone, by the model's own tokenizer."""
    engine = session._worker.engine
    return str(engine._tokenizer.decode([token_id]))  # type: ignore[union-attr]


def own_ones(session: Session, record: RequestRecord, asked: int) -> list[TokenEvent]:
    """Check that each event says as much as it has tokens, and that it is about them; return the events."""
    events = [event for sample in record.samples for event in sample.events]
    compared = 0
    for event in events:
        assert event.logprobs is not None
        assert len(event.logprobs) == len(event.token_ids)
        for token_id, said in zip(event.token_ids, event.logprobs, strict=True):
            if not (text := spelled(session, token_id)).endswith("\ufffd"):  # a part of a character is spelled nothing
                assert said.text == text
                compared += 1
            assert said.logprob is not None
            assert said.rank is not None
            assert said.logprob <= 0
            others = said.alternatives
            assert token_id not in [other.token_id for other in others]
            assert len(others) == asked - (said.rank <= asked)
            likely = [other.logprob for other in others if other.logprob is not None]
            assert likely == sorted(likely, reverse=True)
            # Before it in rank is what is at least as likely, behind it what is at most as likely.
            before = min(said.rank - 1, len(others))
            assert all(logprob >= said.logprob for logprob in likely[:before])
            assert all(logprob <= said.logprob for logprob in likely[before:])
            assert math.exp(said.logprob) + sum(map(math.exp, likely)) < 1.001
    assert compared > 4
    return events


def test_greedy_takes_the_likeliest_token_each_time(session: Session) -> None:
    record = session.generate(PROMPT, temperature=0, max_tokens=24, logprobs=5).record
    events = own_ones(session, record, 5)
    assert len(events) == record.output_tokens
    ranks = []
    for event in events:
        [said] = event.logprobs or ()
        first = said.alternatives[0].logprob
        assert said.logprob is not None
        assert first is not None
        assert said.logprob >= first
        ranks.append(1 if said.logprob == first else said.rank)  # a rank of two that are equally likely is either's
    assert set(ranks) == {1}


def test_they_are_of_the_model_and_not_of_what_was_drawn_from(session: Session) -> None:
    """The same tokens have the same log-probabilities at any temperature: vLLM reports them raw."""
    cold = session.generate(PROMPT, temperature=0, max_tokens=1, logprobs=3).record.samples[0].events[0]
    hot = (
        session.generate(PROMPT, temperature=2.0, top_k=2, seed=1, max_tokens=1, logprobs=3).record.samples[0].events[0]
    )
    found = []
    for event in (cold, hot):
        [said] = event.logprobs or ()
        found.append({event.token_ids[0]: said.logprob} | {o.token_id: o.logprob for o in said.alternatives})
    for token_id in found[0].keys() & found[1].keys():
        assert found[0][token_id] == pytest.approx(found[1][token_id], abs=0.2)
    assert len(found[0].keys() & found[1].keys()) >= 3


def test_two_answers_and_a_neighbour_that_did_not_ask_keep_theirs_apart(session: Session) -> None:
    plain = session.submit("Count to ten.", max_tokens=30, temperature=0, ignore_eos=True)
    fewer = session.submit("Count to twenty.", max_tokens=30, temperature=0, ignore_eos=True, logprobs=1)
    two = session.submit(
        "Write emoji: 🦊 🌈 🎉", n=2, temperature=1.0, seed=1, max_tokens=40, ignore_eos=True, logprobs=4
    )
    record = two.record(120)
    own_ones(session, record, 4)
    own_ones(session, fewer.record(120), 1)
    assert record.samples[0].token_ids != record.samples[1].token_ids
    assert any(event.text == "" for sample in record.samples for event in sample.events)  # parts of a character
    assert {event.logprobs for event in plain.record(120).samples[0].events} == {None}


def test_a_stop_string_holds_text_back_and_no_log_probabilities(session: Session) -> None:
    whole = session.generate(PROMPT, temperature=0, max_tokens=24, logprobs=2)
    word = whole.text.split()[4]
    record = session.generate(PROMPT, temperature=0, max_tokens=24, logprobs=2, stop=[f"{word}"]).record
    assert record.samples[0].stop_reason == word
    own_ones(session, record, 2)
    assert record.output_tokens < whole.record.output_tokens


def test_none_but_the_token_itself_and_vllm_s_flat_form(session: Session) -> None:
    own_ones(session, session.generate(PROMPT, temperature=1, seed=3, max_tokens=12, logprobs=0).record, 0)
    flat = session.generate(PROMPT, temperature=1, seed=3, max_tokens=12, logprobs=3, flat_logprobs=True).record
    own_ones(session, flat, 3)


def test_nothing_is_compiled_for_them_while_others_wait(session: Session) -> None:
    from torch._dynamo.utils import counters

    before = dict(counters["frames"])
    own_ones(session, session.generate(PROMPT, n=3, temperature=1, seed=1, max_tokens=4, logprobs=7).record, 7)
    assert dict(counters["frames"]) == before


@pytest.mark.parametrize("asked", [21, -1, "5", True, 2.5, [1]])
def test_what_cannot_be_asked_for_is_refused_in_one_line_before_anything_runs(session: Session, asked: object) -> None:
    before = len(session.history)
    with pytest.raises(ConfigError, match=r"^logprobs can(not)? be [^\n]*$"):
        session.submit(PROMPT, logprobs=asked)
    assert len(session.history) == before
    assert session.status().open_requests == 0


def test_a_file_of_runs_has_them(session: Session, tmp_path: Path) -> None:
    result = session.generate(PROMPT, temperature=0, max_tokens=8, logprobs=2)
    [again] = ji.read_runs(result.to_jsonl(tmp_path / "x.jsonl"))
    assert again.run.requests[0] == result.record
    told = result.to_pandas("tokens")["logprob"]
    assert list(told) == [(event.logprobs or ())[0].logprob for event in result.record.samples[0].events]


def test_a_step_that_gives_several_tokens_has_several(another: Session) -> None:
    drafts = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4}
    another.load(kv_cache_memory_bytes=256 << 20, speculative_config=drafts)
    asked = {"max_tokens": 40, "temperature": 0, "ignore_eos": True, "logprobs": 2}
    prompt = "Repeat: a b c d e f g a b c d e f g a b c d e f g"
    whole = another.generate(prompt, **asked)
    assert max(len(event.token_ids) for event in own_ones(another, whole.record, 2)) > 1
    cut = another.generate(prompt, **asked, stop=[whole.text[20:24]])  # among the tokens of a step, perhaps
    own_ones(another, cut.record, 2)
