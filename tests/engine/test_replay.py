"""A recorded run is played again: the same answers, steps and times under new names, and nothing besides."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from builders import make_record, make_sample, make_step, make_work
from gate import WAIT

from jupyter_infer import loading as loading_module
from jupyter_infer import session as session_module
from jupyter_infer.engine.ledger import Ledger
from jupyter_infer.engine.protocol import EngineRequest
from jupyter_infer.engine.replay import WAIT_NS, ReplayEngine, is_recording
from jupyter_infer.engine.scripted import Script, ScriptedEngine, VirtualClock
from jupyter_infer.errors import ConfigError, EngineBusy, ModelError, PromptError
from jupyter_infer.jsonl import write_file
from jupyter_infer.records import RequestRecord, StepRecord
from jupyter_infer.run import Run, RunHeader
from jupyter_infer.session import Session

SHIFT = 1_000_000_007
BEGUN = 5_000_000_000
MS = 1_000_000

# Chunked prefill, a pool that is too small, an answer that ends by itself and some that are cut.
SCRIPT = Script(
    answer=lambda prompt: [f"{prompt.split()[0]}{number} " for number in range(4 if "short" in prompt else 30)],
    step_ns=lambda tokens: 1_000_000 + 10_007 * tokens,
    block_size=4,
    blocks=16,
    token_budget=16,
)
ASKED: list[tuple[int, str, dict[str, Any]]] = [
    (0, "a " * 24, {"max_tokens": 12}),
    (200_000, "b short", {"max_tokens": 12, "n": 2}),
    (1_500_000, "c " * 10, {"max_tokens": 20}),
    (4_000_000, "d d d", {"max_tokens": 20}),
    (400_000_000, "e after a while", {"max_tokens": 3}),
]


def request_of(engine: Any, request_id: str, prompt: str, values: dict[str, Any]) -> EngineRequest:
    rendered = engine.render(prompt)
    sampling = engine.admit(rendered, values)
    return EngineRequest(request_id, prompt[:200], rendered, sampling, int(sampling.get("n") or 1))


def recorded(
    asked: Sequence[tuple[int, str, dict[str, Any]]] = ASKED,
    script: Script = SCRIPT,
    abort: dict[int, str] | None = None,
) -> Run:
    """Return a run of the scripted engine on a virtual clock; `abort` is before which step whose request is."""
    clock = VirtualClock(BEGUN)
    engine = ScriptedEngine(script, clock=clock)
    ledger, waiting = Ledger("scripted"), list(enumerate(asked, 1))
    records: list[RequestRecord] = []
    steps: list[StepRecord] = []
    while waiting or engine.has_unfinished():
        if waiting and not engine.has_unfinished():
            clock.now_ns = max(clock.now_ns, BEGUN + waiting[0][1][0])
        while waiting and BEGUN + waiting[0][1][0] <= clock.now_ns:
            number, (at_ns, prompt, values) = waiting.pop(0)
            request = request_of(engine, f"r{number}", prompt, values)
            engine.add(request)
            ledger.open(request, arrival_ns=BEGUN + at_ns, enqueued_ns=clock.now_ns, load_ns=None)
        if (name := (abort or {}).get(len(steps))) and name in ledger._open:
            engine.abort([name])
            records.append(ledger.close(name, clock.now_ns))
        result = engine.step()
        steps += [step for step in result.steps if step.work or step.preempted]
        records += ledger.book(result)[1]
    records.sort(key=lambda record: record.arrival_ns)
    return Run(RunHeader("2026-12-01", engine.info, None), tuple(records), tuple(steps))


def played(
    run: Run, records: Sequence[RequestRecord] | None = None
) -> tuple[dict[str, RequestRecord], list[StepRecord]]:
    """Return what a replay gives if its requests are handed over `SHIFT` later than they were, as x1 for r1."""
    clock = VirtualClock(0)
    engine = ReplayEngine(run, clock=clock, sleep=clock.sleep)
    ledger, waiting = Ledger(engine.info.model), sorted(records or run.requests, key=lambda r: r.enqueued_ns or 0)
    ended: list[RequestRecord] = []
    steps: list[StepRecord] = []
    while waiting or engine.has_unfinished():
        if waiting and not engine.has_unfinished():
            clock.now_ns = max(clock.now_ns, (waiting[0].enqueued_ns or 0) + SHIFT)
        while waiting and (waiting[0].enqueued_ns or 0) + SHIFT <= clock.now_ns:
            record = waiting.pop(0)
            assert record.enqueued_ns is not None
            now_ns, clock.now_ns = clock.now_ns, record.enqueued_ns + SHIFT
            request = request_of(engine, record.request_id.replace("r", "x"), record.label, record.sampling)
            engine.add(request)
            clock.now_ns = now_ns
            ledger.open(
                request, arrival_ns=record.arrival_ns + SHIFT, enqueued_ns=record.enqueued_ns + SHIFT, load_ns=None
            )
        result = engine.step()
        steps += result.steps
        ended += ledger.book(result)[1]
    return {record.request_id: record for record in ended}, steps


def moved(record: RequestRecord) -> RequestRecord:
    """Return a record as its replay is to be: later, and under the names of the replay."""
    name = record.request_id.replace("r", "x")
    at = {
        field: None if getattr(record, field) is None else getattr(record, field) + SHIFT
        for field in ("arrival_ns", "enqueued_ns", "started_ns", "first_token_ns", "last_token_ns", "finished_ns")
    }
    samples = tuple(
        replace(
            sample,
            events=tuple(
                msgspec.structs.replace(event, request_id=name, time_ns=event.time_ns + SHIFT)
                for event in sample.events
            ),
        )
        for sample in record.samples
    )
    return replace(record, request_id=name, model="scripted (replay)", samples=samples, **at)


# Played again as it was.


def test_the_recorded_session_has_what_makes_it_hard() -> None:
    run = recorded()
    assert run.complete
    assert sum(record.preemptions for record in run.requests) > 0
    assert any(record.stalled_ns for record in run.requests)
    assert sum(any(work.request_id == "r1" and work.prefill_tokens for work in step.work) for step in run.steps) > 1
    assert {record.finish_reason for record in run.requests} == {"stop", "length"}
    assert [len(record.samples) for record in run.requests] == [1, 2, 1, 1, 1]


@pytest.mark.parametrize("in_flight", [1, 2])
def test_all_that_was_measured_is_played_again_to_the_nanosecond(in_flight: int) -> None:
    run = recorded(script=replace(SCRIPT, in_flight=in_flight))
    again, steps = played(run)
    assert len(steps) == len(run.steps)
    for record in run.requests:
        assert again[record.request_id.replace("r", "x")] == moved(record)
    for before, after in zip(run.steps, steps, strict=True):
        assert after.start_ns == before.start_ns + SHIFT
        assert (after.schedule_ns, after.forward_ns, after.update_ns) == (
            before.schedule_ns,
            before.forward_ns,
            before.update_ns,
        )
        renamed = tuple(
            msgspec.structs.replace(work, request_id=work.request_id.replace("r", "x")) for work in before.work
        )
        assert after.work == renamed
        assert after.preempted == tuple((name.replace("r", "x"), sample) for name, sample in before.preempted)
        assert after.freed == tuple((name.replace("r", "x"), sample) for name, sample in before.freed)
        assert (after.running, after.waiting, after.kv_blocks_free) == (
            before.running,
            before.waiting,
            before.kv_blocks_free,
        )


def test_a_request_alone_keeps_its_times_and_its_neighbours_under_other_names() -> None:
    run = recorded()
    [third] = [record for record in run.requests if record.label.startswith("c ")]
    again, steps = played(run, [third])
    wanted = moved(third)
    record = again["x3"]
    assert [sample.text for sample in record.samples] == [sample.text for sample in third.samples]
    for field in ("started_ns", "first_token_ns", "last_token_ns", "finished_ns", "stalled_ns", "preemptions"):
        assert getattr(record, field) == getattr(wanted, field), field
    names = {work.request_id for step in steps for work in step.work}
    assert "x3" in names
    assert names - {"x3"} == {"r1 of the recording", "r2 of the recording", "r4 of the recording"}
    freed = {name for step in steps for name, _ in step.freed}
    assert freed <= names


def test_who_gave_blocks_back_has_the_name_that_it_computed_under() -> None:
    run = recorded(abort={6: "r1"})
    assert ("r1", 0) in run.steps[6].freed  # in the step after its last one
    _, steps = played(run)
    assert [name for step in steps for name, _ in step.freed].count("x1") == 1


def test_an_aborted_request_ends_after_its_last_step_with_what_it_had() -> None:
    run = recorded(abort={6: "r1"})
    [first] = [record for record in run.requests if record.request_id == "r1"]
    assert first.finish_reason == "abort"
    record = played(run)[0]["x1"]
    assert record.finish_reason == "abort"
    assert record.samples[0].text == first.samples[0].text
    assert record.samples[0].token_ids == first.samples[0].token_ids
    last = max(step.end_ns for step in run.steps if any(work.request_id == "r1" for work in step.work))
    assert record.finished_ns == last + SHIFT
    assert not record.samples[0].events[-1].token_ids  # the end that the recording has no event for


def test_what_was_aborted_in_the_queue_cannot_be_played() -> None:
    queued = make_record(
        make_sample([], finish="abort"), request_id="r2", prompt="Never", label="Never", started_ns=None
    )
    run = replace(tiny_run(), requests=(*tiny_run().requests, queued))
    engine = ReplayEngine(run)
    with pytest.raises(PromptError, match="aborted before a step; there is nothing to play again"):
        engine.admit(engine.render("Never"), {})


def test_a_request_twice_at_once_is_played_one_after_the_other() -> None:
    run = tiny_run()
    clock = VirtualClock(0)
    engine = ReplayEngine(run, clock=clock, sleep=clock.sleep)
    ledger = Ledger("m")
    for name in ("a", "b"):
        request = request_of(engine, name, "Why?", {})
        engine.add(request)
        ledger.open(request, arrival_ns=0, enqueued_ns=0, load_ns=None)
    steps, records = [], []
    while engine.has_unfinished():
        result = engine.step()
        steps += result.steps
        records += ledger.book(result)[1]
    assert {record.request_id: record.samples[0].text for record in records} == {"a": "w0 w1 ", "b": "w0 w1 "}
    assert all(before.end_ns <= after.start_ns for before, after in itertools.pairwise(steps))
    assert all(len(step.work) == 1 for step in steps)  # nobody computes for two


def test_who_had_a_step_has_it_no_second_time() -> None:
    """The second one comes late, and is played from its first step on, which the first one was in, too."""
    run = recorded([(0, "a one", {"max_tokens": 3}), (0, "b two", {"max_tokens": 3})])
    clock = VirtualClock(0)
    engine = ReplayEngine(run, clock=clock, sleep=clock.sleep)
    engine.add(request_of(engine, "x1", "a one", {}))
    played: list[set[str]] = []
    while engine.has_unfinished():
        for step in engine.step().steps:
            played.append({work.request_id for work in step.work})
            if len(played) == 1:
                engine.add(request_of(engine, "x2", "b two", {}))
    assert played == [{"x1", "r2 of the recording"}, {"x2"}, {"x1", "x2"}, {"x1", "x2"}]


def test_a_tail_of_text_comes_with_the_step_that_gave_it() -> None:
    """Text that was held back can come in a step that computed nothing of the request."""
    run = tiny_run()
    record = run.requests[0]
    tail = msgspec.structs.replace(
        record.samples[0].events[-1], step=2, time_ns=500, token_ids=(), text="tail", finish_reason="stop"
    )
    sample = replace(record.samples[0], events=(*record.samples[0].events, tail))
    third = make_step(make_work("r9"), start=400, end=500, index=2)
    run = replace(run, requests=(replace(record, samples=(sample,)),), steps=(*run.steps, third))
    assert answer(still(run), "Why?") == "w0 w1 tail"


def test_a_wait_is_slept_in_pieces_and_can_be_cancelled() -> None:
    """A request that waited long for its first step can be dropped while it waits again."""
    run = tiny_run(started_ns=10 * WAIT_NS)
    clock = VirtualClock(0)
    engine = ReplayEngine(run, clock=clock, sleep=clock.sleep)
    engine.add(request_of(engine, "x", "Why?", {}))
    assert engine.step().steps == ()
    assert clock.now_ns == WAIT_NS
    engine.abort(["x", "unknown"])
    assert not engine.has_unfinished()
    assert engine.step().steps == ()
    assert clock.now_ns == WAIT_NS


def test_who_comes_while_another_waits_for_its_step_is_in_it() -> None:
    run = recorded([(0, "a one", {"max_tokens": 2}), (0, "b two", {"max_tokens": 2})])
    again, steps = played(
        replace(run, requests=tuple(replace(r, enqueued_ns=BEGUN - n) for n, r in enumerate(run.requests)))
    )
    assert len(steps) == len(run.steps)
    assert {work.request_id for work in steps[0].work} == {"x1", "x2"}
    assert len(again) == 2


# What it is asked.


def tiny_run(started_ns: int = 100, **facts: Any) -> Run:
    """A request of two tokens in two steps."""
    first, second = started_ns + 200, started_ns + 300
    record = make_record(make_sample([first, second]), started_ns=started_ns, enqueued_ns=10, **facts)
    steps = (
        make_step(make_work(tokens=10, prefill_tokens=10), start=started_ns, end=first, index=0),
        make_step(make_work(), start=first, end=second, index=1),
    )
    return Run(RunHeader("now", ScriptedEngine().info, None), (record,), steps)


def runs_apart(*records: RequestRecord) -> Run:
    """Return a run of requests of one step each, one after the other."""
    made, steps = [], []
    for index, record in enumerate(records):
        name, start = f"r{index + 1}", 1000 * index
        event = msgspec.structs.replace(record.samples[0].events[0], request_id=name, step=index, time_ns=start + 500)
        event = msgspec.structs.replace(event, text=f"answer {index + 1}")
        made.append(
            replace(
                record,
                request_id=name,
                arrival_ns=start,
                enqueued_ns=start,
                started_ns=start,
                samples=(replace(record.samples[0], events=(event,)),),
            )
        )
        steps.append(make_step(make_work(name), start=start, end=start + 500, index=index))
    return Run(RunHeader("now", ScriptedEngine().info, None), tuple(made), tuple(steps))


def answer(engine: ReplayEngine, prompt: Any, **values: Any) -> str:
    """Return what the replay answers, played to the end."""
    rendered = engine.render(prompt)
    sampling = engine.admit(rendered, values)
    engine.add(EngineRequest("x", "", rendered, sampling))
    text = ""
    while engine.has_unfinished():
        text += "".join(output.text for output in engine.step().outputs)
    return text


def still(run: Run) -> ReplayEngine:
    clock = VirtualClock(0)
    return ReplayEngine(run, name="x.jsonl", clock=clock, sleep=clock.sleep)


def one(**facts: Any) -> RequestRecord:
    return make_record(make_sample([500]), **facts)


def test_the_same_prompt_again_gets_the_recorded_answers_in_turn_and_then_from_the_start() -> None:
    engine = still(runs_apart(one(), one(), one(prompt="Else", label="Else")))
    assert [answer(engine, "Why?") for _ in range(4)] == ["answer 1", "answer 2", "answer 1", "answer 2"]


def test_answers_that_were_drawn_have_seeds_of_their_own_and_their_turn() -> None:
    """vLLM's requests that sample are each recorded with another seed."""
    records = [one(sampling={"max_tokens": 8, "seed": seed}) for seed in (11, 12)]
    engine = still(runs_apart(*records))
    assert [answer(engine, "Why?", max_tokens=8) for _ in range(3)] == ["answer 1", "answer 2", "answer 1"]
    assert answer(engine, "Why?", seed=12) == "answer 2"


