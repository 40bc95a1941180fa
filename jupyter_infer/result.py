"""What a request gave: its text, its record, and what follows from the record."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from jupyter_infer.errors import InferError
from jupyter_infer.metrics import Phases, phases
from jupyter_infer.numbers import format_count, format_ns, format_rate
from jupyter_infer.pricing import ApiPrice, Cost, MachinePrice, cost
from jupyter_infer.recorded import Recorded, Recording, Runs
from jupyter_infer.records import EngineInfo, RequestRecord, SampleRecord, StepRecord, to_json
from jupyter_infer.run import Run, header_of, steps_of
from jupyter_infer.structured import FORMS, value_of

__all__ = ["Display", "Refused", "Result", "Usage", "mark_of", "runs_of", "shown_as", "shown_bundle", "work_of"]

Display = Literal["chart", "status"]
"""What a result shows as the value of a cell: status line and chart, or the line alone."""

_Shown = TypeVar("_Shown", bound="Recorded")
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of a request; `cached_tokens` are already inside `prompt_tokens`."""

    prompt_tokens: int
    cached_tokens: int | None
    output_tokens: int


class Result(Recorded):
    """One finished request.

    Parameters
    ----------
    record
        What was measured.
    price
        The machine price that `cost` uses.
    first_shown_ns
        When its first text was on a screen, or None if no display said so.
    engine_steps
        The steps of the engine that are remembered, this request's among them.
    engine
        The engine that ran it.
    api_price
        What an API would take, if one is to be compared.
    """

    display: Display = "chart"

    def __init__(
        self,
        record: RequestRecord,
        price: MachinePrice,
        *,
        first_shown_ns: int | None = None,
        engine_steps: Collection[StepRecord] = (),
        engine: EngineInfo | None = None,
        api_price: ApiPrice | None = None,
    ) -> None:
        self.record = record
        self.price = price
        self.api_price = api_price
        self.engine = engine
        self.first_shown_ns = first_shown_ns
        self._engine_steps = engine_steps

    @property
    def text(self) -> str:
        """The answer; the first one of several samples."""
        return self.record.samples[0].text

    @property
    def texts(self) -> tuple[str, ...]:
        """The answers of all samples."""
        return tuple(sample.text for sample in self.record.samples)

    @property
    def parsed(self) -> Any:
        """What the answer says in the form that was asked for: the value of its JSON, or the text that was chosen or
        matches. None where no form was asked for, and where the answer is cut or does not fit; of several samples, the
        first.
        """
        return self._value(self.record.samples[0])[0]

    @property
    def usage(self) -> Usage:
        """Token counts."""
        return Usage(self.record.prompt_tokens, self.record.cached_tokens, self.record.output_tokens)

    @property
    def phases(self) -> Phases:
        """Where the time went, in nanoseconds."""
        return phases(self.record)

    @property
    def cost(self) -> Cost:
        """What it cost at `price`, and would cost at `api_price`, in dollars."""
        return cost(self.record, self.price, self.api_price)

    @property
    def steps(self) -> tuple[StepRecord, ...]:
        """The scheduler's steps that computed tokens of it, oldest first, as far as they are remembered (the last
        `jupyter_infer.engine.worker.STEPS_KEPT` of the engine).
        """
        return work_of({self.record.request_id}, self._engine_steps)

    @property
    def finish_reason(self) -> str:
        """Why it ended: ``"stop"``, ``"length"``, ``"abort"``, or another word of vLLM's such as ``"error"``."""
        return self.record.finish_reason

    @property
    def status(self) -> str:
        """The status line: one line of plain text."""
        record, times, misfit = self.record, self.phases, self.misfit
        reasons = {sample.finish_reason for sample in record.samples}
        parts = [
            f"{'✗' if misfit else mark_of(reasons)} {record.model}",
            f"{format_count(record.prompt_tokens)} in → {format_count(record.output_tokens)} out",
            f"TTFT {format_ns(times.ttft_ns)}",
            format_rate(times.decode_tps),
            format_ns(times.e2e_ns),
            str(self.cost),
            "interrupted" if "abort" in reasons else self._truncation() or misfit or record.finish_reason,
        ]
        if record.cached_tokens:
            parts.insert(2, f"warm: {format_count(record.cached_tokens)} cached")
        if record.load_ns:
            parts.append(f"load {format_ns(record.load_ns)} apart")
        return " · ".join(parts)

    @property
    def run(self) -> Run:
        """The request with all that the engine did meanwhile, as a plain value."""
        return runs_of([self]).data[0]

    @property
    def runs(self) -> Runs:
        """The run that it was."""
        return runs_of([self])

    def to_json(self) -> str:
        """Return the record as JSON text."""
        return to_json(self.record)

    def shown_as(self, display: Display) -> Result:
        """Return the same result that shows itself otherwise as the value of a cell."""
        return shown_as(self, display)

    def __repr__(self) -> str:
        return f"Result({self.status})"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return shown_bundle(self, [self])

    def _title(self) -> str:
        return self.status

    def _value(self, sample: SampleRecord) -> tuple[Any, str | None]:
        """Return the value of an answer in the form that was asked for, or None and why there is none."""
        wanted = self.record.sampling.get("structured_outputs")
        if wanted is None:
            return None, None
        cut = sample.finish_reason != "stop" or sample.stop_reason is not None
        try:
            return value_of(sample.text, wanted, cut=cut), None
        except ValueError:
            [kind] = wanted
            return None, f"does not fit the {FORMS[kind]}"

    @property
    def misfit(self) -> str | None:
        """What is wrong with an answer that ended by itself and has not the form that was asked for; None otherwise."""
        ended = [sample for sample in self.record.samples if sample.finish_reason == "stop"]
        return next((why for sample in ended if (why := self._value(sample)[1])), None)

    def _truncation(self) -> str | None:
        """Return what cut the answer: the context is not `--max-tokens`."""
        record = self.record
        cut = [sample for sample in record.samples if sample.finish_reason == "length"]
        if not cut:
            return None
        some = f"{len(cut)} of {len(record.samples)} " if len(cut) < len(record.samples) else ""
        limit = record.sampling.get("max_tokens")
        if limit is not None and any(len(sample.token_ids) >= limit for sample in cut):
            return f"{some}truncated at --max-tokens {limit}"
        return f"{some}truncated at the context's end"


