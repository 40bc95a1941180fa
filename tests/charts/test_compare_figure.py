"""Runs on shared axes: the dots, their noise, what differs, and what the chart says of it."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any

import pytest

from jupyter_infer.charts import PLOTLY_MIME
from jupyter_infer.charts.chart import Chart
from jupyter_infer.charts.compare import compare_chart
from jupyter_infer.charts.labels import text_width
from jupyter_infer.charts.template import SMALL
from jupyter_infer.errors import ConfigError
from jupyter_infer.metrics import DEFINITIONS
from jupyter_infer.pricing import DEFAULT_PRICE, MachinePrice
from jupyter_infer.records import EngineInfo
from jupyter_infer.run import Run, RunHeader

from .figures import numbers, strings, trace
from .samples import aborted_in_queue, make_batch, make_record

EVIL = "<img src=x onerror=1> $5 $6 &amp; \n \u202eשלום 🎉" + "x" * 100_000
NOISE = (0.99, 1.0, 1.01)


def make_run(
    factor: float = 1.0,
    *,
    count: int = 2,
    seqs: int = 64,
    cached: int | None = 0,
    name: str | None = None,
    price: MachinePrice | None = DEFAULT_PRICE,
    settings: dict[str, Any] | None = None,
    **facts: Any,
) -> Run:
    """Return a run whose every time is `factor` times 100 ms to the first and 10 ms to each further token."""
    records = tuple(
        make_record(f"r{i}", queued=0, prefill=100 * factor, itl=10 * factor, tokens=11, cached=cached, **facts)
        for i in range(count)
    )
    engine = EngineInfo("tiny", "vllm", "cpu", "bfloat16", 16, 100, None, None, 999, 512, seqs, 2)
    engine = dataclasses.replace(engine, settings=settings or {})
    return Run(RunHeader("", engine, price), records, (), name=name)


def make_arms(*factors: float, **facts: Any) -> list[Run]:
    """Return three repeats an arm, with a noise of 1 %."""
    return [make_run(f * n, seqs=16 * (i + 1), **facts) for i, f in enumerate(factors) for n in NOISE]


def sent(chart: Chart) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(json.dumps(chart._repr_mimebundle_()[PLOTLY_MIME], allow_nan=False))
    return made


def notes(figure: dict[str, Any]) -> str:
    return "\n".join(note["text"] for note in figure["layout"]["annotations"]).replace("<br>", " ")


def test_a_dot_a_run_a_panel_a_metric_from_zero_on() -> None:
    figure = sent(compare_chart(make_arms(1, 2)))
    names = ["TTFT", "TPOT", "e2e", "throughput", "shared cost"]
    assert [made["name"] for made in figure["data"]][::2] == names
    dots = trace(figure, "TTFT")
    assert numbers(dots["x"]) == pytest.approx([f * n * 1e8 for f in (1, 2) for n in NOISE])
    rows = numbers(dots["y"])
    assert [round(row or 0) for row in rows] == [1, 1, 1, 2, 2, 2]
    assert len(set(rows)) == 6  # equal values do not hide one another
    for number in ("", "2", "3", "4", "5"):
        low, high = figure["layout"][f"xaxis{number}"]["range"]
        assert low == 0
        drawn = trace(figure, names[int(number or 1) - 1])["x"]
        assert max(value or 0 for value in numbers(drawn)) < high


def test_panels_do_not_overlap() -> None:
    for count in (2, 5, 9):
        layout = sent(compare_chart(make_arms(*range(1, count + 1))))["layout"]
        domains = [layout[f"yaxis{number}"]["domain"] for number in ("", "2", "3", "4", "5")]
        ends = [end for low, high in reversed(domains) for end in (low, high)]
        assert ends == sorted(ends)
        assert ends[0] >= 0
        assert ends[-1] <= 1


def test_means_have_their_interval_and_a_single_run_has_none() -> None:
    figure = sent(compare_chart([*make_arms(1), make_run(2)]))
    means = trace(figure, "mean TTFT")
    first, single = numbers(means["x"])
    assert first == pytest.approx(1e8, rel=1e-3)
    assert single is None
    up, none = numbers(means["error_x"]["array"])
    assert up == pytest.approx(1e8 * 4.303 * 0.01 / 3**0.5, rel=0.03)
    assert none == 0


def test_the_difference_is_said_with_its_interval_and_is_bold_if_it_is_told() -> None:
    chart = compare_chart(make_arms(1, 1.2))
    assert chart.reading.startswith(
        "max_num_seqs 32 has 1.20 × (1.17 to 1.23) the TTFT, 1.20 × (1.17 to 1.23) the TPOT"
    )
    assert chart.reading.endswith(
        "of max_num_seqs 16 (1 more metric differs); shared cost shows no difference that can be told from noise."
    )
    assert chart.advice is None
    assert "<b>▲ 1.20 × (1.17 to 1.23)</b>" in notes(sent(chart))
    assert "<b>▼ 0.83 × (0.81 to 0.85)</b>" in notes(sent(chart))  # of throughput


def test_no_difference_is_an_answer() -> None:
    chart = compare_chart(make_arms(1, 1.002))
    assert chart.reading == (
        "max_num_seqs 32 against max_num_seqs 16: TTFT, TPOT, e2e, throughput and shared cost show no difference that "
        "can be told from noise."
    )
    assert chart.advice is None
    assert "≈ 1.00 × (0.98 to 1.02)" in notes(sent(chart))
    assert "<b>≈" not in notes(sent(chart))


def test_one_run_each_is_no_verdict() -> None:
    chart = compare_chart([make_run(), make_run(3, seqs=16)])
    assert "had 3.00 × the TTFT" in chart.reading
    assert "in one run each, so their noise is not known" in chart.reading
    assert chart.advice == "Repeat each run at least three times: with one run the noise is not known."
    assert "? 3.00 ×" in notes(sent(chart))


def test_a_single_run_beside_several_says_what_is_assumed() -> None:
    figure = sent(compare_chart([*make_arms(1), make_run(2)]))
    assert "B against A: a single run is taken to be as noisy as the others" in notes(figure)


def test_repeats_of_one_arm_show_their_noise() -> None:
    chart = compare_chart(make_arms(1))
    assert chart.reading == (
        "All 3 runs have the same settings; from run to run TTFT varied by 1 %, TPOT by 1 %, e2e by 1 %, throughput by "
        "1 % and shared cost by 0 % (standard deviation / mean)."
    )
    assert "shapes" not in sent(chart)["layout"]  # no line at a first arm


@pytest.mark.parametrize("runs", [[], [make_run()], [make_run(), make_run()]])
def test_one_run_cannot_be_compared(runs: list[Run]) -> None:
    with pytest.raises(ConfigError, match=r"type: ji\.compare\(a, b\)"):
        compare_chart(runs)


def test_cold_and_warm_runs_are_marked_and_said() -> None:
    warm = make_arms(1, 1, cached=16)
    cold = [make_run(n, seqs=32) for n in NOISE]
    chart = compare_chart([*warm[:3], *cold])
    assert "cold runs are compared with warm ones" in chart.reading
    assert chart.advice == "Compare like with like: type %infer clear cache before each run, or add --no-cache."
    figure = sent(chart)
    assert trace(figure, "TTFT")["marker"]["symbol"] == ["circle"] * 3 + ["circle-open"] * 3
    assert all(name in notes(figure) for name in ("warm run", "cold run"))
    mixed = compare_chart([warm[0], cold[0], warm[3], make_run(2)])
    assert "take the cache out of the noise" in (mixed.advice or "") or "cold runs" in mixed.reading


def test_a_first_run_after_a_load_is_marked_and_said() -> None:
    chart = compare_chart([make_run(load=5000), *make_arms(1.1)])
    assert "a first run after a load is compared with later ones" in chart.reading
    assert chart.advice == "Leave out the first run after a load: run each once, then measure."
    assert trace(sent(chart), "TTFT")["marker"]["symbol"][0] == "diamond-open"


def test_repeats_with_a_first_run_among_them_say_so() -> None:
    chart = compare_chart([make_run(load=5000), make_run(1.1), make_run(1.2)])
    assert chart.reading.endswith("(standard deviation / mean); 1 first after the load, 2 cold.")
    assert chart.advice == "Leave out the first run after a load: run each once, then measure."


def test_other_prompts_are_said() -> None:
    chart = compare_chart([make_run(), make_run(prompt="Why is the sea salt?")])
    assert "the prompts differ, so more than the settings is compared" in chart.reading


def test_more_of_the_same_prompts_is_a_setting_like_others() -> None:
    chart = compare_chart([make_run(), make_run(count=8)])
    assert "the prompts differ" not in chart.reading
    assert "requests 2 | 8" in notes(sent(chart))


def test_settings_that_differ_are_on_the_card_and_in_the_table() -> None:
    chart = compare_chart([make_run(settings={"kv": 1}), make_run(2, seqs=16, settings={"kv": 2})])
    assert "kv 1 | 2" in notes(sent(chart))
    assert "max_num_seqs 64 | 16" in notes(sent(chart))
    assert chart.table.head == ("mean", "A · kv 1", "B · kv 2")
    assert ["kv", "1", "2"] in chart.table.rows
    assert ["TTFT", "100 ms", "200 ms, ? 2.00 ×"] in chart.table.rows
    html = chart._repr_mimebundle_()["text/html"]
    assert "kv" in html
    assert "200 ms" in html


def test_the_first_arm_is_what_the_others_are_compared_with() -> None:
    chart = compare_chart(make_arms(1, 1.5, 3))
    assert chart.reading == (
        "Against max_num_seqs 16, max_num_seqs 48 has 3.00 × (2.93 to 3.07) the TTFT, the largest difference; 8 of 10 "
        "can be told from noise."
    )
    assert sent(chart)["layout"]["shapes"][0]["x0"] == pytest.approx(1e8, rel=1e-3)


def test_equal_names_do_not_merge() -> None:
    runs = [make_run(f, prompt=f"p{f}").called("same") for f in (1, 2, 3)]
    axis = sent(compare_chart(runs))["layout"]["yaxis"]
    assert axis["tickvals"] == [1, 2, 3]
    assert len(set(axis["ticktext"])) == 3
    labelled = sent(compare_chart(runs, labels=["same" * 50 + end for end in "abc"]))["layout"]["yaxis"]
    assert len(set(labelled["ticktext"])) == 3


def test_labels_name_the_arms_and_mixed_settings_are_said() -> None:
    chart = compare_chart([*make_arms(1, 2), make_run(2)], labels=["old"] * 3 + ["new"] * 4)
    assert "new has 2.00 ×" in chart.reading
    assert "runs under one label have different settings" in chart.reading
    assert "within B differ: max_num_seqs" in notes(sent(chart))
    with pytest.raises(ConfigError, match="a label a run"):
        compare_chart(make_arms(1, 2), labels=["old"])


def test_what_is_not_known_is_not_drawn() -> None:
    unpriced = sent(compare_chart(make_arms(1, 2, price=None)))
    assert "shared cost" not in [made["name"] for made in unpriced["data"]]
    lost = make_run(2)
    lost = dataclasses.replace(lost, requests=(aborted_in_queue(),))
    chart = compare_chart([*make_arms(1), lost])
    assert len(numbers(trace(sent(chart), "TTFT")["x"])) == 3
    row = next(row for row in chart.table.rows if row[0] == "TTFT")
    assert row[-1] == "n/a"
    assert "some requests were aborted or failed" in notes(sent(chart))
    assert chart.reading.startswith("max_num_seqs 64 and max_num_seqs 16 have no figure in common")
    empty = dataclasses.replace(lost, requests=())
    nothing = compare_chart([lost, empty])
    assert nothing.reading == "There is nothing to compare: no request of these runs gave a token."
    assert nothing.advice is None
    assert not sent(nothing)["data"]


def test_text_is_data() -> None:
    runs = [make_run(f, prompt=EVIL, settings={"evil": EVIL + str(f)}).called(EVIL) for f in (1, 2)]
    for chart in (compare_chart(runs, title=EVIL), compare_chart(runs, labels=[EVIL, EVIL + "2"])):
        figure = sent(chart)
        texts = strings([figure["data"], figure["layout"]["annotations"]])
        texts += strings([axis for name, axis in figure["layout"].items() if "axis" in name])
        assert not any("<img" in text or "$" in text or "\u202e" in text for text in texts)
        assert len(json.dumps(chart._repr_mimebundle_())) < 330_000  # the title is drawn in full
        assert "<img" not in chart._repr_mimebundle_()["text/html"]
    figure = sent(compare_chart(runs))
    assert len(json.dumps(figure)) < 30_000


@pytest.mark.parametrize(("factor", "tick"), [(1e-6, "ns"), (1, "ms"), (100, "s"), (6000, "min")])
def test_axes_read_in_the_unit_that_fits(factor: float, tick: str) -> None:
    axis = sent(compare_chart(make_arms(factor, 1.1 * factor)))["layout"]["xaxis"]
    assert axis["ticktext"][0] == "0 s"
    assert axis["ticktext"][-1].endswith(tick) or tick in axis["ticktext"][-1]
    assert 3 <= len(axis["ticktext"]) <= 6
    minutes = sent(compare_chart(make_arms(6000, 6600)))["layout"]["xaxis"]["ticktext"]
    assert minutes[1] in ("2 min", "5 min")  # and no 3 min 20 s


@pytest.mark.parametrize("usd", [1e-5, 0.0, 1e7])
def test_dollars_of_any_size_read(usd: float) -> None:
    figure = sent(compare_chart(make_arms(1, 2, price=MachinePrice(usd))))
    texts = figure["layout"]["xaxis5"]["ticktext"]
    assert texts[0] == "&#36;0"
    assert len(set(texts)) == len(texts)


def test_hovering_tells_the_run_and_the_definition() -> None:
    figure = sent(compare_chart([run.called(f"file {i}") for i, run in enumerate(make_arms(1, 2))]))
    dots, means = trace(figure, "TTFT"), trace(figure, "mean TTFT")
    assert dots["text"][0] == "<b>99 ms</b> · A, 1 of 3 · file 0<br>cold run"
    assert DEFINITIONS["TTFT"] in re.sub("<br>", " ", dots["hovertemplate"])
    assert "noise 1 % (standard deviation / mean)" in means["text"][1]
    assert "to A: 2.00 × (1.96 to 2.05), higher" in means["text"][1]


def test_sizes() -> None:
    many = [make_run(1 + a + n / 100, count=4, seqs=a + 1, name=f"run {n}") for a in range(8) for n in range(20)]
    assert len(json.dumps(compare_chart(many)._repr_mimebundle_())) < 130_000
    long = [dataclasses.replace(make_run(), requests=tuple(make_batch(100, 100 + i))) for i in range(2)]
    assert len(json.dumps(compare_chart(long)._repr_mimebundle_())) < 25_000


def test_names_of_arms_that_are_too_long_are_cut_at_the_width() -> None:
    runs = [make_run(), make_run(2)]
    layout = sent(compare_chart(runs, labels=["W" * 99, "M" * 99]))["layout"]
    for first, text in zip("WM", layout["yaxis"]["ticktext"], strict=True):
        assert f"{first * 5}" in text
        assert text.endswith("…")
        assert text_width(text, SMALL) <= layout["margin"]["l"] <= 170