def test_a_notebook_that_is_run_again_gets_its_answers_in_its_order() -> None:
    """The second cell gave no value, and what it was recorded with is the default."""
    engine = still(runs_apart(one(sampling={"max_tokens": 5}), one(sampling={"max_tokens": 256})))
    for _ in range(2):
        assert answer(engine, "Why?", max_tokens=5) == "answer 1"
        assert answer(engine, "Why?") == "answer 2"


def test_a_batch_is_chosen_before_any_of_it_is_played() -> None:
    engine = still(runs_apart(one(), one()))
    chosen = [(engine.render("Why?"), engine.admit(engine.render("Why?"), {})) for _ in range(2)]
    for name, (rendered, sampling) in zip("ab", chosen, strict=True):
        engine.add(EngineRequest(name, "", rendered, sampling))
    texts = {"a": "", "b": ""}
    while engine.has_unfinished():
        for output in engine.step().outputs:
            texts[output.request_id] += output.text
    assert texts == {"a": "answer 1", "b": "answer 2"}


@pytest.mark.parametrize(
    ("asked", "answered"),
    [
        ("Hi", "answer 2"),
        ([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}], "answer 1"),
        ([{"role": "system", "content": " Rhyme. "}, {"role": "user", "content": "Hi"}], "answer 3"),
        (
            [
                {"role": "user", "content": "Hi"},
                {"role": "assistant", "content": "<think>…</think>Hello"},
                {"role": "user", "content": "More"},
            ],
            "answer 4",
        ),
    ],
)
def test_a_system_message_and_a_conversation_belong_to_the_prompt(asked: Any, answered: str) -> None:
    prompts = {"<s>Be brief.<u>Hi": "Hi", "<u>Hi": "Hi", "<s>Rhyme.<u>Hi": "Hi", "<u>Hi<a>Hello<u>More": "More"}
    engine = still(runs_apart(*(one(prompt=prompt, label=label) for prompt, label in prompts.items())))
    assert answer(engine, asked) == answered


