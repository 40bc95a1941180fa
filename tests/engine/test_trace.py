"""What the scheduler did: each token's kind, each step's own time, with one or two steps in flight."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_infer.engine.scripted import VirtualClock
from jupyter_infer.engine.trace import Planned, StepTracer, tracing
from jupyter_infer.metrics import busy_ns
from jupyter_infer.records import StepRecord, StepWork


class Bench:
    """A tracer of one request, `k` for vLLM and `r1` for us, on a clock that is set by hand."""

    def __init__(self) -> None:
        self.clock, self.cpu = VirtualClock(), VirtualClock()
        self.tracer = StepTracer(self.clock, self.cpu)
        self.tracer.names["k"] = ("r1", 0)

    def plan(self, step: object, *work: Planned, at: int = 0, preempted: tuple[str, ...] = ()) -> None:
        self.clock.now_ns = at
        begun = self.tracer.planning()
        self.tracer.planned(step, begun, work, running=len(work), waiting=0, preempted=preempted)

    def done(
        self, step: object, given: dict[str, int] | None = None, *, at: int = 0, computed: int | None = None
    ) -> StepRecord:
        self.clock.now_ns = at if computed is None else computed
        computed_ns = self.tracer.computed()
        self.clock.now_ns = at
        self.tracer.done(step, given or {}, computed_ns=computed_ns)
        (record,) = self.tracer.take()
        return record

    def preempt(self) -> None:
        step = object()
        self.plan(step, preempted=("k",))
        self.done(step)

    def compute(self, before: int, tokens: int, *, prompt: int = 100, draft: int = 0, gives: int = 0) -> StepWork:
        """Run a whole step of `tokens` tokens after `before` computed ones."""
        step = object()
        self.plan(step, Planned("k", tokens, before, prompt, draft))
        (work,) = self.done(step, {"k": gives} if gives else {}).work
        assert work.tokens == work.prefill_tokens + work.recomputed_tokens + work.decode_tokens + work.draft_tokens
        return work


def kinds(work: StepWork) -> tuple[int, int, int, int]:
    return work.prefill_tokens, work.recomputed_tokens, work.decode_tokens, work.draft_tokens


@pytest.fixture
def bench() -> Bench:
    return Bench()


# What a token is.


def test_all_chunks_of_a_prompt_are_prefill_the_last_one_too(bench: Bench) -> None:
    first = bench.compute(0, 64)
    last = bench.compute(64, 36, gives=1)
    assert (kinds(first), first.output_tokens) == ((64, 0, 0, 0), 0)
    assert (kinds(last), last.output_tokens) == ((36, 0, 0, 0), 1)
    assert (first.kv_tokens, last.kv_tokens) == (64, 100)


def test_a_token_after_the_prompt_is_decode(bench: Bench) -> None:
    bench.compute(0, 100, gives=1)
    work = bench.compute(100, 1, gives=1)
    assert kinds(work) == (0, 0, 1, 0)
    assert work.kv_tokens == 101


def test_tokens_from_the_prefix_cache_are_not_computed(bench: Bench) -> None:
    assert kinds(bench.compute(96, 4, gives=1)) == (4, 0, 0, 0)


def test_a_draft_that_is_kept_and_one_that_is_not(bench: Bench) -> None:
    bench.compute(0, 100, gives=1)
    work = bench.compute(100, 4, draft=3, gives=3)  # two of three drafts, and the token after them
    assert kinds(work) == (0, 0, 1, 3)
    assert (work.accepted_tokens, work.output_tokens) == (2, 3)


def test_a_draft_that_was_not_kept_is_not_computed_again(bench: Bench) -> None:
    bench.compute(0, 100, gives=1)
    none = bench.compute(100, 4, draft=3, gives=1)
    assert none.accepted_tokens == 0
    again = bench.compute(101, 4, draft=3, gives=4)  # the count went back by the three
    assert kinds(again) == (0, 0, 1, 3)
    assert again.accepted_tokens == 3
    assert kinds(bench.compute(105, 1, gives=1)) == (0, 0, 1, 0)


def test_what_a_preemption_lost_is_computed_again(bench: Bench) -> None:
    bench.compute(0, 100, gives=1)
    for before in range(100, 105):
        bench.compute(before, 1, gives=1)
    bench.preempt()
    assert kinds(bench.compute(0, 64)) == (0, 64, 0, 0)
    # 105 tokens had their KV; the 106th is the one that was sampled last.
    assert kinds(bench.compute(64, 42, gives=1)) == (0, 41, 1, 0)
    assert kinds(bench.compute(106, 1, gives=1)) == (0, 0, 1, 0)


def test_a_preemption_in_the_prompt_leaves_prefill_to_do(bench: Bench) -> None:
    bench.compute(0, 64)
    bench.preempt()
    assert kinds(bench.compute(0, 100, gives=1)) == (36, 64, 0, 0)


def test_a_preempted_prompt_that_is_found_in_the_cache_is_not_recomputed(bench: Bench) -> None:
    bench.compute(0, 100, gives=1)
    bench.compute(100, 1, gives=1)
    bench.preempt()
    assert kinds(bench.compute(96, 6, gives=1)) == (0, 5, 1, 0)


def test_a_second_preemption_counts_from_the_most_that_was_ever_there(bench: Bench) -> None:
    bench.compute(0, 100, gives=1)
    bench.preempt()
    bench.compute(0, 32)
    bench.preempt()
    assert kinds(bench.compute(0, 101, gives=1)) == (0, 100, 1, 0)


def test_a_chunk_is_prefill_when_the_chunk_before_it_is_in_flight(bench: Bench) -> None:
    first, second = object(), object()
    bench.plan(first, Planned("k", 64, 0, 100))
    bench.plan(second, Planned("k", 36, 64, 100))
    assert kinds(bench.done(first).work[0]) == (64, 0, 0, 0)
    assert kinds(bench.done(second, {"k": 1}).work[0]) == (36, 0, 0, 0)


def test_what_was_in_flight_at_a_preemption_is_lost_too(bench: Bench) -> None:
    first, second, third = object(), object(), object()
    bench.plan(first, Planned("k", 64, 0, 100))
    bench.plan(second, preempted=("k",))
    bench.plan(third, Planned("k", 100, 0, 100))  # planned before the results of the first are in
    assert kinds(bench.done(first).work[0]) == (64, 0, 0, 0)
    bench.done(second)
    assert kinds(bench.done(third, {"k": 1}).work[0]) == (36, 64, 0, 0)


def test_drafts_that_fail_with_a_step_in_flight_are_no_recomputation(bench: Bench) -> None:
    """The count before the second step assumes that all drafts hold, and goes back when they do not."""
    bench.compute(0, 100, gives=1)
    first, second = object(), object()
    bench.plan(first, Planned("k", 4, 100, 100, 3))
    bench.plan(second, Planned("k", 1, 104, 100))
    bench.done(first, {"k": 1})
    bench.done(second, {"k": 1})
    assert kinds(bench.compute(102, 1, gives=1)) == (0, 0, 1, 0)


def test_samples_of_one_request_are_told_apart(bench: Bench) -> None:
    bench.tracer.names |= {"0_k": ("r2", 0), "1_k": ("r2", 1)}
    step = object()
    bench.plan(step, Planned("0_k", 1, 5, 5), Planned("1_k", 1, 7, 5), preempted=("0_k",))
    record = bench.done(step, {"1_k": 1})
    assert [(work.request_id, work.sample, work.output_tokens) for work in record.work] == [("r2", 0, 0), ("r2", 1, 1)]
    assert record.preempted == (("r2", 0),)


def test_a_forgotten_request_leaves_nothing_for_a_later_one_of_its_name(bench: Bench) -> None:
    bench.compute(0, 100, gives=1)
    bench.tracer.forget(["k", "unknown"])
    bench.tracer.names["k"] = ("r9", 0)
    assert kinds(bench.compute(0, 100, gives=1)) == (100, 0, 0, 0)


# Whose time it is.


def test_a_step_owns_the_time_from_its_planning_to_its_results(bench: Bench) -> None:
    bench.plan("a", at=10)
    record = bench.done("a", at=35)
    assert (record.index, record.scheduled_ns, record.start_ns, record.end_ns, record.duration_ns) == (
        0,
        10,
        10,
        35,
        25,
    )


def test_two_steps_in_flight_do_not_overlap_and_idle_time_is_nobodys(bench: Bench) -> None:
    bench.plan("one", at=0)
    bench.plan("two", at=10)
    one = bench.done("one", at=100)
    bench.plan("three", at=110)
    two = bench.done("two", at=150)
    three = bench.done("three", at=200)
    bench.plan("four", at=1000)  # the engine had nothing to do in between
    four = bench.done("four", at=1050)
    own = [(step.scheduled_ns, step.start_ns, step.end_ns) for step in (one, two, three, four)]
    assert own == [(0, 0, 100), (10, 100, 150), (110, 150, 200), (1000, 1000, 1050)]
    assert busy_ns([one, two, three, four]) == 250
    assert [step.index for step in (one, two, three, four)] == [0, 1, 2, 3]


@given(data=st.data(), depth=st.integers(1, 3))
def test_own_times_are_the_union_of_the_steps(data: st.DataObject, depth: int) -> None:
    bench, flight, steps, now = Bench(), [], [], 0
    for _ in range(data.draw(st.integers(1, 30))):
        now += data.draw(st.integers(0, 100))
        if len(flight) < depth and (not flight or data.draw(st.booleans())):
            flight.append(object())
            bench.plan(flight[-1], at=now)
        else:
            steps.append(bench.done(flight.pop(0), at=now))
    union = set().union(*(range(step.scheduled_ns, step.end_ns) for step in steps))
    assert busy_ns(steps) == len(union)
    assert all(earlier.end_ns <= later.start_ns for earlier, later in itertools.pairwise(steps))


def test_steps_are_known_by_the_object_not_by_order_or_content(bench: Bench) -> None:
    first, second = SimpleNamespace(), SimpleNamespace()
    assert first == second
    bench.plan(first, Planned("k", 64, 0, 100))
    bench.plan(second, Planned("k", 36, 64, 100))
    assert bench.done(second).work[0].tokens == 36
    assert bench.done(first).work[0].tokens == 64


def test_results_of_a_step_that_was_not_planned_are_no_step(bench: Bench) -> None:
    bench.tracer.done(object(), {"k": 1}, computed_ns=0)
    assert bench.tracer.take() == ()


def test_steps_are_taken_once(bench: Bench) -> None:
    bench.plan("a")
    bench.done("a")
    assert bench.tracer.take() == ()


def test_cpu_time_is_that_of_its_own_time(bench: Bench) -> None:
    bench.cpu.now_ns = 5
    bench.plan("one", at=0)
    bench.cpu.now_ns = 8
    bench.plan("two", at=10)
    bench.cpu.now_ns = 25
    assert bench.done("one", at=100).cpu_ns == 20
    bench.cpu.now_ns = 32
    assert bench.done("two", at=150).cpu_ns == 7  # since the end of the one before it
    bench.cpu.now_ns = 90  # something else ran on this thread
    bench.plan("three", at=500)
    bench.cpu.now_ns = 96
    assert bench.done("three", at=510).cpu_ns == 6


def test_a_step_of_a_request_that_was_aborted_meanwhile_still_counts(bench: Bench) -> None:
    bench.plan("one", Planned("k", 1, 100, 100), at=0)
    bench.tracer.forget(["k"])
    record = bench.done("one", at=40)
    assert record.duration_ns == 40
    assert [(work.request_id, work.output_tokens) for work in record.work] == [
        ("r1", 0)
    ]  # vLLM's id: it is nobody's now
    bench.tracer.names["k"] = ("r2", 0)
    bench.preempt()
    assert kinds(bench.compute(0, 50, prompt=50)) == (50, 0, 0, 0)  # it kept nothing that could be lost


# The class over vLLM's.


class FakeScheduler:
    """What we use of vLLM's scheduler: it hands out planned outputs, and can preempt while it plans."""

    def __init__(self, free: int, *, name: str) -> None:
        self.name = name
        self.requests: dict[str, Any] = {}
        self.free = free
        self.hashes = {7: {"h7"}, 8: {"h8"}}
        pool = SimpleNamespace(get_num_free_blocks=lambda: self.free, cached_block_hashes_by_block=self.hashes)
        pool._maybe_evict_cached_block = lambda block: self.hashes.pop(block.block_id, None) is not None
        self.kv_cache_manager = SimpleNamespace(block_pool=pool)
        self.idle = True
        self.plans: list[Any] = []
        self.victims: list[str] = []
        self.throttled: list[bool] = []
        self.counts = (1, 0)

    def schedule(self, throttle_prefills: bool = False) -> Any:
        self.throttled.append(throttle_prefills)
        while self.victims:
            self._preempt_request(self.requests[self.victims.pop(0)], 0.0)
        return self.plans.pop(0)

    def update_from_output(self, scheduler_output: Any, model_runner_output: dict[str, list[int]]) -> Any:
        self.free -= 1
        outputs = [SimpleNamespace(request_id=key, new_token_ids=tokens) for key, tokens in model_runner_output.items()]
        half = len(outputs) // 2
        return {0: SimpleNamespace(outputs=outputs[:half]), 1: SimpleNamespace(outputs=outputs[half:])}

    def get_request_counts(self) -> tuple[int, int]:
        return self.counts

    def reset_prefix_cache(self) -> bool:
        if self.idle:
            self.hashes.clear()
        return self.idle

    def _free_blocks(self, request: Any) -> None:
        del self.requests[request.request_id]

    def _preempt_request(self, request: Any, timestamp: float, drop_stale_output: bool = False) -> None:
        request.preempted_at = timestamp


