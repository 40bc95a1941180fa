"""The sentence that reads the phases: of one request, of many, and of those that never answered."""

from __future__ import annotations

import pytest

from jupyter_infer.charts.readings import phases_reading
from jupyter_infer.charts.rows import make_rows
from jupyter_infer.records import RequestRecord

from .samples import aborted_in_decode, aborted_in_prefill, aborted_in_queue, make_record, one_token


def read(*records: RequestRecord) -> str:
    return phases_reading(make_rows(records, None))


@pytest.mark.parametrize(
    ("record", "sentence"),
    [
        (  # 12 + 320 + 63 × 26 = 1,970 ms
            make_record(),
            "The first token came after 332 ms, then one every 26 ms; decode took 83 % of 1.97 s.",
        ),
        (
            make_record(tokens=2, queued=3000, prefill=900, itl=100),
            "The first token came after 3.9 s, then one every 100 ms; queued took 75 % of 4 s.",
        ),
        (
            make_record(tokens=2, queued=100, prefill=800, itl=100),
            "The first token came after 900 ms, then one every 100 ms; prefill took 80 % of 1 s.",
        ),
        (one_token(), "The first token came after 332 ms, 96 % of it prefill."),
        (make_record(tokens=1, queued=400, prefill=100), "The first token came after 500 ms, 80 % of it queued."),
        (  # two tokens in the one step: there is no decode to speak of
            make_record(tokens=2, queued=0, prefill=100, itl=0),
            "The first token came after 100 ms, 100 % of it prefill.",
        ),
        (
            aborted_in_decode(),  # 12 + 320 + 19 × 26 = 826 ms
            "It was aborted after 20 tokens. The first token came after 332 ms, then one every 26 ms; "
            "decode took 60 % of 826 ms.",
        ),
    ],
)
def test_one_request(record: RequestRecord, sentence: str) -> None:
    assert read(record) == sentence


def test_many_requests_have_their_wall_time_and_their_median() -> None:
    # Arrivals at 0, 100 and 200 ms; TTFT 20, 200 and 1,100 ms; the last token comes at 200 + 1,100 + 400 ms.
    records = [
        make_record("a", arrival=0, queued=10, prefill=10, tokens=5, itl=10),
        make_record("b", arrival=100, queued=100, prefill=100, tokens=5, itl=100),
        make_record("c", arrival=200, queued=1000, prefill=100, tokens=5, itl=100),
    ]
    # queued 1,110 of 20 + 40 + 200 + 400 + 1,100 + 400 = 2,160 ms
    assert read(*records) == (
        "3 requests were answered in 1.7 s; their median TTFT was 200 ms, and queued took 51 % of all their time."
    )


def test_who_did_not_answer_is_counted_and_in_no_median() -> None:
    answered = [make_record(name, queued=0, prefill=100, tokens=2, itl=300) for name in "ab"]
    assert read(aborted_in_queue(), *answered, aborted_in_prefill()) == (
        "2 of 4 requests were answered in 400 ms; their median TTFT was 100 ms, and decode took 75 % of all their time."
    )


def test_requests_without_a_token_say_how_they_ended() -> None:
    assert read(aborted_in_queue()) == "The request ended without a token: aborted."
    assert read(aborted_in_queue(), aborted_in_prefill()) == "All 2 requests ended without a token: aborted."
    failed = make_record("f", prefill=None, finish="error", error="it broke")
    assert read(aborted_in_queue(), failed) == "All 2 requests ended without a token: aborted, failed."


def test_a_run_of_nothing() -> None:
    assert read() == "No request ran."


def test_a_thousand_is_written_as_one() -> None:
    records = [make_record(f"r{n}", queued=0, prefill=100, tokens=1) for n in range(1200)]
    assert read(*records).startswith("1,200 requests were answered in 100 ms; ")
