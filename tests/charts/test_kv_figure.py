"""The chart of the KV pool against steps of which every block is known."""

from __future__ import annotations

import json
import re
import tracemalloc
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from builders import make_record, make_sample, make_step, make_work

from jupyter_infer.charts import PLOTLY_MIME
from jupyter_infer.charts._kv_bands import POINTS, usage_of
from jupyter_infer.charts._lanes import clock_of
from jupyter_infer.charts.kv import kv_chart
from jupyter_infer.records import EngineInfo, RequestRecord, StepRecord
from jupyter_infer.run import Machine, Run, RunHeader

from .figures import names, numbers, strings, trace

SIZE = 4
MIB = 2**20
EVIL = "<img src=x onerror=1> $5 $6 &amp;\n\u202eשלום 🙂 " + "x" * 100_000


def make_info(**facts: Any) -> EngineInfo:
    values: dict[str, Any] = {
        "model": "m",
        "engine": "vllm 0",
        "device": "cpu",
        "dtype": "bfloat16",
        "block_size": SIZE,
        "kv_blocks_total": 15,
        "kv_bytes": 16 * MIB,  # a MiB a block, with the null block
        "weight_bytes": None,
        "max_model_len": 400,
        "max_num_batched_tokens": 64,
        "max_num_seqs": 8,
        "threads": None,
    }
    return EngineInfo(**(values | facts))


def make_run(steps: list[StepRecord], *requests: RequestRecord, machine: Machine | None = None, **facts: Any) -> Run:
    header = RunHeader("2026-12-01T00:00:00+00:00", make_info(**facts), None, machine=machine)
    return Run(header, requests, tuple(steps))


def ask(name: str = "a", label: str = "Why?", *, arrival: int = 0, end: int = 3000, step: int = 0) -> RequestRecord:
    """Return a request that got four tokens in a step of 1,000 ns and began in it."""
    sample = make_sample([end] * 4, request_id=name)
    events = tuple(msgspec.structs.replace(event, step=step) for event in sample.events)
    return make_record(
        replace(sample, events=events),
        request_id=name,
        label=label,
        arrival_ns=arrival,
        started_ns=1000 * step + 100,
        finished_ns=end,
        prompt_tokens=9,
        sampling={"max_tokens": 7},
    )


def two_of_one_prefix() -> Run:
    """Two requests that share two blocks; the first ends a step before the second."""
    steps = [
        make_step(
            make_work("a", 9, cached_tokens=0, new_blocks=(1, 2, 3)),
            make_work("b", 1, kv_tokens=9, cached_tokens=8, new_blocks=(1, 2, 4)),
            start=0,
            end=1000,
            free=11,
        ),
        make_step(
            make_work("a", kv_tokens=10),
            make_work("b", kv_tokens=10),
            start=1000,
            end=2000,
            index=1,
            freed=[("a", 0)],
            free=12,
        ),
        make_step(
            make_work("b", kv_tokens=13, new_blocks=(5,)), start=2000, end=3000, index=2, freed=[("b", 0)], free=15
        ),
    ]
    return make_run(steps, ask("a", end=2000), ask("b"))


def pressed(machine: Machine | None = None) -> Run:
    """A pool of four blocks, in which the second request is preempted."""
    steps = [
        make_step(make_work("a", 8, cached_tokens=0, new_blocks=(1, 2)),
                  make_work("b", 8, cached_tokens=0, new_blocks=(3, 4)), start=0, end=1000, free=0),
        make_step(make_work("a", kv_tokens=9, new_blocks=(4,)), start=1000, end=2000, index=1, preempted=[("b", 0)],
                  evicted=[4], free=4, freed=[("a", 0)]),
        make_step(make_work("b", 9, cached_tokens=4, kv_tokens=9, new_blocks=(3, 1, 2)), start=2000, end=3000, index=2,
                  evicted=[1, 2], free=4, freed=[("b", 0)]),
    ]  # fmt: skip
    return make_run(steps, ask("a", end=2000), ask("b"), machine=machine, kv_blocks_total=4, kv_bytes=5 * MIB)


def unmeasured(run: Run) -> list[StepRecord]:
    """Return its steps, for pools of another size."""
    return [replace(step, kv_blocks_free=None) for step in run.steps]


