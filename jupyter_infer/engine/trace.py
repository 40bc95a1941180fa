"""What the scheduler really did, step by step.

`tracing(base)` returns a scheduler class over the one that vLLM would have chosen itself (`AsyncScheduler` on a GPU,
where a plain subclass of `Scheduler` would switch the overlap off). It reports to a `StepTracer`, which knows no vLLM
and keys what it sees by the `SchedulerOutput` object, not by call order: with asynchronous scheduling two steps are in
flight at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from jupyter_infer.records import StepRecord, StepWork

__all__ = ["Planned", "StepTracer", "tracing"]


class Planned(msgspec.Struct, frozen=True, gc=False):
    """What the scheduler planned for one of vLLM's requests (a sample of ours) in one step."""

    key: str  # vLLM's own request id
    tokens: int
    computed_before: int  # tokens whose KV existed before the step, cached ones included
    prompt_tokens: int
    draft_tokens: int = 0


@dataclass(slots=True)
class _Open:
    scheduled_ns: int
    cpu_ns: int
    running: int
    waiting: int
    preempted: tuple[tuple[str, int], ...]
    work: list[tuple[tuple[str, int], Planned, int, int]]  # whose, planned, prefill tokens, recomputed tokens


class StepTracer:
    """Turns *planned* and *done* reports into `StepRecord` values.

    Parameters
    ----------
    clock
        The one clock, in nanoseconds.
    cpu_clock
        CPU time of the calling thread, in nanoseconds.
    """

    def __init__(
        self, clock: Callable[[], int] = time.monotonic_ns, cpu_clock: Callable[[], int] = time.thread_time_ns
    ) -> None:
        self.names: dict[str, tuple[str, int]] = {}  # vLLM's request id → our request id and sample
        self._clock, self._cpu_clock = clock, cpu_clock
        self._open: dict[int, _Open] = {}
        self._high: dict[str, int] = {}  # most tokens whose KV a sample ever had or will have after planned steps
        self._lost: dict[str, int] = {}  # what of it was lost to a preemption: below it, work is recomputation
        self._done: list[StepRecord] = []
        self._index = 0
        self._end_ns = 0
        self._end_cpu_ns = 0

    def planning(self) -> tuple[int, int]:
        """Return the moment at which the scheduler begins to plan, to be handed to `planned`."""
        return self._clock(), self._cpu_clock()

    def planned(
        self,
        step: object,
        begun: tuple[int, int],
        work: Iterable[Planned],
        *,
        running: int,
        waiting: int,
        preempted: Iterable[str] = (),
    ) -> None:
        """Note the plan of a step; `step` is any object that stays the same until `done` is called with it.

        What a token is, is decided here, from the computed count before the step. After a preemption, a sample's tokens
        up to where it had been are recomputed; above that, those of the prompt are prefill and the rest decode, the
        drafts last.
        """
        victims = tuple(preempted)
        names, high, lost = self.names, self._high, self._lost
        lost |= {key: high[key] for key in victims if key in high}
        split = []
        for item in work:
            key, before = item.key, item.computed_before
            had, end = lost.get(key, 0) if lost else 0, before + item.tokens
            fresh = had if had > before else before  # comparisons, because `max` and `min` would be most of this loop
            recomputed = (had if had < end else end) - before if had > before else 0
            prompt_end = item.prompt_tokens if item.prompt_tokens < end else end
            prefill = prompt_end - fresh if prompt_end > fresh else 0
            split.append((names.get(key) or (key, 0), item, prefill, recomputed))
            self._raise(key, end - item.draft_tokens)
        at_ns, cpu_ns = begun
        self._open[id(step)] = _Open(at_ns, cpu_ns, running, waiting, tuple(map(self._name, victims)), split)

    def done(self, step: object, given: Mapping[str, int], *, kv_blocks_free: int | None = None) -> None:
        """Note that the results of a step are in: `given` says how many new tokens each sample got."""
        opened = self._open.pop(id(step), None)
        if opened is None:
            return
        now_ns, now_cpu_ns = self._clock(), self._cpu_clock()
        work = []
        for (name, sample), item, prefill, recomputed in opened.work:
            tokens, drafts, new = item.tokens, item.draft_tokens, given.get(item.key, 0)
            kv_tokens, accepted = item.computed_before + tokens, 0
            if drafts:
                accepted = min(max(0, new - 1), drafts)
                self._raise(item.key, kv_tokens - (drafts - accepted))
            work.append(
                StepWork(
                    request_id=name,
                    sample=sample,
                    tokens=tokens,
                    prefill_tokens=prefill,
                    recomputed_tokens=recomputed,
                    decode_tokens=tokens - prefill - recomputed - drafts,
                    draft_tokens=drafts,
                    accepted_tokens=accepted,
                    output_tokens=new,
                    kv_tokens=kv_tokens,
                )
            )
        overlaps = self._end_ns > opened.scheduled_ns
        record = StepRecord(
            index=self._index,
            scheduled_ns=opened.scheduled_ns,
            start_ns=max(opened.scheduled_ns, self._end_ns),
            end_ns=now_ns,
            cpu_ns=now_cpu_ns - (self._end_cpu_ns if overlaps else opened.cpu_ns),
            work=tuple(work),
            running=opened.running,
            waiting=opened.waiting,
            preempted=opened.preempted,
            kv_blocks_free=kv_blocks_free,
        )
        self._index += 1
        self._end_ns, self._end_cpu_ns = now_ns, now_cpu_ns
        self._done.append(record)

    def take(self) -> tuple[StepRecord, ...]:
        """Return the steps that ended since the last call."""
        steps, self._done = tuple(self._done), []
        return steps

    def forget(self, keys: Iterable[str]) -> None:
        """Drop what is kept about requests that ended."""
        for key in keys:
            self.names.pop(key, None)
            self._high.pop(key, None)
            self._lost.pop(key, None)

    def _name(self, key: str) -> tuple[str, int]:
        """Whose it is; asked when a step is planned, because a request can be over before its last step is."""
        return self.names.get(key) or (key, 0)

    def _raise(self, key: str, computed: int) -> None:
        if key in self.names and computed > self._high.get(key, 0):  # else it is over, and nobody would forget it again
            self._high[key] = computed