@dataclass(frozen=True, slots=True)
class Refused:
    """A prompt of a batch that could not run; the others did."""

    prompt: Any
    error: InferError

    def __repr__(self) -> str:
        return f"Refused({type(self.error).__name__}: {self.error})"


def runs_of(results: Sequence[Result], prices: tuple[MachinePrice, ApiPrice | None] | None = None) -> Runs:
    """Return the runs that results are of, one for each engine that ran some of them.

    They are priced with `prices`, or else with what the results have; where these differ, a run has no price.
    """
    groups: dict[int, list[Result]] = {}
    for result in results:
        groups.setdefault(id(result._engine_steps), []).append(result)  # an engine has a memory of its own
    runs = []
    for group in groups.values():
        group.sort(key=lambda result: result.record.arrival_ns)
        records, newest = tuple(result.record for result in group), group[-1]
        shown = {r.record.request_id: r.first_shown_ns for r in group if r.first_shown_ns is not None}
        price, api = prices or (_same(r.price for r in group), _same(r.api_price for r in group))
        header = header_of(newest.engine, price, api, records, newest._engine_steps)
        runs.append(Recording(Run(header, records, steps_of(records, newest._engine_steps), shown)))
    return Runs(runs)


def _same(values: Iterable[_Value]) -> _Value | None:
    """Return the value that all are, or None."""
    known = list(values)
    return known[0] if all(value == known[0] for value in known) else None


def mark_of(reasons: set[str]) -> str:
    """Return the sign of the worst that happened to a sample."""
    if reasons - {"stop", "length", "abort"}:
        return "✗"
    return "■" if "abort" in reasons else "✂" if "length" in reasons else "✓"


def shown_as(shown: _Shown, display: Display) -> _Shown:
    """Return the same thing, which shows itself otherwise as the value of a cell."""
    if getattr(shown, "display", None) == display:
        return shown
    twin = copy.copy(shown)
    twin.display = display  # type: ignore[attr-defined]
    return twin


def shown_bundle(shown: Any, results: Sequence[Result]) -> dict[str, Any]:
    """Return what a result or a batch shows as the value of a cell."""
    if not results or shown.display != "chart":
        return {"text/plain": shown.status}
    found: dict[str, Any] = shown.chart("phases")._repr_mimebundle_()
    return found | {"text/plain": shown.status}


def work_of(request_ids: set[str], steps: Collection[StepRecord]) -> tuple[StepRecord, ...]:
    """Return the steps that computed tokens of some requests."""
    # A copy first: the engine's thread adds steps meanwhile.
    return tuple(step for step in tuple(steps) if any(work.request_id in request_ids for work in step.work))
