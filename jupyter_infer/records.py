"""The facts of a run as plain values: what each token, each scheduler step and each request really did.

Records are frozen, slotted, equal by content and survive a JSON round trip (`to_json` / `from_json`). Every timestamp
is `time.monotonic_ns()` of the process that ran the engine and is written once; every duration is an integer number of
nanoseconds, so sums are exact. `None` means *not measured* or *not applicable*, and is never shown as 0.

The two kinds that a step makes by the dozen are structs of msgspec and not dataclasses: they are made six times as
quickly, and the garbage collector has none of the hundred thousands that a session remembers to look at.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

__all__ = [
    "REPLAY_OF",
    "Alternative",
    "EngineInfo",
    "Fit",
    "Limits",
    "LoadStage",
    "RequestRecord",
    "SampleRecord",
    "StepRecord",
    "StepWork",
    "TokenEvent",
    "TokenLogprob",
    "from_json",
    "plain",
    "to_json",
]

T = TypeVar("T")

REPLAY_OF = "replay of "
"""How the name of an engine begins that plays a recorded run again."""


class Alternative(msgspec.Struct, frozen=True, gc=False):
    """A token that could have been in another one's place."""

    token_id: int
    text: str | None  # as the decoder gives it, empty for a part of a character
    logprob: float | None  # None for a probability of 0


class TokenLogprob(msgspec.Struct, frozen=True, gc=False):
    """How likely a token was before it was chosen, as the engine reports it.

    vLLM reports the model's own distribution, before temperature, penalties, top-k and top-p, unless it was loaded with
    another `logprobs_mode`.
    """

    text: str | None  # of the token alone; an event's text may hold some back, or bring what was held back
    logprob: float | None  # natural logarithm of the probability; None for one of 0, or if the engine says none
    rank: int | None  # 1 for the likeliest token; of two that are equally likely, one has the next
    alternatives: tuple[Alternative, ...]  # the others of the `logprobs` likeliest tokens, the likeliest first


class TokenEvent(msgspec.Struct, frozen=True, gc=False):
    """What one engine step gave to one sample of a request.

    `token_ids` may hold several tokens (speculative decoding) or none (a tail of held-back text), and `text` may be
    empty while a stop string or an unfinished character is held back: a token is not a piece of text.
    """

    request_id: str
    sample: int  # index of the sample, 0 … n − 1
    step: int  # index of the step that gave it
    time_ns: int  # end of that step
    token_ids: tuple[int, ...]
    text: str
    finish_reason: str | None = None  # vLLM's word on the last event of a sample: "stop", "length", "error", …
    stop_reason: int | str | None = None  # the stop string or token id that matched, if one did
    logprobs: tuple[TokenLogprob, ...] | None = None  # one a token of `token_ids`; None if they were not asked for


class StepWork(msgspec.Struct, frozen=True, gc=False):
    """What one step computed for one sample.

    `tokens = prefill_tokens + recomputed_tokens + decode_tokens + draft_tokens`. `kv_tokens` is the length of the KV
    cache that the step's attention read for it, its own tokens included. A sample's block table is the `new_blocks` of
    the step that it entered the batch in, with those of its later steps after them.
    """

    request_id: str
    sample: int
    tokens: int
    prefill_tokens: int  # prompt tokens computed for the first time
    recomputed_tokens: int  # tokens whose KV was lost to a preemption and is computed again
    decode_tokens: int
    draft_tokens: int  # speculative tokens that were verified in this step
    accepted_tokens: int  # of these, the ones that were kept
    output_tokens: int  # new tokens that the sample got
    kv_tokens: int
    cached_tokens: int | None = None  # found in the prefix cache as it entered the batch; None in its further steps
    new_blocks: tuple[int, ...] = ()  # ids of the KV blocks that its table got; on entry all of it, cached ones first

    @property
    def phase(self) -> str:
        """What the step was to the sample: ``"prefill"``, ``"stalled"`` (lost KV computed again) or ``"decode"``."""
        return "prefill" if self.prefill_tokens else "stalled" if self.recomputed_tokens else "decode"