def sent(run: Run, **options: Any) -> dict[str, Any]:
    made = kv_chart(run, **options)._repr_mimebundle_()[PLOTLY_MIME]
    figure: dict[str, Any] = json.loads(json.dumps(made, allow_nan=False))
    return figure


def caption(figure: dict[str, Any]) -> str:
    return (
        " ".join(note["text"] for note in figure["layout"]["annotations"]).replace("<br>", " ").replace("\u00a0", " ")
    )


def test_areas_are_the_blocks_of_each_owner_and_shared_ones_are_counted_once() -> None:
    figure = sent(two_of_one_prefix())
    # plan, plan, end of a, plan, end of b, end of the run
    assert numbers(trace(figure, "shared")["y"]) == [2, 2, 0, 0, 0, 0]
    assert numbers(trace(figure, "1 ·")["y"]) == [1, 1, 0, 0, 0, 0]
    assert numbers(trace(figure, "2 ·")["y"]) == [1, 1, 3, 4, 0, 0]
    assert numbers(trace(figure, "cached")["y"]) == [0, 0, 0, 0, 3, 3]  # of 13 tokens, three blocks are full
    outline = figure["data"][-2]
    assert numbers(outline["y"]) == [4, 4, 3, 4, 0, 0]
    assert [round(1e6 * x) for x in numbers(outline["x"]) if x is not None] == [100, 1100, 2000, 2100, 3000, 3000]
    assert names(figure)[:4] == ["shared prefix", "1 · Why?", "2 · Why?", "cached, free"]  # from the lowest up


def test_the_right_axis_is_mib() -> None:
    layout = sent(two_of_one_prefix())["layout"]
    assert layout["yaxis2"]["title"]["text"] == "MiB"
    assert layout["yaxis2"]["range"] == layout["yaxis"]["range"]  # a MiB a block
    assert "yaxis2" not in sent(make_run(list(two_of_one_prefix().steps), ask(), kv_bytes=None))["layout"]


def test_the_sentence_reads_the_fullest_moment() -> None:
    assert kv_chart(two_of_one_prefix()).reading == (
        "At most 4 of 15 blocks (27 %) were held; 2 of them were one prefix shared by 2 requests; contiguous "
        "reservation of the context would have held 200."
    )


def test_reservations_are_lines_or_words() -> None:
    figure = sent(two_of_one_prefix())
    # 9 prompt tokens and 7 more are 4 blocks a request; 400 tokens are 100.
    assert numbers(trace(figure, "contiguous: prompt")["y"]) == [8, 8, 4, 4, 0, 0]
    above = [note["text"] for note in figure["layout"]["annotations"] if note["text"].startswith("above")]
    assert above == ["above this axis: contiguous: whole context 200"]
    assert "contiguous: whole context" not in names(figure)
    short = sent(
        replace(two_of_one_prefix(), header=replace(two_of_one_prefix().header, engine=make_info(max_model_len=20)))
    )
    assert numbers(trace(short, "contiguous: whole")["y"]) == [10, 10, 5, 5, 0, 0]


def test_a_pool_far_above_is_said_and_not_drawn() -> None:
    figure = sent(make_run(unmeasured(two_of_one_prefix()), ask(), kv_blocks_total=1000))
    assert figure["layout"]["yaxis"]["range"][1] < 20
    assert any("the pool's 1,000 blocks" in note["text"] for note in figure["layout"]["annotations"])
    assert not figure["layout"].get("shapes")
    near = sent(two_of_one_prefix())["layout"]
    assert near["shapes"][0]["y0"] == 15 < near["yaxis"]["range"][1]


def test_preemptions_and_evictions_are_marked_and_told() -> None:
    figure = sent(pressed())
    assert [round(1e6 * x) for x in numbers(trace(figure, "preemption")["x"]) if x is not None] == [1100]
    assert [round(1e6 * x) for x in numbers(trace(figure, "eviction")["x"]) if x is not None] == [1100, 2100]
    hover = " ".join(strings(figure["data"]))
    assert "preempted: b; evicted: 1 cached blocks" in hover