def tracing(base: type) -> type:
    """Return a subclass of a vLLM scheduler class that reports every step to its `tracer`."""

    class TracingScheduler(base):
        """`base`, observed; it decides nothing."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self.tracer = StepTracer()
            self._preempted_now: list[str] = []
            super().__init__(*args, **kwargs)

        def schedule(self, *args: Any, **kwargs: Any) -> Any:
            begun = self.tracer.planning()
            self._preempted_now = []
            output = super().schedule(*args, **kwargs)
            running, waiting = self.get_request_counts()
            self.tracer.planned(
                output,
                begun,
                self._work_of(output),
                running=running,
                waiting=waiting,
                preempted=self._preempted_now,
            )
            return output

        def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
            outputs = super().update_from_output(scheduler_output, model_runner_output)
            given = {item.request_id: len(item.new_token_ids) for sent in outputs.values() for item in sent.outputs}
            self.tracer.done(
                scheduler_output, given, kv_blocks_free=self.kv_cache_manager.block_pool.get_num_free_blocks()
            )
            return outputs

        def _preempt_request(self, request: Any, *args: Any, **kwargs: Any) -> None:
            self._preempted_now.append(request.request_id)
            super()._preempt_request(request, *args, **kwargs)

        def _work_of(self, output: Any) -> Iterable[Planned]:
            cached, requests, drafts = output.scheduled_cached_reqs, self.requests, output.scheduled_spec_decode_tokens
            before = {new.req_id: new.num_computed_tokens for new in output.scheduled_new_reqs}
            before.update(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
            for key, tokens in output.num_scheduled_tokens.items():
                draft_tokens = len(drafts.get(key, ())) if drafts else 0
                yield Planned(key, tokens, before[key], requests[key].num_prompt_tokens, draft_tokens)

    TracingScheduler.__name__ = TracingScheduler.__qualname__ = f"Tracing{base.__name__}"
    return TracingScheduler
