"""An engine that plays a script instead of a model, for unit tests.

It schedules like vLLM's scheduler – chunked prefill under a token budget, decode first, KV blocks on demand, a place
only for a request that fits as a whole, preemption of the latest request – and reports through the same `StepTracer`,
on a virtual or a real clock. Its answers are a script, and whatever shows them says so: `info.engine` is
``"scripted"``.
"""

from __future__ import annotations

import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jupyter_infer.config import DEFAULT_MAX_TOKENS, check_names
from jupyter_infer.engine.protocol import EngineRequest, Message, Rendered, SampleOutput, StepResult
from jupyter_infer.engine.scripted_logprobs import check_logprobs, made_up
from jupyter_infer.engine.trace import Planned, StepTracer
from jupyter_infer.errors import PromptError
from jupyter_infer.records import EngineInfo, Limits

__all__ = ["SAMPLING", "Script", "ScriptedEngine", "VirtualClock"]

SAMPLING = (
    *("max_tokens", "temperature", "top_p", "top_k", "min_p", "seed", "n", "stop", "ignore_eos"),
    *("logprobs", "skip_reading_prefix_cache", "structured_outputs"),
)
"""Sampling values that a script takes; it heeds `max_tokens`, `n` and `logprobs`."""


class VirtualClock:
    """A clock that stands still until it is moved, in nanoseconds."""

    def __init__(self, now_ns: int = 0) -> None:
        self.now_ns = now_ns

    def __call__(self) -> int:
        """Return the time."""
        return self.now_ns

    def sleep(self, duration_ns: int) -> None:
        """Move the clock on."""
        self.now_ns += duration_ns


@dataclass(frozen=True, slots=True)
class Script:
    """What the engine answers, and how long its steps take.

    `answer` maps the prompt's text to the pieces of the answer, one piece a token; `step_ns` maps the number of tokens
    in a step to its duration.
    """

    answer: Callable[[str], Sequence[str]] = lambda prompt: ("Hello", ",", " world", ".")
    step_ns: Callable[[int], int] = lambda tokens: 1_000_000 + 10_000 * tokens
    block_size: int = 32
    blocks: int = 256
    max_model_len: int = 4096
    token_budget: int = 512
    max_num_seqs: int = 256
    in_flight: int = 1  # 2: a step is planned before the results of the one before it are in, as on a GPU
    fail_at_step: int | None = None


@dataclass(slots=True)
class _Sequence:
    """One sample's state in the scheduler."""

    request: EngineRequest
    sample: int
    pieces: tuple[str, ...]
    stops: bool  # the script ends before max_tokens
    computed: int = 0  # tokens whose KV exists or is planned
    cached: int | None = None  # found in the prefix cache when it was first scheduled
    planned_outputs: int = 0  # output tokens that planned steps will give
    outputs: int = 0
    blocks: list[int] = field(default_factory=list)  # ids, of its own: a prefix that is found is computed by nobody

    @property
    def key(self) -> str:
        return f"{self.sample}_{self.request.request_id}"

    @property
    def known(self) -> int:
        """Tokens that can be computed now: the prompt and the planned answer so far."""
        return len(self.request.prompt.token_ids) + self.planned_outputs


@dataclass(slots=True)
class _Step:
    planned: list[tuple[_Sequence, Planned]] = field(default_factory=list)
    gives: list[_Sequence] = field(default_factory=list)
    preempted: list[str] = field(default_factory=list)
    tokens: int = 0