@dataclass(frozen=True, slots=True)
class Limits:
    """What a scheduler admits: both can be changed between two steps, up to what was loaded."""

    max_num_seqs: int  # requests (samples) in the running batch; those that are in it stay
    max_num_batched_tokens: int  # token budget of a step


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One scheduler step. Steps of one engine never overlap: a step owns the time from the later of its own start and
    the previous step's end, to its end, so the sum of `duration_ns` is the engine's busy time, two steps in flight or
    not.

    `duration_ns = schedule_ns + forward_ns + update_ns`, exactly. What of a step was done while the one before it still
    ran (asynchronous scheduling) is in none of them.
    """

    index: int
    scheduled_ns: int  # the scheduler began to plan it
    planned_ns: int  # its plan was ready, and the model could begin
    start_ns: int  # its own time begins
    computed_ns: int  # the model's results, sampled tokens included, were in
    end_ns: int  # the scheduler had taken them in
    cpu_ns: int | None  # CPU time of the worker's thread within its own time
    work: tuple[StepWork, ...]
    running: int  # requests (samples) in the running batch after planning
    waiting: int  # requests (samples) that waited for a place
    preempted: tuple[tuple[str, int], ...]  # (request_id, sample) that lost their KV blocks
    freed: tuple[
        tuple[str, int], ...
    ]  # that gave them back as they ended, after the previous step's end or in this one
    evicted: tuple[int, ...]  # ids of free blocks whose cached content was given up, in the same time
    kv_blocks_free: int | None  # free blocks when the step ended
    threads: int | None = None  # that computed it, where the engine's library is told how many
    limits: Limits | None = None  # that it was planned within, where they were not those of the load

    @property
    def duration_ns(self) -> int:
        """Own time, in nanoseconds."""
        return self.end_ns - self.start_ns

    @property
    def schedule_ns(self) -> int:
        """Own time in which the scheduler planned it."""
        return max(0, self.planned_ns - self.start_ns)

    @property
    def forward_ns(self) -> int:
        """Own time in which the model computed it and its tokens were sampled."""
        return self.computed_ns - max(self.planned_ns, self.start_ns)

    @property
    def update_ns(self) -> int:
        """Own time in which the scheduler took its results in."""
        return self.end_ns - self.computed_ns

    @property
    def tokens(self) -> int:
        """Number of tokens that the step computed."""
        return sum(work.tokens for work in self.work)


@dataclass(frozen=True, slots=True)
class Fit:
    """What a step costs: `fixed_ns + token_ns · tokens (+ kv_token_ns · kv_tokens)`, fitted to measured steps.

    `None` coefficients mean that too few distinct steps were seen to fit, and that a step is split by tokens alone.
    """

    steps: int  # measured steps behind the fit
    fixed_ns: float | None  # the part that does not depend on the tokens; not just "reading the weights"
    token_ns: float | None
    kv_token_ns: float | None
    residual_ns: float | None  # median absolute error of a step


@dataclass(frozen=True, slots=True)
class SampleRecord:
    """One answer of a request: its events in order, and why it ended."""

    index: int
    events: tuple[TokenEvent, ...]
    finish_reason: str  # "stop", "length", "abort" or "error"
    stop_reason: int | str | None = None

    @property
    def text(self) -> str:
        """The answer as text."""
        return "".join(event.text for event in self.events)

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The answer as token ids, end-of-sequence token included."""
        return tuple(token for event in self.events for token in event.token_ids)


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """Everything measured about one request. Derived figures (phases, TPOT, …) are functions in
    `jupyter_infer.metrics`.
    """

    request_id: str
    model: str
    label: str  # the beginning of what was asked, as it was typed; for people to tell requests apart
    prompt: str  # the text that was tokenised, chat template applied
    prompt_tokens: int
    cached_tokens: int | None  # of these, found in the prefix cache (whole blocks)
    sampling: dict[str, Any]  # every sampling value that was set, defaults of the model included
    samples: tuple[SampleRecord, ...]
    load_ns: int | None  # a load that this request waited for; in no phase
    arrival_ns: int
    enqueued_ns: int | None  # handed to vLLM
    started_ns: int | None  # first step that computed a token of it
    first_token_ns: int | None
    last_token_ns: int | None
    finished_ns: int  # the engine was done with it (a stop, an abort or an error)
    stalled_ns: int  # of its decode time, spent preempted or computing lost KV again
    preemptions: int
    shared_prefill_ns: int | None  # its attributed part of the engine's busy time, by what it computed then
    shared_decode_ns: int | None
    shared_stalled_ns: int | None
    fit: Fit | None  # the coefficients in force when it finished
    error: str | None = None

    @property
    def shared_ns(self) -> int | None:
        """Its attributed part of the engine's busy time; None if no step computed anything of it."""
        parts = (self.shared_prefill_ns, self.shared_decode_ns, self.shared_stalled_ns)
        known = [part for part in parts if part is not None]
        return sum(known) if known else None

    @property
    def output_tokens(self) -> int:
        """Output tokens of all samples."""
        return sum(len(event.token_ids) for sample in self.samples for event in sample.events)

    @property
    def finish_reason(self) -> str:
        """Why the request ended; the reason of its samples if they agree, else the reasons joined by ``", "``."""
        return ", ".join(dict.fromkeys(sample.finish_reason for sample in self.samples))


