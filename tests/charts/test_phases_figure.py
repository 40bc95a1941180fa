from __future__ import annotations

import re

import pytest

from jupyter_infer.charts import phases_figure
from jupyter_infer.charts.rows import make_rows
from jupyter_infer.metrics import DEFINITIONS, phases
from jupyter_infer.numbers import format_ns
from jupyter_infer.pricing import DEFAULT_PRICE, MachinePrice, cost, format_usd

from .figures import PHASE_NAMES, names, numbers, spec, strings, to_ns, trace
from .samples import (
    MS,
    START,
    aborted_in_decode,
    aborted_in_prefill,
    aborted_in_queue,
    make_batch,
    make_record,
    one_token,
)

EVIL = '<img src=x onerror="window.__p=1"><script>window.__p=2</script></pre><b>'


@pytest.mark.parametrize("count", [1, 2, 5, 6, 12])
def test_bars_are_the_phases_of_the_records_to_the_nanosecond(count: int) -> None:
    records = make_batch(count, tokens=5)
    figure = spec(records)
    origin = records[0].arrival_ns
    for name in PHASE_NAMES:
        bars = trace(figure, name)
        assert [to_ns(x) for x in bars["x"]] == [getattr(phases(record), f"{name}_ns") for record in records]
        assert bars["y"] == list(range(1, count + 1))
    assert [to_ns(base) for base in trace(figure, "queued")["base"]] == [r.arrival_ns - origin for r in records]
    assert [to_ns(base) for base in trace(figure, "decode")["base"]] == [
        None if r.first_token_ns is None else r.first_token_ns - origin for r in records
    ]


def test_a_request_starts_at_zero_and_the_axis_ends_after_its_last_token() -> None:
    figure = spec([make_record(arrival=123_456)])
    assert trace(figure, "queued")["base"] == [0]
    begin, end = figure["layout"]["xaxis"]["range"]
    assert begin == 0
    assert end == pytest.approx(1.02 * 1.970)


def test_equal_prompts_keep_a_bar_each() -> None:
    records = [make_record(f"r{i}", prefill=100 * (i + 1)) for i in range(3)]
    figure = spec(records)
    assert trace(figure, "prefill")["y"] == [1, 2, 3]
    assert trace(figure, "prefill")["x"] == [0.1, 0.2, 0.3]
    axis = figure["layout"]["yaxis"]
    assert axis["tickvals"] == [1, 2, 3]
    assert len(set(axis["ticktext"])) == 3  # they are numbered


BEGINNING = "Summarise this letter for me: "  # thirty characters


@pytest.mark.parametrize("others", [0, 10, 30])
@pytest.mark.parametrize(
    "prompts", [["Why?"] * 3, [f"{BEGINNING}first", f"{BEGINNING}second", f"{BEGINNING}third"], [""] * 3]
)
def test_equal_labels_merge_no_bars(prompts: list[str], others: int) -> None:
    """A category axis would draw them all at one place."""
    records = [
        make_record(f"r{i}", prompt=prompt, prefill=100 * (i + 1), itl=10 + i) for i, prompt in enumerate(prompts)
    ]
    records += make_batch(others, tokens=3)
    figure = spec(records)
    assert figure["layout"]["yaxis"].get("type") in (None, "linear")
    for name in PHASE_NAMES:
        bars = trace(figure, name)
        lengths = numbers(bars["x"])
        assert lengths == pytest.approx([getattr(phases(record), f"{name}_ns") / 1e9 for record in records])
        heights = bars["y"] if "y" in bars else [bars["y0"] + bars["dy"] * place for place in range(len(lengths))]
        assert list(heights) == list(range(1, len(records) + 1))


def test_phases_that_were_not_reached_have_no_bar() -> None:
    figure = spec([aborted_in_queue(), aborted_in_prefill(), aborted_in_decode(), one_token()])
    assert [x is None for x in trace(figure, "queued")["x"]] == [True, False, False, False]
    assert [x is None for x in trace(figure, "prefill")["x"]] == [True, True, False, False]
    assert [x is None for x in trace(figure, "decode")["x"]] == [True, True, False, False]
    assert trace(figure, "decode")["x"][3] == 0
    assert trace(figure, "decode")["customdata"][:2] == [None, None]
    hover = trace(spec([aborted_in_prefill()]), "queued")["customdata"][0][2]
    assert "prefill n/a, decode n/a" in hover
    assert "TTFT n/a, TPOT n/a, e2e n/a" in hover


