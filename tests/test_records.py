"""Records are values: equal by content, frozen, and the same after a round trip through JSON."""

from __future__ import annotations

import json
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
import pytest
from builders import make_record, make_sample, make_step, make_work
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_infer import records
from jupyter_infer.records import (
    Alternative,
    EngineInfo,
    Fit,
    LoadStage,
    RequestRecord,
    SampleRecord,
    StepRecord,
    StepWork,
    TokenEvent,
    TokenLogprob,
    from_json,
    plain,
    to_json,
)

KINDS = (
    *(Alternative, EngineInfo, Fit, LoadStage, RequestRecord, SampleRecord),
    *(StepRecord, StepWork, TokenEvent, TokenLogprob),
)

# What JSON carries: whole text (no half surrogate pairs) and numbers that fit 64 bits.
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
WHOLE = st.integers(-(2**63), 2**63 - 1)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
SETTINGS = st.dictionaries(TEXT, st.none() | st.booleans() | WHOLE | FINITE | TEXT | st.lists(WHOLE | TEXT), max_size=3)
PLAIN = {int: WHOLE, float: FINITE, str: TEXT, bool: st.booleans(), type(None): st.none(), dict[str, Any]: SETTINGS}


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for an annotation of a record; lists are short, since records nest."""
    if hint in PLAIN:
        return PLAIN[hint]
    if hint in KINDS:
        return st.builds(hint, **{name: values(inner) for name, inner in get_type_hints(hint).items()})
    parts = get_args(hint)
    if get_origin(hint) is not tuple:
        return st.one_of(*map(values, parts))
    if parts[-1] is ...:
        return st.lists(values(parts[0]), max_size=2).map(tuple)
    return st.tuples(*map(values, parts))


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_is_equal_after_a_round_trip(kind: type) -> None:
    @settings(max_examples=40)
    @given(values(kind))
    def check(record: Any) -> None:
        back = from_json(to_json(record), kind)
        assert back == record
        assert to_json(back) == to_json(record)

    check()


@given(st.lists(values(StepWork), max_size=3))
def test_a_list_of_records_is_equal_after_a_round_trip(steps: list[StepWork]) -> None:
    assert from_json(to_json(steps), list[StepWork]) == steps


@pytest.mark.parametrize("kind", KINDS)
def test_records_are_frozen_and_slotted(kind: type) -> None:
    @settings(max_examples=1)
    @given(values(kind))
    def check(record: Any) -> None:
        for name in get_type_hints(kind):
            with pytest.raises(AttributeError):  # also of a frozen dataclass
                setattr(record, name, getattr(record, name))
        assert not hasattr(record, "__dict__")

    check()


def test_json_is_plain_and_keeps_what_is_not_known() -> None:
    data = json.loads(to_json(make_record(first_token_ns=None, cached_tokens=None)))
    assert data["first_token_ns"] is None
    assert data["cached_tokens"] is None
    assert data["stalled_ns"] == 0


def test_what_is_no_record_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        from_json('{"steps": "many"}', Fit)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (("a", "b"), ["a", "b"]),
        ({5: 1.0}, {"5": 1.0}),
        ({"json": {"type": "object"}}, {"json": {"type": "object"}}),
        (None, None),
        (range(2), "range(0, 2)"),
        ({(1, 2): 3}, {"(1, 2)": 3}),
        ("\ud800", "'\\ud800'"),
    ],
)
def test_a_sampling_value_is_kept_as_json_has_it(value: Any, expected: Any) -> None:
    assert plain(value) == expected
    record = make_record(sampling={"value": plain(value)})
    assert from_json(to_json(record), RequestRecord) == record


def test_text_and_tokens_of_a_sample_are_those_of_its_events() -> None:
    events = (
        TokenEvent("r1", 0, 0, 10, (1, 2), "He"),
        TokenEvent("r1", 0, 1, 20, (3,), ""),  # half a character is held back
        TokenEvent("r1", 0, 2, 30, (), "llo", "stop"),
    )
    sample = SampleRecord(0, events, "stop")
    assert sample.text == "Hello"
    assert sample.token_ids == (1, 2, 3)


def test_log_probabilities_that_were_not_asked_for_are_none_and_one_of_0_is_null() -> None:
    old = '{"request_id":"r1","sample":0,"step":0,"time_ns":1,"token_ids":[5],"text":"x"}'  # of a file before 0.1
    assert from_json(old, TokenEvent) == TokenEvent("r1", 0, 0, 1, (5,), "x", logprobs=None)
    said = TokenLogprob("x", -0.5, 1, (Alternative(6, " y", None),))
    written = to_json(TokenEvent("r1", 0, 0, 1, (5,), "x", logprobs=(said,)))
    assert json.loads(written)["logprobs"] == [
        {"text": "x", "logprob": -0.5, "rank": 1, "alternatives": [{"token_id": 6, "text": " y", "logprob": None}]}
    ]
    assert from_json(written, TokenEvent).logprobs == (said,)


def test_output_tokens_are_counted_from_ids_over_all_samples() -> None:
    record = make_record(make_sample([1, 2], tokens=[3, 0]), make_sample([2], index=1))
    assert record.output_tokens == 4


def test_finish_reasons_that_differ_are_all_named() -> None:
    first, second = make_sample([1]), make_sample([1], index=1, finish="length")
    assert make_record(first, second, second).finish_reason == "stop, length"
    assert make_record(first, first).finish_reason == "stop"


def test_a_step_has_the_tokens_and_the_time_of_its_work() -> None:
    step = make_step(make_work(tokens=3), make_work("r2", tokens=4), start=50, end=75)
    assert step.tokens == 7
    assert step.duration_ns == 25


def test_all_public_names_are_there() -> None:
    assert all(hasattr(records, name) for name in records.__all__)
