"""Several requests in flight: one value to wait for, to cancel and to look into."""

from __future__ import annotations

import pytest
from builders import make_record
from gate import WAIT

from jupyter_infer.batch import BatchHandle
from jupyter_infer.errors import EngineFailed, PromptError
from jupyter_infer.handle import RequestHandle
from jupyter_infer.pricing import DEFAULT_PRICE
from jupyter_infer.result import Refused, Result

REFUSED = Refused("", PromptError("the prompt is empty"))


def handle_of(name: str, cancelled: list[str]) -> RequestHandle:
    return RequestHandle(
        name, lambda: cancelled.append(name), lambda handle, record: Result(record, DEFAULT_PRICE), prompt=name
    )


def test_the_results_are_in_the_order_of_the_prompts() -> None:
    first, second = handle_of("r1", []), handle_of("r2", [])
    batch = BatchHandle([first, REFUSED, second])
    assert (len(batch), batch[1], list(batch[1:])) == (3, REFUSED, [REFUSED, second])
    second.finished(make_record(request_id="r2"))
    assert not batch.done
    first.finished(make_record(request_id="r1"))
    assert batch.done
    results = batch.result(WAIT)
    assert [item.record.request_id if isinstance(item, Result) else item for item in results] == ["r1", REFUSED, "r2"]


def test_all_of_it_is_cancelled() -> None:
    cancelled: list[str] = []
    BatchHandle([handle_of("r1", cancelled), REFUSED, handle_of("r2", cancelled)]).cancel()
    assert cancelled == ["r1", "r2"]


def test_what_the_engine_refuses_is_refused_alone() -> None:
    first, second = handle_of("r1", []), handle_of("r2", [])
    first.failed(PromptError("no place"))
    second.finished(make_record(request_id="r2"))
    refused, good = BatchHandle([first, second]).result(WAIT)
    assert repr(refused) == "Refused(PromptError: no place)"
    assert isinstance(good, Result)


def test_an_engine_that_breaks_is_an_error() -> None:
    first = handle_of("r1", [])
    first.failed(EngineFailed("the engine stopped"))
    with pytest.raises(EngineFailed):
        BatchHandle([first]).result(WAIT)


def test_a_wait_has_an_end_for_all_of_it() -> None:
    with pytest.raises(TimeoutError):
        BatchHandle([handle_of("r1", []), handle_of("r2", [])]).result(0.01)


def test_it_says_how_far_it_is() -> None:
    first = handle_of("r1", [])
    first.finished(make_record())
    assert (
        repr(BatchHandle([first, REFUSED, handle_of("r2", [])]))
        == "BatchHandle(1 of 2 done; .result() waits, .cancel() stops)"
    )