@dataclass(frozen=True, slots=True)
class LoadStage:
    """A stage of a load began: `stage` is one of `jupyter_infer.engine.protocol.STAGES`."""

    stage: str
    detail: str = ""
    time_ns: int = 0


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What was loaded, and within which limits it runs."""

    model: str
    engine: str  # e.g. "vllm 0.32.0"
    device: str  # "cpu" or "cuda"
    dtype: str
    block_size: int  # tokens a KV block
    kv_blocks_total: int  # blocks that requests can use
    kv_bytes: int | None
    weight_bytes: int | None
    max_model_len: int  # prompt + output tokens of one request
    max_num_batched_tokens: int  # token budget of a step
    max_num_seqs: int
    threads: int | None
    load_ns: int | None = None
    chat_template: bool = True  # without one, a text is completed as it stands
    notices: tuple[str, ...] = ()  # things the user should know about this load, one line each
    settings: dict[str, Any] = field(default_factory=dict)  # engine settings that were set, by us or by the user

    @property
    def limits(self) -> Limits:
        """What the scheduler admits as it was loaded."""
        return Limits(self.max_num_seqs, self.max_num_batched_tokens)

    @property
    def is_replay(self) -> bool:
        """Whether it plays a recorded run again and computes nothing."""
        return self.engine.startswith(REPLAY_OF)

    @property
    def not_compiled(self) -> str | None:
        """Why it was loaded eager although it was to be compiled, or None."""
        return next((notice for notice in self.notices if notice.startswith("not compiled")), None)


def plain(value: Any) -> Any:
    """Return `value` as JSON has it, so that a record that holds it is equal after a round trip: tuples as lists, keys
    as text, and what JSON cannot say as its `repr`.
    """
    try:
        return msgspec.json.decode(msgspec.json.encode(value, enc_hook=repr))
    except (TypeError, ValueError):  # a key that is no text or number, half of a surrogate pair
        return repr(value)


def to_json(record: Any) -> str:
    """Return `record` (any record, or a list of them) as a JSON text that `from_json` reads back equal."""
    return msgspec.json.encode(record).decode()


def from_json(text: str | bytes, kind: type[T]) -> T:
    """Return the record of type `kind` that `to_json` wrote.

    Raises
    ------
    msgspec.ValidationError
        If the text is not a record of that kind.
    """
    return msgspec.json.decode(text, type=kind)
