"""What a ``%%infer`` cell asks for: its line, its text and the defaults, checked as far as no engine is needed."""

from __future__ import annotations

import keyword
import re
from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from jupyter_infer.errors import ConfigError, PromptError, nearest
from jupyter_infer.magics.line import parse_line
from jupyter_infer.magics.options import FORMATS, OPTIONS, SAMPLING
from jupyter_infer.magics.prompts import interpolate, known_names, prompts_in, split_prompts
from jupyter_infer.magics.schema import schema_in
from jupyter_infer.structured import FORMS, constraint

__all__ = ["Ask", "Shown", "read_ask", "without_semicolon"]

Shown = Literal["chart", "status", "nothing", "json"]
"""What a cell shows below its answer: status line and chart, the line alone, nothing; or JSON in place of all."""

NOT_SAMPLING = {"self", "prompt", "prompts", "messages", "model", "system", "template", "progress"}
"""What the session's methods take beside sampling values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A cell, understood."""

    prompts: tuple[str, ...]
    batch: bool  # one answer is a `Result`, a batch of even one prompt is `Results`
    model: str | None
    system: str | None
    sampling: Mapping[str, Any]
    template: bool
    continues: bool
    background: bool
    out: str | None
    format: str | None  # one of `FORMATS`; None for what suits the front end
    stream: bool
    shown: Shown
    hint: str | None


def read_ask(
    line: str,
    body: str,
    defaults: Mapping[str, Any],
    namespace: Mapping[str, Any],
    hidden: Container[str] = (),
) -> Ask:
    """Return what a cell asks for.

    Parameters
    ----------
    line
        What stands after ``%%infer``.
    body
        The rest of the cell, as typed.
    defaults
        Values of options by field name, for the options that the line leaves out.
    namespace
        The user's variables.
    hidden
        Names among them that the user did not make.

    Raises
    ------
    ConfigError, PromptError
        One line that says what to type.
    """
    line, muted = without_semicolon(line)
    parsed = parse_line(line, OPTIONS)
    if parsed.words:
        if re.match(r"-[A-Za-z]=", word := parsed.words[0]):
            raise ConfigError(f"{word!r}: a short option has no equals sign; write {word.replace('=', ' ', 1)}")
        raise ConfigError(f"{word!r} is no option; the prompt goes below the %%infer line")
    typed = parsed.options
    options = {**defaults, **typed}
    template = "no_template" not in options
    if not template and "system" not in typed:
        options.pop("system", None)  # a default that means nothing to a raw completion
    prompts, hint = _prompts(typed, body, namespace, hidden)
    ask = Ask(
        prompts=tuple(prompts),
        batch="split" in typed or "prompts" in typed,
        model=options.get("model"),
        system=options.get("system"),
        sampling=_sampling(options, typed) | _structured(typed, namespace),
        template=template,
        continues="continue" in typed,
        background="background" in typed,
        out=_out(typed.get("out")),
        format=_format(options.get("format")),
        stream="no_stream" not in options,
        shown=_shown(options, muted or body.rstrip().endswith(";")),
        hint=hint,
    )
    _check(ask, typed)
    return ask


def without_semicolon(line: str) -> tuple[str, bool]:
    """Return a magic's line without the semicolon at its end, and whether there was one: it mutes, as in IPython."""
    bare = line.rstrip()
    return (bare[:-1], True) if bare.endswith(";") else (line, False)


def _prompts(
    typed: Mapping[str, Any], body: str, namespace: Mapping[str, Any], hidden: Container[str]
) -> tuple[list[str], str | None]:
    """Return the prompts, and a hint where a cell looks as if it was meant to be interpolated."""
    text = body.removesuffix("\n")
    if "prompts" in typed:
        for other in ("split", "interpolate"):
            if other in typed:
                raise ConfigError(f"--{other} is about the cell's text, and --prompts takes a list; leave one out")
        if text.strip():
            raise ConfigError(f"the prompts come from {typed['prompts']}; leave the cell below the line empty")
        return prompts_in(typed["prompts"], namespace), None
    if not text.strip():
        raise PromptError("the prompt is empty; write the question below the %%infer line")
    prompts = split_prompts(text, typed["split"]) if "split" in typed else [text]
    if not prompts:
        raise PromptError("there is no prompt between the separators; write one a piece")
    if "interpolate" in typed:
        return [interpolate(prompt, namespace) for prompt in prompts], None
    if names := [name for name in known_names(text, namespace) if name[0] != "_" and name not in hidden]:
        return prompts, f"{{{names[0]}}} was sent as typed; %%infer -i puts the value of {names[0]} in its place"
    return prompts, None


def _sampling(options: Mapping[str, Any], typed: Mapping[str, Any]) -> dict[str, Any]:
    values = {name: options[name] for name in SAMPLING if name in options}
    for name, value in options.get("sampling", {}).items():
        if name in typed:
            own = next(option.names[-1] for option in OPTIONS if option.field == name)
            raise ConfigError(f"--sampling {name} says again what {own} says; leave one out")
        if name in NOT_SAMPLING:
            raise ConfigError(f"unknown sampling value {name!r}")
        values[name] = value
    if "no_cache" in options:
        values["skip_reading_prefix_cache"] = True
    return values


def _structured(typed: Mapping[str, Any], namespace: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the answer has to look like as a sampling value, checked before any model is loaded."""
    given: dict[str, Any] = {name: typed[name] for name in ("schema", "regex", "choice") if name in typed}
    if (other := typed.get("sampling", {}).get("structured_outputs")) is not None:
        given["sampling structured_outputs"] = other
    if len(given) > 1:
        raise ConfigError(f"an answer has one form; leave out {' or '.join(f'--{name}' for name in given)}")
    if not given:
        return {}
    [(name, wanted)] = given.items()
    if name == "schema":
        wanted = {"json": schema_in(wanted, namespace)}
    elif name in FORMS:
        wanted = {name: wanted}
    return {"structured_outputs": constraint(wanted)}


def _out(name: str | None) -> str | None:
    if name is not None and (not name.isidentifier() or keyword.iskeyword(name)):
        raise ConfigError(f"--out takes the name of a variable, not {name!r}")
    return name


def _format(name: str | None) -> str | None:
    if name is not None and name not in FORMATS:
        raise ConfigError(f"--format takes {' or '.join(FORMATS)}, not {name!r}{nearest(name, FORMATS)}")
    return name


def _shown(options: Mapping[str, Any], muted: bool) -> Shown:
    if "json" in options:
        return "json"
    return "nothing" if muted else "status" if "no_chart" in options else "chart"


def _check(ask: Ask, typed: Mapping[str, Any]) -> None:
    """Refuse options that contradict each other."""
    if not ask.template and ask.system is not None:
        raise ConfigError("a system message needs the chat template; leave out --system or --no-template")
    if ask.continues:
        for name in ("system", "split", "prompts", "no_template"):
            if name in typed:
                why = {"system": "keeps its system message", "no_template": "needs the chat template"}
                reason = why.get(name, "goes on with one prompt")
                raise ConfigError(f"a conversation {reason}; leave out --continue or --{name.replace('_', '-')}")
    if ask.background and ask.shown == "json":
        raise ConfigError("--json prints when the answer is there; leave out --background or --json")
