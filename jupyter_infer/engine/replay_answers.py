"""Which recorded request answers what is asked of a replay: one of the same prompt and values, each in its turn."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from typing import Any

from jupyter_infer.engine.protocol import Message
from jupyter_infer.errors import ConfigError, PromptError, nearest
from jupyter_infer.records import RequestRecord, plain

__all__ = ["Answers"]

PROMPTS_SHOWN = 5


class Answers:
    """The requests of a recording, by what was asked.

    The one that was chosen least is chosen next: who asks as often as it was done for the recording gets its answers in
    turn, and then again from the start. All methods may be called from any thread.

    Parameters
    ----------
    requests
        The requests, in the order of their arrival.
    playable
        Ids of those that some step was recorded of.
    name
        What the recording is called.
    """

    def __init__(self, requests: Sequence[RequestRecord], playable: Container[str], name: str) -> None:
        self._requests, self._playable, self._name = requests, playable, name
        self._chosen = Counter[str]()  # how often, by request id
        self._choosing = threading.Lock()

    def find(self, prompt: str | Sequence[Message], *, template: bool) -> RequestRecord:
        """Return a request that was asked the same.

        Raises
        ------
        PromptError
            If none was, or the prompt is empty.
        """
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
        text = str(messages[-1].get("content", "")) if messages else ""
        if not text.strip():
            raise PromptError("the prompt is empty; write the question below the %%infer line")
        # A template may leave out what was answered before, but nothing that was asked.
        asked = [str(message.get("content", "")).strip() for message in messages if message.get("role") != "assistant"]
        found = [
            record
            for record in self._requests
            if (record.prompt == text and len(messages) == 1)
            or (template and record.label == text[: len(record.label)] and all(part in record.prompt for part in asked))
        ]
        if found:  # without a system message or a conversation that was not asked for, and not as it stands
            return min(found, key=lambda record: (template and record.prompt == text, len(record.prompt)))
        labels = list(dict.fromkeys(record.label for record in self._requests))
        there = ", ".join(repr(label[:60]) for label in labels[:PROMPTS_SHOWN])
        more = f" and {len(labels) - PROMPTS_SHOWN} more" if len(labels) > PROMPTS_SHOWN else ""
        raise PromptError(f"{self._name} has no such prompt{nearest(text[:60], labels)}; it has {there}{more}")

    def choose(self, prompt: str, sampling: Mapping[str, Any]) -> RequestRecord:
        """Return the request of a recorded prompt whose turn it is, among those that had these sampling values.

        Raises
        ------
        ConfigError
            If none had them.
        PromptError
            If no step was recorded of those that had.
        """
        asked = {name: plain(value) for name, value in sampling.items()}
        same = [record for record in self._requests if record.prompt == prompt]
        fitting = [record for record in same if asked.items() <= record.sampling.items()]
        if same and not fitting:
            values = same[0].sampling
            name, value = next((name, value) for name, value in asked.items() if values.get(name) != value)
            raise ConfigError(
                f"{self._name} was recorded with {name} {values.get(name)!r}, not {value!r}; leave it out"
            )
        able = [record for record in fitting if record.request_id in self._playable]
        if not able:
            raise PromptError("this request was aborted before a step; there is nothing to play again")
        with self._choosing:
            record = min(able, key=lambda record: self._chosen[record.request_id])
            self._chosen[record.request_id] += 1
        return record

    def chosen(self, prompt: str, sampling: Mapping[str, Any]) -> RequestRecord:
        """Return the request that `choose` returned, of its prompt and its sampling values."""
        own = [record for record in self._requests if record.prompt == prompt and record.sampling is sampling]
        return own[0] if len(own) == 1 else self.choose(prompt, sampling)
