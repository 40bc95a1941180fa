"""The gaps between the tokens of a request, and what each step computed of whom: what late tokens are explained by.

Gaps are structs of msgspec like the events that they are made of: a run has hundreds of thousands.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import msgspec

from jupyter_infer.records import RequestRecord, StepRecord

__all__ = ["Gap", "Key", "StepFacts", "facts_of", "gaps_of", "name_of"]

Key = tuple[str, int]  # request id, sample


class Gap(msgspec.Struct, frozen=True, gc=False):
    """The time between two consecutive steps that gave tokens to a sample: one ITL, however many tokens came."""

    request_id: str
    sample: int
    after: int  # the step that gave the tokens before
    step: int
    begun_ns: int
    ended_ns: int
    tokens: int
    several: bool = False  # its request has more samples

    @property
    def ns(self) -> int:
        """The ITL."""
        return self.ended_ns - self.begun_ns

    @property
    def key(self) -> Key:
        """What steps call its sample."""
        return self.request_id, self.sample

    @property
    def part(self) -> int | None:
        """Its sample, where that has to be said."""
        return self.sample if self.several else None

    @property
    def name(self) -> str:
        """What people call its sample."""
        return name_of(self.request_id, self.part)


@dataclass(frozen=True, slots=True)
class StepFacts:
    """What a step computed, by whose it was; made once a step, since each of its tokens asks for it."""

    step: StepRecord
    keys: frozenset[Key]  # of all that it computed
    prefill: dict[Key, int]  # prompt tokens
    recomputed: dict[Key, int]
    joined: frozenset[Key]  # entered the batch in this step
    drafts: int
    accepted: int
    tokens: int
    requests: int  # that it computed something of

    @property
    def on_cpu(self) -> float | None:
        """Part of its own time that the worker's thread was on a CPU; None if it was not measured."""
        # No step computes without a CPU: 0 is a clock that does not run.
        return self.step.cpu_ns / self.step.duration_ns if self.step.cpu_ns and self.step.duration_ns else None


def name_of(request_id: str, sample: int | None = None) -> str:
    """Return what people call a request, or one of its samples: ``r1``, ``r1 #2``."""
    return request_id if sample is None else f"{request_id} #{sample + 1}"


def gaps_of(record: RequestRecord) -> list[Gap]:
    """Return the gaps of all samples of a request, those of a sample in order."""
    name, several = record.request_id, len(record.samples) > 1
    return [
        Gap(name, sample.index, before.step, event.step, before.time_ns, event.time_ns, len(event.token_ids), several)
        for sample in record.samples
        for before, event in pairwise([event for event in sample.events if event.token_ids])
    ]


def facts_of(steps: Iterable[StepRecord]) -> dict[int, StepFacts]:
    """Return the facts of steps by their index."""
    return {step.index: _facts(step) for step in steps}


def _facts(step: StepRecord) -> StepFacts:
    prefill: dict[Key, int] = {}
    recomputed: dict[Key, int] = {}
    for work in step.work:
        key = work.request_id, work.sample
        if work.prefill_tokens:
            prefill[key] = prefill.get(key, 0) + work.prefill_tokens
        if work.recomputed_tokens:
            recomputed[key] = recomputed.get(key, 0) + work.recomputed_tokens
    return StepFacts(
        step=step,
        keys=frozenset([(work.request_id, work.sample) for work in step.work]),
        prefill=prefill,
        recomputed=recomputed,
        joined=frozenset([(work.request_id, work.sample) for work in step.work if work.cached_tokens is not None]),
        drafts=sum([work.draft_tokens for work in step.work]),
        accepted=sum([work.accepted_tokens for work in step.work]),
        tokens=step.tokens,
        requests=len({work.request_id for work in step.work}),
    )