def test_aborted_and_cut_requests_are_marked_where_they_ended() -> None:
    figure = spec([aborted_in_queue(), aborted_in_prefill(), make_record(), one_token()])
    marks = trace(figure, "aborted or failed")
    assert numbers(marks["y"]) == [1, 2]
    assert numbers(marks["x"]) == pytest.approx([0.9, 0.7])
    assert "aborted 900 ms after its arrival" in marks["hovertext"][0]
    assert numbers(trace(figure, "token limit")["y"]) == [4]


def test_costs_stand_beside_the_bars() -> None:
    record = make_record()
    figure = spec([record])
    (text,) = figure["layout"]["yaxis2"]["ticktext"]
    figures = cost(record, DEFAULT_PRICE)
    assert text == f"{format_usd(figures.shared_usd)} shared<br>{format_usd(figures.wall_usd)} wall".replace(
        "$", "&#36;"
    )
    assert format_usd(figures.prefill_usd).replace("$", "&#36;") in trace(figure, "prefill")["customdata"][0][1]
    assert any(trace_.get("yaxis") == "y2" for trace_ in figure["data"])  # an axis without a trace is not drawn


@pytest.mark.parametrize("count", [1, 3, 12, 30, 100, 500])
def test_without_a_price_costs_are_unknown_and_not_zero(count: int) -> None:
    figure = spec(make_batch(count, tokens=3), None)
    texts = strings(figure)
    assert any("price n/a" in text for text in texts) or any("machine price: n/a" in text for text in texts)
    assert any("n/a shared" in text or "cost n/a" in text for text in texts)
    assert not any("&#36;" in text or "$" in text for text in texts)


def test_unknown_shared_time_is_not_zero() -> None:
    (text,) = spec([make_record(shared=None)])["layout"]["yaxis2"]["ticktext"]
    assert text.startswith("n/a shared")


def test_load_is_drawn_on_an_axis_of_its_own() -> None:
    figure = spec([make_record(load=21_300)])
    load = trace(figure, "load")
    assert (load["x"], load["xaxis"]) == ([21.3], "x2")
    assert figure["layout"]["xaxis2"]["range"] == [21.3, 0]  # so that it ends where the request begins
    assert figure["layout"]["xaxis2"]["domain"][1] < figure["layout"]["xaxis"]["domain"][0]
    assert trace(figure, "queued")["base"] == [0]
    assert "load" not in names(spec([make_record()]))
    many = trace(spec([make_record(load=21_300), *make_batch(63, tokens=2)]), "load")
    assert numbers(many["x"]) == pytest.approx([21.3])


def test_stalled_time_lies_in_the_longest_gaps_and_sums_exactly() -> None:
    gaps = [26.0] * 20
    gaps[4], gaps[9] = 300.5, 200.25
    record = make_record(itl=gaps, stalled=480, preemptions=2)
    figure = spec([record])
    stalled = trace(figure, "stalled")
    assert sum(round(x * 1e9) for x in stalled["x"]) == record.stalled_ns
    assert stalled["x"] == [0.3005, 0.1795]
    ends = [base + x for base, x in zip(stalled["base"], stalled["x"], strict=True)]
    tokens = [(event.time_ns - START) / 1e9 for event in record.samples[0].events]
    assert ends == pytest.approx([tokens[5], tokens[10]])
    assert to_ns(trace(figure, "decode")["x"][0]) == phases(record).decode_ns  # decode keeps its whole length


def test_stalled_time_that_no_gap_holds_is_drawn_at_the_end() -> None:
    (row,) = make_rows([make_record(stalled=200, preemptions=1)], None)
    assert row.record.last_token_ns is not None
    assert row.stalls == [(row.record.last_token_ns - 200 * MS, 200 * MS, False)]


def test_each_token_step_has_a_tick() -> None:
    record = make_record(tokens=12)
    ticks = trace(spec([record]), "token step")
    assert ticks["name"] == "token step"
    wanted = [(event.time_ns - START) / 1e9 for event in record.samples[0].events]
    assert numbers(ticks["x"]) == pytest.approx(wanted, abs=1e-4)


def test_first_shown_is_marked() -> None:
    figure = spec([make_record()], first_shown_ns={"r0": START + 345 * MS, "other": 5})
    mark = trace(figure, "first shown")
    assert numbers(mark["x"]) == pytest.approx([0.345])
    assert "13 ms after its first token" in mark["hovertext"][0]


@pytest.mark.parametrize("count", [1, 3, 30, 100])
def test_foreign_text_stays_text(count: int) -> None:
    records = [
        make_record(f"<b>{i}", prompt=EVIL + " $5 and $6", model=EVIL, error=EVIL, finish="error", tokens=3)
        for i in range(count)
    ]
    figure = spec(records, title=EVIL + " ≈$1 @ $2/h", first_shown_ns={"<b>0": START})
    ours = re.compile(r'</?(b|i|extra)>|<br>|<span style="color:#[0-9a-f]{6}">|</span>')
    for text in strings(figure):
        assert "<" not in ours.sub("", text)
        assert "$" not in text  # Plotly would typeset a pair of them