def test_a_system_message_that_was_not_recorded_is_no_prompt_of_the_recording() -> None:
    engine = still(runs_apart(one(prompt="<u>Hi", label="Hi")))
    with pytest.raises(PromptError, match=r"x\.jsonl has no such prompt"):
        engine.render([{"role": "system", "content": "Rhyme."}, {"role": "user", "content": "Hi"}])


def test_a_raw_completion_is_told_from_a_templated_prompt() -> None:
    engine = still(runs_apart(one(prompt="Hi", label="Hi"), one(prompt="<u>Hi", label="Hi")))
    assert engine.render("Hi", template=False).text == "Hi"
    assert engine.render("Hi").text == "<u>Hi"
    alone = still(runs_apart(one(prompt="<u>Hi", label="Hi")))
    with pytest.raises(PromptError):
        alone.render("Hi", template=False)


def test_a_long_prompt_is_known_by_its_beginning_and_by_all_of_it() -> None:
    """A record keeps the first 200 characters of what was asked."""
    text = "word " * 100
    engine = still(runs_apart(one(prompt=f"<u>{text.strip()}", label=text[:200], prompt_tokens=100)))
    assert engine.render(text).text == f"<u>{text.strip()}"
    assert len(engine.render(text).token_ids) == 100
    with pytest.raises(PromptError):
        engine.render(f"{text}and another end")


