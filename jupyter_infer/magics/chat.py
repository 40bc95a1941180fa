"""The conversation that ``%%infer --continue`` carries on: what the last cell asked, and its answer."""

from __future__ import annotations

from dataclasses import dataclass

from jupyter_infer.engine.protocol import Message
from jupyter_infer.errors import InferError
from jupyter_infer.handle import RequestHandle

__all__ = ["Chat"]


@dataclass(frozen=True, slots=True)
class Chat:
    """The messages of a request, and the handle that has its answer."""

    asked: tuple[Message, ...]
    handle: RequestHandle

    def messages(self) -> list[Message]:
        """Return the conversation so far; an interrupted answer is the text so far.

        A question that got no text, or failed, is left out, so the list can be empty of questions.
        """
        try:
            text = self.handle.record().samples[0].text
        except InferError:
            text = ""
        if not text:
            return list(self.asked[:-1])
        return [*self.asked, {"role": "assistant", "content": text}]
