"""What a request gave: its text, its record, and what follows from the record."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from jupyter_infer.errors import ConfigError, InferError, nearest
from jupyter_infer.metrics import Phases, phases, throughput, wall_ns
from jupyter_infer.numbers import format_count, format_ns, format_rate
from jupyter_infer.pricing import Cost, MachinePrice, cost, format_usd
from jupyter_infer.records import RequestRecord, SampleRecord, StepRecord, to_json
from jupyter_infer.structured import FORMS, value_of

if TYPE_CHECKING:
    import pandas as pd
    from plotly.graph_objects import Figure

__all__ = ["KINDS", "Display", "Refused", "Result", "Results", "Usage", "figures"]

Display = Literal["chart", "status"]
"""What a result shows as the value of a cell: status line and chart, or the line alone."""

_Shown = TypeVar("_Shown", "Result", "Results")

KINDS = ("phases",)
"""The kinds of chart that `figure` draws."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of a request; `cached_tokens` are already inside `prompt_tokens`."""

    prompt_tokens: int
    cached_tokens: int | None
    output_tokens: int


class Result:
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
    """

    display: Display = "chart"

    def __init__(
        self,
        record: RequestRecord,
        price: MachinePrice,
        *,
        first_shown_ns: int | None = None,
        engine_steps: Collection[StepRecord] = (),
    ) -> None:
        self.record = record
        self.price = price
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
        """What it cost at `price`, in dollars."""
        return cost(self.record, self.price)

    @property
    def steps(self) -> tuple[StepRecord, ...]:
        """The scheduler's steps that computed tokens of it, oldest first, as far as they are remembered (the last
        `jupyter_infer.engine.worker.STEPS_KEPT` of the engine).
        """
        return _steps_of({self.record.request_id}, self._engine_steps)

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
            f"{'✗' if misfit else _mark(reasons)} {record.model}",
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

    def figure(self, kind: str = "phases") -> Figure:
        """Return a Plotly figure of this request.

        Raises
        ------
        ConfigError
            If there is no such kind.
        """
        return _figure(kind, [self], self.status)

    def to_json(self) -> str:
        """Return the record as JSON text."""
        return to_json(self.record)

    def to_pandas(self) -> pd.DataFrame:
        """Return a frame with one row."""
        return _frame([self])

    def shown_as(self, display: Display) -> Result:
        """Return the same result that shows itself otherwise as the value of a cell."""
        return _shown_as(self, display)

    def __repr__(self) -> str:
        return f"Result({self.status})"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return _bundle(self, [self])

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


class Results(Sequence[Result | Refused]):
    """The results of one batch, in the order of its prompts."""

    display: Display = "chart"

    def __init__(self, items: Sequence[Result | Refused]) -> None:
        self._items = tuple(items)

    @overload
    def __getitem__(self, index: int) -> Result | Refused: ...
    @overload
    def __getitem__(self, index: slice) -> Results: ...
    def __getitem__(self, index: int | slice) -> Result | Refused | Results:
        return Results(self._items[index]) if isinstance(index, slice) else self._items[index]

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Result | Refused]:
        return iter(self._items)

    @property
    def done(self) -> list[Result]:
        """The prompts that ran."""
        return [item for item in self._items if isinstance(item, Result)]

    @property
    def texts(self) -> tuple[str | None, ...]:
        """The answers (the first of several samples); None for a prompt that was refused."""
        return tuple(item.text if isinstance(item, Result) else None for item in self._items)

    @property
    def parsed(self) -> tuple[Any, ...]:
        """What each answer says in the form that was asked for (see `Result.parsed`)."""
        return tuple(item.parsed if isinstance(item, Result) else None for item in self._items)

    @property
    def steps(self) -> tuple[StepRecord, ...]:
        """The scheduler's steps that computed tokens of the batch, as far as they are remembered."""
        ids = {result.record.request_id for result in self.done}
        return _steps_of(ids, self.done[0]._engine_steps) if self.done else ()

    @property
    def status(self) -> str:
        """The status line of the batch."""
        records = [item.record for item in self.done]
        refused = len(self) - len(records)
        shared = [item.cost.shared_usd for item in self.done]
        total = (
            None if not shared or any(usd is None for usd in shared) else sum(usd for usd in shared if usd is not None)
        )
        reasons = [sample.finish_reason for record in records for sample in record.samples]
        misfits = sum(item.misfit is not None for item in self.done)
        parts = [
            f"{_mark(set(reasons)) if records and not misfits else '✗'} {_counted(len(records), 'request')}",
            f"{format_count(sum(r.prompt_tokens for r in records))} in → "
            f"{format_count(sum(r.output_tokens for r in records))} out",
            f"throughput {format_rate(throughput(records))}",
            format_ns(wall_ns(records)),
        ]
        if records:
            parts.append(f"≈{format_usd(total)} @ {self.done[0].price}")
        cut, stopped = reasons.count("length"), reasons.count("abort")
        parts += [f"{count} {word}" for count, word in ((cut, "truncated"), (stopped, "interrupted")) if count]
        if misfits:
            parts.append(f"{misfits} without the form")
        if refused:
            parts.append(f"{refused} refused")
        return " · ".join(parts)

    def figure(self, kind: str = "phases") -> Figure:
        """Return a Plotly figure of the batch."""
        return _figure(kind, self.done, self.status)

    def to_pandas(self) -> pd.DataFrame:
        """Return a frame with a row a request."""
        return _frame(self.done)

    def to_json(self) -> str:
        """Return the records as a JSON list."""
        return to_json([item.record for item in self.done])

    def shown_as(self, display: Display) -> Results:
        """Return the same results that show themselves otherwise as the value of a cell."""
        return _shown_as(self, display)

    def __repr__(self) -> str:
        return f"Results({self.status})"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return _bundle(self, self.done)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _mark(reasons: set[str]) -> str:
    """Return the sign of the worst that happened to a sample."""
    if reasons - {"stop", "length", "abort"}:
        return "✗"
    return "■" if "abort" in reasons else "✂" if "length" in reasons else "✓"