def test_an_unknown_prompt_names_near_ones_and_some_that_there_are() -> None:
    labels = [f"Name colour {number}." for number in range(7)]
    engine = still(runs_apart(*(one(prompt=f"<u>{label}", label=label) for label in labels)))
    with pytest.raises(PromptError) as caught:
        engine.render("Name colour 9.")
    assert str(caught.value).startswith("x.jsonl has no such prompt; did you mean 'Name colour")
    assert str(caught.value).endswith("'Name colour 4.' and 2 more")
    with pytest.raises(PromptError, match="the prompt is empty"):
        engine.render(" \n")
    with pytest.raises(PromptError, match="the prompt is empty"):
        engine.render([])


def test_a_value_that_was_not_recorded_says_which_was() -> None:
    engine = still(runs_apart(one(sampling={"max_tokens": 8, "stop": ["a"]})))
    prompt = engine.render("Why?")
    with pytest.raises(ConfigError) as caught:
        engine.admit(prompt, {"max_tokens": 9})
    assert str(caught.value) == "x.jsonl was recorded with max_tokens 8, not 9; leave it out"
    with pytest.raises(ConfigError, match=r"recorded with top_p None, not 0\.5"):
        engine.admit(prompt, {"top_p": 0.5})
    assert engine.admit(prompt, {"stop": ("a",), "max_tokens": 8}) == {"max_tokens": 8, "stop": ["a"]}