def test_preemptions_advise_a_pool_that_holds_all_at_once() -> None:
    chart = kv_chart(pressed())
    # 9 + 4 tokens are 4 blocks; of two requests 8, and the null block.
    assert chart.advice == (
        f"%infer load --kv-cache-memory-bytes {9 * MIB} (8 blocks) holds 2 requests of this length at once, without "
        "preemptions."
    )
    assert "1 request lost its blocks in 1 preemption; " in chart.reading
    assert kv_chart(pressed(Machine("Linux", None, 2, 16 * MIB))).advice is None  # more than the machine can give
    assert kv_chart(two_of_one_prefix()).advice is None


def test_evictions_alone_advise_a_pool_that_keeps_what_was_given_up() -> None:
    first, second, third = pressed().steps
    steps = [first, replace(second, preempted=(), freed=(("a", 0), ("b", 0))), third]
    advice = kv_chart(make_run(steps, ask("a"), kv_blocks_total=4, kv_bytes=5 * MIB)).advice
    assert advice == (
        f"%infer load --kv-cache-memory-bytes {8 * MIB} (7 blocks) also keeps the 3 cached blocks that were given up "
        "for new ones."
    )


def test_a_nearly_empty_pool_is_too_large_where_it_takes_much_of_the_machine() -> None:
    steps = unmeasured(two_of_one_prefix())
    facts: dict[str, Any] = {"kv_blocks_total": 99, "kv_bytes": 100 * MIB}
    tight = make_run(steps, ask("a"), ask("b"), machine=Machine("Linux", None, 2, 1000 * MIB), **facts)
    assert kv_chart(tight).advice == (
        f"%infer load --kv-cache-memory-bytes {9 * MIB} is twice what this run filled and leaves 91 MiB to others, "
        "with a context of 32 tokens."
    )
    roomy = make_run(steps, ask("a"), ask("b"), machine=Machine("Linux", None, 2, 10_000 * MIB), **facts)
    assert kv_chart(roomy).advice is None


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"steps": ()}, "No step of this run is remembered, so nothing is known of its KV blocks."),
        ({"header": RunHeader("now", None, None)}, "The engine of this run is not recorded, so nothing is known"),
        ({"steps": (make_step(make_work("a")),)}, "The steps of this run tell nothing of KV blocks."),
        ({"requests": ()}, "At most 4 of 15 blocks (27 %) were held"),
    ],
)
def test_what_is_not_known_is_said_and_is_no_zero(change: dict[str, Any], says: str) -> None:
    chart = kv_chart(replace(two_of_one_prefix(), **change))
    assert chart.reading.startswith(says)
    figure = sent(replace(two_of_one_prefix(), **change))
    assert bool(figure["data"]) == says.startswith("At most")
    if not figure["data"]:
        assert any(note["text"] == "n/a" for note in figure["layout"]["annotations"])


def test_blocks_without_an_owner_stay_without_one() -> None:
    run = two_of_one_prefix()
    cut = replace(run, steps=run.steps[1:])
    figure = sent(cut)
    assert numbers(trace(figure, "in use, owner")["y"]) == [3, 3, 3, 0, 0]  # 15 − 12 when first measured
    assert numbers(trace(figure, "2 ·")["y"]) == [0, 0, 1, 0, 0]
    assert "of 3 the owner is not recorded" in kv_chart(cut).reading
    only_free = make_run([make_step(make_work("a"), start=0, end=1000, free=5)], ask("a"))
    assert kv_chart(only_free).reading == (
        "At most 10 of 15 blocks (67 %) were in use; whose they were is not recorded."
    )


def forgotten(run: Run) -> Run:
    """Return the run as a ring of steps leaves it: the first is gone."""
    return replace(run, steps=run.steps[1:])


def cut_off(run: Run) -> Run:
    """Return the run as a file that was cut leaves it: the last step is gone."""
    last = run.requests[-1].samples[0]
    events = tuple(msgspec.structs.replace(event, step=2) for event in last.events)
    late = replace(run.requests[-1], samples=(replace(last, events=events),))
    return replace(run, requests=(*run.requests[:-1], late), steps=run.steps[:-1])