def output(
    new: dict[str, tuple[int, int]],
    old: dict[str, tuple[int, int]],
    *,
    blocks: dict[str, tuple[list[int], ...]] | None = None,
    resumed: set[str] | None = None,
    **drafts: list[int],
) -> SimpleNamespace:
    """A `SchedulerOutput`: request id → tokens in this step and tokens computed before it."""
    tables = blocks or {}
    return SimpleNamespace(
        scheduled_new_reqs=[
            SimpleNamespace(req_id=key, num_computed_tokens=before, block_ids=tables.get(key, ([],)))
            for key, (_, before) in new.items()
        ],
        scheduled_cached_reqs=SimpleNamespace(
            req_ids=list(old),
            num_computed_tokens=[before for _, before in old.values()],
            new_block_ids=[tables.get(key) for key in old],
            resumed_req_ids=resumed or set(),
        ),
        num_scheduled_tokens={key: tokens for key, (tokens, _) in (new | old).items()},
        scheduled_spec_decode_tokens=drafts,
    )


@pytest.fixture
def scheduler() -> Any:
    made = tracing(FakeScheduler)(40, name="ours")
    for key, prompt in {"a": 100, "b": 10, "c": 10}.items():
        made.requests[key] = SimpleNamespace(request_id=key, num_prompt_tokens=prompt)
        made.tracer.names[key] = (f"r{key}", 0)
    return made


