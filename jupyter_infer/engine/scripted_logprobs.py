"""Log-probabilities for an engine without a model: made up, and the same for a token each time."""

from __future__ import annotations

import math
from typing import Any

from jupyter_infer.errors import ConfigError
from jupyter_infer.records import Alternative, TokenLogprob

__all__ = ["MOST", "RANKS", "check_logprobs", "made_up"]

MOST = 20
"""Alternatives at most, as in vLLM by default."""
RANKS = 8
"""A token of a script has one of so many ranks."""


def check_logprobs(asked: Any) -> None:
    """Raise `ConfigError` if it is no number of alternatives."""
    if asked is not None and (type(asked) is not int or not 0 <= asked <= MOST):
        raise ConfigError(f"logprobs can be a whole number from 0 to {MOST}, not {asked!r:.60}")


def made_up(token_id: int, text: str, asked: int) -> TokenLogprob:
    """Return values of a distribution in which each token is half as likely as the one before it in rank."""
    own = 1 + token_id % RANKS
    others = [rank for rank in range(1, asked + 1) if rank != own]
    return TokenLogprob(text, _of(own), own, tuple(Alternative(rank, f" other{rank}", _of(rank)) for rank in others))


def _of(rank: int) -> float:
    return -rank * math.log(2)
