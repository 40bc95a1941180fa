"""The playground on the real engine: a stop that a view asks for ends the request before the second following step."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest

from jupyter_infer.session import Session
from jupyter_infer.widgets import Playground

WAIT_S = 120


@pytest.fixture
def playground(session: Session) -> Any:
    made = Playground(session, prompt="Write a long story.", temperature=0, max_tokens=400, ignore_eos=True)
    yield made
    made.close()


def replies_of(widget: Playground) -> list[dict[str, Any]]:
    """Return a list that will hold what a widget answers to its views."""
    answers: list[dict[str, Any]] = []
    send = widget.comm.send

    def kept(data: Any = None, *given: Any, **more: Any) -> None:
        if data and data.get("method") == "custom":
            answers.append(data["content"])
        send(data, *given, **more)

    widget.comm.send = kept
    return answers


@pytest.mark.parametrize("tokens", [1, 5, 16])
def test_after_a_stop_at_most_one_more_step_of_the_request_begins(
    session: Session, playground: Playground, tokens: int
) -> None:
    answers = replies_of(playground)
    run = playground.run()
    while run.handle is None:
        assert not run.done
        time.sleep(0.01)
    seen = list(itertools.islice(run.handle, tokens))

    arrived_ns = time.monotonic_ns()
    playground._handle_custom_msg({"kind": "stop", "id": "view-1", "payload": {}}, [])
    assert answers == [{"kind": "reply", "id": "view-1", "payload": {"stopped": True}}]
    result = run.result(WAIT_S)

    request = run.handle.request_id
    own = [step for step in session.steps if any(work.request_id == request for work in step.work)]
    after = [step for step in own if step.start_ns > arrived_ns]
    assert len(own) >= tokens
    assert len(after) <= 1
    assert result.finish_reason == "abort"
    assert result.record.samples[0].events[:tokens] == tuple(seen)
    assert (playground.state, playground.result) == ("stopped", result)
    status = session.status()
    assert (status.state, status.kv_blocks_free) == ("idle", session.info.kv_blocks_total)
