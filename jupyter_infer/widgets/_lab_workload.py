"""What a batch lab asks: so many requests of such lengths, and when they arrive."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

__all__ = ["ARRIVALS", "Workload"]

ARRIVALS = ("at once", "staggered", "poisson")
"""How requests can arrive."""

TEXT = (
    "time year people way day man thing woman life child world school state family student group country problem hand "
    "part place case week company system program question work government number night point home water room mother "
    "area money story fact month lot right study book eye job word business issue side kind head house service friend "
    "father power hour game line end member law car city name team"
)
WORDS = TEXT.split()
OWN = 8  # tokens about by which a prompt with a shared prefix differs from the others

_salts = itertools.count(1)  # a batch finds nothing in the cache of what an earlier one left there


@dataclass(frozen=True, slots=True)
class Workload:
    """A batch of requests.

    Parameters
    ----------
    requests
        How many.
    prompt_tokens, output_tokens
        Lengths of each.
    arrivals
        One of `ARRIVALS`.
    interval_s
        Seconds between two arrivals; their mean if they are a Poisson process.
    seed
        Of the Poisson process.
    shared_prefix
        Whether all prompts begin alike, and differ only in their last few tokens.
    """

    requests: int
    prompt_tokens: int
    output_tokens: int
    arrivals: str = "at once"
    interval_s: float = 0.25
    seed: int = 0
    shared_prefix: bool = False

    def due_ns(self) -> list[int]:
        """Return when each request is due, in nanoseconds after the first one."""
        if self.arrivals == "at once":
            return [0] * self.requests
        if self.arrivals == "staggered":
            gaps = [self.interval_s] * (self.requests - 1)
        else:  # the gaps of a Poisson process are exponential
            draw = random.Random(self.seed)
            gaps = [draw.expovariate(1 / self.interval_s) for _ in range(self.requests - 1)]
        return [0, *(int(at * 1e9) for at in itertools.accumulate(gaps))]

    def prompts(self, count: Callable[[str], int]) -> Iterator[str]:
        """Yield the prompts, one by one, because long ones take a while; no two calls give the same ones.

        Parameters
        ----------
        count
            Returns the number of tokens of a text. Where no text has exactly the tokens that are wanted, prompts are
            shorter by as few as possible.
        """
        salt = next(_salts)
        shared = _fitted(f"Run {salt}", salt, self.prompt_tokens - OWN, count) if self.shared_prefix else ""
        for number in range(self.requests):
            head = f"{shared} {number}." if self.shared_prefix else f"{number}. {salt}"
            yield _fitted(head, number, self.prompt_tokens, count)


def _fitted(head: str, first: int, tokens: int, count: Callable[[str], int]) -> str:
    """Return a text that begins with `head` and has so many tokens, or as few less as can be."""
    if count(head) > tokens:  # hardly a prompt
        head = ""

    def text(words: int) -> str:
        return " ".join([*([head] if head else []), *(WORDS[(first + at) % len(WORDS)] for at in range(words))])

    low, high = (0 if head else 1), max(1, tokens)  # a word has one token at least
    likely = max(low, tokens - (count(head) if head else 0))
    if count(text(likely)) == tokens:  # and mostly no more: to count a long text over and over takes seconds
        return text(likely)
    while low < high:
        middle = (low + high + 1) // 2
        if count(text(middle)) <= tokens:
            low = middle
        else:
            high = middle - 1
    return text(low)
