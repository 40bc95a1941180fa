"""The tokens chart: every output token at its time, with the ITL that it took and why it was late."""

from __future__ import annotations

import base64
import json
import struct
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from jupyter_infer.charts.bundle import PLOTLY_MIME
from jupyter_infer.charts.template import COLORS
from jupyter_infer.charts.tokens import tokens_chart
from jupyter_infer.metrics import itl_ns
from jupyter_infer.records import RequestRecord, SampleRecord, StepWork, TokenEvent
from jupyter_infer.run import Run, RunHeader

from .figures import numbers, strings, trace
from .stepped import MS, START, Asked, crowd, moved, play, with_steps

EVIL = "<img src=x onerror=1>"


def drawn(run: Run, **options: Any) -> dict[str, Any]:
    """Return the Plotly JSON as it is sent, through strict JSON."""
    sent: dict[str, Any] = json.loads(json.dumps(bundled(run, **options)[PLOTLY_MIME], allow_nan=False))
    return sent


def bundled(run: Run, **options: Any) -> dict[str, Any]:
    return tokens_chart(run, **options)._repr_mimebundle_()


def late_run() -> Run:
    """Three requests decode, then a prompt of 600 tokens comes."""
    long = Asked("r9", prompt=600, tokens=4, arrival=150)
    return play([*(Asked(f"r{i}", tokens=40) for i in range(3)), long], budget=300)


def several_at_once() -> Run:
    """One request, whose second step gave five tokens."""
    times = [(0, 1), (20, 5), (40, 1)]
    events = tuple(
        TokenEvent("r0", 0, step, START + (10 + at) * MS, tuple(range(count)), " x" * count)
        for step, (at, count) in enumerate(times)
    )
    run = crowd(1, 3)
    record = replace(run.requests[0], samples=(SampleRecord(0, events, "length"),))
    return replace(run, requests=(record,), steps=run.steps)


def test_one_request_has_its_itl_as_height() -> None:
    run = crowd(1, 8)
    figure = drawn(run)
    marks = trace(figure, "tokens of a step")
    assert numbers(marks["y"]) == pytest.approx([itl / MS for itl in itl_ns(run.requests[0])])
    times = [event.time_ns for event in run.requests[0].samples[0].events]
    assert numbers(marks["x"]) == pytest.approx([(time - START) / MS for time in times[1:]])
    assert figure["layout"]["yaxis"]["title"]["text"] == "ITL, ms"
    assert numbers(trace(figure, "first token")["x"]) == pytest.approx([(times[0] - START) / MS])


def test_several_tokens_of_a_step_are_one_mark() -> None:
    figure = drawn(several_at_once())
    marks = trace(figure, "tokens of a step")
    assert numbers(marks["y"]) == [20, 20]
    assert marks["marker"]["symbol"] == ["square", "circle"]
    assert "tokens 2 to 6" in marks["hovertext"][0]
    assert "5 tokens in one step" in marks["hovertext"][0]


def test_a_wide_spread_has_an_axis_of_logarithms() -> None:
    run = with_steps(crowd(1, 4))
    events = run.requests[0].samples[0].events
    later = (*events[:-1], replace_time(events[-1], events[-2].time_ns + 1000 * MS))
    wide = replace(run, requests=(replace(run.requests[0], samples=(SampleRecord(0, later, "length"),)),))
    assert drawn(wide)["layout"]["yaxis"]["type"] == "log"
    assert drawn(run)["layout"]["yaxis"].get("type") != "log"


def replace_time(event: TokenEvent, time_ns: int) -> TokenEvent:
    return TokenEvent(event.request_id, event.sample, event.step, time_ns, event.token_ids, event.text)


def test_lanes_have_a_bar_a_token_from_the_one_before_to_its_own() -> None:
    run = crowd(3, 6, apart=25)
    bars = trace(drawn(run), "ITL")
    wanted = []
    for lane, record in enumerate(run.requests, 1):
        times = [event.time_ns for event in record.samples[0].events]
        wanted += [(lane, (a - START) / MS, (b - a) / MS) for a, b in pairwise(times)]
    assert numbers(bars["y"]) == [lane for lane, _, _ in wanted]
    assert numbers(bars["base"]) == pytest.approx([begun for _, begun, _ in wanted])
    assert numbers(bars["x"]) == pytest.approx([length for _, _, length in wanted])


def test_first_tokens_have_no_itl_and_their_wait_is_drawn() -> None:
    run = crowd(3, 6, apart=25)
    figure = drawn(run)
    waits = trace(figure, "TTFT")
    assert numbers(waits["x"]) == pytest.approx([(r.first_token_ns - r.arrival_ns) / MS for r in run.requests])
    assert all("TTFT" in text and "ITL" not in text for text in trace(figure, "first token")["hovertext"])


