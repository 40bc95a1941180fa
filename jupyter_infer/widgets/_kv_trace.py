"""The pool over the steps that are remembered, step by step: what the map's slider goes over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jupyter_infer.pool_rebuild import rebuild
from jupyter_infer.records import EngineInfo, RequestRecord, StepRecord
from jupyter_infer.run import Run
from jupyter_infer.widgets._kv_shown import Shown, asked_blocks, caches

__all__ = ["Trace"]

LEVELS = 400  # that are drawn of the whole trace
MARKS = 200


class Trace:
    """Steps of one engine and its pool at each of them.

    Parameters
    ----------
    info
        The engine.
    steps
        Its steps in order, without a gap.
    requests
        Those that are over, as far as they are known.
    complete
        Whether all steps of the requests are there; else what they gave back after the last one is not known.
    """

    def __init__(
        self, info: EngineInfo, steps: Sequence[StepRecord], requests: Sequence[RequestRecord], *, complete: bool
    ) -> None:
        self.info, self.steps, self.requests = info, steps, requests
        seen_ns = steps[-1].end_ns if steps else 0
        self.pool = rebuild(
            steps,
            block_size=info.block_size,
            total=info.kv_blocks_total,
            caching=caches(info),
            ended={
                record.request_id: record.finished_ns
                for record in requests
                if complete or record.finished_ns <= seen_ns
            },
        )
        self._unknown = self._filled()

    @classmethod
    def of(cls, run: Run) -> Trace | None:
        """Return the trace of a run; None without an engine or steps."""
        if run.engine is None or not run.steps or run.engine.block_size < 1:
            return None
        return cls(run.engine, run.steps, run.requests, complete=run.complete)

    def __len__(self) -> int:
        return len(self.steps)

    def shown(self, position: int) -> Shown:
        """Return every block while the step at a position ran."""
        index, step = self.pool.during(position), self.steps[position]
        state, unknown = self.pool.at(index), self._unknown[index]
        unseen: frozenset[int] = frozenset()
        if unknown:
            seen = {block for past in self.steps[: position + 1] for work in past.work for block in work.new_blocks}
            unseen = frozenset(range(1, self.info.kv_blocks_total + 1)) - seen
        return Shown(
            info=self.info,
            state=state,
            unknown=unknown,
            unseen=unseen,
            evicted=step.evicted,
            preempted=step.preempted,
            step=step.index,
            since_ns=step.planned_ns - self.steps[0].planned_ns,
            asked=asked_blocks(state, self.info, self.requests),
        )

    @property
    def fullest(self) -> int:
        """The position of the step at which most blocks were in use."""
        moments = self.pool.moments
        levels = [(moment.held + more, moment.shared) for moment, more in zip(moments, self._unknown, strict=True)]
        return moments[max(range(len(levels)), key=levels.__getitem__)].position

    def track(self) -> dict[str, Any]:
        """Return how full the pool was over all steps, at most of each stretch, and where samples were preempted."""
        stretch = max(1, -(-len(self.steps) // LEVELS))
        levels = [0] * -(-len(self.steps) // stretch)
        for moment, more in zip(self.pool.moments, self._unknown, strict=True):
            place = moment.position // stretch
            levels[place] = max(levels[place], moment.held + more)
        preempted = [place for place, step in enumerate(self.steps) if step.preempted]
        return {"levels": levels, "preempted": preempted[:: max(1, -(-len(preempted) // MARKS))]}

    def _filled(self) -> list[int]:
        """Return at each moment the blocks in use that had no owner when it was last measured."""
        measured = [moment.unknown for moment in self.pool.moments]
        last = next((count for count in measured if count is not None), 0)
        filled = []
        for count in measured:
            last = last if count is None else count
            filled.append(max(0, last))
        return filled
