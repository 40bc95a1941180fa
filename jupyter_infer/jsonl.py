"""Runs as JSON lines: a line for the header, one a request, one a step; several runs may follow each other in a file.

Each line is an object with one key, which says what it is. The schema has a version: a reader takes files of its own
version, and says so of others.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from jupyter_infer.errors import ConfigError
from jupyter_infer.records import RequestRecord, StepRecord, to_json
from jupyter_infer.run import Run, RunHeader

__all__ = ["SCHEMA", "SCHEMA_VERSION", "read_file", "read_files", "write_file"]

SCHEMA = "jupyter-infer/run"
SCHEMA_VERSION = 1


class _Line(msgspec.Struct):
    """One line: a header with the schema that it begins, a request with when it was first shown, or a step."""

    schema: str | None = None
    version: int | None = None
    header: RunHeader | None = None
    request: RequestRecord | None = None
    first_shown_ns: int | None = None
    step: StepRecord | None = None


@dataclass(slots=True)
class _Reading:
    header: RunHeader
    requests: list[RequestRecord] = field(default_factory=list)
    steps: list[StepRecord] = field(default_factory=list)
    shown: dict[str, int] = field(default_factory=dict)

    def run(self, name: str) -> Run:
        return Run(self.header, tuple(self.requests), tuple(self.steps), self.shown, name)


def write_file(path: str | Path, runs: Iterable[Run], *, append: bool = False) -> Path:
    """Write runs to a file, or behind those that are in it; return its path.

    The file is whole or as it was: what is written goes beside it first.

    Raises
    ------
    OSError
        If it cannot be written.
    """
    target = Path(path).expanduser()
    before = target.read_text(encoding="utf-8") if append and target.exists() else ""
    beside = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with beside.open("w", encoding="utf-8") as file:
            file.write(before)
            for run in runs:
                file.writelines(f"{line}\n" for line in _lines(run))
        beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)
    return target


def read_file(path: str | Path) -> list[Run]:
    """Return the runs of a file, called after it.

    Raises
    ------
    ConfigError
        If it is no file of ours, of another version of the schema, or cut off in a line; the message says which line.
    OSError
        If it cannot be read.
    """
    source = Path(path).expanduser()
    runs: list[_Reading] = []
    decoder = msgspec.json.Decoder(_Line)
    with source.open("rb") as file:
        for number, text in enumerate(file, 1):
            if not text.strip():
                continue
            place = f"{source.name}, line {number}"
            try:
                line = decoder.decode(text)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                _check_version(text, place)
                raise ConfigError(f"{place} is no line of a recorded run: {error}") from None
            if line.header is not None:
                _check_version(text, place)
                runs.append(_Reading(line.header))
            elif not runs:
                raise ConfigError(f"{place}: a recorded run begins with its header; this file does not")
            elif line.request is not None:
                runs[-1].requests.append(line.request)
                if line.first_shown_ns is not None:
                    runs[-1].shown[line.request.request_id] = line.first_shown_ns
            elif line.step is not None:
                runs[-1].steps.append(line.step)
            else:
                raise ConfigError(f"{place} is neither a header nor a request nor a step")
    if not runs:
        raise ConfigError(f"{source.name} holds no run")
    names = [source.stem] if len(runs) == 1 else [f"{source.stem} {number}" for number in range(1, len(runs) + 1)]
    return [reading.run(name) for reading, name in zip(runs, names, strict=True)]


def read_files(*patterns: str | os.PathLike[str]) -> list[Run]:
    """Return the runs of all files that patterns such as ``"runs/*.jsonl"`` name, in the order of their names.

    Raises
    ------
    ConfigError
        If a pattern names no file. Also what `read_file` raises.
    """
    runs: list[Run] = []
    for pattern in patterns:
        text = os.path.expanduser(os.fspath(pattern))
        paths = [text] if os.path.exists(text) else sorted(glob.glob(text, recursive=True))
        if not paths:
            raise ConfigError(f"no file is called {os.fspath(pattern)!r}")
        for path in paths:
            runs += read_file(path)
    return runs


def _lines(run: Run) -> Iterator[str]:
    yield to_json({"schema": SCHEMA, "version": SCHEMA_VERSION, "header": run.header})
    for record in run.requests:
        shown = run.first_shown_ns.get(record.request_id)
        yield to_json({"request": record} | ({} if shown is None else {"first_shown_ns": shown}))
    for step in run.steps:
        yield to_json({"step": step})


def _check_version(text: bytes, place: str) -> None:
    """Refuse a line that says to be of another schema, before anything in it is called wrong."""
    try:
        head: Any = msgspec.json.decode(text)
    except msgspec.MsgspecError:
        return
    if not isinstance(head, dict) or "header" not in head:
        return
    schema, version = head.get("schema"), head.get("version")
    if schema != SCHEMA:
        raise ConfigError(f"{place} begins a {schema!r}, and a recorded run is a {SCHEMA!r}")
    if version != SCHEMA_VERSION:
        raise ConfigError(f"{place} has version {version} of the schema, and this jupyter-infer reads {SCHEMA_VERSION}")
