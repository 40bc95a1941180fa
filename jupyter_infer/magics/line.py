r"""The line of a magic as words, and the words as options.

A bare word is taken as typed; a quoted one is a Python literal, so ``--stop "\\n\\n"`` is two newlines. Options are
written ``--max-tokens 64`` or ``--max-tokens=64``; there are no abbreviations, because a new option would break them.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jupyter_infer.config import field_name, parse_value
from jupyter_infer.errors import ConfigError, nearest

__all__ = ["Line", "Option", "parse_line", "split_line"]

_WORD = re.compile(
    r"""\s*(?:(?P<key>--[\w-]+=)?(?P<quoted>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')(?=\s|$)|(?P<bare>\S+))""", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a magic: its names, what its value is called (None for a switch) and what it does."""

    names: tuple[str, ...]  # the last one is the long name
    value: str | None
    does: str

    @property
    def field(self) -> str:
        """The long name with underscores."""
        return field_name(self.names[-1])


@dataclass(frozen=True, slots=True)
class Word:
    """A word of the line; a quoted one is never an option, nor is what stands after an equals sign."""

    text: str
    quoted: bool = False
    given: bool = False  # the value in --name=value


@dataclass(slots=True)
class Line:
    """A parsed line: known options by field name, other ``--name value`` pairs, and words without a dash."""

    options: dict[str, Any] = field(default_factory=dict)
    others: dict[str, Any] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)


def split_line(line: str) -> list[Word]:
    """Return the words of a line.

    Raises
    ------
    ConfigError
        If a quoted value is not a Python string, or a quote is not closed.
    """
    words: list[Word] = []
    position = 0
    line = line.strip()
    while position < len(line):
        match = _WORD.match(line, position)
        assert match is not None
        position = match.end()
        if (quoted := match["quoted"]) is not None:
            if match["key"]:
                words.append(Word(match["key"][:-1]))
            words.append(Word(_literal(quoted), quoted=True))
        else:
            bare = match["bare"]
            name, equals, value = bare.partition("=") if bare.startswith("--") else (bare, "", "")
            if (value if equals else bare).startswith(("'", '"')):
                raise ConfigError(f"a quote is not closed, or text touches it: {bare}")
            words.append(Word(name))
            if equals:
                words.append(Word(value, given=True))
    return words


def parse_line(line: str, known: Sequence[Option]) -> Line:
    """Return the options and words of a line.

    Names that are not `known` are kept in `Line.others`, for the engine to judge: it has options of its own.

    Raises
    ------
    ConfigError
        If a value is missing, or an option stands twice.
    """
    by_name: Mapping[str, Option] = {name: option for option in known for name in option.names}
    parsed, words = Line(), split_line(line)
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        if word.quoted or not _is_option(word.text):
            parsed.words.append(word.text)
            continue
        option = by_name.get(word.text)
        if option is None and not word.text.startswith("--"):
            raise ConfigError(f"unknown option {word.text!r}{nearest(word.text, by_name)}; %infer help lists them")
        after = words[position] if position < len(words) else None
        if option is not None and option.value is None:
            value: Any = True
        elif after is not None and (after.quoted or after.given or not _is_option(after.text)):
            value = after.text if option is not None or after.quoted else parse_value(after.text)
            position += 1
        elif option is not None:
            raise ConfigError(f"{word.text} needs a value: {word.text} {option.value}")
        else:
            value = True  # an engine's switch
        target, key = (parsed.options, option.field) if option is not None else (parsed.others, field_name(word.text))
        if key in target:
            raise ConfigError(f"{word.text} stands twice")
        target[key] = value
    return parsed


def _is_option(text: str) -> bool:
    """Whether a bare word is an option; ``-1`` and ``-0.5`` are numbers."""
    return re.fullmatch(r"--?[A-Za-z][\w-]*", text) is not None


def _literal(text: str) -> str:
    try:
        with warnings.catch_warnings():  # "\d" is no escape, and Python keeps it as it is
            warnings.simplefilter("ignore")
            return str(ast.literal_eval(text))
    except (ValueError, SyntaxError):
        raise ConfigError(f"{text} is not a Python string; double the backslashes, or leave the quotes out") from None
