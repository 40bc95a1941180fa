"""vLLM's log-probabilities as values: one for each token of a delta, whatever is in it."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

from jupyter_infer.engine.vllm_logprobs import logprobs_of
from jupyter_infer.records import Alternative, TokenLogprob


def said(logprob: float, rank: int, text: str | None) -> Any:
    return SimpleNamespace(logprob=logprob, rank=rank, decoded_token=text)


def delta(tokens: list[int], logprobs: list[Any]) -> Any:
    return SimpleNamespace(token_ids=tokens, logprobs=logprobs)


LIKELY = {7: said(-0.5, 1, " a"), 8: said(-1.5, 2, " b")}
RARE = {9: said(-9.0, 80, " z"), 7: said(-0.5, 1, " a"), 8: said(-1.5, 2, " b")}


def test_each_token_of_a_delta_has_its_own_and_the_others_in_their_order() -> None:
    assert logprobs_of(delta([8, 9], [dict(reversed(LIKELY.items())), RARE])) == (
        TokenLogprob(" b", -1.5, 2, (Alternative(7, " a", -0.5),)),
        TokenLogprob(" z", -9.0, 80, (Alternative(7, " a", -0.5), Alternative(8, " b", -1.5))),
    )


def test_a_delta_without_a_token_has_none() -> None:
    assert logprobs_of(delta([], [])) == ()


def test_what_is_no_number_is_not_known() -> None:
    assert logprobs_of(delta([7], [{7: said(-math.inf, 1, "a"), 8: said(math.nan, 2, None)}])) == (
        TokenLogprob("a", None, 1, (Alternative(8, None, None),)),
    )


def test_a_token_of_which_nothing_is_said_ends_no_step() -> None:
    assert logprobs_of(delta([7, 8], [{8: said(-1.5, 1, " b")}])) == (
        TokenLogprob(None, None, None, (Alternative(8, " b", -1.5),)),
        TokenLogprob(None, None, None, ()),
    )