def test_the_class_is_the_one_that_vllm_chose_and_says_so(scheduler: Any) -> None:
    assert isinstance(scheduler, FakeScheduler)
    assert type(scheduler).__name__ == "TracingFakeScheduler"
    assert scheduler.name == "ours"


def test_a_step_of_the_scheduler_is_a_record(scheduler: Any) -> None:
    planned = output({"a": (64, 0)}, {"b": (1, 12), "c": (3, 15)}, c=[7, 8])
    scheduler.plans, scheduler.counts = [planned], (3, 2)
    assert scheduler.schedule(True) is planned
    assert scheduler.throttled == [True]
    given = scheduler.update_from_output(planned, {"b": [5], "c": [7, 9]})
    assert [item.request_id for sent in given.values() for item in sent.outputs] == ["b", "c"]
    (record,) = scheduler.tracer.take()
    assert (record.running, record.waiting, record.kv_blocks_free, record.preempted) == (3, 2, 39, ())
    chunk, decode, drafted = record.work
    assert (chunk.request_id, kinds(chunk), chunk.output_tokens) == ("ra", (64, 0, 0, 0), 0)
    assert (decode.request_id, kinds(decode), decode.output_tokens, decode.kv_tokens) == ("rb", (0, 0, 1, 0), 1, 13)
    assert (kinds(drafted), drafted.accepted_tokens, drafted.output_tokens) == ((0, 0, 1, 2), 1, 2)