# What it says of itself.


def test_it_says_that_it_is_a_replay() -> None:
    info = still(tiny_run()).info
    assert (info.model, info.engine) == ("scripted (replay)", "replay of scripted")
    assert info.is_replay
    assert not ScriptedEngine().info.is_replay
    assert info.notices == ("a replay of x.jsonl: answers and times are those that were recorded, nothing is computed",)
    assert (info.block_size, info.kv_blocks_total, info.load_ns) == (32, 256, None)


def test_a_replay_of_a_replay_says_so_once() -> None:
    run = tiny_run()
    again = replace(run, header=replace(run.header, engine=still(run).info))
    assert still(again).info == still(run).info


def test_without_a_known_engine_the_model_is_that_of_the_requests() -> None:
    info = still(replace(tiny_run(), header=RunHeader("now", None, None))).info
    assert (info.model, info.engine) == ("scripted (replay)", "replay of an engine")


def test_it_has_no_tokenizer() -> None:
    with pytest.raises(ConfigError, match="a replay has no tokenizer; load a model: %infer load MODEL"):
        still(tiny_run()).tokens("a")


def test_blocks_are_free_as_they_were_and_all_of_them_when_nobody_is_left() -> None:
    run = tiny_run()
    run = replace(run, steps=(replace(run.steps[0], kv_blocks_free=250), run.steps[1]))
    engine = still(run)
    engine.add(request_of(engine, "x", "Why?", {}))
    assert not engine.reset_prefix_cache()
    while not engine.step().steps:
        pass
    assert engine.kv_blocks_free() == 250
    while engine.has_unfinished():
        engine.step()
    assert engine.kv_blocks_free() == 256
    assert engine.reset_prefix_cache()