def test_a_longer_gap_is_darker_and_noise_stays_light() -> None:
    def light(color: str) -> int:
        return sum(int(color[place : place + 2], 16) for place in (1, 3, 5))

    run = late_run()
    bars = trace(drawn(run), "ITL")
    by_length = [color for _, color in sorted(zip(numbers(bars["x"]), bars["marker"]["color"], strict=True))]
    assert [light(color) for color in by_length] == sorted(map(light, by_length), reverse=True)
    steady = trace(drawn(crowd(2, 10)), "ITL")["marker"]["color"]
    assert min(map(light, steady)) > light(COLORS["prefill"])


def test_hovering_tells_the_token_its_step_and_what_shared_it() -> None:
    bars = trace(drawn(late_run()), "ITL")
    told = next(text for text in bars["hovertext"] if "prompt tokens" in text)
    assert "“ word”" in told
    assert "with 3 other requests" in told
    assert "also 297 prompt tokens of r9" in told
    assert "100 % on a CPU" in told
    assert "<b>step 15 also computed 297 prompt tokens of r9</b>" in told


def test_the_worst_is_named_with_its_cause() -> None:
    chart = tokens_chart(late_run())
    assert "6 of 120 gaps between tokens stand out (median ITL 10.3 ms)" in chart.reading
    assert chart.reading.endswith("the longest, 40 ms in r0: step 15 also computed 297 prompt tokens of r9.")
    assert chart.advice is not None
    assert "%infer load --max-num-batched-tokens 150" in chart.advice
    assert [row[0] for row in chart.table.rows] == ["step 15", "step 16"]
    rings = trace(drawn(late_run()), "late")
    assert rings["text"] == ["1", "2"]


def test_without_a_late_token_it_says_so() -> None:
    chart = tokens_chart(crowd(1, 8))
    assert chart.reading == "No gap between tokens stands out: median ITL 10.1 ms, TPOT 10.1 ms, the longest 10.1 ms."
    assert chart.advice is None
    assert chart.table.head[0] == "request"


def test_without_steps_late_tokens_are_not_explained() -> None:
    chart = tokens_chart(replace(late_run(), steps=()))
    assert "no longer remembered" in chart.reading
    assert chart.advice is None
    assert "nothing is explained" in " ".join(strings(drawn(replace(late_run(), steps=()))["layout"]))


def test_a_late_token_whose_steps_are_forgotten_is_drawn_while_others_are_remembered() -> None:
    run = moved(crowd(3, 40), 100 * MS, first=12)
    later = tuple(step for step in run.steps if step.index > 30)
    alone = replace(run, requests=tuple(cut_to(record, 20) for record in run.requests))
    chart = tokens_chart(replace(alone, steps=later))
    assert chart.reading.endswith("step 12 is no longer remembered.")
    assert "some steps are no longer remembered, so not all is explained" in " ".join(
        strings(drawn(replace(alone, steps=later))["layout"])
    )


def cut_to(record: RequestRecord, count: int) -> RequestRecord:
    """Return the record with its first tokens only."""
    events = record.samples[0].events[:count]
    sample = replace(record.samples[0], events=events)
    return replace(record, samples=(sample,), last_token_ns=events[-1].time_ns, finished_ns=events[-1].time_ns)


def test_a_run_that_lacks_steps_gets_no_advice() -> None:
    run = late_run()
    assert tokens_chart(run).advice is not None
    cut = replace(run, steps=run.steps[4:])
    assert "297 prompt tokens of r9" in tokens_chart(cut).reading
    assert tokens_chart(cut).advice is None


def test_of_several_samples_the_late_one_is_named_in_all_words() -> None:
    run = moved(crowd(1, 20), 100 * MS, first=9)
    other = tuple(
        TokenEvent(e.request_id, 1, e.step, e.time_ns, e.token_ids, e.text)
        for e in run.requests[0].samples[0].events
        if e.step not in (3, 4, 5, 6)
    )
    both = (run.requests[0].samples[0], SampleRecord(1, other, "length"))
    work = [
        replace(
            step, work=(*step.work, *(StepWork("r0", 1, 1, 0, 0, 1, 0, 0, 1, 9),) * (step.index not in (3, 4, 5, 6)))
        )
        for step in run.steps
    ]
    chart = tokens_chart(replace(run, requests=(replace(run.requests[0], samples=both),), steps=tuple(work)))
    assert [row[3:] for row in chart.table.rows] == [
        ("r0 #1 and r0 #2", "100 ms passed between two steps"),
        ("r0 #2", "r0 #2 was not in steps 3 to 6"),
    ]
    figure = json.loads(json.dumps(chart._repr_mimebundle_()[PLOTLY_MIME]))
    assert [text.split(",")[0] for text in trace(figure, "late")["hovertext"]] == ["<b>r0 #1", "<b>r0 #2"]
    assert "with 1 other sample of it" in trace(figure, "ITL")["hovertext"][0]
    assert "(median ITL 10.1 ms); the longest, 110 ms in r0 #1:" in chart.reading


