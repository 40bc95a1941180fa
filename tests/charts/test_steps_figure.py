"""The steps chart: what each step computed of which request, against the budget and the pool."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from jupyter_infer.charts.bundle import PLOTLY_MIME
from jupyter_infer.charts.kv import kv_chart
from jupyter_infer.charts.steps import steps_chart
from jupyter_infer.charts.tokens import tokens_chart
from jupyter_infer.errors import ConfigError
from jupyter_infer.metrics import itl_ns
from jupyter_infer.records import Limits, SampleRecord, StepWork
from jupyter_infer.run import Machine, Run, RunHeader

from .figures import names, numbers, strings
from .stepped import MS, START, TIMES, Asked, crowd, engine, moved, play, with_steps

EVIL = "<img src=x onerror=1>"


def drawn(run: Run, **options: Any) -> dict[str, Any]:
    """Return the Plotly JSON as it is sent, through strict JSON."""
    made = steps_chart(run, **options)._repr_mimebundle_()[PLOTLY_MIME]
    sent: dict[str, Any] = json.loads(json.dumps(made, allow_nan=False))
    return sent


def trace(figure: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the trace of that name, or of the one that begins with it."""
    exact = [one for one in figure["data"] if one.get("name") == name]
    (found,) = exact or [one for one in figure["data"] if one.get("name", "").startswith(name)]
    return dict(found)


def bars(figure: dict[str, Any], name: str) -> list[tuple[float, float, float]]:
    """Return lane, beginning and length of the bars of a kind, rounded to microseconds."""
    one = trace(figure, name)
    columns = (numbers(one["y"]), numbers(one["base"]), numbers(one["x"]))
    return [tuple(round(value or 0, 3) for value in bar) for bar in zip(*columns, strict=True)]  # type: ignore[misc]


def chunked(**facts: Any) -> Run:
    """Two requests decode, then a prompt of 250 tokens comes and is computed in chunks under a budget of 100."""
    long = Asked("r9", prompt=250, tokens=3, arrival=50)
    run = play([Asked("r0", prompt=10, tokens=12), Asked("r1", prompt=10, tokens=12), long], budget=100, seats=4)
    return replace(run, header=replace(run.header, engine=engine(max_num_batched_tokens=100, max_num_seqs=4, **facts)))


def preempted() -> Run:
    """Two requests; the second one is preempted from step 4 to step 6, which computes 12 tokens again."""
    run = crowd(2, 10)
    lost = StepWork("r1", 0, 12, 0, 11, 1, 0, 0, 1, 12, 0)
    first = tuple(step.work[:1] for step in run.steps)
    events = tuple(event for event in run.requests[1].samples[0].events if event.step not in (4, 5))
    second = replace(run.requests[1], samples=(SampleRecord(0, events, "length"),), preemptions=1)
    return with_steps(
        replace(run, requests=(run.requests[0], second)),
        s4={"work": first[4], "preempted": (("r1", 0),), "running": 1, "waiting": 1},
        s5={"work": first[5], "running": 1, "waiting": 1},
        s6={"work": (*first[6], lost)},
    )


def test_chunks_and_decode_lie_where_their_steps_were() -> None:
    run = chunked()
    figure = drawn(run)
    wanted = [
        (lane, round((step.start_ns - START) / MS, 3), round(step.duration_ns / MS, 3))
        for lane, name in ((1, "r0"), (2, "r1"), (3, "r9"))
        for step in run.steps
        if any(work.request_id == name and work.prefill_tokens for work in step.work)
    ]
    assert sorted(bars(figure, "prefill")) == sorted(wanted)
    chunks = trace(figure, "prefill")
    assert next(text for text in chunks["hovertext"] if "r9" in text).startswith(
        "<b>r9</b> prefill, step 5, 98 tokens<br>"
    )
    ends = {step.index: step.end_ns for step in run.steps}
    lane, begun, length = next(bar for bar in bars(figure, "decode") if bar[0] == 1)
    first = next(step for step in run.steps if step.index == 1)
    assert (begun, length) == (
        pytest.approx((first.start_ns - START) / MS),
        pytest.approx((ends[11] - first.start_ns) / MS, abs=1e-3),
    )
    told = trace(figure, "decode")["hovertext"]
    assert any("decode, steps 1–11, 11 tokens" in text for text in told)
    assert lane == 1


def test_the_wait_for_the_first_step_is_drawn() -> None:
    run = chunked()
    record = run.requests[2]
    assert record.started_ns is not None
    queued = (3, 50.0, round((record.started_ns - record.arrival_ns) / MS, 3))
    assert bars(drawn(run), "queued") == [queued]