def _figure(kind: str, results: Sequence[Result], title: str) -> Figure:
    from jupyter_infer.charts import phases_figure

    if kind not in KINDS:
        raise ConfigError(f"unknown chart {kind!r}{nearest(kind, KINDS)}; there is: {', '.join(KINDS)}")
    if not results:
        raise ConfigError("no request of this batch ran, so there is nothing to draw")
    shown = {r.record.request_id: r.first_shown_ns for r in results if r.first_shown_ns is not None}
    return phases_figure([r.record for r in results], results[0].price, title=title, first_shown_ns=shown)


def _shown_as(shown: _Shown, display: Display) -> _Shown:
    if shown.display == display:
        return shown
    twin = copy.copy(shown)
    twin.display = display
    return twin


def _bundle(shown: Result | Results, results: Sequence[Result]) -> dict[str, Any]:
    if not results or shown.display != "chart":
        return {"text/plain": shown.status}
    from jupyter_infer.charts import bundle, static_html

    html = static_html([r.record for r in results], results[0].price, status=shown.status)
    return bundle(_figure("phases", results, shown.status), html, shown.status)


def _steps_of(request_ids: set[str], steps: Collection[StepRecord]) -> tuple[StepRecord, ...]:
    # A copy first: the engine's thread adds steps meanwhile.
    return tuple(step for step in tuple(steps) if any(work.request_id in request_ids for work in step.work))


def _frame(results: Sequence[Result]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame([figures(result) for result in results])


def figures(result: Result) -> dict[str, Any]:
    """Return the figures of a request by name: seconds (`*_s`), tokens a second (`*_tps`), dollars (`*_usd`)."""

    def seconds(duration_ns: float | None) -> float | None:
        return None if duration_ns is None else duration_ns / 1e9

    record, times, money = result.record, result.phases, result.cost
    return {
        "request_id": record.request_id,
        "model": record.model,
        "text": result.text,
        "prompt_tokens": record.prompt_tokens,
        "cached_tokens": record.cached_tokens,
        "output_tokens": record.output_tokens,
        "queued_s": seconds(times.queued_ns),
        "prefill_s": seconds(times.prefill_ns),
        "decode_s": seconds(times.decode_ns),
        "stalled_s": seconds(times.stalled_ns),
        "ttft_s": seconds(times.ttft_ns),
        "tpot_s": seconds(times.tpot_ns),
        "e2e_s": seconds(times.e2e_ns),
        "decode_tps": times.decode_tps,
        "prefill_tps": times.prefill_tps,
        "shared_s": seconds(record.shared_ns),
        "wall_usd": money.wall_usd,
        "shared_usd": money.shared_usd,
        "finish_reason": record.finish_reason,
    }
