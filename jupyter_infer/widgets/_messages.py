"""Messages between a widget and its views: each has a kind and an id, and every request gets a reply.

The mirror of ``js/src/lib/messages.ts``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Literal, NotRequired, TypedDict

from jupyter_infer.errors import ConfigError, InferError

__all__ = ["Event", "Handler", "Reply", "Request", "answer", "one_line"]

Handler = Callable[[str, dict[str, Any]], Mapping[str, Any] | None]
"""Takes the kind and the payload of a request and returns the payload of its reply."""


class Request(TypedDict):
    """What a view asks."""

    kind: str
    id: str
    payload: dict[str, Any]


class Reply(TypedDict):
    """What it gets: a payload, or an error in one line."""

    kind: Literal["reply"]
    id: str
    payload: NotRequired[dict[str, Any]]
    error: NotRequired[str]


class Event(TypedDict):
    """What all views are told unasked; its kind is never ``"reply"``."""

    kind: str
    id: str
    payload: dict[str, Any]


def answer(handle: Handler, content: Any) -> Reply | None:
    """Return the reply to what a view sent, whatever goes wrong; None if it has no id and nobody waits for one."""
    if not isinstance(content, Mapping) or not isinstance(content.get("id"), str):
        return None
    reply: Reply = {"kind": "reply", "id": content["id"]}
    try:
        kind, payload = content.get("kind"), content.get("payload")
        if not isinstance(kind, str) or not isinstance(payload, dict):
            raise ConfigError("a request has a kind and a payload")
        reply["payload"] = dict(handle(kind, payload) or {})
    except InferError as error:
        reply["error"] = one_line(error)
    except Exception as error:  # a fault of ours: the view gets its line, and the traceback is kept
        logging.getLogger(__name__).exception("a widget could not answer a request of kind %r", content.get("kind"))
        reply["error"] = one_line(error)
    return reply


def one_line(error: BaseException) -> str:
    """Return an error as a line: its kind and what it says."""
    said = " ".join(str(error).split())
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
