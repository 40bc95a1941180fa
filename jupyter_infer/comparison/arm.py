"""Which runs are repeats of one another, an *arm*, and in what settings arms differ."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from jupyter_infer.comparison.figures import UNKNOWN, measure
from jupyter_infer.errors import ConfigError
from jupyter_infer.records import plain
from jupyter_infer.run import Run

__all__ = ["Arm", "arms", "cache_state", "differences", "settings", "unfair"]

LIMITS = ("max_num_batched_tokens", "max_num_seqs", "kv_blocks_total", "block_size", "max_model_len")
FACTS = (*LIMITS, "threads", "chat_template", "device", "engine")
NO_SETTINGS = {"use_tqdm_on_load", "seed", "model", "dtype"}  # of no effect, or facts under another name
NEARLY = {"kv_cache_memory_bytes": 0.05, "kv_blocks_total": 0.05}  # a load takes what memory is free
PLAIN = {"model", "dtype", "device", "engine", "price", "cpu", "gpu"}  # whose values say what they are
ARMS = 50  # that a person can tell apart, and more
NAME_CHARS = 40  # of a setting's value


@dataclass(frozen=True, slots=True)
class Arm:
    """Repeats of one another: their name, the settings of the first, and the figures of each.

    `short` is the name without what those of others say, too: ``16`` for ``max_num_seqs 16``. `mixed` are the settings
    in which the runs differ after all, which only those under one given label can.
    """

    name: str
    runs: tuple[Run, ...]
    settings: Mapping[str, Any]
    figures: tuple[Mapping[str, float | None], ...]
    states: tuple[str, ...]
    short: str
    mixed: tuple[str, ...] = ()

    def values(self, metric: str) -> list[float]:
        """Return the figures of the repeats that have one."""
        return [value for figures in self.figures if (value := figures[metric]) is not None]


def cache_state(run: Run) -> str:
    """Return ``first`` (right after the load), ``warm`` (it found tokens in the prefix cache), ``cold`` or ``n/a``."""
    if any(record.load_ns for record in run.requests) or any(step.index == 0 for step in run.steps[:1]):
        return "first"
    cached = [record.cached_tokens for record in run.requests]
    return "warm" if any(cached) else UNKNOWN if None in cached or not cached else "cold"


def settings(run: Run) -> dict[str, Any]:
    """Return all that a run was set to, by name, what matters most first: the engine, the requests, the machine.

    What follows from them or is another each time (load time, seeds, ids, notices) is not among them.
    """
    engine, machine = run.engine, run.header.machine
    records = sorted(run.requests, key=lambda record: record.arrival_ns)
    found: dict[str, Any] = {
        "model": engine.model if engine else ", ".join(dict.fromkeys(record.model for record in records)) or None,
        "dtype": engine and engine.dtype,
    }
    skipped = {*FACTS, *NO_SETTINGS}
    found |= {name: plain(value) for name, value in (engine.settings if engine else {}).items() if name not in skipped}
    found |= {name: getattr(engine, name, None) for name in FACTS}
    found |= {"requests": len(records), "prompts": tuple(dict.fromkeys(record.prompt for record in records))}
    found["samples"] = [*dict.fromkeys(len(record.samples) for record in records)]
    for name in dict.fromkeys(name for record in records for name in record.sampling if name != "seed"):
        values = [plain(record.sampling.get(name)) for record in records]
        found[name] = values[0] if all(value == values[0] for value in values) else values
    found |= {name: getattr(machine, name, None) for name in ("system", "cpu", "cpus", "gpu")}
    versions = run.header.versions.items()  # the engine says its own
    found |= {f"{name} version": version for name, version in versions if not (engine and name.startswith("vllm"))}
    return found | {"price": None if run.price is None else str(run.price)}


def arms(runs: Sequence[Run], labels: Sequence[str] | None = None) -> list[Arm]:
    """Return the runs as arms, in the order of their first runs: repeats are together, and a run twice is one.

    Parameters
    ----------
    runs
        What was asked together is a run.
    labels
        The arm of each run; default: runs whose settings are equal are one arm, called by what sets it apart.

    Raises
    ------
    ConfigError
        If there are not as many labels as runs, or too many arms.
    """
    if labels is not None and len(labels) != len(runs):
        raise ConfigError(f"give a label a run: {len(runs)} runs, {len(labels)} labels")
    groups: list[tuple[str | None, dict[str, Any], list[Run]]] = []
    seen: set[tuple[Any, ...]] = set()
    for index, run in enumerate(runs):
        own, label = settings(run), labels[index] if labels is not None else None
        times = ((record.request_id, record.arrival_ns, record.finished_ns) for record in run.requests)
        identity = (label, repr(own), *times)
        if identity in seen:
            continue
        seen.add(identity)
        for known, first, members in groups:
            if known == label if labels is not None else not _differing(first, own):
                members.append(run)
                break
        else:
            groups.append((label, own, [run]))
        if len(groups) > ARMS:
            raise ConfigError(f"more than {ARMS} different things cannot be compared; name some: ji.compare(a, b)")
    made = [_arm(label or "", first, members) for label, first, members in groups]
    if labels is not None:
        return made
    return [replace(arm, name=name, short=short) for arm, (name, short) in zip(made, _names(made), strict=True)]


def differences(compared: Sequence[Arm]) -> list[tuple[str, tuple[str, ...]]]:
    """Return the settings in which arms differ, as name and value of each arm, in plain words."""
    names = dict.fromkeys(name for arm in compared for name in arm.settings)
    found = []
    for name in names:
        if all(name not in _differing(compared[0].settings, arm.settings) for arm in compared[1:]):
            continue
        texts = [_text(name, arm) for arm in compared]
        values = [arm.settings.get(name) for arm in compared]
        firsts = [values.index(value) for value in values]
        if len(set(firsts)) > len(set(texts)):  # long values that begin alike
            texts = [
                f"{text} [{sorted(set(firsts)).index(first) + 1}]" for text, first in zip(texts, firsts, strict=True)
            ]
        found.append((name, tuple(texts)))
    return found


def unfair(compared: Sequence[Arm]) -> str | None:
    """Return ``warm`` or ``first`` if such runs are more frequent in one arm than in another, or None.

    A difference between them is not one of their settings alone.
    """
    for state in ("warm", "first"):
        if len({Fraction(arm.states.count(state), len(arm.states) or 1) for arm in compared}) > 1:
            return state
    return None


def _arm(name: str, first: dict[str, Any], runs: Sequence[Run]) -> Arm:
    mixed = dict.fromkeys(name for run in runs[1:] for name in _differing(first, settings(run)))
    figures = tuple(measure(run) for run in runs)
    return Arm(name, tuple(runs), first, figures, tuple(cache_state(run) for run in runs), name, tuple(mixed))


def _differing(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    return [name for name in dict.fromkeys([*a, *b]) if not _equal(name, a.get(name), b.get(name))]


def _equal(name: str, a: Any, b: Any) -> bool:
    if name in NEARLY and isinstance(a, int) and isinstance(b, int):
        return math.isclose(a, b, rel_tol=NEARLY[name])
    return bool(a == b)


def _names(made: Sequence[Arm]) -> list[tuple[str, str]]:
    """Return name and short name of each arm: by the setting, or up to three, that all differ in; else of its run."""
    letters = [chr(ord("A") + index) if index < 26 else str(index + 1) for index in range(len(made))]
    called = [arm.runs[0].name or "" for arm in made]
    known = called if len(set(called)) == len(called) and all(called) else letters
    found = [(name, texts) for name, texts in differences(made)[:8] if name != "prompts"] if len(made) > 1 else []
    for count in (1, 2, 3):
        for some in itertools.combinations(found, count):
            values = [[texts[index] for _, texts in some] for index in range(len(made))]
            if len(set(map(tuple, values))) == len(made):
                keys = [name for name, _ in some]
                return [(_called(keys, own), _called(keys, own, short=True)) for own in values]
    return [(name, name) for name in known]


def _called(names: Sequence[str], texts: Sequence[str], *, short: bool = False) -> str:
    said = []
    for name, text in zip(names, texts, strict=True):
        if name == "requests":
            said.append(f"{text} request{'' if text == '1' else 's'}")
        else:
            said.append(text if short or name in PLAIN else f"{name} {text}")
    return " + ".join(said)


def _text(name: str, arm: Arm) -> str:
    """Return the value of a setting in a few words."""
    value = arm.settings.get(name)
    if name == "prompts":
        labels = [record.label for record in arm.runs[0].requests]
        more = f" and {len(labels) - 1:,} more" if len(labels) > 1 else ""
        return f"“{_short(labels[0], 24)}”{more}" if labels else "none"
    if name not in arm.settings or value == []:
        return "none" if arm.runs[0].engine else UNKNOWN
    if isinstance(value, list):
        return _short(", ".join(dict.fromkeys("none" if item is None else _value(name, item) for item in value)))
    return _value(name, value)


def _value(name: str, value: Any) -> str:
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, dict):
        return _short(", ".join(f"{key}={item}" for key, item in value.items()))
    if isinstance(value, int) and name.endswith("_bytes"):
        return f"{value / 2**30:.3g} GiB" if value >= 2**30 else f"{value / 2**20:.3g} MiB"
    return _short(f"{value:,}" if isinstance(value, int) else str(value))


def _short(text: str, limit: int = NAME_CHARS) -> str:
    line = " ".join(text[: 8 * limit].split())
    return line if len(line) <= limit and len(text) <= 8 * limit else line[: limit - 1].rstrip() + "…"
