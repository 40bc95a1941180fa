"""What a request gave: its status line to the letter, its frame, and batches with refusals in them."""

from __future__ import annotations

import json
import math

import pytest
from builders import make_record, make_sample

from jupyter_infer.errors import ConfigError, PromptError
from jupyter_infer.pricing import DEFAULT_PRICE, MachinePrice
from jupyter_infer.records import RequestRecord, SampleRecord, TokenEvent
from jupyter_infer.result import Refused, Result
from jupyter_infer.results import Results

PRICE = MachinePrice(3.6)  # a dollar for 1,000 s: a millisecond is a millionth
MS = 1_000_000

COLUMNS = [
    "request_id",
    "model",
    "text",
    "prompt_tokens",
    "cached_tokens",
    "output_tokens",
    "queued_s",
    "prefill_s",
    "decode_s",
    "stalled_s",
    "ttft_s",
    "tpot_s",
    "e2e_s",
    "decode_tps",
    "prefill_tps",
    "shared_s",
    "wall_usd",
    "shared_usd",
    "api_usd",
    "finish_reason",
]


def record_of(*, finish: str = "stop", tokens: int = 5, **facts: object) -> RequestRecord:
    """A request that waited 100 ms, prefilled for 200 ms and got a token each 50 ms."""
    times = [300 * MS + 50 * MS * number for number in range(tokens)]
    values = {"started_ns": 100 * MS, "shared_ns": 250 * MS, "prompt_tokens": 1234, **facts}
    return make_record(make_sample(times, finish=finish), **values)


def result_of(**facts: object) -> Result:
    return Result(record_of(**facts), PRICE)


def refused() -> Refused:
    return Refused("much too long", PromptError("the prompt has 9 tokens, and the context is 8"))


@pytest.mark.parametrize(
    ("result", "status"),
    [
        (
            result_of(),
            "✓ scripted · 1,234 in → 5 out · TTFT 300 ms · 20 tok/s · 500 ms · ≈$0.00025 @ $3.6/h · stop",
        ),
        (
            result_of(finish="length", sampling={"max_tokens": 5}),
            "✂ scripted · 1,234 in → 5 out · TTFT 300 ms · 20 tok/s · 500 ms · ≈$0.00025 @ $3.6/h"
            " · truncated at --max-tokens 5",
        ),
        (
            result_of(finish="length", sampling={"max_tokens": 64}),
            "✂ scripted · 1,234 in → 5 out · TTFT 300 ms · 20 tok/s · 500 ms · ≈$0.00025 @ $3.6/h"
            " · truncated at the context's end",
        ),
        (
            result_of(finish="abort"),
            "■ scripted · 1,234 in → 5 out · TTFT 300 ms · 20 tok/s · 500 ms · ≈$0.00025 @ $3.6/h · interrupted",
        ),
        (
            result_of(cached_tokens=1024),
            "✓ scripted · 1,234 in → 5 out · warm: 1,024 cached · TTFT 300 ms · 20 tok/s · 500 ms"
            " · ≈$0.00025 @ $3.6/h · stop",
        ),
        (
            result_of(load_ns=3_100 * MS),
            "✓ scripted · 1,234 in → 5 out · TTFT 300 ms · 20 tok/s · 500 ms · ≈$0.00025 @ $3.6/h · stop"
            " · load 3.1 s apart",
        ),
        (
            result_of(tokens=0, finish="abort", started_ns=None, shared_ns=None),
            "■ scripted · 1,234 in → 0 out · TTFT n/a · n/a · n/a · ≈n/a @ $3.6/h · interrupted",
        ),
        (
            result_of(tokens=1, finish="length", sampling={"max_tokens": 1}),
            "✂ scripted · 1,234 in → 1 out · TTFT 300 ms · n/a · 300 ms · ≈$0.00025 @ $3.6/h"
            " · truncated at --max-tokens 1",
        ),
    ],
    ids=["stop", "length", "context", "abort", "warm", "load", "never started", "one token"],
)
def test_the_status_line(result: Result, status: str) -> None:
    assert result.status == status
    assert repr(result) == f"Result({status})"


