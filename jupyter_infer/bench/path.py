"""What a step costs us beside the engine's own work, and an update of the cell: microseconds, and whether they grow.

No model runs. Three things are timed by themselves, in CPU time, so that waiting for a core counts for nothing:

* *tracing*: our scheduler class over a stand-in that hands out steps in the shape of vLLM's, less the stand-in alone;
* *recording*: what the worker's thread does between two steps of a scripted engine: worker, ledger, fits, handles;
* *display*: reading what is new and updating the cell, in a real kernel, its messages and all of its threads included.

Each figure is the mean over the steps or updates of a round, and the least of several rounds: what else the machine
does only adds to it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from jupyter_infer.bench.kernel import BenchKernel
from jupyter_infer.display import UPDATES_PER_S, CellView, wait_for
from jupyter_infer.display.loop import Answers
from jupyter_infer.engine.protocol import StepResult
from jupyter_infer.engine.scripted import Script, ScriptedEngine
from jupyter_infer.engine.trace import tracing
from jupyter_infer.handle import RequestHandle
from jupyter_infer.records import TokenEvent
from jupyter_infer.session import Session

__all__ = ["as_it_must_be", "measure_path", "path_text", "update_us"]

REQUESTS = (1, 16, 32)
CHARS = (100, 10_000, 100_000)
OLD_STEPS, OLD_REQUESTS = 10_000, 500
AT_ONCE = 16  # requests, while the session grows old
ROUNDS, UPDATES = 5, 40
PIECE = "word 語 "  # text that is not ASCII costs the most
PROMPT_TOKENS = 100
STEP_MS = 60.0  # a step of a small model for 32 requests on two cores, to compare with
GROWN, SLACK_US = 1.5, 50.0  # what has grown is larger by more than both

Say = Callable[[str], None]


def measure_path(
    *, steps: int = 400, rounds: int = ROUNDS, old_steps: int = OLD_STEPS, old_requests: int = OLD_REQUESTS, say: Say
) -> dict[str, Any]:
    """Return microseconds a step by the number of requests in it, and an update by the characters of the answer.

    Parameters
    ----------
    steps
        Steps of a round.
    rounds
        Rounds of which the least is taken.
    old_steps, old_requests
        What a session went through before its steps are measured again.
    say
        Told what is being done.
    """
    traced, recorded = _Traced(), _Recorded(max(steps, old_steps))

    def both() -> dict[str, dict[str, float]]:
        return {
            f"{name}_us_a_step": {
                str(count): min(measured.us_a_step(count, steps) for _ in range(rounds)) for count in REQUESTS
            }
            for name, measured in (("tracing", traced), ("recording", recorded))
        }

    say("tracing and recording")
    recorded.us_a_step(AT_ONCE, steps)  # what is done once
    new = both()
    say(f"{old_requests:,} requests, {old_steps:,} steps")
    starts = range(0, old_requests, AT_ONCE)
    for start in starts:
        for measured in (traced, recorded):
            measured.us_a_step(min(AT_ONCE, old_requests - start), -(-old_steps // len(starts)))
    say("tracing and recording after them")
    old = both()
    recorded.session.unload()
    say("updating a cell")
    with BenchKernel() as kernel:
        kernel.run("from jupyter_infer.bench.path import update_us")
        display = {
            str(chars): min(kernel.value(f"update_us({chars}, {UPDATES})") for _ in range(rounds)) for chars in CHARS
        }
    return {
        **new,
        "display_us_an_update": display,
        "old_session": {"steps": old_steps, "requests": old_requests, **old},
        "steps_a_round": steps,
        "updates_a_round": UPDATES,
        "rounds": rounds,
    }


def as_it_must_be(found: dict[str, Any]) -> bool:
    """Whether nothing grows with the age of a session or the length of an answer that is longer than what is shown."""
    return not _grown(found)


def path_text(found: dict[str, Any]) -> str:
    """Return what was measured as a table."""
    old = found["old_session"]
    lines = [
        "our CPU time, microseconds",
        "",
        f"  {'a step, requests':<18}{'new session':>12}{'of 60 ms':>10}   "
        f"after {old['requests']:,} requests, {old['steps']:,} steps",
    ]
    for name in ("tracing", "recording"):
        lines.append(name)
        for count, us in found[f"{name}_us_a_step"].items():
            share = us / (STEP_MS * 1e3)
            lines.append(f"  {count:>18}{us:>12,.0f}{share:>10.2%}   {old[f'{name}_us_a_step'][count]:,.0f}")
    lines += ["", f"  {'an update, chars':<18}{'':>12}{f'of 1/{UPDATES_PER_S} s':>10}", "display"]
    for chars, us in found["display_us_an_update"].items():
        lines.append(f"  {int(chars):>18,}{us:>12,.0f}{us * UPDATES_PER_S / 1e6:>10.2%}")
    lines += ["", *(f"✗ {what}" for what in _grown(found))]
    return "\n".join(lines if _grown(found) else [*lines, "✓ nothing grows"])


def update_us(chars: int, updates: int) -> float:
    """Return the CPU time of an update of a cell whose answer has so many characters; called in a kernel."""
    handle = RequestHandle("path", lambda: None)
    answers, view = Answers(handle), CellView()

    def grow(text: str) -> None:
        handle.event(TokenEvent("path", 0, 0, 0, (1,), text))

    def update() -> None:
        view._next = 0.0  # the budget is not what is measured
        view.update(answers.read())

    grow((PIECE * chars)[:chars])
    update()
    begun = time.process_time_ns()
    for _ in range(updates):
        grow(PIECE)
        update()
    time.sleep(0.05)  # the thread that sends the messages is not done with the last ones
    return (time.process_time_ns() - begun) / updates / 1e3


class _Standin:
    """What `tracing` uses of vLLM's scheduler; it hands out the step that it was given."""

    def __init__(self) -> None:
        self.requests: dict[str, Any] = {}
        pool = SimpleNamespace(get_num_free_blocks=lambda: 0, _maybe_evict_cached_block=lambda block: False)
        self.kv_cache_manager = SimpleNamespace(block_pool=pool)
        self.next: Any = None

    def schedule(self) -> Any:
        return self.next

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        return model_runner_output

    def get_request_counts(self) -> tuple[int, int]:
        return len(self.requests), 0