def test_a_pause_divides_a_bar() -> None:
    run = crowd(1, 6)
    later = [
        replace(step, **{name: getattr(step, name) + (40 * MS if step.index >= 3 else 0) for name in TIMES})
        for step in run.steps
    ]
    decode = bars(drawn(replace(run, steps=tuple(later))), "decode")
    assert len(decode) == 2
    assert decode[1][1] - (decode[0][1] + decode[0][2]) == pytest.approx(40, abs=0.01)


def test_preempted_and_recomputing_time_is_drawn_apart() -> None:
    run = preempted()
    figure = drawn(run)
    steps = {step.index: step for step in run.steps}
    begun, ended = steps[4].start_ns, steps[6].start_ns
    assert bars(figure, "preempted") == [(2, round((begun - START) / MS, 3), round((ended - begun) / MS, 3))]
    ((lane, at, length),) = bars(figure, "lost KV computed again")
    assert (lane, at) == (2, round((ended - START) / MS, 3))
    assert length == pytest.approx(steps[6].duration_ns / MS, abs=1e-3)
    chart = steps_chart(run)
    assert "1 was preempted" in chart.reading
    # 20 + 10 tokens are 2 blocks of 16: a pool of 1,000 holds both.
    assert chart.advice is None
    few = replace(run, header=replace(run.header, engine=engine(kv_blocks_total=3, kv_bytes=4 << 20)))
    assert steps_chart(few).advice == (
        "%infer load --kv-cache-memory-bytes 5242880 (4 blocks) holds 2 requests of this length at once, without "
        "preemptions."
    )
    small = replace(few, header=replace(few.header, machine=Machine("Linux", None, 2, 10 << 20)))
    assert steps_chart(small).advice is not None
    small = replace(few, header=replace(few.header, machine=Machine("Linux", None, 2, 9 << 20)))
    assert steps_chart(small).advice is None  # more than the machine can give
    beside = replace(few, requests=few.requests[1:])  # the other one held 2 blocks at most
    assert "(4 blocks) holds 1 request of" in (steps_chart(beside).advice or "")


def test_drafts_are_as_high_as_they_were_accepted() -> None:
    run = crowd(1, 4)
    work = [StepWork("r0", 0, 5, 0, 0, 1, 4, accepted, accepted + 1, 30, None) for accepted in (3, 1)]
    drafting = with_steps(run, s1={"work": work[:1]}, s2={"work": work[1:]})
    figure = drawn(drafting)
    accepted, rejected = trace(figure, "drafts accepted"), trace(figure, "drafts rejected")
    heights = [numbers(one["width"])[0] or 0 for one in (accepted, rejected)]
    assert heights[0] == pytest.approx(heights[1])  # 4 of 8
    assert "4 of 8 drafts accepted (50 %)" in accepted["hovertext"][0]
    assert (numbers(accepted["y"])[0] or 0) > 1 > (numbers(rejected["y"])[0] or 0)
    assert "4 of 8 drafts were accepted" in steps_chart(drafting).reading


def test_tokens_of_each_step_stand_against_the_budget() -> None:
    run = chunked()
    figure = drawn(run)
    points = trace(figure, "step")
    assert numbers(points["y"]) == [step.tokens for step in run.steps]
    tops = trace(figure, "prefill tokens")
    assert max(value or 0 for value in numbers(tops["y"])) == 100
    assert max(value or 0 for value in numbers(trace(figure, "decode tokens")["y"])) == 3
    (line, *_) = figure["layout"]["shapes"]
    assert (line["y0"], line["y1"], line["yref"]) == (100, 100, "y2")
    assert "2 running, 0 waiting" in points["hovertext"][1]


def test_a_budget_out_of_sight_is_told_and_not_drawn() -> None:
    figure = drawn(crowd(2, 5))
    assert figure["layout"].get("shapes", []) == []
    assert "tokens of each step (budget 512, above what is drawn)" in " ".join(strings(figure["layout"]["annotations"]))


def test_a_budget_that_was_changed_live_is_drawn_where_it_held() -> None:
    run = chunked()
    live = {f"s{step.index}": {"limits": Limits(4, 60)} for step in run.steps if step.index >= 8}
    changed = with_steps(run, **live)
    figure = drawn(changed)
    line = trace(figure, "budget")
    assert (line["line"]["shape"], line["yaxis"]) == ("hv", "y2")
    assert numbers(line["y"]) == [100, 60, 60]
    begun = [(run.steps[index].start_ns - START) / MS for index in (0, 8, len(run.steps) - 1)]
    assert numbers(line["x"]) == pytest.approx(begun, rel=1e-6)
    assert figure["layout"].get("shapes", []) == []
    assert "tokens of each step (budget dashed)" in " ".join(strings(figure["layout"]["annotations"]))
    assert "the budget of 100 → 60 tokens was reached in 2 steps" in steps_chart(changed).reading
    assert "budget" not in names(drawn(run))


