"""What a batch lab shows of a workload as it goes on: a lane a request, and an entry a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jupyter_infer.handle import RequestHandle
from jupyter_infer.records import EngineInfo, StepRecord
from jupyter_infer.result import Refused, Result
from jupyter_infer.widgets._growing import Growing
from jupyter_infer.widgets._lab_run import Asked

__all__ = ["STEPS_SENT", "LabTrace", "Lane"]

STEPS_SENT = 4_096
"""Steps of a workload that views get at most; of more, the first ones are left out."""
LATEST, RECENT = 32, 512

PHASES = {"prefill": "p", "decode": "d", "stalled": "s"}


@dataclass(slots=True)
class Lane:
    """A request as far as it has come; moments are on the clock of the records, None if they have not."""

    handle: RequestHandle | Refused | None = None
    arrival_ns: int | None = None
    first_ns: int | None = None  # its first token
    last_ns: int | None = None  # its latest one
    end_ns: int | None = None
    tokens: int = 0
    phase: str = "queued"
    events: int = 0  # that were looked at

    @property
    def state(self) -> str:
        """What it does: empty before it has arrived."""
        if self.handle is None:
            return ""
        if isinstance(self.handle, Refused):
            return "refused"
        if self.end_ns is None:
            return self.phase
        if self.result is None:  # the engine broke
            return "failed"
        return "stopped" if "abort" in self.result.finish_reason else "done"

    @property
    def result(self) -> Result | None:
        """What it gave, once it is over."""
        found: Result | None = self.handle.kept if isinstance(self.handle, RequestHandle) else None
        return found

    @property
    def open_or_answered(self) -> bool:
        """Whether it has a first token, or may still get one."""
        return self.first_ns is not None or self.end_ns is None

    @property
    def ttft_ns(self) -> int | None:
        """Arrival → first token."""
        return None if self.first_ns is None or self.arrival_ns is None else self.first_ns - self.arrival_ns

    @property
    def tpot_ns(self) -> float | None:
        """Decode / (tokens − 1), so far."""
        if self.first_ns is None or self.last_ns is None or self.tokens < 2:
            return None
        return (self.last_ns - self.first_ns) / (self.tokens - 1)

    def look(self) -> None:
        """Take in what has come since."""
        if not isinstance(self.handle, RequestHandle):
            return
        over, result = self.handle.done, self.result  # first: nothing comes after the end
        new = self.handle.events_after(self.events)
        self.events += len(new)
        for event in new:
            if event.token_ids:
                self.first_ns = event.time_ns if self.first_ns is None else self.first_ns
                self.last_ns = event.time_ns
                self.tokens += len(event.token_ids)
        if result is not None:
            self.arrival_ns, self.end_ns = result.record.arrival_ns, result.record.finished_ns
        elif over:  # it failed, and has no record
            self.end_ns = self.last_ns or self.arrival_ns


class LabTrace:
    """Follows the engine's steps while a workload is asked.

    Parameters
    ----------
    asked
        The workload.
    info
        The engine.
    """

    def __init__(self, asked: Asked, info: EngineInfo) -> None:
        self.asked = asked
        self.lanes = [Lane() for _ in range(asked.workload.requests)]
        self.steps: Growing[list[Any]] = Growing(LATEST, RECENT, STEPS_SENT)
        self.last: StepRecord | None = None
        """The latest step."""
        self.busy_ns = 0
        """Own time of the steps so far."""
        self._info = info
        self._lane_of: dict[str, int] = {}
        self._seen = -1

    def follow(self, steps: Sequence[StepRecord]) -> None:
        """Take in what has happened; `steps` are all that are remembered."""
        for number, handle in enumerate(list(self.asked.handles)):
            lane = self.lanes[number]
            if lane.handle is None:
                lane.arrival_ns, lane.handle = self.asked.arrived_ns[number], handle
                if isinstance(handle, RequestHandle):
                    self._lane_of[handle.request_id] = number
                else:
                    lane.end_ns = lane.arrival_ns
        for lane in self.lanes:
            if lane.end_ns is None:
                lane.look()
        over_ns = self.over_ns  # what the engine does afterwards is not of this workload
        self.steps.add([self._entry(s) for s in self._new(steps) if over_ns is None or s.start_ns < over_ns])

    @property
    def over_ns(self) -> int | None:
        """When the last of its requests ended; None while one is open, or has not arrived."""
        ends = [lane.end_ns for lane in self.lanes]
        return None if None in ends else max((end for end in ends if end is not None), default=None)

    def lane_entries(self) -> list[list[Any]]:
        """Return the lanes as views get them: name, µs of arrival and end, tokens, state."""
        return [
            [
                lane.handle.request_id if isinstance(lane.handle, RequestHandle) else "",
                self._us(lane.arrival_ns),
                self._us(lane.end_ns),
                lane.tokens,
                lane.state,
            ]
            for lane in self.lanes
        ]

    def _new(self, steps: Sequence[StepRecord]) -> list[StepRecord]:
        found = []
        for step in reversed(steps):
            if step.index <= self._seen or step.end_ns <= self.asked.begun_ns:
                break
            found.append(step)
        if found:
            self._seen = found[0].index
        return found[::-1]

    def _entry(self, step: StepRecord) -> list[Any]:
        states = ["."] * len(self.lanes)
        for work in step.work:
            if (number := self._lane_of.get(work.request_id)) is not None:
                states[number] = PHASES[work.phase]
                self.lanes[number].phase = work.phase
        for request_id, _ in step.preempted:
            if (number := self._lane_of.get(request_id)) is not None:
                states[number] = "x"
                self.lanes[number].phase = "stalled"
        limits = step.limits or self._info.limits
        self.last = step
        self.busy_ns += step.end_ns - max(step.start_ns, self.asked.begun_ns)
        return [
            self._us(step.start_ns),
            self._us(step.end_ns),
            step.tokens,
            step.running,
            step.waiting,
            step.kv_blocks_free,
            "".join(states),
            limits.max_num_seqs,
            limits.max_num_batched_tokens,
        ]

    def _us(self, time_ns: int | None) -> int | None:
        return None if time_ns is None else max(0, time_ns - self.asked.begun_ns) // 1000