@pytest.mark.parametrize("steps", [slice(0, 0), slice(1, None), slice(0, 1)], ids=["none", "no first", "no last"])
def test_a_run_whose_steps_are_forgotten_cannot_be_played(steps: slice) -> None:
    run = tiny_run()
    with pytest.raises(ConfigError, match=r"x\.jsonl does not hold all steps of its requests"):
        still(replace(run, steps=run.steps[steps]))


def test_a_recording_is_known_by_its_name() -> None:
    assert is_recording("~/runs/x.jsonl")
    assert not is_recording("smollm2-135m")


# Through a session.


@pytest.fixture
def opened(no_engine_threads: None) -> Iterator[Callable[..., Session]]:
    """Make sessions, as users do, and unload them."""
    made: list[Session] = []

    def make(*options: Any, **settings: Any) -> Session:
        made.append(Session(*map(str, options), **settings))
        return made[-1]

    yield make
    for session in made:
        session.unload()


@pytest.fixture
def asked_before(scripted_session: Callable[..., Session]) -> Session:
    """A session of which something was asked, that can be recorded."""
    script = Script(answer=lambda prompt: [f"{prompt}-{n} " for n in range(3)], step_ns=lambda tokens: 100_000)
    session = scripted_session(script)
    session.generate(["one", "two"], max_tokens=2)
    session.generate("three", n=2)
    return session


def test_a_session_plays_what_another_one_recorded(
    asked_before: Session, tmp_path: Path, opened: Callable[..., Session]
) -> None:
    path = asked_before.to_jsonl(tmp_path / "x.jsonl")
    again = opened(path)
    batch, third = again.generate(["one", "two"]), again.generate("three")
    assert [batch[0].text, batch[1].text, third.text] == ["one-0 one-1 ", "two-0 two-1 ", "three-0 three-1 three-2 "]
    assert len(third.texts) == 2
    for before, after in zip(asked_before.history, again.history, strict=True):
        assert after.record.model == "scripted (replay)"
        assert after.phases.prefill_ns == before.phases.prefill_ns
        assert after.phases.decode_ns == before.phases.decode_ns
        assert after.finish_reason == before.finish_reason
    assert batch.status.startswith("✂ 2 requests")
    assert batch.status.endswith(" · 2 truncated · replay")
    assert "(replay)" in third.status
    assert again.runs[0].run.engine.is_replay
    assert again.status().info.notices


def test_log_probabilities_are_played_as_they_were_recorded(
    asked_before: Session, tmp_path: Path, opened: Callable[..., Session]
) -> None:
    before = asked_before.generate("four", logprobs=2)
    again = opened(asked_before.to_jsonl(tmp_path / "x.jsonl"))
    after = again.generate("four", logprobs=2)
    said = [event.logprobs for event in before.record.samples[0].events]
    assert None not in said
    assert [event.logprobs for event in after.record.samples[0].events] == said
    with pytest.raises(ConfigError, match="was recorded with logprobs None, not 2; leave it out"):
        again.generate("three", logprobs=2)
    assert again.generate("three").record.samples[0].events[0].logprobs is None


