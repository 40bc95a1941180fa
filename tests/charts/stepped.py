"""Runs whose steps and requests agree, for the tests of charts over time: a small scheduler on a clock of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from jupyter_infer.records import EngineInfo, RequestRecord, SampleRecord, StepRecord, StepWork, TokenEvent
from jupyter_infer.run import Run, RunHeader

MS = 1_000_000
START = 7_000_000_000_123
TIMES = ("scheduled_ns", "planned_ns", "start_ns", "computed_ns", "end_ns")


@dataclass
class Asked:
    """A request that is to be played."""

    request_id: str
    prompt: int = 20
    tokens: int = 10
    arrival: float = 0  # ms
    label: str = "Why?"
    text: str = " word"
    computed: int = 0
    events: list[TokenEvent] = field(default_factory=list)
    started_ns: int | None = None
    joined: bool = False


def engine(**facts: Any) -> EngineInfo:
    values: dict[str, Any] = {"model": "demo/tiny", "engine": "scripted", "device": "cpu", "dtype": "bfloat16"}
    values |= {"block_size": 16, "kv_blocks_total": 1000, "kv_bytes": 1 << 20, "weight_bytes": None}
    values |= {"max_model_len": 4096, "max_num_batched_tokens": 512, "max_num_seqs": 64, "threads": 2}
    return EngineInfo(**(values | facts))


def play(asked: Sequence[Asked], *, budget: int = 512, seats: int = 64, each: float = 10, token: float = 0.1) -> Run:
    """Return the run: a step takes `each` ms and `token` ms a token, prompts are computed in chunks under a budget."""
    now, index = START + round(asked[0].arrival * MS) if asked else START, 0
    steps: list[StepRecord] = []
    open_, done = list(asked), []
    while open_:
        here = [one for one in open_ if START + round(one.arrival * MS) <= now]
        if not here:
            now = START + round(min(one.arrival for one in open_) * MS)
            continue
        left, work = budget, []
        for one in here[:seats]:
            wanted = 1 if one.computed >= one.prompt else one.prompt - one.computed
            if not (tokens := min(wanted, left)):
                break
            left -= tokens
            prefill = tokens if one.computed < one.prompt else 0
            one.computed += prefill
            gives = one.computed >= one.prompt
            facts = (prefill, 0, tokens - prefill, 0, 0, int(gives), one.computed + len(one.events))
            work.append(StepWork(one.request_id, 0, tokens, *facts, None if one.joined else 0))
            one.joined = True
            one.started_ns = now if one.started_ns is None else one.started_ns
        count = sum(item.tokens for item in work)
        end = now + round((each + token * count) * MS)
        ended = []
        for item in work:
            one = next(one for one in here if one.request_id == item.request_id)
            if item.output_tokens:
                one.events.append(TokenEvent(one.request_id, 0, index, end, (len(one.events),), one.text))
                if len(one.events) == one.tokens:
                    ended.append(one)
        for one in ended:
            open_.remove(one)
            done.append(one)
        used = sum(-(-one.computed // 16) for one in open_)
        freed = tuple((one.request_id, 0) for one in ended)
        waiting = len(here) - len(work)
        steps.append(
            StepRecord(
                index=index,
                scheduled_ns=now,
                planned_ns=now + MS // 10,
                start_ns=now,
                computed_ns=end - MS // 10,
                end_ns=end,
                cpu_ns=end - now,
                work=tuple(work),
                running=len(work),
                waiting=waiting,
                preempted=(),
                freed=freed,
                evicted=(),
                kv_blocks_free=1000 - used,
                threads=2,
            )
        )
        now, index = end, index + 1
    requests = tuple(_record(one) for one in asked)
    return Run(
        RunHeader("2026-12-01T00:00:00+00:00", engine(max_num_batched_tokens=budget, max_num_seqs=seats), None),
        requests,
        tuple(steps),
    )


def crowd(count: int, tokens: int, *, apart: float = 0, text: str = " word", **how: Any) -> Run:
    """Return a run of `count` requests that arrive `apart` ms after each other."""
    return play([Asked(f"r{i}", tokens=tokens, arrival=i * apart, text=text) for i in range(count)], **how)


def moved(run: Run, by_ns: int, *, first: int) -> Run:
    """Return the run with its steps from the one of index `first` on, and their tokens, so much later."""
    steps = tuple(
        replace(step, **{name: getattr(step, name) + by_ns * (step.index >= first) for name in TIMES})
        for step in run.steps
    )
    requests = []
    for record in run.requests:
        events = tuple(
            TokenEvent(e.request_id, e.sample, e.step, e.time_ns + by_ns * (e.step >= first), e.token_ids, e.text)
            for e in record.samples[0].events
        )
        last = events[-1].time_ns
        sample = replace(record.samples[0], events=events)
        requests.append(replace(record, samples=(sample,), last_token_ns=last, finished_ns=last))
    return replace(run, requests=tuple(requests), steps=steps)


def with_steps(run: Run, **by_index: Any) -> Run:
    """Return the run with facts of steps replaced: ``s3={"cpu_ns": 5}`` is the step of index 3."""
    steps = [replace(step, **by_index.get(f"s{step.index}", {})) for step in run.steps]
    return replace(run, steps=tuple(steps))


def _record(one: Asked) -> RequestRecord:
    arrival = START + round(one.arrival * MS)
    times = [event.time_ns for event in one.events]
    return RequestRecord(
        request_id=one.request_id,
        model="demo/tiny",
        label=one.label,
        prompt=one.label,
        prompt_tokens=one.prompt,
        cached_tokens=0,
        sampling={},
        samples=(SampleRecord(0, tuple(one.events), "length"),),
        load_ns=None,
        arrival_ns=arrival,
        enqueued_ns=arrival,
        started_ns=one.started_ns,
        first_token_ns=min(times, default=None),
        last_token_ns=max(times, default=None),
        finished_ns=max(times, default=arrival),
        stalled_ns=0,
        preemptions=0,
        shared_prefill_ns=None,
        shared_decode_ns=None,
        shared_stalled_ns=None,
        fit=None,
    )