def test_names_that_a_replay_gives_are_whole() -> None:
    run = late_run()
    name = "r1234 of the recording"
    steps = [
        replace(step, work=tuple(renamed(work, name) if work.request_id == "r9" else work for work in step.work))
        for step in run.steps
    ]
    made = replace(run, requests=run.requests[:3], steps=tuple(steps))
    assert tokens_chart(made).reading.endswith(f"also computed 297 prompt tokens of {name}.")
    assert any(f"prompt tokens of {name}" in text for text in trace(drawn(made), "ITL")["hovertext"])


def renamed(work: StepWork, name: str) -> StepWork:
    return StepWork(name, *(getattr(work, field) for field in work.__struct_fields__[1:]))


@pytest.mark.parametrize("count", [1, 3, 40])
def test_moments_of_hours_are_exact_enough_to_tell_steps_apart(count: int) -> None:
    run = moved(crowd(count, 60), 36_000 * 1000 * MS, first=10)
    for one in drawn(run)["data"]:
        for name in ("base", "x"):
            packed = one.get(name)
            if isinstance(packed, dict) and not (name == "x" and one["type"] == "bar"):
                assert packed["dtype"] == "f8"
    assert '"f8"' not in json.dumps(drawn(crowd(count, 60)))


@pytest.mark.parametrize("tokens", [0, 1])
@pytest.mark.parametrize("count", [1, 3])
def test_requests_without_an_itl(count: int, tokens: int) -> None:
    run = crowd(count, 2)
    cut = [
        replace(
            record,
            samples=(SampleRecord(0, record.samples[0].events[:tokens], "abort"),),
            first_token_ns=record.first_token_ns if tokens else None,
            last_token_ns=record.first_token_ns if tokens else None,
        )
        for record in run.requests
    ]
    chart = tokens_chart(replace(run, requests=tuple(cut)))
    assert chart.reading == ("No step gave a second token, so there is no ITL." if tokens else "No token was given.")
    figure = drawn(replace(run, requests=tuple(cut)))
    if count > 1:
        assert numbers(trace(figure, "aborted")["y"]) == [1, 2, 3]


def test_a_run_without_requests() -> None:
    assert tokens_chart(Run(RunHeader("", None, None), (), ())).reading == "No token was given."


def test_text_of_a_model_is_data() -> None:
    texts = [EVIL, "$5 $6", "&amp;", "\n", "\u202eשלום", "😀", "x" * 100_000, ""]
    runs = [crowd(2, 4, text=text) for text in texts] + [crowd(30, 60, text=text) for text in texts]
    for run in runs:
        for request_id in ("r0", EVIL):
            one = replace(run.requests[0], request_id=request_id, label=f"{EVIL} $1 $2")
            made = replace(run, requests=(one, *run.requests[1:]))
            sent = drawn(made, title=f"{EVIL} $1 $2")
            said = strings(sent["data"]) + strings(sent["layout"])
            assert not [text for text in said if "<img" in text or "$" in text]
            assert max(map(len, said)) < 20_000  # of packed numbers, not of text
    hover = trace(drawn(crowd(2, 4, text="\n")), "ITL")["hovertext"]
    assert all("“↵”" in text for text in hover)
    assert all("“ a”" in text for text in trace(drawn(crowd(2, 4, text=" a")), "ITL")["hovertext"])


def test_equal_ids_and_samples_keep_lanes_of_their_own() -> None:
    run = crowd(2, 5)
    first = run.requests[0]
    second = SampleRecord(1, tuple(first.samples[0].events), "stop")
    two = replace(first, samples=(first.samples[0], second))
    figure = drawn(replace(run, requests=(two, run.requests[1])))
    assert sorted(set(numbers(trace(figure, "ITL")["y"]))) == [1, 2, 3]
    assert figure["layout"]["yaxis"]["ticktext"] == ["r0 #1 · Why?", "r0 #2 · Why?", "r1 · Why?"]


