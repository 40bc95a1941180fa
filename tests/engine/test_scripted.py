"""The engine of the other tests is itself right: its scheduler's books balance, whatever is in flight."""

from __future__ import annotations

import math
import random
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_infer.engine.protocol import EngineRequest, SampleOutput
from jupyter_infer.engine.scripted import Script, ScriptedEngine, VirtualClock
from jupyter_infer.errors import ConfigError, PromptError
from jupyter_infer.records import Limits, StepRecord, TokenLogprob


def letters(prompt: str) -> list[str]:
    """As many pieces as the prompt has words, each of them naming the prompt."""
    words = prompt.split()
    return [f"{words[0]}.{number} " for number in range(len(words))]


class Run:
    """An engine and all that it gave."""

    def __init__(self, **script: object) -> None:
        self.engine = ScriptedEngine(Script(**script), clock=VirtualClock())  # type: ignore[arg-type]
        self.outputs: list[SampleOutput] = []
        self.steps: list[StepRecord] = []

    def add(self, request_id: str, prompt: str, **sampling: int) -> None:
        rendered = self.engine.render(prompt)
        values = self.engine.admit(rendered, sampling)
        self.engine.add(EngineRequest(request_id, rendered.text, rendered, values, int(values.get("n") or 1)))

    def step(self) -> None:
        result = self.engine.step()
        self.outputs += result.outputs
        self.steps += result.steps

    def finish(self, at_most: int = 2000) -> None:
        for _ in range(at_most):
            if not self.engine.has_unfinished():
                return
            self.step()
        pytest.fail("the engine does not come to an end")

    def text(self, request_id: str, sample: int = 0) -> str:
        return "".join(o.text for o in self.outputs if (o.request_id, o.sample) == (request_id, sample))

    def ends(self) -> dict[tuple[str, int], str]:
        return {(o.request_id, o.sample): o.finish_reason for o in self.outputs if o.finish_reason}


def words(count: int, first: str = "w") -> str:
    return " ".join(f"{first}{number}" for number in range(count))


# Answers.


@pytest.mark.parametrize("in_flight", [1, 2, 3])
def test_the_answers_do_not_depend_on_the_steps_in_flight(in_flight: int) -> None:
    run = Run(answer=letters, token_budget=16, in_flight=in_flight)
    for number, count in enumerate((1, 5, 40, 3)):
        run.add(f"r{number}", words(count, f"p{number}_"))
    run.finish()
    for number, count in enumerate((1, 5, 40, 3)):
        assert run.text(f"r{number}") == "".join(letters(words(count, f"p{number}_")))
    assert set(run.ends().values()) == {"stop"}


def test_an_answer_is_cut_at_max_tokens() -> None:
    run = Run()
    run.add("short", "a", max_tokens=2)
    run.add("whole", "b", max_tokens=4)
    run.finish()
    assert (run.text("short"), run.text("whole")) == ("Hello,", "Hello, world.")
    assert run.ends() == {("short", 0): "length", ("whole", 0): "stop"}


@pytest.mark.parametrize(("prompt", "expected"), [(7, ("Hello", "length")), (5, ("Hello, world", "length"))])
def test_an_answer_is_cut_at_the_end_of_the_context(prompt: int, expected: tuple[str, str]) -> None:
    run = Run(max_model_len=8)
    run.add("r", words(prompt))
    run.finish()
    assert (run.text("r"), run.ends()[("r", 0)]) == expected


@pytest.mark.parametrize("prompt", [8, 9])
def test_a_prompt_that_leaves_no_room_is_refused_with_both_numbers(prompt: int) -> None:
    run = Run(max_model_len=8)
    with pytest.raises(PromptError, match=rf"{prompt} tokens.*context is 8"):
        run.add("r", words(prompt))
    assert not run.engine.has_unfinished()


def test_an_unknown_sampling_value_is_refused_with_the_near_one() -> None:
    with pytest.raises(ConfigError, match="did you mean 'max_tokens'"):
        Run().add("r", "a", max_token=3)


