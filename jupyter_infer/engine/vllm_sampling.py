"""Sampling values as vLLM takes them, checked before a request is queued: one that fails in a step ends all of them."""

from __future__ import annotations

import dataclasses
import sys
import typing
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from jupyter_infer.config import DEFAULT_MAX_TOKENS, check_names
from jupyter_infer.engine.vllm_api import Vllm, first_line
from jupyter_infer.errors import ConfigError

__all__ = ["OWNED_SAMPLING", "Sampling"]

OWNED_SAMPLING = {
    "output_kind": "answers are streamed as deltas",
    "stream_interval": "every token is timed, so every token is an event",
    "detokenize": "answers are text here",
    "skip_clone": "it is internal to vLLM",
}
"""Sampling values that are ours, each with the reason."""

OTHER_BACKEND = "%infer load --structured-outputs-config {'backend':'guidance'}"

ELSEWHERE = {"structured_outputs", "prompt_logprob_token_ids"}
"""Values that are checked elsewhere: numbers of a schema are no tensor's, and vLLM looks at its one array itself."""

LARGEST, LARGEST_FLOAT = 2**63 - 1, 3.4e38
"""The largest numbers that vLLM's tensors can hold."""


class Sampling:
    """The sampling values of a loaded engine: what they are called, what they may be, and vLLM's form of them.

    Parameters
    ----------
    engine
        The `LLMEngine`; only what never changes after the load is read of it.
    vllm
        vLLM itself.
    model
        The model's name, for messages.
    """

    def __init__(self, engine: Any, vllm: Vllm, model: str) -> None:
        self._vllm, self._model = vllm, model
        self._config, self._tokenizer = engine.vllm_config, engine.get_tokenizer()
        self._defaults = dict(engine.model_config.get_diff_sampling_param())
        kind = vllm.SamplingParams
        self._types = typing.get_type_hints(kind, vars(sys.modules[kind.__module__]))
        public = {name for name in kind.__struct_fields__ if not name.startswith("_")}
        self._names = public - {"output_text_buffer_length"}
        self._owned = {
            field.name: f"it is an engine setting; type: %infer load {model} --{field.name.replace('_', '-')} …"
            for field in dataclasses.fields(vllm.EngineArgs)
            if field.name not in self._names
        } | OWNED_SAMPLING

    def complete(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values that will be used: the model's defaults and what was asked for.

        Raises
        ------
        ConfigError
            If a name is unknown or a value is not one that vLLM can run with.
        """
        check_names(asked, self._names, self._owned, "sampling value")
        given = {name: value for name, value in asked.items() if value is not None or self._may_be_none(name)}
        values = {"max_tokens": DEFAULT_MAX_TOKENS, **self._defaults, **given}
        values = {name: _of_python(value) for name, value in values.items()}
        self.params(values, verify=True)
        return values

    def params(self, values: Mapping[str, Any], *, verify: bool = False) -> Any:
        """Return vLLM's `SamplingParams`; a new object each time, because vLLM writes into it.

        To `verify` takes as long as to read a schema: vLLM does it once more when it gets the request.
        """
        typed = {name: self._typed(name, value) for name, value in values.items()}
        self._check_logprobs(typed.get("logprobs"))
        try:
            if typed.get("structured_outputs") is not None:
                typed["structured_outputs"] = self._vllm.StructuredOutputsParams(**typed["structured_outputs"])
            params = self._vllm.SamplingParams(**typed, output_kind=self._vllm.DELTA)
            if verify:
                params.verify(
                    self._config.model_config,
                    self._config.speculative_config,
                    self._config.structured_outputs_config,
                    self._tokenizer,
                )
        except (ValueError, TypeError, AttributeError, OverflowError, self._vllm.Refusal) as error:
            line = first_line(error)
            if line.endswith("not supported by xgrammar."):
                line = f"{line[:-1]}; {OTHER_BACKEND} knows others"
            raise ConfigError(line) from None
        return params

    def _check_logprobs(self, asked: int | None) -> None:
        """Say what can be asked for; vLLM says only that it is too much."""
        most = self._config.model_config.max_logprobs
        if asked is None or most == -1 or 0 <= asked <= most:  # -1: as many as there are tokens
            return
        more = f"; for more, type: %infer load {self._model} --max-logprobs {asked}" if asked > most else ""
        raise ConfigError(f"logprobs can be a whole number from 0 to {most}, not {asked}{more}")

    def _may_be_none(self, name: str) -> bool:
        return type(None) in typing.get_args(self._types[name])

    def _typed(self, name: str, value: Any) -> Any:
        """Return a value as the type that vLLM declares; it checks some of them only while it computes."""
        if name in ELSEWHERE:
            return value
        for number in _leaves(value):
            if isinstance(number, float) and not abs(number) <= LARGEST_FLOAT:  # infinite, or no number at all
                raise ConfigError(f"{name} cannot be {value!r:.60}: {number} is out of range")
            if isinstance(number, int) and abs(number) > LARGEST:
                raise ConfigError(f"{name} cannot be {value!r:.60}: a number is out of range")
        strict = not isinstance(value, dict)  # whose keys are texts, if it comes from JSON
        try:
            return msgspec.convert(value, self._types[name], strict=strict)
        except msgspec.ValidationError as error:
            raise ConfigError(f"{name} cannot be {value!r:.60}: {str(error).lower()}") from None


def _of_python(value: Any) -> Any:
    """Return NumPy's and PyTorch's numbers and arrays in a value as Python's, and anything else as it is."""
    if isinstance(value, Mapping):
        return {_of_python(key): _of_python(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_of_python(item) for item in value]
    return value.tolist() if callable(getattr(value, "tolist", None)) else value


def _leaves(value: Any) -> Iterator[Any]:
    """Yield what is in a value, however deep."""
    if isinstance(value, Mapping):
        for pair in value.items():
            yield from _leaves(pair)
    elif isinstance(value, list | tuple | set):
        for item in value:
            yield from _leaves(item)
    else:
        yield value
