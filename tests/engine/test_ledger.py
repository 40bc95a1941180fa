"""The book of the worker: steps and outputs in, token events and records out."""

from __future__ import annotations

import pytest
from builders import make_request, make_step, make_work

from jupyter_infer.engine.ledger import Ledger
from jupyter_infer.engine.protocol import SampleOutput, StepResult
from jupyter_infer.metrics import phases
from jupyter_infer.records import RequestRecord, StepRecord, TokenEvent


class Book:
    """A ledger whose steps are given one after the other, each 100 ns long unless it says otherwise."""

    def __init__(self) -> None:
        self.ledger = Ledger("m")
        self.now = 1000
        self.index = 0
        self.steps: list[StepRecord] = []

    def open(self, request_id: str = "r1", **facts: int) -> None:
        request = make_request(request_id, **facts)
        self.ledger.open(request, arrival_ns=self.now, enqueued_ns=self.now + 5, load_ns=None)

    def step(
        self, *work: object, gives: tuple[SampleOutput, ...] = (), took: int = 100, preempted: tuple = ()
    ) -> tuple[list[TokenEvent], list[RequestRecord]]:
        step = make_step(*work, start=self.now, end=self.now + took, index=self.index, preempted=preempted)
        self.now, self.index = self.now + took, self.index + 1
        self.steps.append(step)
        return self.ledger.book(StepResult((step,), gives))

    def close(self, request_id: str = "r1", **why: str) -> RequestRecord:
        return self.ledger.close(request_id, self.now, **why)


def token(request_id: str = "r1", sample: int = 0, *, ids: tuple[int, ...] = (7,), **facts: object) -> SampleOutput:
    return SampleOutput(request_id, sample, ids, "x" * len(ids), **facts)


@pytest.fixture
def book() -> Book:
    return Book()


def test_a_request_from_its_arrival_to_its_end(book: Book) -> None:
    book.open(prompt=20, max_tokens=2)
    book.now += 50
    assert book.step(make_work(tokens=12, prefill_tokens=12)) == ([], [])
    (first,), ended = book.step(make_work(tokens=8, prefill_tokens=8), gives=(token(cached_tokens=0),))
    assert ended == []
    assert (first.step, first.time_ns, first.token_ids, first.text, first.finish_reason) == (1, 1250, (7,), "x", None)
    (last,), (record,) = book.step(make_work(), gives=(token(ids=(8, 9), finish_reason="stop", stop_reason="."),))
    assert (last.finish_reason, last.stop_reason) == ("stop", ".")
    assert (record.arrival_ns, record.enqueued_ns, record.started_ns) == (1000, 1005, 1050)
    assert (record.first_token_ns, record.last_token_ns, record.finished_ns) == (1250, 1350, 1350)
    assert (record.model, record.prompt_tokens, record.output_tokens, record.cached_tokens) == ("m", 20, 3, 0)
    assert record.sampling == {"max_tokens": 2}
    assert record.samples[0].events == (first, last)
    assert (record.finish_reason, record.samples[0].stop_reason, record.error) == ("stop", ".", None)
    assert record.shared_ns == 300  # alone, it had all of three steps
    assert record.stalled_ns == record.preemptions == 0


def test_a_request_is_closed_once(book: Book) -> None:
    book.open()
    _, ended = book.step(make_work(), gives=(token(finish_reason="stop"),))
    assert len(ended) == 1
    with pytest.raises(KeyError):
        book.close()


def test_shares_and_the_rest_are_the_busy_time(book: Book) -> None:
    book.open("r1")
    book.open("r2")
    book.step(make_work("r1", tokens=3), make_work("r2", tokens=1), took=101)
    book.step(took=50)  # a step without work
    book.step(make_work("r1"), make_work("gone"), took=7)
    shared = book.close("r1").shared_ns + book.close("r2").shared_ns
    assert shared + book.ledger.attribution.unattributed_ns == book.ledger.attribution.busy_ns == 158