def test_log_probabilities_are_made_up_the_same_each_time_and_only_if_asked_for() -> None:
    run = Run(answer=letters)
    run.add("plain", words(3))
    run.add("asked", words(3), logprobs=3)
    run.add("bare", words(3), logprobs=0)
    run.finish()
    by_name = {name: [o for o in run.outputs if o.request_id == name] for name in ("plain", "asked", "bare")}
    assert [o.logprobs for o in by_name["plain"]] == [None] * 3
    for output, bare in zip(by_name["asked"], by_name["bare"], strict=True):
        (said,), (alone,) = output.logprobs or (), bare.logprobs or ()
        assert alone == TokenLogprob(said.text, said.logprob, said.rank, ())
        assert (said.text, said.rank) == (output.text, 1 + output.token_ids[0] % 8)
        assert said.logprob == pytest.approx(math.log(0.5 ** (said.rank or 0)))
        likely = [math.exp(other.logprob or 0) for other in said.alternatives]
        assert likely == pytest.approx([0.5**rank for rank in (1, 2, 3) if rank != said.rank])


@pytest.mark.parametrize("asked", [-1, 21, True, 2.5, "3"])
def test_a_number_of_alternatives_that_cannot_be_is_refused_in_one_line(asked: object) -> None:
    engine = ScriptedEngine()
    with pytest.raises(ConfigError, match=rf"^logprobs can be a whole number from 0 to 20, not {asked!r}$"):
        engine.admit(engine.render("Hi"), {"logprobs": asked})


def test_samples_are_answered_one_by_one() -> None:
    run = Run()
    run.add("r", "a", n=3, max_tokens=2)
    run.finish()
    assert [run.text("r", sample) for sample in range(3)] == ["Hello,"] * 3
    assert sum(work.prefill_tokens for step in run.steps for work in step.work) == 3


@pytest.mark.parametrize("in_flight", [1, 2])
def test_an_empty_answer_ends(in_flight: int) -> None:
    run = Run(answer=lambda prompt: (), in_flight=in_flight)
    run.add("r", "a")
    run.finish(10)
    assert run.ends() == {("r", 0): "stop"}


@pytest.mark.parametrize("prompt", ["", " \n\t", [{"role": "user", "content": " "}]])
def test_an_empty_prompt_is_refused(prompt: object) -> None:
    with pytest.raises(PromptError, match="empty"):
        ScriptedEngine().render(prompt)  # type: ignore[arg-type]


def test_token_ids_are_the_same_in_every_process() -> None:
    """A replay is compared with a run of yesterday."""
    code = "from jupyter_infer.engine.scripted import ScriptedEngine as E; print(E().render('Hi, you').token_ids)"
    seen = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert seen == {f"{ScriptedEngine().render('Hi, you').token_ids}\n"}


# The scheduler.


def test_a_long_prompt_is_computed_in_chunks_beside_a_decode() -> None:
    run = Run(answer=letters, token_budget=16)
    run.add("short", words(3, "s"))
    run.step()
    run.add("long", words(40, "l"))
    run.step()
    (step,) = run.steps[1:]
    assert [(work.request_id, work.decode_tokens, work.prefill_tokens) for work in step.work] == [
        ("short", 1, 0),
        ("long", 0, 15),
    ]


@pytest.mark.parametrize("in_flight", [1, 2, 3])
def test_a_pool_that_is_too_small_for_all_preempts_and_everybody_ends(in_flight: int) -> None:
    run = Run(answer=lambda prompt: letters(words(30, prompt.split()[0])), block_size=4, blocks=12, in_flight=in_flight)
    for number in range(4):
        run.add(f"r{number}", words(6, f"p{number}_"))
    run.finish()
    assert sum(len(step.preempted) for step in run.steps) > 0
    assert {run.text(f"r{number}") for number in range(4)} == {
        "".join(letters(words(30, f"p{number}_0"))) for number in range(4)
    }
    assert run.engine.kv_blocks_free() == 12
    assert sum(work.recomputed_tokens for step in run.steps for work in step.work) > 0


