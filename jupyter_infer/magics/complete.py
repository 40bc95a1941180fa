"""Tab in a ``%%infer`` or ``%infer`` line: options, their values, commands and models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jupyter_infer.charts import KINDS
from jupyter_infer.magics.commands import COMMANDS
from jupyter_infer.magics.options import FORMATS, OPTIONS
from jupyter_infer.magics.schema import is_schema
from jupyter_infer.models import known_models
from jupyter_infer.recorded import Recorded

__all__ = ["complete_lines", "leave_lines"]

IDENTIFIER = "jupyter_infer"

ARGUMENTS = {
    "load": known_models(),
    "clear": ("chat", "history", "cache"),
    "price": ("clear",),
    "chart": tuple(KINDS),
}
"""What a command takes, by command."""

LOAD_OPTIONS = ("--bits", "--compile")
"""Options of `%infer load` that are ours; vLLM's own are some two hundred."""


def complete_lines(shell: Any) -> None:
    """Let Tab complete the lines of both magics; twice does no harm."""
    leave_lines(shell)
    shell.Completer.custom_matchers.append(_matcher(shell))


def leave_lines(shell: Any) -> None:
    """Undo `complete_lines`."""
    matchers = shell.Completer.custom_matchers
    matchers[:] = [matcher for matcher in matchers if getattr(matcher, "matcher_identifier", None) != IDENTIFIER]


def _matcher(shell: Any) -> Any:
    """Return a matcher of IPython's; nothing else is offered where it offers something."""
    from IPython.core.completer import SimpleCompletion, context_matcher

    @context_matcher(identifier=IDENTIFIER)
    def matcher(context: Any) -> dict[str, Any]:
        before = context.text_until_cursor.removesuffix(context.token).split()
        found: list[str] = []
        if before[:1] == ["%%infer"] and not context.full_text.split("\n")[: context.cursor_line]:
            found = _options(before[1:], shell.user_ns)
        elif before[:1] == ["%infer"]:
            found = _commands(before[1:], shell.user_ns)
        fitting = [SimpleCompletion(text, type="magic") for text in found if text.startswith(context.token)]
        return {"completions": fitting, "suppress": bool(fitting)}

    return matcher


def _options(before: Sequence[str], namespace: Mapping[str, Any]) -> list[str]:
    """Return what can stand on a ``%%infer`` line after the words `before`."""
    by_name = {name: option for option in OPTIONS for name in option.names}
    option = by_name.get(before[-1]) if before else None
    if option is not None and option.value is not None and not option.value.startswith("["):
        return _values(option.field, namespace)
    taken = {by_name[word].names for word in before if word in by_name and not by_name[word].many}
    return [option.names[-1] for option in OPTIONS if option.names not in taken]


def _values(field: str, namespace: Mapping[str, Any]) -> list[str]:
    if field == "model":
        return list(known_models())
    if field == "format":
        return list(FORMATS)
    if field == "prompts":
        return [name for name, value in namespace.items() if isinstance(value, list | tuple) and name[0] != "_"]
    if field == "schema":
        return [name for name, value in namespace.items() if is_schema(value) and name[0] != "_"]
    return []


def _commands(before: Sequence[str], namespace: Mapping[str, Any]) -> list[str]:
    """Return what can stand on a ``%infer`` line after the words `before`."""
    if not before:
        return list(COMMANDS)
    if before[0] == "chart" and len(before) > 1:
        return [
            "session",
            *(name for name, value in namespace.items() if isinstance(value, Recorded) and name[0] != "_"),
        ]
    found = list(ARGUMENTS.get(before[0], ())) if len(before) == 1 else []
    return found + [option for option in LOAD_OPTIONS if before[0] == "load" and option not in before]
