"""What the prompts of one batch gave, together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

from jupyter_infer.metrics import throughput, wall_ns
from jupyter_infer.numbers import format_count, format_ns, format_rate
from jupyter_infer.pricing import format_usd
from jupyter_infer.recorded import Recorded, Runs
from jupyter_infer.records import StepRecord, to_json
from jupyter_infer.result import Display, Refused, Result, mark_of, runs_of, shown_as, shown_bundle, work_of
from jupyter_infer.run import Run

__all__ = ["Results"]


class Results(Recorded, Sequence[Result | Refused]):
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
        return work_of(ids, self.done[0]._engine_steps) if self.done else ()

    @property
    def status(self) -> str:
        """The status line of the batch."""
        records = [item.record for item in self.done]
        refused = len(self) - len(records)
        reasons = [sample.finish_reason for record in records for sample in record.samples]
        misfits = sum(item.misfit is not None for item in self.done)
        parts = [
            f"{mark_of(set(reasons)) if records and not misfits else '✗'} {_counted(len(records), 'request')}",
            f"{format_count(sum(r.prompt_tokens for r in records))} in → "
            f"{format_count(sum(r.output_tokens for r in records))} out",
            f"throughput {format_rate(throughput(records))}",
            format_ns(wall_ns(records)),
        ]
        if records:
            costs = [item.cost for item in self.done]
            price, api = costs[0].price, costs[0].api
            same = all(cost.price == price for cost in costs)
            told = f"≈{format_usd(_sum(cost.shared_usd for cost in costs))} @ {price if same else 'several prices'}"
            if api is not None and all(cost.api == api for cost in costs):
                told += f" · API {format_usd(_sum(cost.api_usd for cost in costs))} ({api.name})"
            parts.append(told)
        cut, stopped = reasons.count("length"), reasons.count("abort")
        parts += [f"{count} {word}" for count, word in ((cut, "truncated"), (stopped, "interrupted")) if count]
        if any(item.engine is not None and item.engine.is_replay for item in self.done):
            parts.append("replay")
        if misfits:
            parts.append(f"{misfits} without the form")
        if refused:
            parts.append(f"{refused} refused")
        return " · ".join(parts)

    @property
    def run(self) -> Run:
        """The batch with all that the engine did meanwhile, as a plain value.

        Raises
        ------
        ConfigError
            If none of its prompts ran.
        """
        return self._one()[0]

    @property
    def runs(self) -> Runs:
        """The run that the batch was, without the prompts that were refused."""
        return runs_of(self.done)

    def to_json(self) -> str:
        """Return the records as a JSON list."""
        return to_json([item.record for item in self.done])

    def shown_as(self, display: Display) -> Results:
        """Return the same results that show themselves otherwise as the value of a cell."""
        return shown_as(self, display)

    def __repr__(self) -> str:
        return f"Results({self.status})"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return shown_bundle(self, self.done)

    def _title(self) -> str:
        return self.status


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _sum(parts: Iterable[float | None]) -> float | None:
    """Return the sum, or None if a part is not known."""
    known = list(parts)
    return None if None in known else math.fsum(part for part in known if part is not None)