def matrix(packed: dict[str, Any]) -> list[list[float]]:
    height, width = (int(part) for part in packed["shape"].split(","))
    code = {"f4": "f", "u2": "H"}[packed["dtype"]]
    values = struct.unpack(f"<{height * width}{code}", base64.b64decode(packed["bdata"]))
    return [list(values[row * width : (row + 1) * width]) for row in range(height)]


def test_tiles_of_many_are_the_gaps_at_their_times() -> None:
    run = crowd(40, 50, apart=7)
    images = [item for item in drawn(run)["data"] if item["type"] == "heatmap" and item["name"] == "ITL"]
    found = {}
    for image in images:
        edges = numbers(image["x"])
        for row, (values, steps) in enumerate(zip(matrix(image["z"]), matrix(image["customdata"]), strict=True)):
            lane = image["y0"] + row if "y0" in image else round(sum(image["y"]) / 2)
            spans: dict[float, list[float]] = {}
            for place, (value, step) in enumerate(zip(values, steps, strict=True)):
                if value == value:  # not NaN
                    spans.setdefault(step, [edges[place], 0, value])[1] = edges[place + 1]
            found[lane] = list(spans.values())
    for lane, record in enumerate(run.requests, 1):
        times = [(event.time_ns - START) / MS for event in record.samples[0].events]
        size = 1000 if max(times) > 1000 else 1
        wanted = [(a / size, b / size, b - a) for a, b in pairwise(times)]
        assert len(found[lane]) == len(wanted) == 49
        for span, (begun, ended, itl) in zip(found[lane], wanted, strict=True):
            assert span == pytest.approx([begun, ended, itl], rel=1e-5)


def test_of_very_many_tokens_a_tile_is_the_longest_of_several_steps_and_it_is_said() -> None:
    run = moved(crowd(30, 1000, apart=7), 8 * MS, first=400)
    figure = drawn(run)
    (said,) = (note["text"] for note in figure["layout"]["annotations"] if "a tile is up to" in note["text"])
    together = int(said.split("a tile is up to ")[1].split(" steps")[0])
    assert together > 1
    ends = sorted({event.time_ns for record in run.requests for event in record.samples[0].events})
    (moment,) = (event.time_ns for event in run.requests[3].samples[0].events if event.step == 400)
    images = [item for item in figure["data"] if item["type"] == "heatmap" and item["name"] == "ITL"]
    found = 0
    for image in images:
        edges = numbers(image["x"])
        assert "longest ITL" in image["hovertemplate"]
        for row, steps in zip(matrix(image["z"]), matrix(image["customdata"]), strict=True):
            found += sum(value == value for value in row)
            places = [place for place, step in enumerate(steps) if step == 400]
            assert len(places) == 1
            (place,) = places
            assert (edges[place] or 0) < (moment - START) / 1e9 <= (edges[place + 1] or 0) * (1 + 1e-6)
            assert row[place] == max(value for value in row if value == value)
    gaps = 30 * 999
    assert gaps / together <= found <= 20_000
    assert len(ends) / together - 1 <= max(len(numbers(image["x"])) for image in images)


@pytest.mark.parametrize("index", [-1, 2**40])
def test_any_number_of_a_step_can_be_drawn(index: int) -> None:
    run = crowd(40, 50)
    events = run.requests[0].samples[0].events
    odd = TokenEvent("r0", 0, index, events[-1].time_ns, (1,), "x")
    first = replace(run.requests[0], samples=(SampleRecord(0, (*events[:-1], odd), "length"),))
    images = [
        one for one in drawn(replace(run, requests=(first, *run.requests[1:])))["data"] if one.get("name") == "ITL"
    ]
    assert any(index in row for image in images for row in matrix(image["customdata"]))


def test_the_strip_tells_what_each_step_computed() -> None:
    run = crowd(40, 50)
    strip = trace(drawn(run), "steps")
    told = [text for text in strip["text"][0] if text]
    assert len(told) == len(run.steps)
    assert "with 40 requests" in told[1]


@pytest.mark.parametrize(
    ("count", "tokens", "bound"),
    [(1, 100, 30_000), (5, 200, 230_000), (100, 100, 300_000), (500, 100, 300_000), (100, 1000, 200_000)],
)
def test_what_a_notebook_keeps_is_bounded(count: int, tokens: int, bound: int) -> None:
    made = bundled(crowd(count, tokens, apart=3))
    assert sum(len(json.dumps(form, ensure_ascii=False).encode()) for form in made.values()) <= bound


def test_few_traces_whatever_the_number_of_requests() -> None:
    for apart in (0, 5, 400):
        assert len(drawn(crowd(150, 10, apart=apart))["data"]) <= 70
