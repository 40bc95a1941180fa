"""The pool rebuilt from steps, against an allocator that knows what it did."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from builders import make_record, make_request, make_step, make_work
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_infer.engine.scripted import Script, ScriptedEngine, VirtualClock
from jupyter_infer.pool import Owner, Pool, block_bytes, contiguous_blocks
from jupyter_infer.pool_rebuild import rebuild
from jupyter_infer.records import EngineInfo, StepRecord, StepWork

SIZE = 4


def make_info(**facts: Any) -> EngineInfo:
    values: dict[str, Any] = {
        "model": "m",
        "engine": "vllm 0",
        "device": "cpu",
        "dtype": "bfloat16",
        "block_size": SIZE,
        "kv_blocks_total": 9,
        "kv_bytes": 1000,
        "weight_bytes": None,
        "max_model_len": 30,
        "max_num_batched_tokens": 64,
        "max_num_seqs": 8,
        "threads": None,
    }
    return EngineInfo(**(values | facts))


def enter(name: str, tokens: int, *blocks: int, cached: int = 0, sample: int = 0) -> StepWork:
    return make_work(name, tokens, sample=sample, cached_tokens=cached, new_blocks=blocks)


def more(name: str, kv_tokens: int, *blocks: int, **facts: Any) -> StepWork:
    return make_work(name, 1, kv_tokens=kv_tokens, new_blocks=blocks, **facts)


def sequence(*parts: dict[str, Any]) -> list[StepRecord]:
    """Return steps of 1,000 ns that follow each other."""
    return [
        make_step(*part.pop("work", ()), start=1000 * place, end=1000 * place + 1000, index=100 + place, **part)
        for place, part in enumerate(parts)
    ]


def tables(pool: Pool, index: int = -1) -> dict[Owner, tuple[int, ...]]:
    return dict(pool.at(index % len(pool)).tables)


def test_a_table_is_what_it_entered_with_and_what_it_got_since() -> None:
    pool = rebuild(
        sequence({"work": [enter("a", 6, 3, 1)]}, {"work": [more("a", 9, 7)]}, {"work": [more("a", 10)]}),
        block_size=SIZE,
    )
    assert [dict(state.tables) for state in pool] == [{("a", 0): (3, 1)}, {("a", 0): (3, 1, 7)}, {("a", 0): (3, 1, 7)}]
    assert [state.fill(("a", 0)) for state in pool] == [2, 1, 2]
    assert [moment.time_ns for moment in pool.moments] == [100, 1100, 2100]  # when each plan was ready
    assert pool.own("a") == [2, 3, 3]


def test_a_table_is_there_while_its_last_step_runs_and_gone_at_its_end() -> None:
    pool = rebuild(sequence({"work": [enter("a", 5, 1, 2)], "freed": [("a", 0)]}), block_size=SIZE, total=9)
    assert [(m.time_ns, m.held, m.cached, m.planned) for m in pool.moments] == [(100, 2, 0, True), (1000, 0, 1, False)]
    assert pool.at(1).cached_free == {1}  # the second was not full
    assert pool.own("a") == [2, 0]


def test_a_block_in_two_tables_is_shared_and_counted_once() -> None:
    pool = rebuild(
        sequence(
            {"work": [enter("a", 9, 1, 2, 3)]},
            {"work": [more("a", 10), enter("b", 9, 1, 2, 4, cached=8)]},
            {"work": [more("b", 10)], "freed": [("a", 0)]},
        ),
        block_size=SIZE,
    )
    assert [(m.held, m.shared) for m in pool.moments] == [(3, 0), (4, 2), (3, 0)]
    assert (pool.own("a"), pool.own("b")) == ([3, 1, 0], [0, 1, 3])  # alone it owns the prefix
    assert pool.at(1).refs == {1: 2, 2: 2, 3: 1, 4: 1}
    assert pool.at(2).cached_free == set()  # what b still holds is not free


def test_samples_of_one_request_share_as_requests_do() -> None:
    pool = rebuild(sequence({"work": [enter("a", 5, 1, 2), enter("a", 5, 1, 3, cached=4, sample=1)]}), block_size=SIZE)
    assert (pool.moments[0].held, pool.moments[0].shared, pool.own("a")) == (3, 1, [2])
    assert pool.changes() == {0: [("a", 1), ("a", 1)]}


def test_an_entry_replaces_the_table() -> None:
    pool = rebuild(
        sequence(
            {"work": [enter("a", 8, 1, 2)]},
            {"preempted": [("a", 0)], "evicted": [2], "work": [enter("b", 4, 2)]},
            {"work": [more("b", 4), enter("a", 8, 1, 5, cached=4)]},
        ),
        block_size=SIZE,
    )
    assert tables(pool, 1) == {("b", 0): (2,)}
    assert pool.at(1).cached_free == {1}
    assert tables(pool, 2) == {("b", 0): (2,), ("a", 0): (1, 5)}
    assert pool.at(2).cached_free == set()


def test_without_prefix_caching_a_free_block_is_only_free() -> None:
    steps = sequence({"work": [enter("a", 8, 1, 2)], "freed": [("a", 0)]})
    assert rebuild(steps, block_size=SIZE, caching=False).moments[-1].cached == 0
    assert rebuild(steps, block_size=SIZE).moments[-1].cached == 2


def test_a_cache_that_was_reset_holds_nothing() -> None:
    steps = sequence(
        {"work": [enter("a", 8, 1, 2)], "freed": [("a", 0)]}, {"evicted": [1, 2], "work": [enter("b", 1, 3)]}
    )
    assert rebuild(steps, block_size=SIZE).moments[-1].cached == 0


def test_drafts_fill_no_block_that_is_found_again() -> None:
    drafted = more("a", 8, 2, draft_tokens=3, accepted_tokens=0)
    steps = sequence({"work": [enter("a", 4, 1)]}, {"work": [drafted], "freed": [("a", 0)]})
    pool = rebuild(steps, block_size=SIZE)
    assert pool.at(2).cached_free == {1}
    assert pool.at(1).tokens == {("a", 0): 8}


def test_what_an_aborted_request_held_is_given_back_when_it_ended() -> None:
    """The steps tell it with the next one, which may come much later, or never."""
    steps = sequence({"work": [enter("a", 5, 1, 2)]}, {"freed": [("a", 0)], "work": [enter("b", 1, 3)]})
    assert [(m.time_ns, m.held) for m in rebuild(steps, block_size=SIZE).moments] == [(100, 2), (1100, 1)]
    pool = rebuild(steps, block_size=SIZE, ended={"a": 1050, "never": 5})
    assert [(m.time_ns, m.held) for m in pool.moments] == [(100, 2), (1050, 0), (1100, 1)]
    assert pool.during(1) == 2


def test_a_step_that_was_in_flight_as_its_sample_ended_gives_no_block_back_to_it() -> None:
    """Two steps in flight: the second is planned before the first has ended."""
    first = make_step(enter("a", 4, 1), start=0, end=1000, index=0, freed=[("a", 0)], free=9)
    second = make_step(more("a", 5, 2), start=0, end=2000, index=1, free=9)  # planned at 200
    pool = rebuild([first, second], block_size=SIZE, total=9)
    assert [(m.time_ns, m.held, m.unknown) for m in pool.moments] == [(100, 1, None), (200, 2, None), (1000, 0, 0)]


def test_what_began_before_the_first_step_has_no_owner() -> None:
    steps = sequence(
        {"work": [more("a", 11), enter("b", 4, 9)], "free": 2},  # 7 of 9 in use, of which 3 are a's and 3 others'
        {"work": [more("a", 13, 5), more("b", 5, 6)], "free": 0},
        {"work": [more("a", 14)], "freed": [("a", 0)], "free": 4},
    )
    pool = rebuild(steps, block_size=SIZE, total=9)
    assert pool.begins_inside
    assert [m.unknown for m in pool.moments if m.used is not None] == [6, 6, 3]
    assert tables(pool, 1) == {("a", 0): (5,), ("b", 0): (9, 6)}
    assert pool.at(1).partial == {("a", 0)}
    assert pool.at(2).fill(("a", 0)) == 2
    assert pool.at(3).cached_free == set()  # its last block is the fourth of a table of 14 tokens, and not full


def test_without_the_facts_there_is_no_figure() -> None:
    pool = rebuild(sequence({"work": [make_work("a")]}), block_size=SIZE, total=9)
    assert pool.moments[0].used is None
    assert pool.moments[0].unknown is None
    assert len(rebuild([], block_size=SIZE)) == 0
    with pytest.raises(IndexError):
        rebuild([], block_size=SIZE).during(0)


def test_bytes_of_a_block_count_the_null_block() -> None:
    assert block_bytes(make_info()) == 100
    assert block_bytes(make_info(kv_bytes=None)) is None


def test_contiguous_reservations_are_whole_blocks_a_table() -> None:
    steps = sequence(
        {"work": [enter("a", 5, 1, 2), enter("a", 5, 1, 3, cached=4, sample=1)]},
        {"work": [enter("b", 5, 4, 5)], "freed": [("b", 0)]},
        {"work": [enter("neighbour", 1, 6)]},
    )
    records = [
        make_record(request_id="a", prompt_tokens=5, sampling={"max_tokens": 4}),
        make_record(request_id="b", prompt_tokens=5, sampling={"max_tokens": 500}),  # more than the context holds
    ]
    whole, asked = contiguous_blocks(rebuild(steps, block_size=SIZE), make_info(), records)
    assert whole == [2 * 8, 3 * 8, 2 * 8, 3 * 8]  # 30 tokens are 8 blocks
    assert asked == [2 * 3, 2 * 3 + 8, 2 * 3, None]


@dataclass
class Allocator:
    """Gives blocks out at random, remembers what it did and tells it in steps, as the engine does."""

    total: int = 24
    tables: dict[Owner, list[int]] = field(default_factory=dict)
    tokens: dict[Owner, int] = field(default_factory=dict)
    cached: set[int] = field(default_factory=set)  # free blocks with content
    freed: list[Owner] = field(default_factory=list)
    names: int = 0

    @property
    def held(self) -> set[int]:
        return {block for table in self.tables.values() for block in table}

    def take(self, count: int, evicted: list[int]) -> list[int] | None:
        free = [block for block in range(1, self.total + 1) if block not in self.held]
        free.sort(key=lambda block: block in self.cached)  # those without content first
        if count > len(free):
            return None
        evicted += [block for block in free[:count] if block in self.cached]
        self.cached -= set(free[:count])
        return free[:count]

    def release(self, owner: Owner) -> None:
        table = self.tables.pop(owner)
        full = self.tokens[owner] // SIZE
        self.cached |= set(table[:full]) - self.held


def play(draw: Any) -> tuple[list[StepRecord], list[tuple[dict[Owner, tuple[int, ...]], set[int]]]]:
    """Return steps, and the tables and cached blocks that there were while each ran."""
    pool = Allocator()
    steps, seen = [], []
    for place in range(draw(st.integers(1, 12))):
        evicted: list[int] = []
        preempted: list[Owner] = []
        for owner in [owner for owner in pool.tables if draw(st.integers(0, 9)) == 0]:  # aborted
            pool.release(owner)
            pool.freed.append(owner)
        for owner in [owner for owner in pool.tables if draw(st.integers(0, 9)) == 0]:
            pool.release(owner)
            preempted.append(owner)
        work = []
        for owner in list(pool.tables):
            grown = draw(st.integers(1, 5))
            needed = -(-(pool.tokens[owner] + grown) // SIZE) - len(pool.tables[owner])
            if (new := pool.take(needed, evicted)) is not None:
                pool.tokens[owner] += grown
                pool.tables[owner] += new
                work.append(more(owner[0], pool.tokens[owner], *new, sample=owner[1]))
        for _ in range(draw(st.integers(0, 2))):
            prefix: list[int] = []
            if pool.tables and draw(st.booleans()):
                other = draw(st.sampled_from(sorted(pool.tables)))
                prefix = pool.tables[other][: pool.tokens[other] // SIZE][: draw(st.integers(0, 3))]
            elif pool.cached and draw(st.booleans()):
                prefix = [draw(st.sampled_from(sorted(pool.cached)))]
            pool.cached -= set(prefix)
            tokens = len(prefix) * SIZE + draw(st.integers(1, 9))
            owner = (f"r{pool.names}", 0)
            pool.tables[owner] = list(prefix)
            if (new := pool.take(-(-tokens // SIZE) - len(prefix), evicted)) is None:
                pool.tokens[owner] = len(prefix) * SIZE
                pool.release(owner)
                continue
            pool.names += 1
            pool.tables[owner] += new
            pool.tokens[owner] = tokens
            work.append(
                make_work(owner[0], 1, kv_tokens=tokens, cached_tokens=4 * len(prefix), new_blocks=(*prefix, *new))
            )
        seen.append(({owner: tuple(table) for owner, table in pool.tables.items()}, set(pool.cached)))
        for owner in [owner for owner in pool.tables if draw(st.integers(0, 5)) == 0]:
            if any((item.request_id, item.sample) == owner for item in work):
                pool.release(owner)
                pool.freed.append(owner)
        steps.append(
            make_step(
                *work,
                start=1000 * place,
                end=1000 * place + 1000,
                index=place,
                freed=pool.freed,
                preempted=preempted,
                evicted=evicted,
                free=pool.total - len(pool.held),
            )
        )
        pool.freed = []
    return steps, seen


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_the_rebuilt_pool_is_the_one_that_was(data: st.DataObject) -> None:
    steps, seen = play(data.draw)
    pool = rebuild(steps, block_size=SIZE, total=24)
    for place, (held, cached) in enumerate(seen):
        state = pool.at(pool.during(place))
        assert state.tables == held
        assert state.cached_free == cached
    assert sum(moment.used is not None for moment in pool.moments) == len(steps)
    assert not any(moment.unknown for moment in pool.moments)
    for index, state in enumerate(pool):
        refs = state.refs
        assert state.moment.held == len(refs)
        assert state.moment.shared == sum(count > 1 for count in refs.values())
        assert state.moment.cached == len(state.cached_free)
        own = {name: pool.own(name)[index] for name in pool.requests}
        assert sum(own.values()) + state.moment.shared == state.moment.held
        assert pool.own(*own)[index] == sum(own.values())
        for owner, table in state.tables.items():
            assert own[owner[0]] == sum(refs[block] == 1 for block in table)
    for name in pool.requests:
        assert pool.most_own(name) == max(pool.own(name))
    assert pool.most_own("nobody") == 0


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_of_a_run_that_begins_inside_nothing_is_invented(data: st.DataObject) -> None:
    steps, seen = play(data.draw)
    cut = data.draw(st.integers(0, len(steps) - 1))
    pool = rebuild(steps[cut:], block_size=SIZE, total=24)
    for place, (held, _) in enumerate(seen[cut:]):
        for owner, table in pool.at(pool.during(place)).tables.items():
            assert owner in held
            assert held[owner][len(held[owner]) - len(table) :] == table  # the end of it, if not all
    assert all(moment.unknown is None or moment.unknown >= 0 for moment in pool.moments)


@pytest.mark.parametrize("in_flight", [1, 2])
def test_of_an_engine_the_rebuilt_pool_is_as_full_as_it_says(in_flight: int) -> None:
    """With two steps in flight, what is free at the end of one is so after the plan of the next."""
    measured = preemptions = 0
    for seed in range(40):
        random = Random(seed)
        lengths = [random.randint(1, 20) for _ in range(8)]
        script = Script(
            block_size=SIZE,
            blocks=12,
            token_budget=random.choice([8, 32]),
            in_flight=in_flight,
            answer=lambda prompt, lengths=lengths: ["w "] * lengths[len(prompt) % 8],  # type: ignore[misc]
        )
        engine, steps, names = ScriptedEngine(script, clock=VirtualClock()), list[StepRecord](), list[str]()
        for _ in range(120):
            if len(names) < 8 and random.random() < 0.3:
                names.append(f"r{len(names)}")
                engine.add(make_request(names[-1], prompt=random.randint(1, 20), samples=random.randint(1, 2)))
            if names and random.random() < 0.03:
                engine.abort([random.choice(names)])
            if engine.has_unfinished():
                steps += engine.step().steps
        pool = rebuild(steps, block_size=SIZE, total=12)
        assert not any(moment.unknown for moment in pool.moments)
        measured += sum(moment.used is not None for moment in pool.moments)
        preemptions += sum(len(step.preempted) for step in steps)
    assert measured > 500
    assert preemptions > 50
