"""What vLLM says of how likely tokens were, as values of ours."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Mapping
from typing import Any

from jupyter_infer.records import Alternative, TokenLogprob

__all__ = ["logprobs_of"]

NOTHING: Mapping[int, Any] = {}


def logprobs_of(output: Any) -> tuple[TokenLogprob, ...]:
    """Return one value for each token of a delta; never raises, because a step that does ends all requests.

    Parameters
    ----------
    output
        vLLM's `CompletionOutput` of a request that asked. Its `logprobs` have, for each of its `token_ids`, what is
        said of that token and of the likeliest ones, by token id.
    """
    said = itertools.chain(output.logprobs, itertools.repeat(NOTHING))
    return tuple(_of(token_id, found) for token_id, found in zip(output.token_ids, said, strict=False))


def _of(token_id: int, said: Mapping[int, Any]) -> TokenLogprob:
    own = said.get(token_id)
    # In vLLM's order the token itself comes first and the likeliest ones follow.
    others = (
        Alternative(other, _kept_once(found.decoded_token), _number(found.logprob))
        for other, found in said.items()
        if other != token_id
    )
    if own is None:
        return TokenLogprob(None, None, None, tuple(others))
    return TokenLogprob(_kept_once(own.decoded_token), _number(own.logprob), own.rank, tuple(others))


def _kept_once(text: str | None) -> str | None:
    """Return the one copy of a token's text: an answer has the same alternatives over and over."""
    return None if text is None else sys.intern(text)


def _number(logprob: float) -> float | None:
    """Return a number that JSON can say, or None: the logarithm of 0 is none."""
    return logprob if math.isfinite(logprob) else None