def test_labels_are_cut_and_can_be_given() -> None:
    figure = spec([make_record("a", prompt="word\n" * 50_000), make_record("b")], labels=["first " * 20, "two"])
    label = trace(figure, "queued")["customdata"][0][0]
    assert label.startswith("1 · first")
    assert len(label) <= 40
    assert label.endswith("…")
    assert figure["layout"]["yaxis"]["ticktext"][1] == "2 · two"
    with pytest.raises(ValueError, match="2 records want as many labels; got 1"):
        phases_figure(make_batch(2, tokens=2), DEFAULT_PRICE, labels=["one"])


def test_a_long_title_is_wrapped_and_given_room() -> None:
    title = "model: 24 → 64 tokens in 1.98 s; " * 4
    short, long = spec([make_record()], title="short"), spec([make_record()], title=title)
    (note,) = (note["text"] for note in long["layout"]["annotations"] if note["text"].startswith("model"))
    lines = note.split("<br>")
    assert " ".join(lines) == title.strip()
    assert max(map(len, lines)) < 100
    added = long["layout"]["margin"]["t"] - short["layout"]["margin"]["t"]
    assert added == pytest.approx(15.6 * (len(lines) - 1), abs=1)


def test_a_line_of_the_title_never_begins_with_a_dot() -> None:
    title = " · ".join(f"part {'of some words ' * (i % 4)}{i}" for i in range(25))
    for width in range(1, 30):
        (note,) = (
            note["text"]
            for note in spec([make_record()], title="m" * width + " · " + title)["layout"]["annotations"]
            if note["text"].startswith("m")
        )
        lines = note.split("<br>")
        assert len(lines) > 3
        assert all(line.endswith(" ·") for line in lines[:-1])
        assert not any(line.startswith("·") for line in lines)
        assert " ".join(lines) == "m" * width + " · " + title


@pytest.mark.parametrize("count", [1, 3, 30, 500])
def test_the_definitions_are_printed_in_brief(count: int) -> None:
    caption = " ".join(note["text"] for note in spec(make_batch(count, tokens=2))["layout"]["annotations"])
    printed = caption.replace("<br>", " ")
    assert "TTFT = queued + prefill · e2e = TTFT + decode · cost = price × time" in printed
    assert "assumed" in printed


@pytest.mark.parametrize("count", [1, 3, 12, 13, 200])
def test_the_definitions_are_told_in_full_on_hovering(count: int) -> None:
    templates = (trace.get("hovertemplate", "") for trace in spec(make_batch(count, tokens=2))["data"])
    told = " ".join(templates).replace("<br>", " ")
    for term in ("TTFT", "TPOT", "e2e", "wall cost", "shared cost", "decode speed", "prefill speed"):
        assert f"{term} = {DEFINITIONS[term]}" in told
    for phase in PHASE_NAMES:
        assert DEFINITIONS[phase] in told


def test_nothing_at_all_is_drawn_without_failing() -> None:
    assert spec([])["layout"]["height"] > 0
    instant = make_record(queued=0, prefill=0, tokens=1)
    begin, end = spec([instant])["layout"]["xaxis"]["range"]
    assert begin < end


def test_hover_names_definition_times_share_and_cost() -> None:
    record = make_record(cached=16)
    bars = trace(spec([record]), "prefill")
    assert "that start → first output token" in bars["hovertemplate"]
    label, head, tail = bars["customdata"][0]
    assert label == "1 · Why is the sky blue?"
    assert head.startswith(f"320 ms, 16 % of e2e, {format_usd(cost(record).prefill_usd)}".replace("$", "&#36;"))
    assert "12 ms → 332 ms after its arrival" in tail
    assert "24 prompt tokens (16 cached, warm) → 64 output" in tail
    assert f"e2e {format_ns(phases(record).e2e_ns)}" in tail


@pytest.mark.parametrize("count", [3, 13])
def test_a_price_is_no_template(count: int) -> None:
    price = MachinePrice(2.0, source="%{x} a 9 % share of %{customdata[0]}")
    found = [
        trace["hovertemplate"] for trace in spec(make_batch(count, tokens=5), price)["data"] if "hovertemplate" in trace
    ]
    told = [template for template in found if "&#37;{x} a 9 &#37; share" in template.replace("<br>", " ")]
    assert len(told) == 1  # of prefill, or of the shared cost
    assert "%{x} a 9" not in " ".join(found)
