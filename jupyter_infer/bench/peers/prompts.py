"""Prompts of an exact number of tokens, as ids and as the text that has them."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from jupyter_infer.errors import ModelError

__all__ = ["Prompt", "PromptMaker"]

WORDS = (
    "rain", "bread", "train", "owl", "glass", "salt", "map", "ship", "snow", "bee", "clock", "ink", "river", "stone",
    "garden", "window", "paper", "music", "winter", "summer", "market", "village", "island", "forest", "engine",
    "letter", "number", "colour", "morning", "evening", "water", "light", "the", "of", "and", "in", "with", "from", "a",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Prompt:
    """A text, and the ids that the model's tokenizer makes of it."""

    text: str
    ids: tuple[int, ...]


class PromptMaker:
    """Makes prompts for a model.

    Parameters
    ----------
    folder
        The model's folder.

    Raises
    ------
    ModelError
        If it holds no ``tokenizer.json``.
    """

    def __init__(self, folder: Path) -> None:
        file = folder / "tokenizer.json"
        if not file.is_file():
            raise ModelError(f"{folder} holds no tokenizer.json, and the prompts of this bench are made with it")
        self._tokenizer = Tokenizer.from_file(str(file))

    def make(self, count: int, tokens: int, seed: int) -> list[Prompt]:
        """Return prompts of so many tokens each, of random words; the same ones for the same seed."""
        draw = random.Random(f"{seed} {count} {tokens}")
        return [self._one(tokens, draw) for _ in range(count)]

    def _one(self, tokens: int, draw: random.Random) -> Prompt:
        words: list[str] = []
        ids: tuple[int, ...] = ()
        while len(ids) < tokens:
            missing = tokens - len(ids)
            words += [draw.choice(WORDS) for _ in range(max(1, missing // 2))]  # some are more than a token
            ids = self._ids(words)
        while len(ids) > tokens:
            words.pop()
            ids = self._ids(words)
        while len(ids) < tokens:  # the last word was longer than the room
            words.append("a")
            ids = self._ids(words)
        if len(ids) != tokens:
            raise ModelError(f"this model's tokenizer makes no text of exactly {tokens} tokens out of common words")
        return Prompt(" ".join(words), ids)

    def _ids(self, words: list[str]) -> tuple[int, ...]:
        encoding: Any = self._tokenizer.encode(" ".join(words))
        return tuple(encoding.ids)