def test_cached_tokens_are_those_of_the_first_answer(book: Book) -> None:
    """After a preemption vLLM finds a request's own blocks in the cache; that is no cache hit of the prompt."""
    book.open(prompt=100)
    book.step(make_work(), gives=(token(cached_tokens=64),))
    book.step(make_work(), gives=(token(cached_tokens=96),))
    assert book.close().cached_tokens == 64


# Preemption.


def test_stalled_time_is_from_the_preemption_to_the_end_of_the_recomputation(book: Book) -> None:
    book.open()
    book.step(make_work(tokens=10, prefill_tokens=10), gives=(token(),))  # ends at 1100
    book.step(make_work("r2"), preempted=(("r1", 0),))  # from 1100
    book.step(make_work("r2"))
    book.step(make_work(tokens=6, recomputed_tokens=6, output_tokens=0))  # ends at 1400
    book.step(make_work(tokens=5, recomputed_tokens=4), gives=(token(),))  # ends at 1500
    _, (record,) = book.step(make_work(), gives=(token(finish_reason="stop"),))
    assert record.preemptions == 1
    assert record.stalled_ns == 400  # 1100 to 1500
    assert record.stalled_ns <= phases(record).decode_ns == 500


def test_a_token_of_its_own_step_after_the_recomputation_is_no_stall(book: Book) -> None:
    book.open()
    book.step(make_work(), gives=(token(),))
    book.step(preempted=(("r1", 0),))  # from 1100
    book.step(make_work(tokens=10, recomputed_tokens=10, output_tokens=0))  # ends at 1300
    _, (record,) = book.step(make_work(), gives=(token(finish_reason="stop"),))
    assert record.stalled_ns == 200


def test_a_stall_ends_at_the_start_of_the_step_when_nothing_is_computed_again(book: Book) -> None:
    book.open()
    book.step(make_work(), gives=(token(),))
    book.step(preempted=(("r1", 0),))  # from 1100
    _, (record,) = book.step(make_work(), gives=(token(finish_reason="stop"),))  # from 1200
    assert record.stalled_ns == 100


def test_a_preemption_before_the_first_token_is_prefill(book: Book) -> None:
    book.open()
    book.step(make_work(tokens=6, prefill_tokens=6, output_tokens=0))
    book.step(preempted=(("r1", 0),))
    _, (record,) = book.step(
        make_work(tokens=10, recomputed_tokens=6, prefill_tokens=4), gives=(token(finish_reason="length"),)
    )
    assert (record.preemptions, record.stalled_ns) == (1, 0)
    assert phases(record).prefill_ns == 300


def test_a_stall_that_never_ended_is_not_in_decode(book: Book) -> None:
    book.open()
    book.step(make_work(), gives=(token(),))
    book.step(preempted=(("r1", 0),))
    record = book.close()
    assert (record.preemptions, record.stalled_ns) == (1, 0)
    assert phases(record).decode_ns == 0


def test_a_preemption_while_it_was_coming_back_is_one_stall(book: Book) -> None:
    book.open()
    book.step(make_work(), gives=(token(),))
    book.step(preempted=(("r1", 0),))  # from 1100
    book.step(make_work(tokens=6, recomputed_tokens=6, output_tokens=0))
    book.step(preempted=(("r1", 0),))
    # All of it is in the cache now: it stalled until this step began, at 1400.
    _, (record,) = book.step(make_work(), gives=(token(finish_reason="stop"),))
    assert (record.preemptions, record.stalled_ns) == (2, 300)