def test_a_budget_that_left_some_of_the_batch_out_is_said() -> None:
    run = crowd(4, 6)
    live = {f"s{i}": {"limits": Limits(64, 2), "work": run.steps[i].work[:2]} for i in (2, 3)}
    reading = steps_chart(with_steps(run, **live)).reading
    assert "the budget of 512 → 2 → 512 tokens was reached in 2 steps" in reading
    assert reading.endswith("all 4 requests ran at once; the budget left up to 2 of them out of a step.")
    many = {f"s{i}": {"limits": Limits(64, 100 + i)} for i in range(6)}
    assert "of the 100 to 105 tokens of the budget" in steps_chart(with_steps(run, **many)).reading


def test_limits_that_were_changed_live_count_where_they_held_and_get_no_advice_on_a_load() -> None:
    run = crowd(8, 6, seats=2)
    assert "--max-num-seqs" in (steps_chart(run).advice or "")
    live = {f"s{step.index}": {"limits": Limits(2, 512)} for step in run.steps}
    held = with_steps(replace(run, header=replace(run.header, engine=engine())), **live)
    chart = steps_chart(held)
    assert chart.reading.endswith("at most 2 of 8 requests ran at once and up to 6 waited for a place.")
    assert chart.advice is None


def test_blocks_in_use_are_the_pool_without_the_free_ones() -> None:
    run = with_steps(crowd(1, 6), s0={"kv_blocks_free": 990}, s1={"kv_blocks_free": None}, s2={"kv_blocks_free": 400})
    used = numbers(trace(drawn(run), "blocks in use")["y"])
    assert used[:3] == [10, 600, 2]
    without = [replace(step, kv_blocks_free=None) for step in run.steps]
    figure = drawn(replace(run, steps=tuple(without)))
    assert "blocks in use" not in names(figure)
    assert "pool: n/a" in " ".join(strings(figure["layout"]))


def test_an_unknown_engine_has_no_budget_and_no_pool() -> None:
    run = chunked()
    bare = replace(run, header=replace(run.header, engine=None))
    figure = drawn(bare)
    assert "blocks in use" not in names(figure)
    assert figure["layout"].get("shapes", []) == []
    assert "the largest computed 100 tokens" in steps_chart(bare).reading
    assert steps_chart(bare).advice is None


def test_a_victim_has_its_itl_below_and_the_steps_with_others_prompts_marked() -> None:
    run = chunked()
    figure = drawn(run, victim="r0")
    beside, alone = trace(figure, "ITL beside"), trace(figure, "ITL")
    assert sorted(value or 0 for value in numbers(beside["y"]) + numbers(alone["y"])) == pytest.approx(
        sorted(itl / MS for itl in itl_ns(run.requests[0]))
    )
    mixed = [step for step in run.steps if any(work.request_id == "r9" and work.prefill_tokens for work in step.work)]
    assert numbers(beside["x"]) == pytest.approx([(step.end_ns - START) / MS for step in mixed], rel=1e-6)
    assert beside["yaxis"] == "y4"
    assert figure["layout"]["xaxis"]["anchor"] == "y4"


def test_an_unknown_victim_is_the_users_to_mend() -> None:
    with pytest.raises(ConfigError, match=r"no request 'r8' in this run; did you mean 'r9'"):
        steps_chart(chunked(), victim="r8")
    with pytest.raises(ConfigError, match=r"no request 'zzz' in this run; there is: r0, r1, r9"):
        steps_chart(chunked(), victim="zzz")


def test_neighbours_are_one_lane() -> None:
    run = chunked()
    alone = replace(run, requests=run.requests[:1])
    figure = drawn(alone)
    assert figure["layout"]["yaxis"]["ticktext"][-1] == "others"
    assert {lane for lane, *_ in bars(figure, "prefill")} == {1, 2}
    assert any("<b>others</b>" in text for text in trace(figure, "prefill")["hovertext"])