class _Traced:
    """A scheduler with our tracer in it."""

    def __init__(self) -> None:
        self._traced, self._alone = tracing(_Standin)(), _Standin()
        self._begun = 0

    def us_a_step(self, count: int, steps: int) -> float:
        """Run so many requests for so many steps, each with one token of each; return what tracing a step costs."""
        keys = [f"r{self._begun + number}-{number:08x}" for number in range(count)]  # as long as vLLM's
        self._begun += count
        given = {0: SimpleNamespace(outputs=[SimpleNamespace(request_id=key, new_token_ids=[1]) for key in keys])}
        self._traced.tracer.names.update((key, (key.partition("-")[0], 0)) for key in keys)
        spent = dict.fromkeys((self._traced, self._alone), 0)
        for scheduler in spent:
            scheduler.requests = {key: SimpleNamespace(num_prompt_tokens=PROMPT_TOKENS) for key in keys}
        for step in range(steps):
            output = SimpleNamespace(
                scheduled_new_reqs=[],
                scheduled_cached_reqs=SimpleNamespace(
                    req_ids=keys,
                    num_computed_tokens=[PROMPT_TOKENS + step] * count,
                    new_block_ids=[None] * count,
                    resumed_req_ids=(),
                ),
                num_scheduled_tokens=dict.fromkeys(keys, 1),
                scheduled_spec_decode_tokens={},
            )
            for scheduler in spent:
                scheduler.next = output
                begun = time.thread_time_ns()
                scheduler.update_from_output(scheduler.schedule(), given)
                if scheduler is self._traced:
                    scheduler.tracer.take()
                spent[scheduler] += time.thread_time_ns() - begun
        self._traced.tracer.forget(keys)
        return (spent[self._traced] - spent[self._alone]) / steps / 1e3


class _Stopwatch(ScriptedEngine):
    """Times what its owner does between two steps."""

    def __init__(self, script: Script) -> None:
        super().__init__(script, sleep=lambda duration_ns: None)
        self.start()

    def start(self) -> None:
        """Start anew."""
        self.spent_ns = self.gaps = 0
        self._left_ns: int | None = None

    def step(self) -> StepResult:
        """Run a step."""
        if self._left_ns is not None:
            self.spent_ns += time.thread_time_ns() - self._left_ns
            self.gaps += 1
        result = super().step()
        self.calls.clear()
        self._left_ns = time.thread_time_ns()
        return result


class _Recorded:
    """A session on a scripted engine."""

    def __init__(self, longest: int) -> None:
        answer = [PIECE] * longest
        script = Script(answer=lambda prompt: answer, blocks=1 << 20, max_model_len=1 << 20)
        self._engine = _Stopwatch(script)
        self.session = Session("path", factory=lambda model, settings, progress: lambda progress: self._engine)
        self.session.load()

    def us_a_step(self, count: int, steps: int) -> float:
        """Run so many requests for so many steps, each with one token of each; return the CPU time between two."""
        self._engine.start()
        prompts = [" ".join(["word"] * (number + 1)) for number in range(count)]
        wait_for(self.session.submit_batch(prompts, max_tokens=steps))
        return self._engine.spent_ns / max(1, self._engine.gaps) / 1e3


def _grown(found: dict[str, Any]) -> list[str]:
    """Return what grew, a line each."""
    old, display = found["old_session"], found["display_us_an_update"]
    pairs = [
        (f"{name} a step of {count}", found[key][count], old[key][count], "in an old session")
        for name, key in (("tracing", "tracing_us_a_step"), ("recording", "recording_us_a_step"))
        for count in found[key]
    ]
    *_, shorter, longer = display
    pairs.append(("an update", display[shorter], display[longer], f"at {int(longer):,} characters"))
    return [
        f"{what} takes {after:,.0f} µs {when}, and {before:,.0f} µs before"
        for what, before, after, when in pairs
        if after > GROWN * before and after > before + SLACK_US
    ]