def test_samples_that_stall_together_do_not_stall_twice(book: Book) -> None:
    book.open(samples=2)
    both = (make_work(sample=0), make_work(sample=1))
    book.step(*both, gives=(token(), token(sample=1)))
    book.step(preempted=(("r1", 0), ("r1", 1)))  # from 1100
    book.step(make_work(sample=0), gives=(token(finish_reason="stop"),))  # from 1200
    _, (record,) = book.step(make_work(sample=1), gives=(token(sample=1, finish_reason="stop"),))  # from 1300
    assert record.preemptions == 2
    assert record.stalled_ns == 200  # 1100 to 1200 and 1100 to 1300
    assert record.stalled_ns <= phases(record).decode_ns


# Samples, aborts, strays.


def test_samples_are_kept_apart_and_end_together(book: Book) -> None:
    book.open(prompt=20, samples=3)
    works = [make_work(sample=n, tokens=20, prefill_tokens=20) for n in range(3)]
    events, ended = book.step(*works, gives=tuple(token(sample=n, ids=(n,)) for n in (0, 1, 2)))
    assert [event.sample for event in events] == [0, 1, 2]
    _, none = book.step(make_work(sample=1), gives=(token(sample=1, finish_reason="length"),))
    assert ended == none == []
    book.step(gives=(token(sample=0, ids=(), finish_reason="stop"),))
    _, (record,) = book.step(make_work(sample=2), gives=(token(sample=2, finish_reason="stop"),))
    assert [sample.token_ids for sample in record.samples] == [(0,), (1, 7), (2, 7)]
    assert [sample.finish_reason for sample in record.samples] == ["stop", "length", "stop"]
    assert record.prompt_tokens == 20  # once, not for each sample
    assert record.shared_ns == 300  # a step that only flushed text had no work, so it is nobody's


def test_an_abort_keeps_what_there_is(book: Book) -> None:
    book.open(samples=2)
    book.step(make_work(), gives=(token(), token(sample=1, finish_reason="stop")))
    record = book.close()
    assert [sample.finish_reason for sample in record.samples] == ["abort", "stop"]
    assert record.output_tokens == 2
    assert record.finished_ns == 1100


def test_an_abort_in_the_queue_has_nothing_to_show(book: Book) -> None:
    book.open()
    record = book.close()
    assert (record.started_ns, record.first_token_ns, record.last_token_ns, record.shared_ns) == (None,) * 4
    assert record.finish_reason == "abort"


def test_an_error_says_why(book: Book) -> None:
    book.open()
    record = book.close(reason="error", error="no place")
    assert (record.finish_reason, record.error) == ("error", "no place")


def test_a_step_of_a_request_that_is_gone_changes_nobody(book: Book) -> None:
    book.open("r1")
    book.open("gone")
    book.close("gone")
    events, ended = book.step(
        make_work("r1"), make_work("gone"), gives=(token("gone"), token("r1")), preempted=(("gone", 0),)
    )
    assert [event.request_id for event in events] == ["r1"]
    assert ended == []
    assert book.close("r1").shared_ns == 50
    assert book.ledger.attribution.unattributed_ns == 50


def test_text_without_a_token_is_an_event_but_no_token_time(book: Book) -> None:
    book.open()
    book.step(make_work(), gives=(token(),))
    (event,), (record,) = book.step(gives=(SampleOutput("r1", 0, (), "tail", "stop"),))
    assert event.text == "tail"
    assert record.last_token_ns == record.first_token_ns == 1100
    assert record.finished_ns == 1200


def test_the_coefficients_in_force_are_frozen_into_the_record(book: Book) -> None:
    book.open()
    book.step(make_work())
    assert book.close().fit == book.ledger.attribution.fit
    book.open("r2")
    for number in range(40):
        book.step(make_work("r2", tokens=1 + number % 9), took=1000 + 10 * (1 + number % 9))
    record = book.close("r2")
    assert record.fit.token_ns == pytest.approx(10)
    assert record.fit.fixed_ns == pytest.approx(1000)


def test_sampling_values_survive_json(book: Book) -> None:
    book.open(stop=("a", "b"))  # type: ignore[arg-type]
    assert book.close().sampling == {"stop": ["a", "b"]}