def test_forgotten_steps_are_drawn_from_the_records_and_said() -> None:
    run = chunked()
    figure = drawn(replace(run, steps=run.steps[4:]))
    lane, begun, length = next(bar for bar in bars(figure, "from the record") if bar[0] == 1)
    started = run.requests[0].started_ns
    assert started is not None
    assert (lane, begun) == (1, round((started - START) / MS, 3))
    whole = [bar for bar in bars(figure, "from the record") if bar[0] == 1]
    assert sum(bar[2] for bar in whole) == pytest.approx((run.steps[4].start_ns - started) / MS, abs=0.01)
    assert length <= sum(bar[2] for bar in whole)
    assert "some steps are no longer remembered" in " ".join(strings(figure["layout"]))
    none = replace(run, steps=())
    assert "no step is remembered" in " ".join(strings(drawn(none)["layout"]))
    assert steps_chart(none).reading == "No step of 3 requests is remembered."
    assert {row[2] for row in steps_chart(none).table.rows} == {"n/a"}


def test_a_request_aborted_in_the_queue_waits_to_its_end() -> None:
    run = crowd(2, 5)
    waiting = replace(
        run.requests[1],
        request_id="q",
        samples=(SampleRecord(0, (), "abort"),),
        started_ns=None,
        first_token_ns=None,
        last_token_ns=None,
        finished_ns=START + 30 * MS,
    )
    figure = drawn(replace(run, requests=(run.requests[0], waiting)))
    assert bars(figure, "queued") == [(2, 0, 30)]
    assert numbers(trace(figure, "aborted")["x"]) == [30]


def test_the_sentence_reads_the_budget_and_who_ran() -> None:
    assert steps_chart(chunked()).reading == (
        "12 steps in 149 ms; the budget of 100 tokens was reached in 2 steps, all of them with r9's prompt; "
        "all 3 requests ran at once and none waited."
    )
    assert steps_chart(crowd(1, 5)).reading == (
        "5 steps in 52.4 ms; the largest computed 20 of the 512 tokens of the budget."
    )


def test_what_was_waited_for_is_said_where_it_is_known() -> None:
    seats = steps_chart(crowd(8, 6, seats=2)).reading
    assert seats.endswith("at most 2 of 8 requests ran at once and up to 6 waited for a place.")
    room = crowd(40, 4, budget=64)
    assert steps_chart(room).reading.endswith(
        "at most 13 of 40 requests ran at once and up to 36 waited for room in a step."
    )
    both = steps_chart(crowd(12, 40, budget=64)).reading
    assert both.endswith("all 12 requests ran at once and, at other times, up to 8 waited for room in a step.")
    neither = with_steps(room, s0={"work": room.steps[0].work[:1]})
    assert steps_chart(neither).reading.endswith("up to 36 waited.")
    unknown = replace(room, header=replace(room.header, engine=None))
    assert steps_chart(unknown).reading.endswith("up to 36 waited.")


def test_a_run_that_lacks_steps_is_read_as_such_and_gets_no_advice() -> None:
    run = crowd(8, 6, seats=2)
    assert steps_chart(run).advice is not None
    cut = replace(run, steps=run.steps[-5:])
    assert steps_chart(cut).reading.startswith(
        "Of the 5 steps that are remembered, 51 ms long: the largest computed 2 "
    )
    assert steps_chart(cut).advice is None
    assert steps_chart(replace(run, steps=run.steps[-1:])).reading.startswith("Of the one step that is remembered, ")


def test_tokens_and_steps_say_the_same_of_the_budget() -> None:
    """Requests wait for a budget that makes the ITL of others long: both sides are named, and by both charts."""
    asked = [Asked(f"r{i}", prompt=10, tokens=60) for i in range(3)]
    run = play([*asked, *(Asked(f"p{i}", prompt=300, tokens=2, arrival=200) for i in range(4))], budget=256)
    advice = steps_chart(run).advice
    assert advice is not None
    assert advice.startswith("The budget was full in all ")
    assert advice.endswith("%infer load --max-num-batched-tokens 512 shortens the wait, 128 shortens those steps.")
    assert tokens_chart(run).advice == advice


def test_all_charts_say_the_same_of_the_pool() -> None:
    run = preempted()
    steps = [replace(step, work=tuple(with_blocks(work, step.index) for work in step.work)) for step in run.steps]
    few = replace(
        run, steps=tuple(steps), header=replace(run.header, engine=engine(kv_blocks_total=3, kv_bytes=4 << 20))
    )
    few = moved(few, 100 * MS, first=6)
    advice = steps_chart(few).advice
    assert advice is not None
    assert "(4 blocks) holds 2 requests" in advice
    assert tokens_chart(few).advice == kv_chart(few).advice == advice


