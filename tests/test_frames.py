"""Records as tables: which columns there are, what is in them, and that nothing unknown becomes 0."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from builders import make_record, make_sample, make_step, make_work

from jupyter_infer.bench.charts import made_run
from jupyter_infer.errors import ConfigError
from jupyter_infer.frames import COLUMNS, frame, request_figures
from jupyter_infer.pricing import ApiPrice, MachinePrice
from jupyter_infer.recorded import Recording, Runs
from jupyter_infer.records import Limits, TokenLogprob
from jupyter_infer.run import Run, RunHeader
from jupyter_infer.session import Session

MS = 1_000_000
PRICE = MachinePrice(3.6)  # a dollar for 1,000 s
API = ApiPrice("gpt", "openai", 1.0, None, 2.0)
BEGUN = 70_000 * MS


def a_run(**facts: Any) -> Run:
    """One request: arrived at 0, began at 100 ms, tokens at 300, 340 (none, a tail of text) and 400 ms (three)."""
    times = [BEGUN + ms * MS for ms in (300, 340, 400)]
    values: dict[str, Any] = {
        "arrival_ns": BEGUN,
        "started_ns": BEGUN + 100 * MS,
        "shared_ns": 200 * MS,
        "prompt_tokens": 20,
        "cached_tokens": 4,
    }
    record = make_record(make_sample(times, tokens=[1, 0, 3]), **(values | facts))
    prefill = make_work(
        tokens=16, prefill_tokens=12, recomputed_tokens=4, kv_tokens=20, cached_tokens=4, new_blocks=(1, 2)
    )
    decode = make_work(tokens=4, draft_tokens=3, accepted_tokens=2, output_tokens=3, kv_tokens=24)
    steps = (
        make_step(
            prefill,
            make_work("r2", kv_tokens=7),
            start=BEGUN + 100 * MS,
            end=BEGUN + 300 * MS,
            index=7,
            preempted=[("r3", 0)],
            evicted=[5, 6],
            running=2,
            waiting=1,
            free=30,
            limits=Limits(4, 64),
        ),
        replace(
            make_step(decode, start=BEGUN + 340 * MS, end=BEGUN + 400 * MS, index=9, running=1), cpu_ns=None, threads=2
        ),
    )
    return Run(RunHeader("now", None, PRICE, API), (record,), steps)


def token(logprob: float | None) -> TokenLogprob:
    return TokenLogprob("x", logprob, 1, ())


def rows(run: Run, what: str) -> list[dict[str, Any]]:
    return list(frame([run], what).to_dict("records"))


def test_a_request_has_its_figures_in_seconds_and_dollars() -> None:
    [row] = rows(a_run(), "requests")
    assert row == pytest.approx(
        {
            "prompt_tokens": 20,
            "cached_tokens": 4,
            "output_tokens": 4,
            "queued_s": 0.1,
            "prefill_s": 0.2,
            "decode_s": 0.1,
            "stalled_s": 0.0,
            "ttft_s": 0.3,
            "tpot_s": 0.1 / 3,
            "e2e_s": 0.4,
            "decode_tps": 30.0,
            "prefill_tps": 80.0,
            "shared_s": 0.2,
            "wall_usd": 0.4e-3,
            "shared_usd": 0.2e-3,
            "api_usd": (20 * 1.0 + 4 * 2.0) / 1e6,
        }
        | {name: row[name] for name in ("request_id", "model", "text", "finish_reason")}
    )
    assert (row["request_id"], row["model"], row["text"], row["finish_reason"]) == ("r1", "scripted", "w0 w2 ", "stop")


def test_what_a_request_did_not_reach_is_missing_and_not_zero() -> None:
    never = a_run(started_ns=None, shared_ns=None, cached_tokens=None).requests[0]
    never = replace(never, samples=(make_sample([], finish="abort"),), first_token_ns=None, last_token_ns=None)
    figures = request_figures(never, None, None)
    unknown = {name for name, value in figures.items() if value is None}
    assert unknown == set(figures) - {
        "request_id",
        "model",
        "text",
        "prompt_tokens",
        "output_tokens",
        "finish_reason",
    }
    [row] = rows(Run(RunHeader("now", None, None), (never,), ()), "requests")
    assert all(row[name] is None or math.isnan(row[name]) for name in unknown)
    assert row["output_tokens"] == 0  # that is known


def test_a_request_without_an_api_price_costs_no_dollars_of_an_api() -> None:
    figures = request_figures(a_run().requests[0], PRICE, None)
    assert figures["api_usd"] is None
    assert figures["wall_usd"] == pytest.approx(0.4e-3)


def test_a_step_has_its_parts_and_what_it_computed() -> None:
    first, second = rows(a_run(), "steps")
    assert first == pytest.approx(
        {
            "step": 7,
            "start_s": 0.1,
            "duration_s": 0.2,
            "schedule_s": 0.02,
            "forward_s": 0.16,
            "update_s": 0.02,
            "cpu_s": 0.0,
            "threads": first["threads"],
            "tokens": 17,
            "prefill_tokens": 12,
            "recomputed_tokens": 4,
            "decode_tokens": 1,
            "draft_tokens": 0,
            "accepted_tokens": 0,
            "output_tokens": 2,
            "kv_tokens": 27,
            "scheduled": 2,
            "running": 2,
            "waiting": 1,
            "preempted": 1,
            "evicted_blocks": 2,
            "kv_blocks_free": 30,
            "max_num_seqs": 4,
            "max_num_batched_tokens": 64,
        },
        nan_ok=True,
    )
    assert math.isnan(first["threads"])
    assert (second["threads"], second["draft_tokens"], second["accepted_tokens"]) == (2, 3, 2)
    assert (second["output_tokens"], second["decode_tokens"], second["start_s"]) == (3, 1, pytest.approx(0.34))
    assert math.isnan(second["cpu_s"])
    assert math.isnan(second["kv_blocks_free"])
    assert math.isnan(second["max_num_seqs"])  # those of the load, which is not known


def test_a_token_event_has_the_gap_to_the_one_before_it_that_gave_tokens() -> None:
    first, tail, last = rows(a_run(), "tokens")
    assert first | {"itl_s": None} == {
        "request_id": "r1",
        "sample": 0,
        "step": 0,
        "time_s": 0.3,
        "itl_s": None,
        "tokens": 1,
        "token_ids": (0,),
        "text": "w0 ",
        "logprob": None,
    }
    assert math.isnan(first["itl_s"])
    assert (tail["tokens"], tail["token_ids"], tail["time_s"]) == (0, (), pytest.approx(0.34))
    assert math.isnan(tail["itl_s"])  # no token came, so there is no gap before it
    assert (last["tokens"], last["token_ids"]) == (3, (0, 1, 2))
    assert last["itl_s"] == pytest.approx(0.1)  # one gap for the three, from the token before


def test_a_token_event_has_the_log_probability_of_its_tokens_together() -> None:
    said = [None, (token(-0.5),), (), (token(-0.5), token(-1.25)), (token(-0.5), token(None))]
    counts = [1, 1, 0, 2, 2]
    sample = make_sample([300, 310, 320, 330, 340], tokens=counts)
    events = [msgspec.structs.replace(event, logprobs=of) for event, of in zip(sample.events, said, strict=True)]
    run = Run(RunHeader("now", None, None), (make_record(replace(sample, events=tuple(events))),), ())
    found = [row["logprob"] for row in rows(run, "tokens")]
    assert found == pytest.approx([math.nan, -0.5, math.nan, -1.75, math.nan], nan_ok=True)


def test_gaps_do_not_cross_samples() -> None:
    record = make_record(make_sample([300, 400]), make_sample([350, 600], index=1))
    run = Run(RunHeader("now", None, None), (record,), ())
    found = [(row["sample"], row["time_s"], row["itl_s"]) for row in rows(run, "tokens")]
    assert [item[:2] for item in found] == [(0, 3e-7), (0, 4e-7), (1, 3.5e-7), (1, 6e-7)]
    assert [item[2] for item in found] == pytest.approx([math.nan, 1e-7, math.nan, 2.5e-7], nan_ok=True)


def test_times_are_from_the_first_arrival_of_their_run() -> None:
    early, late = a_run(), replace(a_run(), requests=(a_run().requests[0],))
    late = replace(
        late, requests=(*late.requests, replace(late.requests[0], request_id="r0", arrival_ns=BEGUN - 100 * MS))
    )
    assert rows(early, "steps")[0]["start_s"] == pytest.approx(0.1)
    assert rows(late, "steps")[0]["start_s"] == pytest.approx(0.2)


def test_runs_of_files_say_which_run_a_row_is_of() -> None:
    runs = Runs([Recording(a_run().called("base")), Recording(a_run())])
    table = runs.to_pandas()
    assert table.columns[0] == "run"
    assert list(table["run"]) == ["base", 2]
    assert len(runs.to_pandas("steps")) == 4
    assert len(runs.to_pandas("tokens")) == 6
    assert "run" not in Recording(a_run()).to_pandas().columns


def test_unknown_rows_name_those_that_there_are() -> None:
    with pytest.raises(ConfigError, match=r"unknown rows 'step'; did you mean 'steps'\?; there is: requests, steps"):
        frame([a_run()], "step")
    assert [len(frame([a_run()], what)) for what in COLUMNS] == [1, 2, 3]


def test_a_session_has_frames_of_all_that_it_did(session: Session) -> None:
    session.generate(["a", "b"], max_tokens=2)
    assert list(session.to_pandas()["request_id"]) == ["r1", "r2"]
    assert len(session.to_pandas("tokens")) == 4
    assert session.to_pandas("steps")["output_tokens"].sum() == 4


def test_a_session_of_which_nothing_was_asked_has_empty_frames(scripted_session: Callable[..., Session]) -> None:
    assert [len(scripted_session().to_pandas(what)) for what in COLUMNS] == [0, 0, 0]  # type: ignore[arg-type]


@pytest.mark.parametrize("rows", COLUMNS)
def test_a_frame_with_rows_has_the_columns_of_one_without(rows: str) -> None:
    assert list(frame([made_run(2, 3)], rows).columns) == COLUMNS[rows] == list(frame([], rows).columns)
