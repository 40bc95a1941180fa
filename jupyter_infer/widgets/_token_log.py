"""An answer token by token in traits, so that late views have all of it and each tick sends little."""

from __future__ import annotations

from collections.abc import Sequence

from jupyter_infer.records import TokenEvent, TokenLogprob
from jupyter_infer.widgets._growing import Growing

__all__ = ["Entry", "Odds", "TokenLog"]

Entry = tuple[str, int, int, int]
"""What an engine step gave: text, µs since the first token, index of the step, number of tokens."""

Other = tuple[str | int, float | None]
"""A token that could have been there: text, or the id of one that has none alone, and log-probability."""

Odds = list[tuple[str | int, float | None, int | None, list[Other]]]
"""How likely the tokens of an entry were, one by one: text or id, log-probability, rank, others."""

DIGITS = 4
"""Of a log-probability: as much as a model of 16 bits says, and half as many bytes."""


class TokenLog:
    """Takes events in, and has what is sent of them in parts."""

    def __init__(self) -> None:
        self.entries: Growing[Entry] = Growing()
        self.odds: Growing[Odds] = Growing(latest=32, recent=512)  # its entries are larger
        """One for each entry; none if they were not asked for."""
        self._first_ns: int | None = None

    def add(self, events: Sequence[TokenEvent]) -> None:
        """Take new events in."""
        self.entries.add([self._entry(event) for event in events])
        self.odds.add([_odds(event, event.logprobs) for event in events if event.logprobs is not None])

    def _entry(self, event: TokenEvent) -> Entry:
        if self._first_ns is None and event.token_ids:
            self._first_ns = event.time_ns
        since = 0 if self._first_ns is None else event.time_ns - self._first_ns
        return event.text, since // 1000, event.step, len(event.token_ids)


def _odds(event: TokenEvent, logprobs: Sequence[TokenLogprob]) -> Odds:
    return [
        (
            said.text or token_id,
            _rounded(said.logprob),
            said.rank,
            [(other.text or other.token_id, _rounded(other.logprob)) for other in said.alternatives],
        )
        for token_id, said in zip(event.token_ids, logprobs, strict=False)
    ]


def _rounded(logprob: float | None) -> float | None:
    return None if logprob is None else round(logprob, DIGITS)