def with_blocks(work: StepWork, step: int) -> StepWork:
    blocks = () if step not in (0, 6) or (step == 6 and work.request_id == "r0") else (1, 2)
    return StepWork(*(blocks if name == "new_blocks" else getattr(work, name) for name in work.__struct_fields__))


def test_names_that_a_replay_gives_are_whole() -> None:
    run = chunked()
    name = "r1234 of the recording"
    steps = [
        replace(step, work=tuple(renamed(work, name) if work.request_id == "r9" else work for work in step.work))
        for step in run.steps
    ]
    made = replace(run, requests=run.requests[:2], steps=tuple(steps))
    assert f"all of them with {name}'s prompt;" in steps_chart(made).reading


def renamed(work: StepWork, name: str) -> StepWork:
    return StepWork(name, *(getattr(work, field) for field in work.__struct_fields__[1:]))


def test_moments_of_hours_are_exact_enough_to_tell_steps_apart() -> None:
    run = moved(chunked(), 36_000 * 1000 * MS, first=8)
    data = drawn(run, victim="r0")["data"]
    assert {one["base"]["dtype"] for one in data if one["type"] == "bar"} == {"f8"}
    assert {one["x"]["dtype"] for one in data if one["type"] == "scatter"} == {"f8"}
    assert '"f8"' not in json.dumps(drawn(chunked(), victim="r0"))


def test_advice_needs_numbers() -> None:
    assert steps_chart(crowd(3, 5)).advice is None
    seats = steps_chart(crowd(8, 6, seats=2)).advice
    assert seats == "In 18 steps all 2 places were taken while up to 6 waited: try %infer load --max-num-seqs 4."
    larger = steps_chart(crowd(40, 4, budget=64)).advice
    assert larger is not None
    assert "steps in which requests waited: try %infer load --max-num-batched-tokens 128" in larger
    smaller = steps_chart(
        play([*(Asked(f"r{i}", tokens=60) for i in range(3)), Asked("r9", prompt=900, arrival=99)])
    ).advice
    assert smaller is not None
    assert "%infer load --max-num-batched-tokens 256" in smaller


def test_text_of_a_model_is_data() -> None:
    run = chunked()
    record = replace(run.requests[0], request_id=EVIL, label=f"{EVIL} $5 $6 \n" + "x" * 100_000)
    work = tuple(replace_id(step.work) for step in run.steps)
    steps = tuple(replace(step, work=own) for step, own in zip(run.steps, work, strict=True))
    made = replace(run, requests=(record, *run.requests[1:]), steps=steps)
    sent = drawn(made, victim=EVIL, title=EVIL)
    said = strings(sent["data"]) + strings(sent["layout"])
    assert not [text for text in said if "<img" in text or "$" in text]
    assert max(map(len, said)) < 5000


def replace_id(work: tuple[StepWork, ...]) -> tuple[StepWork, ...]:
    return tuple(StepWork(EVIL if one.request_id == "r0" else one.request_id, *astuple(one)[1:]) for one in work)


def astuple(work: StepWork) -> tuple[Any, ...]:
    return tuple(getattr(work, name) for name in work.__struct_fields__)


def test_a_run_without_requests() -> None:
    chart = steps_chart(Run(RunHeader("", None, None), (), ()))
    assert chart.reading == "No request ran."
    assert chart.advice is None


@pytest.mark.parametrize(
    ("count", "tokens", "apart", "bound"),
    [(1, 3000, 0, 120_000), (100, 100, 3, 90_000), (500, 20, 15, 300_000), (40, 60, 700, 90_000)],
)
def test_what_a_notebook_keeps_is_bounded(count: int, tokens: int, apart: float, bound: int) -> None:
    made = steps_chart(crowd(count, tokens, apart=apart))._repr_mimebundle_()
    assert sum(len(json.dumps(form, ensure_ascii=False).encode()) for form in made.values()) <= bound


def test_of_very_many_steps_the_largest_are_drawn_and_it_is_said() -> None:
    run = crowd(1, 4000)
    odd = tuple(
        replace(step, work=(*step.work, StepWork("n", 0, 300 if step.index == 777 else 1, 0, 0, 1, 0, 0, 1, 9)))
        if step.index % 2
        else step
        for step in run.steps
    )
    figure = drawn(replace(run, steps=odd))
    areas = numbers(trace(figure, "decode tokens")["y"])
    assert max(value or 0 for value in areas) == 301
    assert len(areas) <= 3100
    told = numbers(trace(figure, "step")["y"])
    assert max(value or 0 for value in told) == 301
    assert len(told) <= 3001
    assert "the largest of each pixel" in " ".join(strings(figure["layout"]))