def test_preemptions_are_those_of_their_own_step(scheduler: Any) -> None:
    first, second = output({}, {"b": (1, 12)}), output({}, {"b": (1, 13)})
    scheduler.plans, scheduler.victims = [first, second], ["c"]
    scheduler.schedule()
    scheduler.schedule()
    scheduler.update_from_output(first, {"b": [1]})
    scheduler.update_from_output(second, {"b": [1]})
    assert scheduler.requests["c"].preempted_at == 0.0
    assert [step.preempted for step in scheduler.tracer.take()] == [(("rc", 0),), ()]


def test_results_of_two_steps_in_flight_go_to_their_own_step(scheduler: Any) -> None:
    first, second = output({"b": (10, 0)}, {}), output({}, {"b": (1, 10)})
    scheduler.plans = [first, second]
    scheduler.schedule()
    scheduler.schedule()
    scheduler.update_from_output(first, {"b": [1]})
    scheduler.update_from_output(second, {"b": [2]})
    prefill, decode = scheduler.tracer.take()
    assert kinds(prefill.work[0]) == (10, 0, 0, 0)
    assert kinds(decode.work[0]) == (0, 0, 1, 0)
    assert prefill.end_ns <= decode.start_ns


def test_a_step_that_computes_nothing_is_a_step_without_work(scheduler: Any) -> None:
    nothing = output({}, {})
    scheduler.plans = [nothing]
    scheduler.schedule()
    scheduler.update_from_output(nothing, {})
    (record,) = scheduler.tracer.take()
    assert record.work == ()


