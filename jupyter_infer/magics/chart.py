"""``%infer chart``: a chart of what the last cell gave, of the whole session, or of what is named."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_infer.charts import KINDS, Chart
from jupyter_infer.errors import ConfigError, nearest
from jupyter_infer.magics.line import parse_line
from jupyter_infer.recorded import Recorded, compare, read_runs

if TYPE_CHECKING:
    from jupyter_infer.magics.infer import InferMagics

__all__ = ["chart"]

NOTHING = "nothing was asked yet; write a question in a %%infer cell"


def chart(magics: InferMagics, rest: str) -> Chart:
    """Return the chart that a ``%infer chart`` line names."""
    parsed = parse_line(rest)
    kind, names = (parsed.words[0] if parsed.words else "phases"), parsed.words[1:]
    if kind not in KINDS:
        raise ConfigError(f"unknown chart {kind!r}{nearest(kind, KINDS)}; there is: {', '.join(KINDS)}")
    things = [_named(magics, name) for name in names]
    if kind == "compare":
        if not things:
            return magics.session.chart("compare", **parsed.others)
        labels = parsed.others.pop("labels", None)
        if parsed.others:
            raise ConfigError(f"%infer chart compare A B … takes --labels alone; got --{next(iter(parsed.others))}")
        return compare(*things, labels=None if labels is None else str(labels).split(","))
    if len(things) > 1:
        raise ConfigError(f"a chart of {kind} shows one thing; type %infer chart compare {' '.join(names)}")
    shown = things[0] if things else magics.last()
    if shown is None:
        raise ConfigError(NOTHING)
    if not isinstance(shown, Recorded):
        raise ConfigError(f"{names[0]} holds several runs; name one, or type %infer chart compare {names[0]}")
    return shown.chart(kind, **parsed.others)


def _named(magics: InferMagics, name: str) -> Recorded | Sequence[Recorded]:
    """Return what a word stands for: a variable, the session, or files."""
    namespace: dict[str, Any] = magics.shell.user_ns
    if name in namespace:
        found = namespace[name]
        handle = getattr(found, "result", None)
        if callable(handle) and not isinstance(found, Recorded):  # of a cell in the background
            found = handle()
        parts = found if isinstance(found, list | tuple) else [found]
        if parts and all(isinstance(part, Recorded) for part in parts):
            recorded: Recorded | Sequence[Recorded] = found
            return recorded
        raise ConfigError(f"{name} is no result, batch, session or recorded run; name one that %%infer --out made")
    if name == "session":
        return magics.session
    if Path(name).suffix == ".jsonl" or "*" in name:
        return read_runs(name)
    known = [key for key, value in namespace.items() if isinstance(value, Recorded) and key[:1] != "_"]
    raise ConfigError(f"there is no {name!r}{nearest(name, known)}; name a result, session, or a .jsonl file")
