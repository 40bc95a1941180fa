r"""The line of a magic as words, and the words as options.

A bare word is taken as typed; a quoted one is a Python literal, so ``--stop "\\n\\n"`` is two newlines. Options are
written ``--max-tokens 64`` or ``--max-tokens=64``; there are no abbreviations, because a new option would break them.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jupyter_infer.config import field_name, parse_value
from jupyter_infer.errors import ConfigError, nearest

__all__ = ["Line", "Option", "parse_line", "split_line"]

_WORD = re.compile(
    r"""\s*(?:(?P<key>--[\w-]+=)?(?P<quoted>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')(?=\s|$)|(?P<bare>\S+))""", re.DOTALL
)

SURELY = 0.85
"""From this likeness on, an unknown option is taken for a slip of the pen and for nothing else."""


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a magic.

    Parameters
    ----------
    names
        What it is called; the last one is the long name.
    value
        What its value is called: ``"N"``; ``"[SEP]"`` may be left out, ``"KEY VALUE"`` is two words; None for a switch.
    does
        What it does, for the help.
    kind
        What makes a value of the word: `str`, `int` or `float`.
    default
        The value of one that was left out.
    many
        Whether the option can be repeated; its value is then a list.
    """

    names: tuple[str, ...]
    value: str | None
    does: str
    kind: Callable[[str], Any] = str
    default: Any = None
    many: bool = False

    @property
    def field(self) -> str:
        """The long name with underscores."""
        return field_name(self.names[-1])

    @property
    def usage(self) -> str:
        """The long name and its value as the help writes them."""
        return f"{self.names[-1]} {self.value}" if self.value else self.names[-1]


@dataclass(frozen=True, slots=True)
class Word:
    """A word of the line; a quoted one is never an option, nor is what stands after an equals sign."""

    text: str
    quoted: bool = False
    given: bool = False  # the value in --name=value


@dataclass(slots=True)
class Line:
    """A parsed line: known options by field name, ``--name value`` pairs of the engine, and words without a dash."""

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


def parse_line(line: str, known: Sequence[Option] | None = None) -> Line:
    """Return the options and words of a line.

    Parameters
    ----------
    line
        As typed.
    known
        The options that there are. None takes every ``--name value`` into `Line.others`, as Python literals where they
        are ones, for the engine to judge: it has options of its own.

    Raises
    ------
    ConfigError
        If an option is unknown, stands twice, has no value or one of the wrong kind.
    """
    by_name: Mapping[str, Option] = {name: option for option in known or () for name in option.names}
    parsed, words = Line(), deque(split_line(line))
    while words:
        word = words.popleft()
        if word.quoted or not _is_option(word.text):
            parsed.words.append(word.text)
            continue
        option = by_name.get(word.text)
        if option is not None:
            _take(option, word.text, words, parsed.options)
        elif known is None and word.text.startswith("--"):
            _once(parsed.others, field_name(word.text), word.text, _literal_or_text(_value(words)))
        else:
            raise ConfigError(_unknown(word.text, _value(words), by_name))
    return parsed


def _take(option: Option, typed: str, words: deque[Word], options: dict[str, Any]) -> None:
    """Move an option's value from the words into the options."""
    if option.value is None:
        if words and words[0].given:
            raise ConfigError(f"{typed} is a switch and takes no value")
        _once(options, option.field, typed, True)
    elif " " in option.value:
        key, value = _value(words), _value(words)
        if key is None or value is None:
            raise ConfigError(f"{typed} needs two words: {typed} {option.value}")
        pairs = options.setdefault(option.field, {})
        _once(pairs, field_name(key.text), f"{typed} {key.text}", _literal_or_text(value))
    else:
        word = _value(words)
        if word is None and not option.value.startswith("["):
            raise ConfigError(f"{typed} needs a value: {typed} {option.value}")
        value = option.default if word is None else _of_kind(option, typed, word.text)
        if option.many:
            options.setdefault(option.field, []).append(value)
        else:
            _once(options, option.field, typed, value)


def _once(target: dict[str, Any], key: str, typed: str, value: Any) -> None:
    if key in target:
        raise ConfigError(f"{typed} stands twice")
    target[key] = value


def _value(words: deque[Word]) -> Word | None:
    """Take the next word if it is a value: quoted, after an equals sign, or no option."""
    if words and (words[0].quoted or words[0].given or not _is_option(words[0].text)):
        return words.popleft()
    return None


def _of_kind(option: Option, typed: str, text: str) -> Any:
    try:
        return option.kind(text)
    except ValueError:
        what = {int: "a whole number", float: "a number"}[option.kind]  # type: ignore[index]
        raise ConfigError(f"{typed} takes {what}, not {text!r}") from None


def _literal_or_text(word: Word | None) -> Any:
    """Return a value whose kind is not known here; one that was left out is a switch."""
    return True if word is None else word.text if word.quoted else parse_value(word.text)


def _unknown(typed: str, value: Word | None, by_name: Collection[str]) -> str:
    surely = nearest(typed, by_name, cutoff=SURELY)
    if surely or not typed.startswith("--"):
        return f"unknown option {typed!r}{surely or nearest(typed, by_name) or '; %infer help lists them'}"
    text = "…" if value is None else repr(value.text) if value.quoted else value.text
    near = nearest(typed, by_name)
    return (
        f"unknown option {typed!r}{f'{near} Another' if near else '; another'} sampling value is "
        f"--sampling {field_name(typed)} {text}, an engine setting belongs to %infer load {typed} {text}"
    )


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
