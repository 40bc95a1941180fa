"""What a comparison says in words: its sentence, what to try next, its caption and its table."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from jupyter_infer.charts.chart import Table
from jupyter_infer.charts.labels import cut
from jupyter_infer.comparison import (
    HIGHER,
    LOWER,
    METRICS,
    SAME,
    UNDECIDED,
    Arm,
    Difference,
    differences,
    spread,
    unfair,
)
from jupyter_infer.numbers import format_share

__all__ = ["PANELS", "SIGNS", "Entry", "advise", "caption", "entries", "read", "table"]

PANELS = ("TTFT", "TPOT", "e2e", "throughput", "shared cost")  # that are drawn; the table has the other metrics, too
SIGNS = {LOWER: "▼", HIGHER: "▲", SAME: "≈", UNDECIDED: "?"}

NAME = 40  # characters of an arm's name in a sentence
BRIEF = 24  # characters of a name that is said in full every time
UNCLEAR = ("none", "n/a", "on", "off", "")
SHOWN = 6  # settings that a caption names
VALUE = 24  # characters of a setting's value beside many others
FLAWS = {
    "warm": "cold runs are compared with warm ones, so the cache has a part in it",
    "first": "a first run after a load is compared with later ones",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """An arm as it is drawn: its letter keeps arms of equal names apart."""

    letter: str
    arm: Arm
    against: dict[str, Difference]  # by metric, to the first arm; empty for the first

    @property
    def name(self) -> str:
        """What it is called in a sentence."""
        return cut(self.arm.name, NAME) or self.letter

    @property
    def short(self) -> str:
        """What it is called beside another."""
        brief = len(self.name) <= BRIEF or self.arm.short in UNCLEAR
        return self.name if brief else cut(self.arm.short, NAME)

    @property
    def label(self) -> str:
        """Its name behind its letter."""
        return self._lettered(self.arm.name)

    @property
    def short_label(self) -> str:
        """Its short name behind its letter."""
        return self._lettered(self.arm.short)

    def _lettered(self, name: str) -> str:
        return self.letter if name in ("", self.letter) else f"{self.letter} · {cut(name, NAME)}"


def read(shown: Sequence[Entry], metrics: Sequence[str]) -> str:
    """Return one sentence on whether the arms differ by more than noise, and what the comparison suffers from."""
    if not metrics:
        return "There is nothing to compare: no request of these runs gave a token."
    if len(shown) == 1:
        return _one(shown[0], metrics) + "."
    sentence = _two(shown[0], shown[1], metrics) if len(shown) == 2 else _many(shown, metrics)
    flaws = [f"{names} differ, so more than the settings is compared" for names in [_asked(shown)] if names]
    if flaw := unfair([entry.arm for entry in shown]):
        flaws.append(FLAWS[flaw])
    if any(entry.arm.mixed for entry in shown):
        flaws.append("runs under one label have different settings")
    return "; ".join([sentence, *flaws]) + "."


def advise(shown: Sequence[Entry]) -> str | None:
    """Return what would make the comparison tell more, if the runs show that something would."""
    states = {state for entry in shown for state in entry.arm.states}
    odd = unfair([entry.arm for entry in shown])
    if odd == "warm":
        return "Compare like with like: type %infer clear cache before each run, or add --no-cache."
    if odd == "first" or (odd is None and "first" in states and len(states) > 1):
        return "Leave out the first run after a load: run each once, then measure."
    if any(len(entry.arm.runs) == 1 for entry in shown):
        return "Repeat each run at least three times: with one run the noise is not known."
    if {"warm", "cold"} <= states:
        return "Type %infer clear cache before each run, or add --no-cache, to take the cache out of the noise."
    unsure = any(difference.verdict == SAME for entry in shown for difference in entry.against.values())
    if unsure and any(len(entry.arm.runs) == 2 for entry in shown):
        return "Repeat each run at least three times: with two runs only a large difference can be told from noise."
    return None


def caption(shown: Sequence[Entry]) -> str:
    """Return how many runs an arm has, cold or warm, which settings differ, and what the interval is."""
    counts = [_runs(entry.arm) for entry in shown]
    same = len(shown) > 1 and len(set(counts)) == 1
    parts = [f"each of {shown[0].letter} to {shown[-1].letter}: {counts[0]}"] if same else []
    parts += [] if same else [f"{entry.letter}: {count}" for entry, count in zip(shown, counts, strict=True)]
    differing = differences([entry.arm for entry in shown])
    if len(shown) > 1:
        letters = " | ".join(entry.letter for entry in shown)
        parts.append(f"settings that differ, {letters}" if differing else "no setting differs")
        limit = NAME if len(shown) <= 2 else VALUE
        parts += [f"{name} {' | '.join(cut(text, limit) for text in texts)}" for name, texts in differing[:SHOWN]]
        parts += [f"and {len(differing) - SHOWN:,} more"] if len(differing) > SHOWN else []
    for entry in shown:
        if entry.arm.mixed:
            parts.append(f"within {entry.letter} differ: {', '.join(entry.arm.mixed[:SHOWN])}")
    if any(_broken(entry.arm) for entry in shown):
        parts.append("some requests were aborted or failed: their figures are those until then")
    if any(len(entry.arm.runs) > 1 for entry in shown):
        parts.append("interval: Student's t, in a comparison Welch's, on logarithms")
    drawn = {entry.letter: [entry.against[metric] for metric in PANELS] for entry in shown[1:]}
    if any(difference.low is not None for found in drawn.values() for difference in found):
        parts.append("of 20 comparisons of equals, one is told apart by chance")
    if singles := [letter for letter, found in drawn.items() if any(difference.single for difference in found)]:
        parts.append(
            f"{', '.join(singles)} against {shown[0].letter}: a single run is taken to be as noisy as the others"
        )
    return " · ".join(parts)


def table(shown: Sequence[Entry]) -> Table:
    """Return the figures of each arm and its differences to the first, then the settings in which they differ."""
    known = [metric for metric in METRICS if any(entry.arm.values(metric) for entry in shown)]
    lines = {metric: [metric, *(_cell(entry, metric) for entry in shown)] for metric in known}
    found = differences([entry.arm for entry in shown])
    first = [lines.pop(metric) for metric in PANELS if metric in lines]
    runs = ["runs", *(_runs(entry.arm) for entry in shown)]
    differ = [[name, *(cut(text, NAME) for text in texts)] for name, texts in found]
    return Table(("mean", *(entry.label for entry in shown)), [*first, runs, *differ, *lines.values()])


def entries(compared: Sequence[Arm], compared_by: dict[str, list[Difference]]) -> list[Entry]:
    """Return the arms as they are drawn, with their differences to the first, by metric."""
    made = []
    for index, arm in enumerate(compared):
        letter = chr(ord("A") + index) if index < 26 else str(index + 1)
        against = {metric: found[index - 1] for metric, found in compared_by.items()} if index else {}
        made.append(Entry(letter, arm, against))
    return made


def _one(entry: Entry, metrics: Sequence[str]) -> str:
    count = len(entry.arm.runs)
    noise = {metric: found.noise for metric in metrics if (found := spread(entry.arm.values(metric)))}
    said = [f"{metric} by {format_share(value, 1)}" for metric, value in noise.items() if value is not None]
    states = "" if len(set(entry.arm.states)) == 1 else f"; {_states(entry.arm)}"
    if not said:
        return f"All {count:,} runs have the same settings, and how far they lie apart is not known{states}"
    varied = _joined([said[0].replace(" by ", " varied by ", 1), *said[1:]])
    return f"All {count:,} runs have the same settings; from run to run {varied} (standard deviation / mean){states}"


def _two(first: Entry, other: Entry, metrics: Sequence[str]) -> str:
    found = [other.against[metric] for metric in metrics]
    told = [difference for difference in found if difference.told]
    same = [difference.metric for difference in found if difference.verdict == SAME]
    open_ = [difference for difference in found if difference.verdict == UNDECIDED]
    if open_:
        what = _joined([_has(difference) for difference in open_[:3]])
        return f"{other.name} had {what} of {first.short} in one run each, so their noise is not known"
    untold = f"{_joined(same)} {'shows' if len(same) == 1 else 'show'} {SAME}" if same else ""
    if not told:
        return (
            f"{other.name} against {first.short}: {untold}"
            if same
            else f"{other.name} and {first.short} have no figure in common"
        )
    what = _joined([_has(difference) for difference in told[:3]])
    left = len(told) - 3
    more = f" ({left} more metric{' differs' if left == 1 else 's differ'})" if left > 0 else ""
    return "; ".join([f"{other.name} has {what} of {first.short}{more}", *([untold] if untold else [])])


def _many(shown: Sequence[Entry], metrics: Sequence[str]) -> str:
    pairs = [(entry, entry.against[metric]) for entry in shown[1:] for metric in metrics]
    known = [(entry, difference) for entry, difference in pairs if difference.value is not None]
    told = [(entry, difference) for entry, difference in known if difference.told]
    if not known:
        return f"Nothing can be compared with {shown[0].name}"
    entry, most = max(told or known, key=lambda pair: _size(pair[1]))
    if told:
        largest = f"{entry.short} has {_has(most)}, the largest difference"
        return f"Against {shown[0].name}, {largest}; {len(told)} of {len(known)} can be told from noise"
    if any(difference.verdict == SAME for _, difference in known):
        return f"None of {len(known)} differences from {shown[0].name} can be told from noise"
    return f"Against {shown[0].name}, {entry.short} had {_has(most)} in one run each, so their noise is not known"


def _has(difference: Difference) -> str:
    """Return what an arm has: ``1.18 × (1.12 to 1.25) the TPOT``."""
    return f"{difference.text} {'the' if difference.relative else 'in the'} {difference.metric}"


def _size(difference: Difference) -> float:
    value = difference.value or 0.0
    return abs(math.log(value)) if difference.relative and value > 0 else 0.0


def _asked(shown: Sequence[Entry]) -> str:
    found = {name for name, _ in differences([entry.arm for entry in shown])}
    return "the prompts" if "prompts" in found else ""


def _cell(entry: Entry, metric: str) -> str:
    found = spread(entry.arm.values(metric))
    text = METRICS[metric].text(found.mean if found else None)
    against = entry.against.get(metric)
    return text if against is None or against.value is None else f"{text}, {SIGNS[against.verdict]} {against.text}"


def _runs(arm: Arm) -> str:
    return f"{len(arm.runs):,} run{'' if len(arm.runs) == 1 else 's'} ({_states(arm)})"


def _states(arm: Arm) -> str:
    words = {"first": "first after the load", "n/a": "cache not known"}
    counts = Counter(words.get(state, state) for state in arm.states)
    return next(iter(counts)) if len(counts) == 1 else ", ".join(f"{count} {state}" for state, count in counts.items())


def _broken(arm: Arm) -> bool:
    samples = (sample for run in arm.runs for record in run.requests for sample in record.samples)
    return any(sample.finish_reason in ("abort", "error") for sample in samples)


def _joined(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