def test_a_plan_that_only_preempts_is_a_step_that_says_so() -> None:
    """The one request has all that it wants in flight, and the other one outgrows the pool beside it."""
    run = Run(answer=lambda prompt: letters(words(12)), block_size=4, blocks=3, in_flight=2)
    run.add("small", "a", max_tokens=1)
    run.add("large", "b", max_tokens=12)
    run.finish()
    assert [step.preempted for step in run.steps if step.preempted] == [(("large", 0),)]
    assert run.text("large") == "".join(letters(words(12)))


@given(
    counts=st.lists(st.tuples(st.integers(1, 20), st.integers(1, 25)), min_size=1, max_size=6),
    blocks=st.integers(12, 30),
    budget=st.integers(1, 20),
    in_flight=st.integers(1, 3),
    aborts=st.sets(st.integers(0, 5)),
    seed=st.integers(0, 99),
)
def test_whatever_happens_the_books_balance(
    counts: list[tuple[int, int]], blocks: int, budget: int, in_flight: int, aborts: set[int], seed: int
) -> None:
    """Any request alone fits into 12 blocks of 4 tokens."""
    run = Run(
        answer=lambda prompt: [f"{number} " for number in range(25)],
        block_size=4,
        blocks=blocks,
        token_budget=budget,
        in_flight=in_flight,
    )
    draw = random.Random(seed)
    for number, (prompt, limit) in enumerate(counts):
        run.add(f"r{number}", words(prompt, f"p{number}_"), max_tokens=limit)
        for _ in range(draw.randint(0, 3)):
            run.step()
    gone = {f"r{number}" for number in aborts} - {request_id for request_id, _ in run.ends()}
    run.engine.abort(gone)
    run.finish()
    assert run.engine.kv_blocks_free() == blocks
    for number, (_, limit) in enumerate(counts):
        if f"r{number}" not in gone:
            assert run.text(f"r{number}") == "".join(f"{n} " for n in range(limit))
            given_tokens = [w.output_tokens for s in run.steps for w in s.work if w.request_id == f"r{number}"]
            assert sum(given_tokens) == limit
    # Every prompt token is prefill once, whatever was preempted; no step is over its budget.
    for number, (prompt, _) in enumerate(counts):
        if f"r{number}" not in gone:
            prefill = [w.prefill_tokens for s in run.steps for w in s.work if w.request_id == f"r{number}"]
            cached = [o.cached_tokens for o in run.outputs if o.request_id == f"r{number}"]
            assert sum(prefill) + (cached[0] or 0) == prompt
    assert all(step.tokens <= budget for step in run.steps)


