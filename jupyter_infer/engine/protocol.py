"""What an engine is to the worker that owns it, and the values that cross that line."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from jupyter_infer.records import EngineInfo, Limits, LoadStage, StepRecord, TokenLogprob

__all__ = ["STAGES", "Engine", "EngineRequest", "Message", "Progress", "Rendered", "SampleOutput", "StepResult"]

STAGES = ("model", "import", "config", "weights", "compile", "KV pool", "warm-up", "ready")
"""The stages of a load, in order."""

Message = Mapping[str, str]
"""One chat message: ``{"role": "user", "content": "…"}``."""

Progress = Callable[[LoadStage], None]
"""Called on the worker's thread when a stage of a load begins."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """A prompt as the model will read it."""

    text: str
    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """A request that passed every check that can be made without running it."""

    request_id: str
    label: str  # the beginning of what was asked, as it was typed
    prompt: Rendered
    sampling: Mapping[str, Any]  # every value that will be used, by SamplingParams name
    samples: int = 1


class SampleOutput(msgspec.Struct, frozen=True, gc=False):
    """What a step gave to one sample; the last one of a sample has a finish reason."""

    request_id: str
    sample: int
    token_ids: tuple[int, ...] = ()
    text: str = ""
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    cached_tokens: int | None = None
    logprobs: tuple[TokenLogprob, ...] | None = None  # one a token; None if they were not asked for


@dataclass(frozen=True, slots=True)
class StepResult:
    """What one call of `Engine.step` did: one step, or none when an asynchronous scheduler only filled its queue."""

    steps: tuple[StepRecord, ...] = ()
    outputs: tuple[SampleOutput, ...] = ()


class Engine(Protocol):
    """An engine. `render`, `tokens` and `admit` may be called from any thread, the rest from the worker's only."""

    @property
    def info(self) -> EngineInfo:
        """What was loaded."""

    def render(self, prompt: str | Sequence[Message], *, template: bool = True) -> Rendered:
        """Return the prompt as the model will read it.

        Raises
        ------
        PromptError
            If there is nothing to run, or the model has no chat template and one is needed.
        """

    def tokens(self, text: str) -> Sequence[tuple[int, str]]:
        """Return the tokens of a text, without a template: id and the part of the text that it stands for."""

    def admit(self, prompt: Rendered, sampling: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the full sampling values of a request that can run: the model's defaults and what was asked.

        Raises
        ------
        ConfigError
            If a sampling name is unknown or a value is out of range.
        PromptError
            If the prompt does not fit into the context or into the KV pool.
        """

    def add(self, request: EngineRequest) -> None:
        """Queue a request; raises if the engine refuses it, leaving nothing behind."""

    def abort(self, request_ids: Collection[str]) -> None:
        """Drop requests and free their blocks; unknown ids are ignored."""

    def step(self) -> StepResult:
        """Run one scheduler step."""

    def has_unfinished(self) -> bool:
        """Whether a step would have something to do."""

    def kv_blocks_free(self) -> int:
        """Return the number of free KV blocks, cached but unused ones included."""

    def bandwidth(self) -> float | None:
        """Return how many bytes a second a plain read over as many as the weights reaches; None if nothing computes."""

    def set_limits(self, limits: Limits | None) -> None:
        """Admit so much from the next step on; None is what was loaded.

        Raises
        ------
        ConfigError
            If it cannot be changed.
        """

    def reset_prefix_cache(self) -> bool:
        """Forget cached prefixes; False if running requests hold some."""

    def close(self) -> None:
        """Free everything. The engine is unusable afterwards."""
