"""What the lanes of the steps chart show: stretches of time in which a sample waited, or was computed step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jupyter_infer.charts._lanes import Clock, Lane
from jupyter_infer.records import StepRecord, StepWork

__all__ = ["KINDS", "Segment", "segments_of"]

KINDS = ("queued", "prefill", "decode", "drafts", "recomputed", "preempted", "forgotten")
CHUNKS = 300  # prefill chunks that are drawn one by one; of more, neighbours are joined
MOST = 4000  # segments, of more the pauses that are drawn through grow
UNSEEN = 2000  # a pause of less than this part of the run is drawn through: half a pixel


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of one lane; of several steps only if they follow each other without a pause."""

    lane: int
    kind: str
    begun_ns: int
    ended_ns: int
    first: int | None = None  # step; None for a wait
    last: int | None = None
    steps: int = 0
    tokens: int = 0
    drafts: int = 0
    accepted: int = 0
    phase: str = ""  # of what is known from the record alone


@dataclass(slots=True)
class _Open:
    """A segment that the next step may make longer: half a million steps of lanes are a few hundred of these."""

    lane: int
    kind: str
    begun_ns: int
    ended_ns: int
    first: int
    last: int
    steps: int
    tokens: int
    drafts: int
    accepted: int


def segments_of(lanes: Sequence[Lane], steps: Sequence[StepRecord], clock: Clock) -> list[Segment]:
    """Return the segments of all lanes; requests that have none are in one lane, after the others."""
    places = {lane.key: lane.number for lane in lanes}
    chunks = sum(bool(work.prefill_tokens) for step in steps for work in step.work)
    pause = clock.span_ns // UNSEEN
    while True:
        worked = _worked(places, steps, pause, joined=chunks > CHUNKS)
        if len(worked) <= MOST or pause > clock.span_ns // 200:
            break
        pause *= 2
    first: dict[int, int] = {}
    for segment in worked:
        first[segment.lane] = min(first.get(segment.lane, segment.begun_ns), segment.begun_ns)
    found = [segment for lane in lanes for segment in _before(lane, first.get(lane.number))]
    return found + worked + _preempted(lanes, places, steps)


def _worked(
    places: Mapping[tuple[str, int], int], steps: Sequence[StepRecord], pause: int, *, joined: bool
) -> list[Segment]:
    others = len(places) + 1
    done: list[_Open] = []
    last: dict[int, _Open] = {}
    for step in steps:
        begun, ended, index = step.start_ns, step.end_ns, step.index
        for lane, (kind, tokens, drafts, accepted) in _in_step(step, places, others).items():
            before = last.get(lane)
            if (
                before is not None
                and kind == before.kind
                and index == before.last + 1
                and (joined or kind in ("decode", "drafts"))
                and begun - before.ended_ns <= pause
            ):
                before.ended_ns, before.last = ended, index
                before.steps += 1
                before.tokens += tokens
                before.drafts += drafts
                before.accepted += accepted
                continue
            if before is not None:
                done.append(before)
            last[lane] = _Open(lane, kind, begun, ended, index, index, 1, tokens, drafts, accepted)
    return [
        Segment(
            one.lane,
            one.kind,
            one.begun_ns,
            one.ended_ns,
            one.first,
            one.last,
            one.steps,
            one.tokens,
            one.drafts,
            one.accepted,
        )
        for one in [*done, *last.values()]
    ]


def _in_step(
    step: StepRecord, places: Mapping[tuple[str, int], int], others: int
) -> dict[int, tuple[str, int, int, int]]:
    """Return kind, tokens, drafts and accepted ones of each lane in a step; the neighbours in the last lane are added
    up.
    """
    found: dict[int, tuple[str, int, int, int]] = {}
    for work in step.work:
        lane = places.get((work.request_id, work.sample), others)
        made = (_kind(work), work.tokens, work.draft_tokens, work.accepted_tokens)
        if (known := found.get(lane)) is not None:
            kinds = (known[0], made[0])
            kind = next(kind for kind in ("prefill", "recomputed", "drafts", "decode") if kind in kinds)
            made = (kind, known[1] + made[1], known[2] + made[2], known[3] + made[3])
        found[lane] = made
    return found


def _kind(work: StepWork) -> str:
    if work.prefill_tokens:
        return "prefill"
    return "recomputed" if work.recomputed_tokens else "drafts" if work.draft_tokens else "decode"


def _before(lane: Lane, known_ns: int | None) -> list[Segment]:
    """Return a lane's wait for its first step, and what its record says of the time before the first known step."""
    record = lane.record
    begun = record.started_ns
    if begun is None or (known_ns is not None and known_ns <= begun):
        begun = known_ns if known_ns is not None else record.finished_ns
    found = [Segment(lane.number, "queued", record.arrival_ns, begun)] if begun > record.arrival_ns else []
    if record.started_ns is None or (known_ns is not None and known_ns <= record.started_ns):
        return found
    if len(record.samples) > 1 and known_ns is not None:  # a sample may begin after its request did
        return [Segment(lane.number, "queued", record.arrival_ns, known_ns)]
    until = known_ns if known_ns is not None else record.finished_ns
    first = min(record.first_token_ns if record.first_token_ns is not None else until, until)
    last = min(record.last_token_ns if record.last_token_ns is not None else first, until)
    for phase, start, end in (("prefill", begun, first), ("decode", first, last)):
        if end > start:
            found.append(Segment(lane.number, "forgotten", start, end, phase=phase))
    return found


def _preempted(
    lanes: Sequence[Lane], places: Mapping[tuple[str, int], int], steps: Sequence[StepRecord]
) -> list[Segment]:
    """Return the time from each preemption to the next step that computed something of the sample, or to its end."""
    since: dict[int, tuple[int, int]] = {}
    found = []
    for step in steps:
        for key in step.preempted:
            if key in places:
                since.setdefault(places[key], (step.start_ns, step.index))
        if since:
            for work in step.work:
                lane = places.get((work.request_id, work.sample))
                if lane in since and step.start_ns >= since[lane][0]:
                    begun, index = since.pop(lane)
                    if step.start_ns > begun:
                        found.append(Segment(lane, "preempted", begun, step.start_ns, index, step.index))
    ends = {lane.number: lane.record.finished_ns for lane in lanes}
    found += [
        Segment(lane, "preempted", begun, ends[lane], index, None)
        for lane, (begun, index) in since.items()
        if ends[lane] > begun
    ]
    return found