class ScriptedEngine:
    """Plays a `Script`; see `Engine` for the contract.

    Parameters
    ----------
    script
        What to play.
    clock, sleep
        A `VirtualClock` and its `sleep`, or the real ones (the default).
    """

    def __init__(
        self,
        script: Script | None = None,
        *,
        clock: Callable[[], int] = time.monotonic_ns,
        sleep: Callable[[int], None] | None = None,
    ) -> None:
        self.script = script or Script()
        self.calls: list[tuple[str, Any]] = []
        self._sleep = sleep or (clock.sleep if isinstance(clock, VirtualClock) else lambda ns: time.sleep(ns / 1e9))
        self._tracer = StepTracer(clock, cpu_clock=lambda: 0)
        self._waiting: deque[_Sequence] = deque()
        self._running: list[_Sequence] = []
        self._flight: deque[_Step] = deque()
        self._prefixes: dict[tuple[int, ...], int] = {}
        self._free = deque(range(1, self.script.blocks + 1))
        self._steps = 0
        self._owner: int | None = None
        self.closed = False

    @property
    def info(self) -> EngineInfo:
        """What is played."""
        script = self.script
        return EngineInfo(
            model="scripted",
            engine="scripted",
            device="none",
            dtype="none",
            block_size=script.block_size,
            kv_blocks_total=script.blocks,
            kv_bytes=None,
            weight_bytes=None,
            max_model_len=script.max_model_len,
            max_num_batched_tokens=script.token_budget,
            max_num_seqs=script.max_num_seqs,
            threads=None,
        )

    def render(self, prompt: str | Sequence[Message], *, template: bool = True) -> Rendered:
        """Return the prompt with one token a word; a template is a line a message."""
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        if not any(str(message.get("content", "")).strip() for message in messages):
            raise PromptError("the prompt is empty; write the question below the %%infer line")
        text = "\n".join(str(message["content"]) for message in messages)
        return Rendered(text, tuple(_token_id(word) for word in text.split()))

    def tokens(self, text: str) -> list[tuple[int, str]]:
        """Return the words of a text."""
        return [(_token_id(word), word) for word in text.split()]

    def admit(self, prompt: Rendered, sampling: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the sampling values; refuses names that it does not know, and what does not fit into the context."""
        check_names(sampling, SAMPLING, {}, "sampling value")
        check_logprobs(sampling.get("logprobs"))
        if len(prompt.token_ids) >= self.script.max_model_len:
            raise PromptError(
                f"the prompt has {len(prompt.token_ids):,} tokens, and the context is {self.script.max_model_len:,}"
            )
        return {"max_tokens": DEFAULT_MAX_TOKENS, **sampling}

    def add(self, request: EngineRequest) -> None:
        """Queue a request."""
        self._own("add", request.request_id)
        room = self.script.max_model_len - len(request.prompt.token_ids)
        limit = min(int(request.sampling.get("max_tokens") or DEFAULT_MAX_TOKENS), room)
        pieces = tuple(self.script.answer(request.prompt.text)) or ("",)  # a model gives one token at least
        for sample in range(request.samples):
            sequence = _Sequence(request, sample, pieces[:limit], stops=len(pieces) <= limit)
            self._tracer.names[sequence.key] = (request.request_id, sample)
            self._waiting.append(sequence)

    def abort(self, request_ids: Collection[str]) -> None:
        """Drop requests and free their blocks."""
        self._own("abort", tuple(request_ids))
        for sequence in [*self._running, *self._waiting]:
            if sequence.request.request_id in request_ids:
                self._leave(sequence)
                self._tracer.forget([sequence.key])

    def step(self) -> StepResult:
        """Plan until enough steps are in flight, then finish the oldest."""
        self._own("step", self._steps)
        if self._steps == self.script.fail_at_step:
            raise RuntimeError("scripted failure")
        self._steps += 1
        while len(self._flight) < self.script.in_flight:
            begun = self._tracer.planning()
            step = self._plan()
            if not (step.planned or step.preempted) and (self._flight or not self._waiting):
                break
            self._flight.append(step)
            self._report(step, begun)
        return self._finish(self._flight.popleft()) if self._flight else StepResult()

    def has_unfinished(self) -> bool:
        """Whether sequences are open or steps in flight."""
        return bool(self._waiting or self._running or self._flight)

    def kv_blocks_free(self) -> int:
        """Return the number of free blocks."""
        return len(self._free)

    def bandwidth(self) -> None:
        """Return None: nothing is computed."""

    def set_limits(self, limits: Limits | None) -> None:
        """Admit so much from the next step on; None is what the script says."""
        self._own("set_limits", limits)
        self._tracer.limits = limits

    def reset_prefix_cache(self) -> bool:
        """Forget cached prefixes; False if requests run."""
        self._own("reset_prefix_cache", None)
        if self._running:
            return False
        self._prefixes.clear()
        return True

    def close(self) -> None:
        """End."""
        self._own("close", None)
        self.closed = True

    def _own(self, call: str, detail: Any) -> None:
        """Note the call and check that there is one owner."""
        here = threading.get_ident()
        self._owner = self._owner or here
        assert self._owner == here, f"{call} came from a thread that does not own the engine"
        self.calls.append((call, detail))

    def _plan(self) -> _Step:
        step, limits = _Step(), self._tracer.limits or Limits(self.script.max_num_seqs, self.script.token_budget)
        budget = limits.max_num_batched_tokens
        for sequence in tuple(self._running):
            if sequence not in self._running:
                continue
            tokens = min(sequence.known - sequence.computed, budget)
            new = None
            while tokens > 0 and (new := self._reserve(sequence, tokens)) is None:
                victim = self._running.pop()
                step.preempted.append(victim.key)
                self._release(victim)
                victim.computed = 0
                self._waiting.appendleft(victim)
                if victim is sequence:
                    tokens = 0
            if tokens > 0:
                budget -= self._schedule(step, sequence, tokens, new or [])
        while self._waiting and budget > 0 and not step.preempted and len(self._running) < limits.max_num_seqs:
            sequence = self._waiting[0]
            if self._blocks(sequence.known) > len(self._free):
                break
            sequence.computed = self._hit(sequence)
            if sequence.cached is None:
                sequence.cached = sequence.computed
            tokens = min(sequence.known - sequence.computed, budget)
            new = self._reserve(sequence, tokens)
            self._running.append(self._waiting.popleft())
            budget -= self._schedule(step, sequence, tokens, new or [], enters=True)
        return step

    def _report(self, step: _Step, begun: tuple[int, int]) -> None:
        work = [planned for _, planned in step.planned]
        self._tracer.planned(
            step, begun, work, running=len(self._running), waiting=len(self._waiting), preempted=step.preempted
        )

    def _schedule(
        self, step: _Step, sequence: _Sequence, tokens: int, new_blocks: Sequence[int], *, enters: bool = False
    ) -> int:
        prompt_tokens = len(sequence.request.prompt.token_ids)
        planned = Planned(
            sequence.key,
            tokens,
            sequence.computed,
            prompt_tokens,
            enters=enters,
            new_blocks=tuple(new_blocks),
        )
        step.planned.append((sequence, planned))
        step.tokens += tokens
        sequence.computed += tokens
        if sequence.computed == sequence.known and sequence.planned_outputs < len(sequence.pieces):
            sequence.planned_outputs += 1
            step.gives.append(sequence)
        return tokens

    def _finish(self, step: _Step) -> StepResult:
        self._sleep(self.script.step_ns(step.tokens))
        computed_ns = self._tracer.computed()
        outputs, given = [], {}
        for sequence in step.gives:
            if sequence.key not in self._tracer.names:
                continue  # aborted while the step was in flight
            piece = sequence.pieces[sequence.outputs]
            sequence.outputs += 1
            given[sequence.key] = 1
            done = sequence.outputs == len(sequence.pieces)
            reason = ("stop" if sequence.stops else "length") if done else None
            token, asked = _token_id(piece), sequence.request.sampling.get("logprobs")
            outputs.append(
                SampleOutput(
                    sequence.request.request_id,
                    sequence.sample,
                    (token,),
                    piece,
                    reason,
                    None,
                    sequence.cached,
                    None if asked is None else (made_up(token, piece, asked),),
                )
            )
        for sequence, _ in step.planned:
            self._remember(sequence)
        ended = [sequence for sequence in step.gives if sequence.outputs == len(sequence.pieces)]
        for sequence in ended:
            self._leave(sequence)
        self._tracer.done(step, given, computed_ns=computed_ns, kv_blocks_free=len(self._free))
        self._tracer.forget(sequence.key for sequence in ended)
        return StepResult(self._tracer.take(), tuple(outputs))

    def _reserve(self, sequence: _Sequence, tokens: int) -> list[int] | None:
        """Return the blocks that the sequence's table gets, or None if there are not enough."""
        needed = self._blocks(sequence.computed + tokens) - len(sequence.blocks)
        if needed > len(self._free):
            return None
        new = [self._free.popleft() for _ in range(needed)]
        sequence.blocks += new
        return new

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self.script.block_size)

    def _release(self, sequence: _Sequence) -> None:
        self._free += sequence.blocks
        sequence.blocks = []

    def _leave(self, sequence: _Sequence) -> None:
        """Take a sequence out of the line that it is in: it can end while it waits, preempted with a step in flight."""
        self._tracer.freed(sequence.key)
        self._release(sequence)
        for line in (self._running, self._waiting):
            if sequence in line:
                line.remove(sequence)

    def _hit(self, sequence: _Sequence) -> int:
        """Return the longest known prefix in whole blocks; the last token is always computed."""
        ids, size = sequence.request.prompt.token_ids, self.script.block_size
        for count in range((len(ids) - 1) // size, 0, -1):
            if ids[: count * size] in self._prefixes:
                return count * size
        return 0

    def _remember(self, sequence: _Sequence) -> None:
        ids, size = sequence.request.prompt.token_ids, self.script.block_size
        for count in range(1, min(sequence.computed, len(ids)) // size + 1):
            self._prefixes.setdefault(ids[: count * size], count)


def _token_id(piece: str) -> int:
    """Return a number that stands for a piece of text; the same one in every process."""
    return zlib.crc32(piece.encode(errors="replace"))