def test_what_is_true_of_some_steps_is_said_of_them_alone() -> None:
    whole = kv_chart(pressed())
    assert whole.reading.startswith("At most 4 of 4 blocks (100 %) were held; ")
    assert whole.advice is not None
    assert whole.table.head[1] == "at most"
    for run, share in ((forgotten(pressed()), "3 of 4 blocks (75 %)"), (cut_off(pressed()), "4 of 4 blocks (100 %)")):
        chart = kv_chart(run)
        assert chart.reading.startswith(f"Of the 2 steps that are remembered: at most {share} were held; ")
        assert chart.advice is None
        assert chart.table.head[1] == "at most, of 2 steps remembered"
        assert "not all steps of this run are remembered" in caption(sent(run))
    assert "remembered" not in caption(sent(pressed()))
    one = replace(pressed(), steps=pressed().steps[2:])
    assert kv_chart(one).reading.startswith("Of the one step that is remembered: at most 3 of 4 blocks")


def test_a_smaller_pool_is_not_advised_from_some_steps() -> None:
    facts: dict[str, Any] = {"kv_blocks_total": 99, "kv_bytes": 100 * MIB}
    run = make_run(unmeasured(two_of_one_prefix()), ask("a"), ask("b"), **facts)
    run = replace(run, header=replace(run.header, machine=Machine("Linux", None, 2, 1000 * MIB)))
    assert kv_chart(run).advice is not None
    assert kv_chart(forgotten(run)).advice is None


def test_where_no_step_is_remembered_nothing_is_drawn() -> None:
    def blanks(run: Run) -> list[list[int]]:
        shapes = sent(run)["layout"].get("shapes") or []
        return [[round(1e6 * shape[end]) for end in ("x0", "x1")] for shape in shapes if shape["type"] == "rect"]

    run = two_of_one_prefix()
    assert blanks(run) == []
    assert blanks(forgotten(run)) == [[0, 1100], [3000, 3000]]
    assert blanks(cut_off(run)) == [[0, 100], [2000, 3000]]
    outline = sent(cut_off(run))["data"][-2]
    assert [round(1e6 * x) for x in numbers(outline["x"]) if x is not None] == [100, 1100, 2000, 2000]
    assert numbers(outline["y"]) == [4, 4, 3, 3]  # what b holds it holds still, for all that is known


def test_a_replay_has_the_cache_of_what_it_plays_again() -> None:
    run = two_of_one_prefix()
    again = replace(run, header=replace(run.header, engine=make_info(engine="replay of vllm 0")))
    assert numbers(trace(sent(again), "cached")["y"]) == [0, 0, 0, 0, 3, 3]
    scripted = replace(run, header=replace(run.header, engine=make_info(engine="replay of scripted")))
    assert "cached, free" not in names(sent(scripted))


@pytest.mark.parametrize(("seconds", "words"), [(0.9, "ms"), (400, "seconds"), (700, "minutes")])
def test_the_axis_of_time_is_that_of_other_charts(seconds: float, words: str) -> None:
    end = round(seconds * 1e9)
    run = make_run([make_step(make_work("a", 9, cached_tokens=0, new_blocks=(1, 2, 3)), end=end)], ask(end=end))
    axis = sent(run)["layout"]["xaxis"]
    assert axis["title"]["text"] == f"{words} from the first arrival"
    assert axis["title"]["text"] == clock_of(run).axis()["title"]["text"]


def test_many_requests_over_many_steps_need_little_memory() -> None:
    count, each = 400, 5  # requests, steps of one
    steps = []
    for place in range(count * each):
        name, own = f"r{place // each}", place % each
        work = make_work(
            name, 4, kv_tokens=4 * (own + 1), cached_tokens=None if own else 0, new_blocks=(place % 99 + 1,)
        )
        freed = [(name, 0)] if own == each - 1 else []
        steps.append(make_step(work, start=1000 * place, end=1000 * place + 1000, index=place, freed=freed))
    asked = [ask(f"r{n}", step=each * n, end=1000 * each * (n + 1)) for n in range(count)]
    run = make_run(steps, *asked, kv_blocks_total=99)
    tracemalloc.start()
    try:
        usage = usage_of(run)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert usage is not None
    assert usage.level[usage.fullest] == each
    assert peak < 3 * MIB  # a list of all moments a request would be 7


def test_neighbours_are_apart_from_the_run() -> None:
    run = two_of_one_prefix()
    figure = sent(replace(run, requests=run.requests[1:]))
    assert numbers(trace(figure, "not in this run")["y"])[:2] == [1, 1]
    assert numbers(trace(figure, "1 ·")["y"])[:4] == [1, 1, 3, 4]