@pytest.mark.parametrize(("tokens", "cached"), [(3, 0), (4, 0), (5, 4), (8, 4), (9, 8), (40, 36)])
def test_the_second_time_whole_blocks_are_cached_but_never_the_last_token(tokens: int, cached: int) -> None:
    run = Run(block_size=4)
    for name in ("first", "second"):
        run.add(name, words(tokens))
        run.finish()
    hits = {output.request_id: output.cached_tokens for output in run.outputs}
    assert hits == {"first": 0, "second": cached}
    assert cached == 4 * ((tokens - 1) // 4)


def test_a_forgotten_prefix_is_no_hit() -> None:
    run = Run(block_size=4)
    run.add("first", words(9))
    run.finish()
    assert run.engine.reset_prefix_cache()
    run.add("second", words(9))
    run.finish()
    assert {output.cached_tokens for output in run.outputs} == {0}


def test_prefixes_are_not_forgotten_under_a_running_request() -> None:
    run = Run()
    run.add("r", words(3))
    run.step()
    assert not run.engine.reset_prefix_cache()


def test_an_own_block_found_after_a_preemption_is_no_hit() -> None:
    run = Run(answer=lambda prompt: letters(words(20)), block_size=4, blocks=12)
    for number in range(3):
        run.add(f"r{number}", words(9, f"p{number}_"))
    run.finish()
    assert any(step.preempted for step in run.steps)
    assert {output.cached_tokens for output in run.outputs} == {0}


@pytest.mark.parametrize("in_flight", [1, 2])
def test_an_abort_frees_the_blocks_and_its_step_in_flight_gives_nothing(in_flight: int) -> None:
    run = Run(answer=lambda prompt: letters(words(50)), in_flight=in_flight, blocks=8)
    run.add("r", words(40))
    run.step()
    run.engine.abort(["r", "unknown"])
    seen = len(run.outputs)
    run.finish(in_flight)
    assert len(run.outputs) == seen
    assert run.engine.kv_blocks_free() == 8


def test_a_prompt_that_never_fits_starts_nothing() -> None:
    run = Run(block_size=4, blocks=2)
    run.add("r", words(20))
    for _ in range(5):
        run.step()
    assert [step.work for step in run.steps] == [()] * 5
    assert run.engine.kv_blocks_free() == 2


def test_steps_take_what_the_script_says_on_the_clock_that_is_given() -> None:
    run = Run(step_ns=lambda tokens: 1000 * tokens)
    run.add("r", words(6), max_tokens=2)
    run.finish()
    assert [(step.start_ns, step.end_ns) for step in run.steps] == [(0, 6000), (6000, 7000)]


def test_a_scripted_failure_comes_at_its_step() -> None:
    run = Run(fail_at_step=1)
    run.add("r", "a")
    run.step()
    with pytest.raises(RuntimeError, match="scripted failure"):
        run.step()


def test_it_says_that_it_is_scripted() -> None:
    info = ScriptedEngine(Script(blocks=7, block_size=16)).info
    assert (info.model, info.engine, info.kv_blocks_total, info.block_size) == ("scripted", "scripted", 7, 16)


@pytest.mark.parametrize(
    "call",
    [
        lambda engine: engine.step(),
        lambda engine: engine.abort(["r"]),
        lambda engine: engine.reset_prefix_cache(),
        lambda engine: engine.close(),
    ],
)
def test_a_second_owner_is_found_out(call: Callable[[ScriptedEngine], object]) -> None:
    engine, found = ScriptedEngine(), []
    engine.step()

    def trespass() -> None:
        try:
            call(engine)
        except AssertionError as error:
            found.append(str(error))

    thread = threading.Thread(target=trespass)
    thread.start()
    thread.join()
    assert len(found) == 1
    assert "does not own the engine" in found[0]
    assert not engine.closed


def test_limits_hold_from_the_next_step_on_and_leave_what_runs() -> None:
    run = Run(token_budget=100, max_num_seqs=8)
    for name in "abcd":
        run.add(name, words(6, name))
    run.step()
    assert (run.steps[-1].running, run.steps[-1].waiting, run.steps[-1].limits) == (4, 0, None)
    for name in "ef":
        run.add(name, words(6, name))
    run.engine.set_limits(Limits(3, 2))
    run.step()
    last = run.steps[-1]
    assert (last.running, last.waiting, last.limits) == (4, 2, Limits(3, 2))  # nobody is thrown out
    assert [work.request_id for work in last.work] == ["a", "b"]  # as far as the budget reaches
    run.engine.set_limits(None)
    run.step()
    assert (run.steps[-1].running, run.steps[-1].waiting, run.steps[-1].limits) == (6, 0, None)
    run.finish()
    assert run.text("f") == "Hello, world."


def test_a_step_in_flight_keeps_the_limits_that_it_was_planned_within() -> None:
    run = Run(in_flight=2)
    run.add("a", words(6))
    run.step()
    run.engine.set_limits(Limits(1, 1))
    run.finish()
    assert [step.limits for step in run.steps[:4]] == [None, None, Limits(1, 1), Limits(1, 1)]