def test_one_truncated_sample_of_several_is_said() -> None:
    samples = [make_sample([300, 400], finish="length", index=n) for n in range(2)] + [make_sample([300], index=2)]
    result = Result(make_record(*samples, sampling={"max_tokens": 2}), PRICE)
    assert result.status.startswith("✂")
    assert result.status.endswith("2 of 3 truncated at --max-tokens 2")


def test_a_result_is_its_record_seen_from_the_outside() -> None:
    result = result_of(cached_tokens=64)
    assert result.text == "w0 w1 w2 w3 w4 "
    assert result.texts == (result.text,)
    assert (result.usage.prompt_tokens, result.usage.cached_tokens, result.usage.output_tokens) == (1234, 64, 5)
    assert result.phases.e2e_ns == 500 * MS
    assert result.cost.wall_usd == pytest.approx(500e-6)
    assert result.finish_reason == "stop"
    assert json.loads(result.to_json())["prompt_tokens"] == 1234


def test_a_frame_has_a_row_a_request_and_seconds() -> None:
    frame = Results([result_of(), refused(), result_of(tokens=1)]).to_pandas()
    assert list(frame.columns) == COLUMNS
    assert len(frame) == 2
    first, second = frame.to_dict("records")
    assert (first["queued_s"], first["prefill_s"], first["decode_s"], first["e2e_s"]) == (0.1, 0.2, 0.2, 0.5)
    assert first["tpot_s"] == 0.05
    assert first["shared_usd"] == pytest.approx(250e-6)
    assert math.isnan(second["tpot_s"])  # not 0
    assert math.isnan(second["decode_tps"])
    assert result_of().to_pandas().shape == (1, len(COLUMNS))


def test_an_unknown_chart_names_those_that_there_are() -> None:
    with pytest.raises(ConfigError, match=r"unknown chart 'phase'; did you mean 'phases'\?; there is: phases"):
        result_of().figure("phase")


def test_the_bundle_of_a_result_has_all_three_forms() -> None:
    bundle = result_of()._repr_mimebundle_()
    assert bundle["text/plain"] == result_of().status
    assert {"text/html", "application/vnd.plotly.v1+json"} < set(bundle)


# A batch.


def test_a_batch_is_a_sequence_in_the_order_of_its_prompts() -> None:
    first, second, last = items = [result_of(), refused(), result_of(tokens=2)]
    batch = Results(items)
    assert list(batch) == items
    assert (batch[0], batch[-1], len(batch)) == (first, last, 3)
    assert isinstance(batch[1:], Results)
    assert list(batch[1:]) == [second, last]
    assert batch.done == [first, last]


def test_the_status_of_a_batch() -> None:
    batch = Results([result_of(), refused(), result_of(tokens=2)])
    # 7 tokens in 500 ms, and twice 250 ms of shared time.
    assert batch.status == (
        "✓ 2 requests · 2,468 in → 7 out · throughput 14 tok/s · 500 ms · ≈$0.00050 @ $3.6/h · 1 refused"
    )
    assert repr(batch) == f"Results({batch.status})"
    assert len(json.loads(batch.to_json())) == 2


def test_a_batch_with_one_unknown_cost_has_an_unknown_cost() -> None:
    assert "≈n/a @" in Results([result_of(), result_of(shared_ns=None)]).status


def test_a_batch_of_which_nothing_ran() -> None:
    batch = Results([refused()])
    assert batch.status == "✗ 0 requests · 0 in → 0 out · throughput n/a · n/a · 1 refused"
    assert batch._repr_mimebundle_() == {"text/plain": batch.status}
    assert len(batch.to_pandas()) == 0
    with pytest.raises(ConfigError, match="nothing to draw"):
        batch.figure()


def test_a_refusal_shows_its_reason() -> None:
    assert repr(refused()) == "Refused(PromptError: the prompt has 9 tokens, and the context is 8)"