def test_block_tables_grow_by_what_each_step_gave_and_start_anew_on_entry(scheduler: Any) -> None:
    plans = [
        output({"a": (36, 64)}, {"b": (1, 12)}, blocks={"a": ([3, 4, 5, 9],)}),
        output({}, {"a": (1, 100), "b": (1, 13)}, blocks={"a": ([11],)}),
        output({}, {"a": (38, 64)}, blocks={"a": ([3, 4, 12], [30])}, resumed={"a"}),  # of two groups of layers
    ]
    scheduler.plans = list(plans)
    for plan in plans:
        scheduler.schedule()
        scheduler.update_from_output(plan, {})
    entered, grown, again = scheduler.tracer.take()
    assert [(work.cached_tokens, work.new_blocks) for work in entered.work] == [(64, (3, 4, 5, 9)), (None, ())]
    assert [(work.cached_tokens, work.new_blocks) for work in grown.work] == [(None, (11,)), (None, ())]
    assert (again.work[0].cached_tokens, again.work[0].new_blocks) == (64, (3, 4, 12, 30))


def test_blocks_given_back_and_cached_content_given_up_are_told_by_the_step_that_ends_next(scheduler: Any) -> None:
    plans = [output({}, {"a": (1, 100)}), output({}, {"a": (1, 101)})]
    scheduler.plans = list(plans)
    scheduler._free_blocks(scheduler.requests["b"])  # aborted before the step
    scheduler.schedule()
    evict = scheduler.kv_cache_manager.block_pool._maybe_evict_cached_block
    assert (evict(SimpleNamespace(block_id=7)), evict(SimpleNamespace(block_id=5))) == (True, False)
    scheduler.update_from_output(plans[0], {"a": [1]})
    scheduler.schedule()
    scheduler.update_from_output(plans[1], {"a": [1]})
    first, second = scheduler.tracer.take()
    assert (first.freed, first.evicted) == ((("rb", 0),), (7,))
    assert (second.freed, second.evicted) == ((), ())


@pytest.mark.parametrize(("idle", "evicted"), [(True, (7, 8)), (False, ())])
def test_a_cleared_prefix_cache_evicts_all_it_held_unless_requests_keep_it(
    scheduler: Any, idle: bool, evicted: tuple[int, ...]
) -> None:
    scheduler.idle = idle
    assert scheduler.reset_prefix_cache() is idle
    plan = output({}, {"a": (1, 100)})
    scheduler.plans = [plan]
    scheduler.schedule()
    scheduler.update_from_output(plan, {})
    (record,) = scheduler.tracer.take()
    assert record.evicted == evicted


# Where a step's own time went.


def test_planning_forward_and_update_sum_to_a_steps_own_time(bench: Bench) -> None:
    bench.clock.now_ns = 10
    begun = bench.tracer.planning()
    bench.clock.now_ns = 13
    bench.tracer.planned("a", begun, [Planned("k", 1, 10, 10)], running=1, waiting=0)
    record = bench.done("a", at=60, computed=55)
    assert (record.schedule_ns, record.forward_ns, record.update_ns) == (3, 42, 5)
    assert record.schedule_ns + record.forward_ns + record.update_ns == record.duration_ns


def test_what_was_planned_while_the_step_before_ran_is_no_part_of_its_own_time(bench: Bench) -> None:
    bench.plan("one", Planned("k", 10, 0, 10), at=0)
    bench.plan("two", Planned("k", 1, 10, 10), at=20)
    one = bench.done("one", at=100, computed=90)
    two = bench.done("two", at=150, computed=95)  # the device was done with both
    assert (one.schedule_ns, one.forward_ns, one.update_ns) == (0, 90, 10)
    assert (two.start_ns, two.schedule_ns, two.forward_ns, two.update_ns) == (100, 0, 0, 50)


def test_a_step_says_how_many_threads_computed_it(bench: Bench) -> None:
    bench.tracer.threads = 2
    bench.plan("a", Planned("k", 1, 10, 10))
    assert bench.done("a").threads == 2
