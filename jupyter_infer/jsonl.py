"""Runs as JSON lines: a line for the header, one a request, one a step; several runs may follow each other in a file.

Each line is an object with one key, which says what it is. The schema has a version: a reader takes files of its own
version, and says so of others.
"""

from __future__ import annotations

import glob
import itertools
import os
import shutil
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from jupyter_infer.errors import ConfigError
from jupyter_infer.records import RequestRecord, StepRecord, to_json
from jupyter_infer.run import Run, RunHeader

__all__ = ["SCHEMA", "SCHEMA_VERSION", "SUFFIX", "read_file", "read_files", "target_of", "write_file", "write_whole"]

SCHEMA = "jupyter-infer/run"
SCHEMA_VERSION = 1
LATEST_NS = 1 << 60  # 36 years after a machine began to count
SUFFIX = ".jsonl"


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
    requests: dict[str, RequestRecord] = field(default_factory=dict)
    steps: list[StepRecord] = field(default_factory=list)
    shown: dict[str, int] = field(default_factory=dict)

    def add_request(self, record: RequestRecord, place: str) -> None:
        if record.request_id in self.requests:
            raise ConfigError(f"{place}: the request {record.request_id!r} stands twice")
        known = (record.arrival_ns, record.started_ns, record.first_token_ns, record.last_token_ns)
        events = [event.time_ns for sample in record.samples for event in sample.events]
        times = [time for time in known if time is not None]
        if times != sorted(times) or not all(0 <= time < LATEST_NS for time in (*times, *events, record.finished_ns)):
            raise ConfigError(f"{place}: the times of the request {record.request_id!r} are in no order")
        self.requests[record.request_id] = record

    def add_step(self, step: StepRecord, place: str) -> None:
        times = [max(step.planned_ns, step.start_ns), step.computed_ns, step.end_ns]
        if times != sorted(times) or not (0 <= step.start_ns <= step.end_ns < LATEST_NS and step.scheduled_ns >= 0):
            raise ConfigError(f"{place}: the times of step {step.index} are in no order")
        if self.steps and (step.index <= self.steps[-1].index or step.start_ns < self.steps[-1].end_ns):
            raise ConfigError(f"{place}: step {step.index} does not come after step {self.steps[-1].index}")
        self.steps.append(step)

    def run(self, name: str) -> Run:
        requests = sorted(self.requests.values(), key=lambda record: record.arrival_ns)
        return Run(self.header, tuple(requests), tuple(self.steps), self.shown, name)


def write_file(path: str | Path, runs: Iterable[Run], *, append: bool = False) -> Path:
    """Write runs to a file, or behind those that are in it; return its path.

    The file is whole or as it was: what is written goes beside it first.

    Raises
    ------
    ConfigError
        If its folder is not there, it is no file, or runs are to go behind what is no recorded run.
    OSError
        If it cannot be written.
    """
    target = target_of(path)
    real, before = target.resolve(), b""
    if append and real.exists() and (before := real.read_bytes()).strip():
        read_file(target)
        before = before.removesuffix(b"\n") + b"\n"
    lines = (f"{line}\n".encode() for run in runs for line in _lines(run))
    return write_whole(target, itertools.chain([before], lines))


def write_whole(target: Path, parts: Iterable[bytes]) -> Path:
    """Write a file that is whole or as it was at any moment, and readable for whom it was; return its path.

    Raises
    ------
    OSError
        If it cannot be written.
    """
    real = target.resolve()  # what a link names is replaced, not the link
    beside = real.with_name(f".{os.getpid()}.{threading.get_ident()}.part")
    try:
        with beside.open("wb") as file:
            if real.exists():
                shutil.copymode(real, beside)
            file.writelines(parts)
        beside.replace(real)
    finally:
        beside.unlink(missing_ok=True)
    return target


def target_of(path: str | os.PathLike[str]) -> Path:
    """Return the path of a file that can be written, with ``~`` as the home folder.

    Raises
    ------
    ConfigError
        If its folder is not there, or there is something else at its place.
    """
    target = Path(os.path.expanduser(path))
    if not target.parent.is_dir():
        raise ConfigError(f"there is no folder {str(target.parent)!r} to write {target.name!r} into")
    if target.exists() and not target.is_file():  # `/dev/null`, too, would be replaced
        raise ConfigError(f"{str(target)!r} is no file; give the name of one")
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
    source = Path(os.path.expanduser(path))
    runs: list[_Reading] = []
    decoder = msgspec.json.Decoder(_Line)
    with source.open("rb") as file:
        for number, text in enumerate(file, 1):
            if not text.strip():
                continue
            place = f"{source.name}, line {number}"
            try:
                line = decoder.decode(text)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                _check_version(text, place)
                raise ConfigError(f"{place} is no line of a recorded run: {error}") from None
            if line.header is not None:
                _check_version(text, place)
                runs.append(_Reading(line.header))
            elif not runs:
                raise ConfigError(f"{place}: a recorded run begins with its header; this file does not")
            elif line.request is not None:
                runs[-1].add_request(line.request, place)
                if line.first_shown_ns is not None:
                    runs[-1].shown[line.request.request_id] = line.first_shown_ns
            elif line.step is not None:
                runs[-1].add_step(line.step, place)
            else:
                raise ConfigError(f"{place} is neither a header nor a request nor a step")
    if not runs:
        raise ConfigError(f"{source.name} holds no run")
    names = [source.stem] if len(runs) == 1 else [f"{source.stem} {number}" for number in range(1, len(runs) + 1)]
    return [reading.run(name) for reading, name in zip(runs, names, strict=True)]


def read_files(*patterns: str | os.PathLike[str]) -> list[Run]:
    """Return the runs of all files that patterns such as ``"runs/*.jsonl"`` name, in the order of their names.

    Runs are called after their files, and after the paths of these if several files have the same name.

    Raises
    ------
    ConfigError
        If a pattern names no file, or a folder. Also what `read_file` raises.
    """
    paths: list[str] = []
    for pattern in patterns:
        text = os.path.expanduser(os.fspath(pattern))
        if os.path.isdir(text):
            raise ConfigError(f"{text!r} is a folder; name the files in it: {os.path.join(text, f'*{SUFFIX}')!r}")
        exact = os.path.exists(text)
        found = [text] if exact else [path for path in sorted(glob.glob(text, recursive=True)) if os.path.isfile(path)]
        if not found:
            raise ConfigError(f"no file is called {os.fspath(pattern)!r}")
        paths += found
    stems = Counter(Path(path).stem for path in dict.fromkeys(paths))
    runs: list[Run] = []
    for path in paths:
        stem = Path(path).stem
        called = stem if stems[stem] == 1 else os.path.splitext(path)[0]
        runs += (run.called(called + (run.name or "").removeprefix(stem)) for run in read_file(path))
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
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return
    if not isinstance(head, dict) or "header" not in head:
        return
    schema, version = head.get("schema"), head.get("version")
    if schema != SCHEMA:
        raise ConfigError(f"{place} has the schema {schema!r}, and a recorded run has {SCHEMA!r}")
    if version != SCHEMA_VERSION:
        raise ConfigError(
            f"{place} has version {version!r} of the schema, and this jupyter-infer reads {SCHEMA_VERSION}"
        )
