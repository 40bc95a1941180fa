"""``%infer chart``: a chart of what the last cell gave, of the whole session, or of what is named."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_infer.batch import BatchHandle
from jupyter_infer.charts import KINDS, Chart
from jupyter_infer.errors import ConfigError, nearest
from jupyter_infer.handle import RequestHandle
from jupyter_infer.magics.line import parse_line
from jupyter_infer.recorded import Recorded, Runs, compare, read_runs

if TYPE_CHECKING:
    from jupyter_infer.magics.infer import InferMagics

__all__ = ["chart"]

NOTHING = "nothing was asked yet; write a question in a %%infer cell"


def chart(magics: InferMagics, rest: str) -> Chart:
    """Return the chart that a ``%infer chart`` line names."""
    parsed = parse_line(rest)
    kind, names, options = (parsed.words[0] if parsed.words else "phases"), parsed.words[1:], parsed.others
    if kind not in KINDS:
        if not nearest(kind, KINDS) and (_is_file(kind) or kind.partition("[")[0] in magics.shell.user_ns):
            raise ConfigError(f"the kind of the chart stands first: %infer chart phases {' '.join(parsed.words)}")
        raise ConfigError(f"unknown chart {kind!r}{nearest(kind, KINDS)}; there is: {', '.join(KINDS)}")
    if first := next((name for name in ("kind", "self") if name in options), None):
        raise ConfigError(f"unknown option '--{first}': the kind of the chart stands first, as in %infer chart phases")
    if "labels" in options:
        options["labels"] = _labels(options["labels"])
    things = [_named(magics, name) for name in names]
    if kind == "compare" and things:
        if others := [name for name in options if name != "labels"]:
            raise ConfigError(f"%infer chart compare A B … takes --labels alone; got --{others[0]}")
        return compare(*things, labels=options.get("labels"))
    if len(things) > 1:
        raise ConfigError(f"a chart of {kind} shows one thing; type %infer chart compare {' '.join(names)}")
    if things:
        return _one(things[0], names[0]).chart(kind, **options)
    shown = magics.session if kind == "compare" else magics.last()
    if shown is None:
        raise ConfigError(NOTHING)
    return shown.chart(kind, **options)


def _one(thing: Recorded | Sequence[Recorded], name: str) -> Recorded:
    """Return the one thing that a name stands for."""
    if isinstance(thing, Recorded) and not (isinstance(thing, Runs) and len(thing) > 1):
        return thing
    if len(thing) == 1:
        found: Recorded = thing[0]
        return found
    one = f"runs = ji.read_runs({name!r}), and then runs[0]" if _is_file(name) else f"{name}[0]"
    raise ConfigError(f"{name} holds {len(thing)} runs; name one, {one}, or type %infer chart compare {name}")


def _named(magics: InferMagics, name: str) -> Recorded | Sequence[Recorded]:
    """Return what a word stands for: a variable or an item of one, the session, or files."""
    namespace: Mapping[str, Any] = magics.shell.user_ns
    variable = re.fullmatch(r"(\w+)(?:\[(-?\d+)\])?", name)
    if variable is not None and variable[1] in namespace:
        found = namespace[variable[1]]
        if isinstance(found, RequestHandle | BatchHandle):  # of a cell in the background
            found = found.result()
        if variable[2] is not None:
            found = _item(found, variable[1], int(variable[2]))
        parts = found if isinstance(found, list | tuple) else [found]
        if parts and all(isinstance(part, Recorded) for part in parts):
            recorded: Recorded | Sequence[Recorded] = found
            return recorded
        raise ConfigError(f"{name} is no result, batch, session or recorded run; name one that %%infer --out made")
    if name == "session":
        return magics.session
    if _is_file(name):
        return read_runs(name)
    known = [key for key, value in namespace.items() if isinstance(value, Recorded) and key[:1] != "_"]
    hint = nearest(name, [*known, "session"])
    raise ConfigError(f"there is no {name!r}{hint}; name a result, session, or a .jsonl file")


def _item(found: Any, name: str, index: int) -> Any:
    if not isinstance(found, Sequence):
        raise ConfigError(f"{name} holds one thing; leave [{index}] out")
    if not -len(found) <= index < len(found):
        raise ConfigError(f"{name} holds {len(found)}, from {name}[0] on; there is no {name}[{index}]")
    return found[index]


def _is_file(name: str) -> bool:
    return Path(name).suffix == ".jsonl" or "*" in name


def _labels(value: Any) -> list[str]:
    """Return the labels of ``--labels A,B``; numbers were read as such."""
    if value is True:
        raise ConfigError("--labels needs a value: --labels A,B")
    parts = value if isinstance(value, list | tuple) else str(value).split(",")
    return [str(part).strip() for part in parts]
