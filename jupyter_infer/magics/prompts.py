"""From a cell's text to the prompts: taken apart, and with values put in where that was asked for."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from jupyter_infer.errors import ConfigError

__all__ = ["interpolate", "known_names", "prompts_in", "split_prompts"]

# Two braces on both sides are left as they are; inside of one pair there is no other brace, and no more than a line.
_FIELD = re.compile(r"\{\{[^{}\n]{0,200}\}\}|\{([^{}\n]{1,200})\}")


def split_prompts(body: str, separator: str) -> list[str]:
    r"""Return the prompts of a body; what is blank between two separators is no prompt.

    A separator is a line of its own. One that holds a line break is a text instead: ``"\n"`` makes every line a
    prompt, ``"\n\n"`` every paragraph.
    """
    if not separator:
        raise ConfigError('--split takes the line between two prompts, such as ---, or "\\n" for a prompt a line')
    if "\n" in separator:
        return [piece for piece in body.split(separator) if piece.strip()]
    prompts: list[list[str]] = [[]]
    for line in body.split("\n"):
        if line.strip() == separator.strip():
            prompts.append([])
        else:
            prompts[-1].append(line)
    return [text for lines in prompts if (text := "\n".join(lines)).strip()]


def prompts_in(name: str, namespace: Mapping[str, Any]) -> list[str]:
    """Return the prompts that a user's variable holds.

    Raises
    ------
    ConfigError
        If there is no such variable, or it is no list of strings.
    """
    if name not in namespace:
        raise ConfigError(f"--prompts: there is no variable {name!r}")
    value = namespace[name]
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise ConfigError(f"--prompts: {name} is no list of strings but {_a(value)}")
    prompts = list(value)
    for index, prompt in enumerate(prompts):
        if not isinstance(prompt, str):
            raise ConfigError(f"--prompts: {name}[{index}] is no string but {_a(prompt)}")
    if not prompts:
        raise ConfigError(f"--prompts: {name} is empty")
    return prompts


def interpolate(text: str, namespace: Mapping[str, Any]) -> str:
    """Return `text` with the values of its ``{name}``, ``{name.attribute}`` and ``{name[key]}``.

    Whatever does not resolve in `namespace`, and any other use of braces, stays as typed. Values are put in as `str`
    makes them and are not looked through again.
    """

    def value(match: re.Match[str]) -> str:
        try:
            return str(_resolve(match[1], namespace)) if match[1] else match[0]
        except Exception:  # also of the user's own attributes and keys: it does not resolve
            return match[0]

    return _FIELD.sub(value, text)


def known_names(text: str, namespace: Mapping[str, Any]) -> list[str]:
    """Return the names of `namespace` that stand as ``{name}`` in `text`, each once."""
    found = (match[1] for match in _FIELD.finditer(text) if match[1])
    return list(dict.fromkeys(name for name in found if name.isidentifier() and name in namespace))


def _resolve(source: str, namespace: Mapping[str, Any]) -> Any:
    """Return what a name, an attribute or a subscript of one is; raises if it is none of these."""
    source = source.strip()

    def of(node: ast.expr) -> Any:
        match node:
            case ast.Name(id=name):
                return namespace[name]
            case ast.Attribute(value=value, attr=name):
                return getattr(of(value), name)
            case ast.Subscript(value=value, slice=key):
                return of(value)[key_of(key)]
        raise ValueError(source)

    def key_of(node: ast.expr) -> Any:
        if isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
            return of(node)
        if isinstance(node, ast.Slice):
            return slice(*(None if end is None else key_of(end) for end in (node.lower, node.upper, node.step)))
        return ast.literal_eval(node)

    with warnings.catch_warnings():  # it may be no Python at all
        warnings.simplefilter("ignore")
        body = ast.parse(source, mode="eval").body
        if source[0] == "(" or body.end_col_offset != len(source.encode()):  # for Python, (x) and x#1 are x, too
            raise ValueError(source)
        return of(body)


def _a(value: Any) -> str:
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"
