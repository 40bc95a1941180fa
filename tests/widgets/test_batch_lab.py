"""The batch lab without a browser: workloads, runs, limits changed live, what is sent of them, and sweeps."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import traitlets

from jupyter_infer.bottleneck import Bottleneck
from jupyter_infer.engine.scripted import Script
from jupyter_infer.errors import ConfigError, EngineBusy, EngineFailed, PromptError
from jupyter_infer.records import Limits
from jupyter_infer.run import Run, RunHeader
from jupyter_infer.session import Session
from jupyter_infer.widgets import BatchLab
from jupyter_infer.widgets._growing import Growing
from jupyter_infer.widgets._lab_figures import knee, why
from jupyter_infer.widgets._lab_run import LabRun
from jupyter_infer.widgets._lab_workload import Workload
from tests.gate import WAIT, Gate

LONG = Script(answer=lambda prompt: [f"{number} " for number in range(100)], step_ns=lambda tokens: 1_000)


def words(text: str) -> int:
    return len(text.split())


def steps_of(lab: BatchLab) -> list[list[Any]]:
    return [*lab._settled, *lab._recent, *lab._latest]


def ask(lab: BatchLab, kind: str, /, **payload: Any) -> dict[str, Any]:
    """Ask as a view does, and return its reply."""
    replies: list[dict[str, Any]] = []
    lab.send = lambda content, buffers=None: replies.append(content)  # type: ignore[method-assign]
    lab._on_message(lab, {"kind": kind, "id": "v-1", "payload": payload}, [])
    (reply,) = replies
    return reply


@pytest.fixture
def gated(scripted_session: Callable[..., Session]) -> Iterator[tuple[Session, Gate]]:
    """A session whose steps stand at a gate; opened at the end."""
    gate = Gate()
    yield scripted_session(LONG, sleep=gate.sleep), gate
    gate.open()


# Workloads.


def test_prompts_have_the_tokens_that_are_asked_for_and_share_nothing() -> None:
    made = list(Workload(requests=5, prompt_tokens=12, output_tokens=1).prompts(words))
    assert [words(prompt) for prompt in made] == [12] * 5
    assert len({prompt.split()[0] for prompt in made}) == 5  # so not even a block of one token is shared
    again = list(Workload(requests=5, prompt_tokens=12, output_tokens=1).prompts(words))
    assert not set(made) & set(again)


def test_prompts_with_a_shared_prefix_differ_at_their_ends_only() -> None:
    made = list(Workload(requests=3, prompt_tokens=40, output_tokens=1, shared_prefix=True).prompts(words))
    assert [words(prompt) for prompt in made] == [40] * 3
    assert len({tuple(prompt.split()[:32]) for prompt in made}) == 1
    assert len(set(made)) == 3


@pytest.mark.parametrize("tokens", [1, 2, 3, 9])
@pytest.mark.parametrize("shared", [False, True])
def test_short_prompts_are_prompts(tokens: int, shared: bool) -> None:
    made = Workload(requests=2, prompt_tokens=tokens, output_tokens=1, shared_prefix=shared).prompts(words)
    assert [words(prompt) for prompt in made] == [tokens] * 2


def test_where_no_text_has_the_tokens_the_prompt_is_a_little_shorter() -> None:
    (made,) = Workload(requests=1, prompt_tokens=10, output_tokens=1).prompts(lambda text: 3 * words(text))
    assert words(made) == 3


def test_arrivals() -> None:
    def due(arrivals: str, seed: int = 0) -> list[int]:
        return Workload(4, 1, 1, arrivals, interval_s=0.5, seed=seed).due_ns()

    assert due("at once") == [0, 0, 0, 0]
    assert due("staggered") == [0, 500_000_000, 1_000_000_000, 1_500_000_000]
    assert due("poisson") == due("poisson")
    assert due("poisson") != due("poisson", seed=1)
    many = Workload(4001, 1, 1, "poisson", interval_s=0.5, seed=3).due_ns()
    assert many == sorted(many)
    assert many[-1] / 4000 == pytest.approx(5e8, rel=0.05)  # the mean of 4,000 gaps


# Runs.


def test_it_begins_with_nothing_loaded_and_nothing_known(session: Session) -> None:
    lab = BatchLab(session)
    assert (lab.requests, lab.arrivals, lab.sizes) == (8, "at once", [1, 2, 4, 8, 16, 32])
    assert (lab.state, lab._bounds, lab.result, lab.results, lab.points) == ("idle", None, None, [], [])
    assert set(lab._figures.values()) == {None, ""}
    assert lab.summary() == "Batch lab · 8 requests of 64 in → 32 out, at once"
    with pytest.raises(TypeError, match=r"'request'.*'requests'"):
        BatchLab(session, request=1)


def test_a_run_asks_a_batch_and_shows_what_it_gave(scripted_session: Callable[..., Session]) -> None:
    session = scripted_session(LONG)
    lab = BatchLab(session, requests=3, prompt_tokens=20, output_tokens=5)
    (results,) = lab.run().result(WAIT)
    assert [(r.usage.prompt_tokens, r.usage.output_tokens) for r in results.done] == [(20, 5)] * 3
    assert all(r.record.sampling["ignore_eos"] and r.record.sampling["temperature"] == 0 for r in results.done)
    assert lab.result is results
    assert lab.state == "done"
    assert lab._bounds == {
        "max_num_seqs": 256, "max_num_batched_tokens": 512, "block_size": 32, "kv_blocks_total": 256,
    }  # fmt: skip
    assert [(lane[0], lane[3], lane[4]) for lane in lab._lanes] == [
        ("r1", 5, "done"),
        ("r2", 5, "done"),
        ("r3", 5, "done"),
    ]
    assert all(0 <= lane[1] <= lane[2] for lane in lab._lanes)
    steps = steps_of(lab)
    assert [step[6] for step in steps] == ["ppp", "ddd", "ddd", "ddd", "ddd"]
    assert [step[2] for step in steps] == [60, 3, 3, 3, 3]
    assert {(step[3], step[4], step[7], step[8]) for step in steps} == {(3, 0, 256, 512)}
    assert [step[5] for step in steps] == [253, 253, 253, 253, 256]
    figures = lab._figures
    assert figures["output_tokens"] == 15
    assert figures["throughput"] == pytest.approx(15e9 / figures["elapsed_ns"])
    assert figures["usd_per_million"] == pytest.approx(session.price.usd(figures["elapsed_ns"]) / 15 * 1e6)
    assert re.fullmatch(r"✓ 3 requests · 60 in → 15 out · throughput [\d,.]+ tok/s · [\d.]+ .s", lab._status)
    assert (figures["running"], figures["waiting"], figures["pool_used"]) == (3, 0, 3)  # at most
    assert sum(lab._shares.values()) == pytest.approx(1)
    assert lab._limit.endswith(".")
    assert lab._charts == ["steps", "phases", "tokens", "cost", "kv"]
    (shown,) = lab._below.output.outputs
    assert "application/vnd.plotly.v1+json" in shown["data"]
    assert lab.static_html().count("✓ 3 requests") == 2  # of the lab, and of the chart below it
    assert "truncated" not in lab.static_html()


def test_the_first_run_tells_the_load_and_a_second_one_is_refused(gated: tuple[Session, Gate]) -> None:
    session, gate = gated
    lab = BatchLab(session, requests=2)
    run = lab.run()
    gate.wait()
    with pytest.raises(EngineBusy, match="run 1 of this lab goes on; stop it, or wait, to run again"):
        lab.run()
    with pytest.raises(EngineBusy, match="to clear it"):
        lab.clear()
    gate.let(3)
    assert lab.tick()
    assert (lab.state, lab._figures["output_tokens"], lab._status) == ("running", 6, "")
    assert [lane[4] for lane in lab._lanes] == ["decode", "decode"]
    gate.open()
    run.result(WAIT)
    assert not lab.tick()


def test_limits_are_changed_while_it_runs_and_are_the_engines_own_afterwards(gated: tuple[Session, Gate]) -> None:
    session, gate = gated
    lab = BatchLab(session, requests=3, output_tokens=20, max_num_seqs=2)
    run = lab.run()
    gate.wait()
    gate.let(1)
    done = threading.Event()
    replies: list[dict[str, Any]] = []

    def change() -> None:
        replies.append(ask(lab, "limits", max_num_seqs=None, max_num_batched_tokens=2))
        done.set()

    threading.Thread(target=change).start()  # it is answered between two steps
    while not done.wait(0.01):
        gate.let(1)
    gate.open()
    (results,) = run.result(WAIT)
    assert replies[0]["payload"] == {"max_num_seqs": None, "max_num_batched_tokens": 2}
    limits = [step.limits for step in results.run.steps]
    assert limits[0] == Limits(2, 512)
    assert limits[-1] == Limits(256, 2)
    seen = [(step[7], step[8]) for step in steps_of(lab)]
    assert seen == [(limit.max_num_seqs, limit.max_num_batched_tokens) for limit in limits if limit]
    assert steps_of(lab)[0][3:5] == [2, 1]  # one waits for a place
    assert {step.limits for step in session.generate("afterwards", max_tokens=2).run.steps} == {None}


@pytest.mark.parametrize(
    ("trait", "value", "said"),
    [
        ("requests", 65, "64"),
        ("requests", 0, "1"),
        ("prompt_tokens", 0, "1"),
        ("arrivals", "later", "at once"),
        ("interval_s", 0.0, "seconds above 0"),
        ("interval_s", float("nan"), "seconds above 0"),
        ("max_num_seqs", 257, "at most 256, which was loaded; for more, type %infer load --max-num-seqs N"),
        ("max_num_batched_tokens", 0, "1"),
        ("sizes", [1, 65], "sizes: whole numbers from 1 to 64; got 65"),
        ("sizes", ["2"], "sizes: whole numbers from 1 to 64; got '2'"),
        ("chart", "pie", "steps"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(session: Session, trait: str, value: Any, said: str) -> None:
    session.load()
    lab = BatchLab(session)
    before = getattr(lab, trait)
    with pytest.raises(traitlets.TraitError, match=re.escape(said)):
        setattr(lab, trait, value)
    assert getattr(lab, trait) == before
    kind = {"chart": "chart", "max_num_seqs": "limits", "max_num_batched_tokens": "limits"}.get(trait, "run")
    reply = ask(lab, kind, **({"kind": value} if kind == "chart" else {trait: value}))
    assert said.split("%")[0][:20] in reply["error"]
    assert "\n" not in reply["error"]
    assert lab.state == "idle"


def test_a_prompt_that_does_not_fit_is_told(scripted_session: Callable[..., Session]) -> None:
    lab = BatchLab(scripted_session(Script(max_model_len=50)), prompt_tokens=60)
    with pytest.raises(PromptError):
        lab.run().result(WAIT)
    assert lab.state == "failed"
    said = "prompts of 60 tokens and answers of 32 do not fit into the context of 50; shorten one of them"
    assert lab.error == said
    lab.prompt_tokens, lab.arrivals, lab.interval_s = 20, "staggered", 0.001
    with pytest.raises(PromptError, match="prompts of 20 tokens and answers of 32"):  # it would be cut
        lab.run().result(WAIT)
    lab.output_tokens = 30
    assert len(lab.run().result(WAIT)) == 1


def test_a_limit_above_what_is_loaded_later_fails_the_run_in_a_line(session: Session) -> None:
    lab = BatchLab(session, max_num_seqs=1000)
    with pytest.raises(ConfigError):
        lab.run().result(WAIT)
    assert "max_num_seqs can be changed between 1 and 256" in lab.error
    lab.max_num_seqs = None
    lab.run().result(WAIT)
    assert (lab.state, lab.error) == ("done", "")


@pytest.mark.parametrize("arrivals", ["staggered", "poisson"])
def test_requests_arrive_one_by_one(session: Session, arrivals: str) -> None:
    lab = BatchLab(session, requests=3, arrivals=arrivals, interval_s=0.02)
    (results,) = lab.run().result(WAIT)
    arrived = [result.record.arrival_ns for result in results.done]
    due = lab.workload.due_ns()
    assert [later - arrived[0] >= at - due[1] // 2 for later, at in zip(arrived, due, strict=True)] == [True] * 3
    assert sum(gap > 0 for gap in (arrived[1] - arrived[0], arrived[2] - arrived[1])) == 2


def test_stop_ends_it_and_keeps_what_was_answered(gated: tuple[Session, Gate]) -> None:
    session, gate = gated
    lab = BatchLab(session, requests=4, output_tokens=50, arrivals="staggered", interval_s=3600)
    run = lab.run()
    gate.let(3)  # of the first one; the others are far away
    assert ask(lab, "stop") == {"kind": "reply", "id": "v-1", "payload": {"stopped": True}}
    gate.open()
    (results,) = run.result(WAIT)
    assert lab.state == "stopped"
    assert [result.finish_reason for result in results.done] == ["abort"]
    assert [lane[4] for lane in lab._lanes] == ["stopped", "", "", ""]
    assert session.status().open_requests == 0
    assert not lab.stop()


def test_clear_takes_everything_away_but_what_is_asked(session: Session) -> None:
    lab = BatchLab(session, requests=2)
    lab.run().result(WAIT)
    lab.clear()
    assert (lab.state, lab.result, lab._lanes, steps_of(lab), lab._charts) == ("idle", None, [], [], [])
    assert set(lab._figures.values()) == {None, ""}
    assert lab._below.output.outputs == ()
    assert lab.requests == 2


def test_another_chart_is_drawn_at_once(session: Session) -> None:
    lab = BatchLab(session, requests=2)
    lab.chart = "cost"  # nothing to draw yet
    assert lab._below.output.outputs == ()
    lab.run().result(WAIT)
    before = lab._below.output.outputs
    ask(lab, "chart", kind="phases")
    assert lab.chart == "phases"
    assert lab._below.output.outputs != before


# What others do meanwhile.


def test_one_request_that_the_engine_refuses_leaves_the_others(
    scripted_session: Callable[..., Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = scripted_session(LONG)
    session.load()
    add = session.engines[0].add  # type: ignore[attr-defined]

    def refusing(request: Any) -> None:
        if request.request_id == "r2":
            raise ConfigError("not this one")
        add(request)

    monkeypatch.setattr(session.engines[0], "add", refusing)  # type: ignore[attr-defined]
    lab = BatchLab(session, requests=3, output_tokens=4)
    (results,) = lab.run().result(WAIT)
    assert [len(results.done), str(results[1].error)] == [2, "not this one"]  # type: ignore[union-attr]
    assert lab._status.endswith(" · 1 refused")
    assert [lane[4] for lane in lab._lanes] == ["done", "failed", "done"]


def test_an_engine_that_breaks_ends_the_run_and_nothing_runs_on(scripted_session: Callable[..., Session]) -> None:
    session = scripted_session(Script(LONG.answer, LONG.step_ns, fail_at_step=5))
    lab = BatchLab(session, requests=2, output_tokens=20)
    with pytest.raises(EngineFailed):
        lab.run().result(WAIT)
    assert lab.state == "failed"
    assert "scripted failure" in lab.error
    assert [lane[4] for lane in lab._lanes] == ["failed", "failed"]
    figures = lab._figures
    assert (figures["running"], figures["waiting"], figures["pool_used"]) == (None, None, None)
    assert figures["output_tokens"] > 0
    lab.tick()
    assert lab._figures == figures  # no time goes on
    assert session.status().open_requests == 0


def test_a_model_that_is_unloaded_meanwhile_is_not_loaded_again(gated: tuple[Session, Gate]) -> None:
    session, gate = gated
    lab = BatchLab(session, requests=3, arrivals="staggered", interval_s=0.5, max_num_seqs=1, output_tokens=90)
    run = lab.run()
    gate.let(1)
    gate.open()
    session.unload()
    with pytest.raises(EngineBusy, match="the model was unloaded, or another one loaded, meanwhile; run it again"):
        run.result(WAIT)
    assert session.info is None
    assert lab.state == "failed"
    assert len(session.engines) == 1  # type: ignore[attr-defined]


def test_a_second_lab_on_the_session_waits_for_its_turn(gated: tuple[Session, Gate]) -> None:
    session, gate = gated
    one, other = BatchLab(session, requests=1), BatchLab(session, requests=1)
    run = one.run()
    gate.wait()
    with pytest.raises(EngineBusy, match="another batch lab of this session runs; stop it, or wait, then run again"):
        other.run()
    assert (other.state, other._count) == ("idle", 0)
    gate.open()
    run.result(WAIT)
    other.run().result(WAIT)


def test_limits_that_the_engine_refuses_are_the_reply_and_stay_told(
    gated: tuple[Session, Gate], monkeypatch: pytest.MonkeyPatch
) -> None:
    session, gate = gated
    lab = BatchLab(session, requests=1, output_tokens=3)
    run = lab.run()
    gate.wait()

    def refuse(**limits: Any) -> None:
        raise ConfigError("these are fixed")

    monkeypatch.setattr(session, "set_limits", refuse)
    assert ask(lab, "limits", max_num_seqs=2)["error"] == "ConfigError: these are fixed"
    lab.tick()
    lab.tick()
    assert lab.error == "these are fixed"
    gate.open()
    run.result(WAIT)


def test_final_figures_stay_whatever_looks_later(gated: tuple[Session, Gate]) -> None:
    session, gate = gated
    lab = BatchLab(session, requests=2, arrivals="staggered", interval_s=3600, output_tokens=50)
    run = lab.run()
    gate.let(2)
    lab.stop()
    gate.open()
    run.result(WAIT)
    status, figures, steps = lab._status, lab._figures, steps_of(lab)
    assert status.startswith("■ 1 request · ")
    session.generate("of somebody else", max_tokens=9)
    lab.tick()
    assert (lab._status, lab._figures, steps_of(lab)) == (status, figures, steps)
    lab._shown_runs._over = None
    run._done = False  # as a tick sees it between the last result and the end
    lab.tick()
    assert (lab._status, lab._figures) == (status, figures)


def test_a_warm_up_that_is_stopped_is_none(
    scripted_session: Callable[..., Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jupyter_infer.engine.scripted.ScriptedEngine.bandwidth", lambda self: 1e10)
    gate = Gate()
    session = scripted_session(LONG, sleep=gate.sleep)
    lab = BatchLab(session, requests=2, output_tokens=3)
    run = lab.run()
    gate.wait()
    lab.stop()
    gate.open()
    assert run.result(WAIT) == []
    assert (lab.state, lab._progress) == ("stopped", "stopped while warming up")
    assert (lab._lanes, lab._figures["throughput"], lab._status) == ([], None, "")  # it was nobody's result
    lab.run().result(WAIT)
    assert len(session.history) == 8 + 8 + 4 + 1 + 2  # so the next run does it


def test_the_card_tells_what_was_measured_and_not_what_is_set_now(scripted_session: Callable[..., Session]) -> None:
    lab = BatchLab(scripted_session(LONG), requests=2, output_tokens=5, sizes=[1, 3])
    lab.sweep().result(WAIT)
    lab.requests, lab.output_tokens = 4, 7
    lab.run().result(WAIT)
    lab.requests, lab.output_tokens = 64, 100
    card = lab.static_html()
    assert "4 requests of 64 in → 7 out, at once" in card
    assert "Sweep: requests of 64 in → 5 out, at once" in card
    assert "64 requests" not in card
    assert lab._charts
    assert lab._below.html
    lab.prompt_tokens = 10**6
    with pytest.raises(PromptError):
        lab.run().result(WAIT)
    assert lab._below.html == ""  # the chart of another run


def test_who_waits_for_a_first_token_counts_in_the_ttft(gated: tuple[Session, Gate]) -> None:
    session, gate = gated
    lab = BatchLab(session, requests=4, output_tokens=3, max_num_seqs=1)
    run = lab.run()
    gate.let(1)
    lab.tick()
    assert (lab._figures["ttft_p50_ns"], lab._figures["ttft_p95_ns"]) == (None, None)  # of one in four it is known
    gate.let(3)
    gate.let(3)
    lab.tick()
    assert lab._figures["ttft_p50_ns"] > 0  # of three
    assert lab._figures["ttft_p95_ns"] is None
    gate.open()
    (results,) = run.result(WAIT)
    assert lab._figures["ttft_p95_ns"] > 0
    assert len(steps_of(lab)) == len(results.run.steps)


def test_what_a_cell_stops_ends_a_run_whose_requests_still_come(gated: tuple[Session, Gate]) -> None:
    session, gate = gated
    lab = BatchLab(session, requests=3, output_tokens=50, arrivals="staggered", interval_s=0.2)
    run = lab.run()
    gate.let(1)
    stopped = session._worker.stop()
    gate.open()
    assert stopped.wait(WAIT) == 1
    (results,) = run.result(WAIT)
    assert (lab.state, len(results)) == ("stopped", 1)


def test_equal_shares_are_called_equal() -> None:
    def said(**shares: int) -> str:
        return why(Run(RunHeader("now", None, None), (), ()), Bottleneck(100, shares))

    assert said(host=36, compute=34, bandwidth=30) == (
        "Limited by the host and compute, about equally: 36\u00a0% and 34\u00a0% of the time; "
        "memory bandwidth 30\u00a0%."
    )
    assert said(cap=90, host=10).startswith("Limited by max sequences: requests waited for a place in the batch, 90")
    assert said(model=90, host=10).startswith("What limited it is not known yet: 90")


# Sweeps.


def test_a_sweep_gives_a_point_a_size_by_size(scripted_session: Callable[..., Session]) -> None:
    session = scripted_session(LONG)
    lab = BatchLab(session, output_tokens=6, sizes=[4, 1, 2, 2], max_num_seqs=1)
    found = lab.sweep().result(WAIT)
    assert [len(results) for results in found] == [4, 1, 2]
    assert [point["requests"] for point in lab.points] == [1, 2, 4]
    assert lab.results == found
    by_size = {len(results): results for results in found}
    for point in lab.points:
        records = [result.record for result in by_size[point["requests"]].done]
        tokens = sum(record.output_tokens for record in records)
        wall = max(r.last_token_ns for r in records) - min(r.arrival_ns for r in records)
        assert point["throughput"] == pytest.approx(tokens * 1e9 / wall)
    assert lab.points[-1]["shares"]["cap"] > 0  # four for one place; which share is the largest is the machine's to say
    assert lab.points[-1]["limit"] in lab.points[-1]["shares"]
    assert "max sequences" in lab.points[-1]["why"]
    assert lab._knee == knee(lab.points)
    assert lab._progress == ""
    assert lab.static_html().count("tok/s") >= 6
    json.dumps(lab.get_state(["_points", "_figures", "_shares"]), allow_nan=False)  # A23


def test_a_sweep_that_is_stopped_has_whole_points_only(gated: tuple[Session, Gate]) -> None:
    session, gate = gated
    lab = BatchLab(session, sizes=[1, 2], output_tokens=5)
    run = lab.sweep()
    gate.wait()
    lab.tick()
    assert lab._progress == "sweep: 1 request, 1 of 2"
    gate.let(5)
    lab.tick()
    assert lab._progress == "sweep: 2 requests, 2 of 2"
    lab.stop()
    gate.open()
    run.result(WAIT)
    assert (lab.state, len(lab.points)) == ("stopped", 1)
    assert lab._progress == "sweep: 1 of 2 sizes; shown is the one that was stopped, of 2 requests"


def test_what_somebody_else_ends_is_stopped_and_no_point(gated: tuple[Session, Gate]) -> None:
    session, gate = gated
    lab = BatchLab(session, sizes=[1, 2], output_tokens=5)
    run = lab.sweep()
    gate.wait()
    gate.let(2)
    stopped = session._worker.stop()  # in the inbox before the gate opens
    gate.open()
    assert stopped.wait(WAIT) == 1
    run.result(WAIT)
    assert (lab.state, lab.points) == ("stopped", [])


def test_an_engine_that_computes_is_warmed_up_once(
    scripted_session: Callable[..., Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jupyter_infer.engine.scripted.ScriptedEngine.bandwidth", lambda self: 1e10)
    session = scripted_session(LONG)
    lab = BatchLab(session, requests=2, output_tokens=3)
    seen: set[str] = set()
    lab.observe(lambda change: seen.add(change["new"]), "_progress")
    asked = LabRun._ask

    def looked_at(run: LabRun, workload: Workload) -> Any:
        lab.tick()
        results = asked(run, workload)
        lab.tick()
        return results

    monkeypatch.setattr(LabRun, "_ask", looked_at)
    (first,) = lab.run().result(WAIT)
    assert seen == {"", "preparing the prompts", "warming up; not counted"}
    assert lab.results == [first]
    assert len(session.history) == 8 + 4 + 1 + 2
    lab.run().result(WAIT)
    assert len(session.history) == 8 + 4 + 1 + 2 + 2
    BatchLab(session, requests=2, output_tokens=3).run().result(WAIT)  # another lab, the same engine
    assert len(session.history) == 8 + 4 + 1 + 2 + 2 + 2


def test_a_sweep_needs_sizes(session: Session) -> None:
    lab = BatchLab(session, sizes=[])
    with pytest.raises(ConfigError, match=r"a sweep needs sizes: lab\.sizes = \[1, 2, 4, 8\]"):
        lab.sweep()


@pytest.mark.parametrize(
    ("rates", "at"),
    [
        ([10, 20, 40, 41], 2),
        ([10, 20, 40, 80], None),  # it grows on
        ([10, 20], None),
        ([10, 9, 8], 0),
        ([None, 10, 20, 21], 2),
        ([None, None, None], None),
    ],
)
def test_the_knee_is_the_smallest_batch_with_almost_the_highest_throughput(rates: list[Any], at: int | None) -> None:
    assert knee([{"throughput": rate} for rate in rates]) == at  # type: ignore[typeddict-item]


# What is sent.


def test_a_lab_that_is_closed_takes_the_place_of_its_charts_along(session: Session) -> None:
    lab = BatchLab(session, requests=1)
    lab.run().result(WAIT)
    lab.close()
    assert lab._below.output.comm is None
    lab.run().result(WAIT)  # from Python it can go on
    assert lab.result is not None


def test_a_growing_list_is_sent_in_parts_and_forgets_its_beginning() -> None:
    grown: Growing[int] = Growing(latest=4, recent=8, most=16)
    parts = set()
    for number in range(100):
        grown.add([number])
        settled, recent, latest = grown.parts
        assert [*settled, *recent, *latest][-1] == number
        assert len(latest) <= 4
        parts.add(id(settled))
    settled, recent, latest = grown.parts
    assert [*settled, *recent, *latest] == list(range(grown.forgotten, 100))
    assert 16 <= len(settled) + len(recent) + len(latest) <= 16 + 8 + 4 + 4
    before = grown.parts
    grown.add([])
    assert grown.parts is before
    late: Growing[int] = Growing(latest=4, recent=8, most=16)
    late.add(list(range(100)))
    assert [len(part) for part in late.parts] == [16, 0, 0]
    assert late.forgotten == 84


def test_what_is_sent_of_a_long_run_stays_small(
    scripted_session: Callable[..., Session], sent: Callable[..., list[dict[str, Any]]]
) -> None:
    session = scripted_session(LONG)
    lab = BatchLab(session, requests=64, output_tokens=90)
    lab.run().result(WAIT)
    messages = sent(lab)
    lab.tick()
    assert messages == []  # nothing new, nothing sent
    assert sum(len(json.dumps(step)) for step in lab._latest) < 6_000
