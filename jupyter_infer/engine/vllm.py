"""vLLM as an `Engine`: speaking its language."""

from __future__ import annotations

import contextlib
import random
import threading
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from jupyter_infer.bandwidth import MOST_BYTES, read_bandwidth
from jupyter_infer.engine.protocol import EngineRequest, Message, Rendered, SampleOutput, StepResult
from jupyter_infer.engine.sizing import LoadPlan
from jupyter_infer.engine.threads import Threads
from jupyter_infer.engine.vllm_api import Vllm, first_line, sweep
from jupyter_infer.engine.vllm_logprobs import logprobs_of
from jupyter_infer.engine.vllm_sampling import Sampling
from jupyter_infer.errors import ConfigError, PromptError
from jupyter_infer.models import ResolvedModel
from jupyter_infer.records import EngineInfo, Limits, plain

__all__ = ["VllmEngine"]

NO_TEMPLATE = "no chat template: a text is completed as it stands"


class VllmEngine:
    """A loaded vLLM engine; see `Engine` for the contract."""

    def __init__(self, engine: Any, vllm: Vllm, model: ResolvedModel, plan: LoadPlan, *, load_ns: int) -> None:
        self._engine, self._vllm = engine, vllm
        self._core = engine.engine_core.engine_core
        self._scheduler = self._core.scheduler
        self._tracer = self._scheduler.tracer
        self._pool = self._scheduler.kv_cache_manager.block_pool
        self._bandwidth: float | None = None  # measured when somebody asks
        self._keys: dict[str, tuple[str, ...]] = {}  # our request id → vLLM's ids, one a sample
        self._tokenizer = vllm.shared_tokenizer(engine.get_tokenizer())
        self._tokenizing = threading.Lock()
        self._sampling = Sampling(engine, vllm, model.name)
        self._threads = Threads() if vllm.device == "cpu" else None
        config = engine.vllm_config
        self._chunks = bool(config.scheduler_config.enable_chunked_prefill)
        self._info = EngineInfo(
            model=model.name,
            engine=f"vllm {vllm.version}",
            device=vllm.device,
            dtype=str(config.model_config.dtype).removeprefix("torch."),
            block_size=config.cache_config.block_size,
            kv_blocks_total=self._pool.num_gpu_blocks - 1,  # block 0 is vLLM's null block
            kv_bytes=_kv_bytes(engine),
            weight_bytes=plan.weight_bytes,
            max_model_len=config.model_config.max_model_len,
            max_num_batched_tokens=self._scheduler.max_num_scheduled_tokens,
            max_num_seqs=self._scheduler.max_num_active_reqs,
            threads=self._threads.now if self._threads else None,
            load_ns=load_ns,
            chat_template=bool(self._tokenizer.chat_template),
            notices=plan.notices if self._tokenizer.chat_template else (*plan.notices, NO_TEMPLATE),
            settings={name: plain(value) for name, value in plan.settings.items()},  # as a file of runs has them
        )

    @property
    def info(self) -> EngineInfo:
        """What was loaded."""
        return self._info

    def render(self, prompt: str | Sequence[Message], *, template: bool = True) -> Rendered:
        """Return the prompt as the model will read it.

        A text becomes one user message. A literal control token in it (``<|im_end|>``) is read as that token, as vLLM's
        server does. Templated text is tokenised without further special tokens: the template has them.
        """
        with self._tokenizing:
            if isinstance(prompt, str) and (not template or not self._tokenizer.chat_template):
                _not_empty(prompt)
                return Rendered(prompt, tuple(self._tokenizer.encode(prompt, verbose=False)))
            messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else [dict(m) for m in prompt]
            _not_empty("".join(str(m.get("content", "")) for m in messages if m.get("role") != "system"))
            if not self._tokenizer.chat_template:
                raise PromptError(f"{self._info.model} has no chat template: leave out -s/--system and -c/--continue")
            try:
                text = self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
            except Exception as error:  # templates are programs, and raise what they like
                raise PromptError(f"the chat template refused these messages: {first_line(error)}") from None
            return Rendered(text, tuple(self._tokenizer.encode(text, add_special_tokens=False, verbose=False)))

    def tokens(self, text: str) -> list[tuple[int, str]]:
        """Return the tokens of a text: id and the part of the text that it stands for."""
        with self._tokenizing:
            found = self._tokenizer(text, return_offsets_mapping=self._tokenizer.is_fast, verbose=False)
            names = self._tokenizer.convert_ids_to_tokens(found["input_ids"])
        spans = [tuple(span) for span in found.get("offset_mapping") or [(0, 0)] * len(names)]
        parts, seen, pieces = Counter(spans), Counter[tuple[int, ...]](), []
        for token, name, span in zip(found["input_ids"], names, spans, strict=True):
            piece = text[span[0] : span[1]]
            if piece and parts[span] > 1:  # bytes of one character
                seen[span] += 1
                piece += f" ({seen[span]} of {parts[span]})"
            pieces.append((token, piece or name))  # a token of the model's own stands for no part of the text
        return pieces

    def admit(self, prompt: Rendered, sampling: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the full sampling values of a request that can run: the model's defaults and what was asked."""
        values = self._sampling.complete(sampling)
        length, room = len(prompt.token_ids), self._info.max_model_len
        if length == 0:
            raise PromptError("the prompt is empty; write the question below the %%infer line")
        if length >= room:
            over, pool = length - room + 1, self._info.kv_blocks_total
            by_pool = room > (pool - 1) * self._info.block_size
            raise PromptError(
                f"the prompt has {length:,} tokens, and {self._info.model} is loaded with a context of {room:,}"
                f"{f' (what a KV pool of {pool:,} blocks holds)' if by_pool else ''}, of which one is for the answer; "
                f"shorten it by {over:,} token{'s'[: over > 1]}"
                f"{', or load with a larger --kv-cache-memory-bytes' if by_pool else ''}"
            )
        blocks = -(-(length + 1) // self._info.block_size)
        if blocks > self._info.kv_blocks_total:
            raise PromptError(
                f"the prompt needs {blocks:,} KV blocks of {self._info.block_size} tokens, and the pool has "
                f"{self._info.kv_blocks_total:,}; shorten it, or load with a larger --kv-cache-memory-bytes"
            )
        if values.get("temperature") != 0 and values.get("seed") is None:
            # A seed of its own: the request can be repeated, and vLLM does not draw from the user's global generator.
            values["seed"] = random.SystemRandom().randrange(2**31)
        return values

    def add(self, request: EngineRequest) -> None:
        """Queue a request; raises if vLLM refuses it, leaving nothing behind."""
        prompt = self._vllm.tokens_input(list(request.prompt.token_ids), prompt=request.prompt.text)
        params = self._sampling.params(request.sampling)
        try:
            key = self._engine.add_request(request.request_id, prompt, params)
        except BaseException as error:
            # vLLM notes a request before the scheduler, or a grammar, can refuse it.
            self._engine.abort_request([request.request_id])
            if isinstance(error, self._vllm.Refusal):
                raise ConfigError(first_line(error)) from None
            raise
        keys = (key,) if request.samples == 1 else tuple(f"{sample}_{key}" for sample in range(request.samples))
        self._keys[request.request_id] = keys
        self._tracer.names.update({key: (request.request_id, sample) for sample, key in enumerate(keys)})

    def abort(self, request_ids: Collection[str]) -> None:
        """Drop requests and free their blocks."""
        self._engine.abort_request(list(request_ids))
        self._forget(request_ids)

    def step(self) -> StepResult:
        """Run one step of vLLM's loop."""
        if self._threads:
            self._threads.before_step()
            self._tracer.threads = self._threads.now
        answers = self._engine.step()
        if self._threads:
            self._threads.after_step()
        steps = self._tracer.take()
        outputs = tuple(
            SampleOutput(
                request_id=answer.request_id,
                sample=output.index,
                token_ids=tuple(output.token_ids),
                text=output.text,
                finish_reason=output.finish_reason,
                stop_reason=output.stop_reason,
                cached_tokens=answer.num_cached_tokens,
                logprobs=None if output.logprobs is None else logprobs_of(output),
            )
            for answer in answers
            for output in answer.outputs
        )
        self._forget([answer.request_id for answer in answers if answer.finished])
        return StepResult(steps, outputs)

    def has_unfinished(self) -> bool:
        """Whether requests are open, or a step of an aborted one is still in flight."""
        return bool(self._engine.has_unfinished_requests() or self._core.batch_queue)

    def kv_blocks_free(self) -> int:
        """Return the number of free KV blocks."""
        return int(self._pool.get_num_free_blocks())

    def bandwidth(self) -> float | None:
        """Return how many bytes a second a plain read over as many as the weights reaches."""
        if self._bandwidth is None:
            self._bandwidth = read_bandwidth(min(self._info.weight_bytes or MOST_BYTES, MOST_BYTES), self._info.device)
        return self._bandwidth

    def set_limits(self, limits: Limits | None) -> None:
        """Admit so much from the next step on; None is what was loaded.

        vLLM tells the requests that it admits from the slots that it has made room for, so that fewer of them can be
        admitted at any time. Those that run go on, as far as the budget reaches.
        """
        room, budget = self._info.max_model_len, (limits or self._info.limits).max_num_batched_tokens
        if limits is not None and budget < room and not self._chunks:
            raise ConfigError(
                "this model was loaded without chunked prefill, so a prompt above the token budget would never run; "
                f"a budget can be {room:,} and more"
            )
        self._scheduler.max_num_active_reqs = (limits or self._info.limits).max_num_seqs
        self._scheduler.max_num_scheduled_tokens = budget
        self._tracer.limits = limits

    def reset_prefix_cache(self) -> bool:
        """Forget cached prefixes; False if running requests hold some."""
        return bool(self._engine.reset_prefix_cache())

    def close(self) -> None:
        """Free everything."""
        if self._threads:
            self._threads.close()
        self._engine.engine_core.shutdown()
        del self._engine, self._core, self._scheduler, self._tracer, self._pool, self._tokenizer, self._sampling
        sweep()

    def _forget(self, request_ids: Collection[str]) -> None:
        for request_id in request_ids:
            self._tracer.forget(self._keys.pop(request_id, ()))


def _not_empty(text: str) -> None:
    if not text.strip():
        raise PromptError("the prompt is empty; write the question below the %%infer line")


def _kv_bytes(engine: Any) -> int | None:
    with contextlib.suppress(AttributeError):
        return sum(int(tensor.nbytes) for tensor in engine.model_executor.driver_worker.model_runner.kv_caches)
    return None