def test_the_last_of_several_runs_is_played(tmp_path: Path, opened: Callable[..., Session]) -> None:
    first, last = tiny_run(), runs_apart(one(prompt="Two", label="Two"))
    session = opened(write_file(tmp_path / "x.jsonl", [first, last]))
    assert session.generate("Two").text == "answer 1"
    with pytest.raises(PromptError, match=r"the last of the 2 runs of x\.jsonl has no such prompt"):
        session.generate("Why?")


def test_a_file_that_is_not_there_or_no_recording_is_told_in_one_line(
    tmp_path: Path, opened: Callable[..., Session]
) -> None:
    with pytest.raises(ModelError, match=r"x\.jsonl cannot be read: No such file or directory"):
        opened(tmp_path / "x.jsonl").load()
    (tmp_path / "y.jsonl").write_text("{}\n")
    with pytest.raises(ConfigError, match=r"y\.jsonl, line 1"):
        opened(tmp_path / "y.jsonl").load()


def test_engine_settings_are_refused(tmp_path: Path, opened: Callable[..., Session]) -> None:
    path = write_file(tmp_path / "x.jsonl", [tiny_run()])
    with pytest.raises(ConfigError, match="a replay takes no engine settings; leave --max-num-seqs out"):
        opened(path, max_num_seqs=4).load()


def test_limits_of_a_replay_are_those_that_were_recorded(tmp_path: Path, opened: Callable[..., Session]) -> None:
    session = opened(write_file(tmp_path / "x.jsonl", [tiny_run()]))
    loaded = session.load().limits
    assert session.set_limits() == loaded
    assert session.bandwidth() is None
    with pytest.raises(
        ConfigError, match="a replay plays the steps that were recorded; to change limits, load a model"
    ):
        session.set_limits(max_num_seqs=1)


def slow_run() -> Run:
    """A request whose second step takes longer than any test may."""
    run = tiny_run()
    record, (first, second) = run.requests[0], run.steps
    late = first.end_ns + 600 * WAIT_NS
    second = replace(
        second, scheduled_ns=late, planned_ns=late + 1, start_ns=late, computed_ns=late + 2, end_ns=late + 3
    )
    events = (record.samples[0].events[0], msgspec.structs.replace(record.samples[0].events[1], time_ns=late + 3))
    record = replace(
        record, samples=(replace(record.samples[0], events=events),), last_token_ns=late + 3, finished_ns=late + 3
    )
    return replace(run, requests=(record,), steps=(first, second))


def test_a_replay_that_is_cancelled_leaves_nothing_open(tmp_path: Path, opened: Callable[..., Session]) -> None:
    session = opened(write_file(tmp_path / "x.jsonl", [slow_run()]))
    handle = session.submit("Why?")
    assert next(iter(handle)).text == "w0 "
    handle.cancel()
    result = handle.result(WAIT)
    assert (result.text, result.finish_reason) == ("w0 ", "abort")
    assert session.status().open_requests == 0
    assert session.status().state == "idle"


def test_a_session_that_plays_keeps_no_other_from_loading(
    tmp_path: Path, opened: Callable[..., Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither one that never held the process's engine, nor one that gave it up for the replay."""
    path = str(write_file(tmp_path / "x.jsonl", [tiny_run()]))
    real = session_module._engine
    monkeypatch.setattr(loading_module, "_holder", None)
    monkeypatch.setattr(
        session_module,
        "_engine",
        lambda model, settings, progress: (
            real(model, settings, progress) if is_recording(model) else lambda progress: ScriptedEngine()
        ),
    )
    plays, other, third = opened(path), opened("one"), opened("two")
    plays.load()
    other.load()
    with pytest.raises(EngineBusy):
        third.load()
    with pytest.raises(ModelError):
        other.load(str(tmp_path / "missing.jsonl"))
    with pytest.raises(EngineBusy):  # that load failed, so it has its engine still
        third.load()
    other.load(path)
    third.load()
    assert other.generate("Why?").text == "w0 w1 "
    assert third.generate("Hi").text == "Hello, world."