def test_an_answer_that_the_engine_ended_with_an_error_is_no_success() -> None:
    result = Result(make_record(make_sample([300, 400], finish="error")), DEFAULT_PRICE)
    assert result.status.startswith("✗ ")
    assert result.status.endswith("error")


def test_a_batch_says_what_became_of_its_requests() -> None:
    one = Results([result_of()])
    assert one.status.startswith("✓ 1 request · ")
    some = Results([result_of(), result_of(finish="length"), result_of(finish="abort"), refused()])
    assert some.status.startswith("■ 3 requests · ")
    assert some.status.endswith(" · 1 truncated · 1 interrupted · 1 refused")
    assert Results([result_of(), result_of(finish="length")]).status.startswith("✂ 2 requests · ")


def answered(text: str, form: dict[str, object] | None, finish: str = "stop", stop_reason: str | None = None) -> Result:
    """An answer of which a form was asked."""
    sample = SampleRecord(0, (TokenEvent("r1", 0, 0, 300 * MS, (1,), text, finish),), finish, stop_reason)
    return Result(make_record(sample, sampling={} if form is None else {"structured_outputs": form}), PRICE)


SHAPE = {"json": {"type": "object", "required": ["a"]}}


@pytest.mark.parametrize(
    ("text", "form", "finish", "value", "status"),
    [
        ('{"a": [1]}', SHAPE, "stop", {"a": [1]}, "✓ … · stop"),
        ('{"a": [1]}', SHAPE, "length", {"a": [1]}, "✂ … · truncated at the context's end"),  # whole all the same
        ('{"a": [1', SHAPE, "length", None, "✂ … · truncated at the context's end"),
        ("12", {"json": {"type": "integer"}}, "length", None, "✂ … · truncated at the context's end"),
        ("true", {"json": {"type": "boolean"}}, "length", True, "✂ … · truncated at the context's end"),
        ("no", {"choice": ["no", "not all"]}, "length", None, "✂ … · truncated at the context's end"),
        (
            "not at all",
            {"choice": ["no", "not at all"]},
            "length",
            "not at all",
            "✂ … · truncated at the context's end",
        ),
        ("[" * 2000 + "]" * 2000, {"json": {}}, "stop", None, "✗ … · does not fit the schema"),
        ('{"b": 1}', SHAPE, "stop", None, "✗ … · does not fit the schema"),
        ("", SHAPE, "stop", None, "✗ … · does not fit the schema"),
        ('{"a": 1', SHAPE, "abort", None, "■ … · interrupted"),
        ("yes", {"choice": ["yes", "no"]}, "stop", "yes", "✓ … · stop"),
        ("", {"choice": ["yes", "no"]}, "stop", None, "✗ … · does not fit the choices"),
        ("12", {"regex": r"\d+"}, "stop", "12", "✓ … · stop"),
        ("12", {"regex": r"\d+"}, "length", None, "✂ … · truncated at the context's end"),  # only the engine knows
        ("12", None, "stop", None, "✓ … · stop"),
    ],
)
def test_an_answer_in_a_form_has_a_value(
    text: str, form: dict[str, object] | None, finish: str, value: object, status: str
) -> None:
    result = answered(text, form, finish)
    assert result.parsed == value
    first, *_, last = result.status.split(" · ")
    assert f"{first[0]} … · {last}" == status


def test_a_text_that_a_stop_string_cut_matches_nothing_that_is_known() -> None:
    assert answered("12", {"regex": r"\d+-"}, "stop", "-").parsed is None


def test_the_values_of_a_batch_are_in_its_order() -> None:
    choice: dict[str, object] = {"choice": ["yes", "no"]}
    assert Results([answered("no", choice), refused(), answered("yes", choice)]).parsed == ("no", None, "yes")


def test_a_batch_says_how_many_answers_have_not_the_form_that_was_asked_for() -> None:
    choice: dict[str, object] = {"choice": ["yes", "no"]}
    status = Results([answered("no", choice), answered("perhaps", choice)]).status
    assert status.startswith("✗ 2 requests · ")
    assert status.endswith(" · 1 without the form")
