"""A peer's side of the protocol: JSON objects come in, one a line, and each is answered with one.

The first question says what to load, the others what to run. This file needs the standard library alone and no other
file of ours, because a peer may live in a Python that has nothing of ours.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

__all__ = ["Peer", "Unavailable", "serve"]


class Unavailable(Exception):
    """What was asked for does not exist here; one line says why."""


class Peer:
    """Something loaded that runs prompts; `facts` goes to whoever asked, and `import_s` is part of its load."""

    def __init__(self) -> None:
        self.facts: dict[str, Any] = {}
        self.import_s = 0.0

    def prepare(self, question: dict[str, Any]) -> None:
        """Forget what the last run left, and check the question; in no time that is measured."""

    def run(self, question: dict[str, Any]) -> int:
        """Run the prompts of a question as one batch, and return the number of output tokens."""
        raise NotImplementedError


def serve(load: Callable[[dict[str, Any]], Peer]) -> None:
    """Answer the questions of stdin until it ends; nothing else may write to stdout."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what an engine prints goes to stderr
    wanted = json.loads(sys.stdin.readline())
    begun = time.monotonic()
    try:
        peer = load(wanted)
    except Unavailable as why:
        _answer(answers, {"unavailable": str(why)})
        return
    load_s = time.monotonic() - begun - peer.import_s
    _answer(answers, {"facts": peer.facts, "import_s": peer.import_s, "load_s": load_s})
    for line in sys.stdin:
        question = json.loads(line)
        peer.prepare(question)
        begun = time.monotonic()
        tokens = peer.run(question)
        _answer(answers, {"tokens": tokens, "seconds": time.monotonic() - begun})


def _answer(stream: TextIO, answer: dict[str, Any]) -> None:
    stream.write(json.dumps(answer) + "\n")
    stream.flush()
