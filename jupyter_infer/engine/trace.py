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

from jupyter_infer.records import Limits, StepRecord, StepWork

__all__ = ["Planned", "StepTracer", "tracing"]


class Planned(msgspec.Struct, frozen=True, gc=False):
    """What the scheduler planned for one of vLLM's requests (a sample of ours) in one step."""

    key: str  # vLLM's own request id
    tokens: int
    computed_before: int  # tokens whose KV existed before the step, cached ones included
    prompt_tokens: int
    draft_tokens: int = 0
    enters: bool = False  # it comes into the batch, new or after a preemption: `computed_before` was found in the cache
    new_blocks: tuple[int, ...] = ()  # ids of the KV blocks that its table got


@dataclass(slots=True)
class _Open:
    scheduled_ns: int
    planned_ns: int
    cpu_ns: int
    running: int
    waiting: int
    preempted: tuple[tuple[str, int], ...]
    limits: Limits | None
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
        self.threads: int | None = None  # that compute, for an engine that says so
        self.limits: Limits | None = None  # in force, where they are not those of the load
        self._clock, self._cpu_clock = clock, cpu_clock
        self._open: dict[int, _Open] = {}
        self._high: dict[str, int] = {}  # most tokens whose KV a sample ever had or will have after planned steps
        self._lost: dict[str, int] = {}  # what of it was lost to a preemption: below it, work is recomputation
        self._freed: list[tuple[str, int]] = []
        self._evicted: list[int] = []
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
        named = tuple(map(self._name, victims))
        self._open[id(step)] = _Open(at_ns, self._clock(), cpu_ns, running, waiting, named, self.limits, split)

    def freed(self, key: str) -> None:
        """Note that a sample which is over gave its KV blocks back."""
        self._freed.append(self._name(key))

    def evicted(self, blocks: Iterable[int]) -> None:
        """Note that the cached content of free blocks was given up."""
        self._evicted.extend(blocks)

    def computed(self) -> int:
        """Return the moment at which the model's results are in, to be handed to `done`."""
        return self._clock()

    def done(
        self, step: object, given: Mapping[str, int], *, computed_ns: int, kv_blocks_free: int | None = None
    ) -> None:
        """Note that the results of a step were taken in: `given` says how many new tokens each sample got."""
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
                    cached_tokens=item.computed_before if item.enters else None,
                    new_blocks=item.new_blocks,
                )
            )
        overlaps = self._end_ns > opened.scheduled_ns
        record = StepRecord(
            index=self._index,
            scheduled_ns=opened.scheduled_ns,
            planned_ns=opened.planned_ns,
            start_ns=max(opened.scheduled_ns, self._end_ns),
            computed_ns=max(computed_ns, self._end_ns),
            end_ns=now_ns,
            cpu_ns=now_cpu_ns - (self._end_cpu_ns if overlaps else opened.cpu_ns),
            work=tuple(work),
            running=opened.running,
            waiting=opened.waiting,
            preempted=opened.preempted,
            freed=tuple(self._freed),
            evicted=tuple(self._evicted),
            kv_blocks_free=kv_blocks_free,
            threads=self.threads,
            limits=opened.limits,
        )
        self._freed, self._evicted = [], []
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
            self._pool = self.kv_cache_manager.block_pool
            self._pool._maybe_evict_cached_block = self._told_of(self._pool._maybe_evict_cached_block)

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
            computed_ns = self.tracer.computed()
            outputs = super().update_from_output(scheduler_output, model_runner_output)
            given = {item.request_id: len(item.new_token_ids) for sent in outputs.values() for item in sent.outputs}
            free = self._pool.get_num_free_blocks()
            self.tracer.done(scheduler_output, given, computed_ns=computed_ns, kv_blocks_free=free)
            return outputs

        def reset_prefix_cache(self, *args: Any, **kwargs: Any) -> Any:
            cached = tuple(self._pool.cached_block_hashes_by_block)
            done = super().reset_prefix_cache(*args, **kwargs)
            if done:
                self.tracer.evicted(cached)
            return done

        def _free_blocks(self, request: Any) -> None:
            self.tracer.freed(request.request_id)
            super()._free_blocks(request)

        def _preempt_request(self, request: Any, *args: Any, **kwargs: Any) -> None:
            self._preempted_now.append(request.request_id)
            super()._preempt_request(request, *args, **kwargs)

        def _told_of(self, evict: Callable[[Any], bool]) -> Callable[[Any], bool]:
            """Return the pool's own eviction of a block, observed."""

            def observed(block: Any) -> bool:
                evicted = evict(block)
                if evicted:
                    self.tracer.evicted((block.block_id,))
                return evicted

            return observed

        def _work_of(self, output: Any) -> Iterable[Planned]:
            cached, requests, drafts = output.scheduled_cached_reqs, self.requests, output.scheduled_spec_decode_tokens
            facts = {new.req_id: (new.num_computed_tokens, new.block_ids, True) for new in output.scheduled_new_reqs}
            parts = zip(cached.req_ids, cached.num_computed_tokens, cached.new_block_ids, strict=True)
            resumed = cached.resumed_req_ids
            facts.update((key, (before, blocks, key in resumed)) for key, before, blocks in parts)
            for key, tokens in output.num_scheduled_tokens.items():
                before, blocks, enters = facts[key]
                # A list a group of layers, and all of them are of one pool.
                table = tuple(block for group in blocks for block in group) if blocks else ()
                draft_tokens = len(drafts.get(key, ())) if drafts else 0
                yield Planned(key, tokens, before, requests[key].num_prompt_tokens, draft_tokens, enters, table)

    TracingScheduler.__name__ = TracingScheduler.__qualname__ = f"Tracing{base.__name__}"
    return TracingScheduler