@pytest.mark.parametrize("count", [1, 8, 9, 40, 500])
def test_many_requests_are_few_areas_that_sum_to_all(count: int) -> None:
    steps, total = [], 0
    for place in range(count):
        blocks = tuple(range(total + 1, total + 3 + place % 3))
        total += len(blocks)
        steps.append(make_step(make_work(f"r{place}", 4 * len(blocks), cached_tokens=0, new_blocks=blocks),
                               start=place * 1000, end=place * 1000 + 1000, index=place))  # fmt: skip
    asked = [ask(f"r{place}", end=count * 1000, step=place) for place in range(count)]
    run = make_run(steps, *asked, kv_blocks_total=2000)
    figure = sent(run)
    stacked = [t for t in figure["data"] if "stackgroup" in t]
    assert len(stacked) <= 10
    held = [t for t in stacked if t["name"] != "cached, free"]
    outline = next(t for t in figure["data"] if t.get("name") == "")
    sums = [sum(value or 0 for value in column) for column in zip(*(numbers(t["y"]) for t in held), strict=True)]
    assert sums == numbers(outline["y"])[: len(sums)]
    assert max(sums) == total
    assert len(sums) <= POINTS + 1
    assert len(json.dumps(figure)) < 120_000


def test_of_too_many_moments_the_fullest_is_drawn() -> None:
    steps = [make_step(make_work("a", 4, cached_tokens=0, new_blocks=(1,)), start=0, end=10)]
    steps += [
        make_step(make_work(f"x{place}", 4, cached_tokens=0, new_blocks=(2, 3, 4) if place == 777 else (2,)),
                  start=10 * place, end=10 * place + 10, index=place, freed=[(f"x{place}", 0)])
        for place in range(1, 1500)
    ]  # fmt: skip
    run = make_run(steps, ask("a", end=15_000))
    outline = next(t for t in sent(run)["data"] if t.get("name") == "")
    levels = numbers(outline["y"])
    assert len(levels) <= POINTS + 1
    assert max(level or 0 for level in levels) == 4
    assert "At most 4 of" in kv_chart(run).reading


def test_text_is_data() -> None:
    run = two_of_one_prefix()
    requests = tuple(replace(record, label=EVIL) for record in run.requests)
    chart = kv_chart(replace(run, requests=requests), title=EVIL[:200])
    made = chart._repr_mimebundle_()
    for text in strings(made[PLOTLY_MIME]["data"]) + strings(made[PLOTLY_MIME]["layout"]):
        assert "<img" not in text
        assert "$" not in re.sub(r"&#36;", "", text)
    assert "<img" not in made["text/html"]
    assert len(json.dumps(made)) < 60_000


def test_a_prompt_is_no_template() -> None:
    run = two_of_one_prefix()
    requests = tuple(replace(record, label="%{x} %{y:,d} 9 %") for record in run.requests)
    figure = sent(replace(run, requests=requests))
    (template,) = (t["hovertemplate"] for t in figure["data"] if "hovertemplate" in t)
    assert re.findall(r"%\{[^}]*\}", template) == [
        "%{x:.4~g}", "%{y}", *(f"%{{customdata[{column}]}}" for column in range(6)), "%{customdata[6]:,d}",
        "%{customdata[7]}", "%{customdata[8]}",
    ]  # fmt: skip
    assert "1 · &#37;{x} &#37;{y:,d} 9 &#37;: %{customdata" in template
    assert trace(figure, "1 ·")["name"] == "1 · %{x} %{y:,d} 9 %"  # a name is no template


def test_equal_labels_keep_an_area_each() -> None:
    figure = sent(two_of_one_prefix())
    assert len([name for name in names(figure) if name.endswith("Why?")]) == 2


def test_the_table_holds_the_numbers_that_matter() -> None:
    table = kv_chart(two_of_one_prefix()).table
    rows = {row[0]: list(row[1:]) for row in table.rows}
    assert rows["pool"] == ["15", "15", "100 %"]
    assert rows["in use"] == ["4", "4", "27 %"]
    assert rows["shared prefix"] == ["2", "2", "13 %"]
    assert rows["contiguous: whole context"] == ["200", "200", "1333 %"]
    assert rows["contiguous: limit"][0] == "8"
