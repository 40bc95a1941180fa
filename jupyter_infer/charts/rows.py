"""The rows of a chart or table of requests: what each is called, what its times are and what it cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from jupyter_infer.charts.labels import cut
from jupyter_infer.metrics import Phases, phases
from jupyter_infer.pricing import Cost, MachinePrice, cost
from jupyter_infer.records import RequestRecord

__all__ = ["PHASES", "Row", "make_rows", "origin_ns", "span_ns"]

PHASES = ("queued", "prefill", "decode")

MAX_STALLS = 8  # pieces of stalled time that are drawn apart

ENDINGS = {"length": "token limit", "abort": "aborted", "error": "failed"}


@dataclass(frozen=True, slots=True)
class Row:
    """A request at its place in the chart. The label is display text; rows are told apart by `index` alone."""

    index: int
    label: str  # plain text, not escaped
    record: RequestRecord
    times: Phases
    cost: Cost | None  # `None` if no price is set

    @property
    def number(self) -> int:
        """What the request is called in the chart, and the height that its bars lie at: 1 for the first."""
        return self.index + 1

    @property
    def phase_ns(self) -> dict[str, tuple[int | None, int | None]]:
        """Start and duration of each phase; both `None` if the request did not get through it."""
        record, times = self.record, self.times
        starts = (record.arrival_ns, record.started_ns, record.first_token_ns)
        lengths = (times.queued_ns, times.prefill_ns, times.decode_ns)
        return {
            phase: (None, None) if length is None else (start, length)
            for phase, start, length in zip(PHASES, starts, lengths, strict=True)
        }

    @property
    def stalls(self) -> list[tuple[int, int, bool]]:
        """Start, duration and known place of the pieces of stalled time, in order; the durations sum to `stalled_ns`.

        The record says how long a request stalled but not when. A stall ends with a token, so each preemption's is put
        at the end of one of the longest gaps between tokens; where those gaps cannot hold it (`False`) it is drawn in
        one piece at the end of decode.
        """
        record, rest = self.record, min(self.times.stalled_ns or 0, self.times.decode_ns or 0)
        if not rest or record.last_token_ns is None:
            return []
        gaps: list[tuple[int, int]] = []
        for sample in record.samples:
            times = [event.time_ns for event in sample.events if event.token_ids]
            own = sorted(((b - a, b) for a, b in pairwise(times)), reverse=True)
            own = own[: min(max(record.preemptions, 1), MAX_STALLS)]
            gaps = max(gaps, own, key=lambda some: sum(gap for gap, _ in some))
        if sum(gap for gap, _ in gaps) < rest:
            return [(record.last_token_ns - rest, rest, False)]
        pieces = []
        for gap, end in gaps:
            piece = min(gap, rest)
            if piece:
                pieces.append((end - piece, piece, True))
            rest -= piece
        return sorted(pieces)

    @property
    def phase_usd(self) -> dict[str, float | None]:
        """What each phase cost by the wall clock; `None` if unknown."""
        if self.cost is None:
            return dict.fromkeys(PHASES)
        return dict(zip(PHASES, (self.cost.queued_usd, self.cost.prefill_usd, self.cost.decode_usd), strict=True))

    @property
    def wall_usd(self) -> float | None:
        """What the machine cost while the request lasted; `None` if unknown."""
        return None if self.cost is None else self.cost.wall_usd

    @property
    def shared_usd(self) -> float | None:
        """What the request's own part of the engine's work cost; `None` if unknown."""
        return None if self.cost is None else self.cost.shared_usd

    @property
    def end_ns(self) -> int:
        """The last moment that is drawn: its last token, or for one that did not get to it the end of the request."""
        record = self.record
        return record.finished_ns if record.last_token_ns is None or self.broken else record.last_token_ns

    @property
    def broken(self) -> bool:
        """Whether it was aborted or failed, in any of its samples."""
        return any(sample.finish_reason in ("abort", "error") for sample in self.record.samples) or bool(
            self.record.error
        )

    @property
    def ending(self) -> str:
        """Why it ended, in words: ``stop``, ``aborted``, ``failed``, ``token limit``."""
        reasons = dict.fromkeys(sample.finish_reason for sample in self.record.samples)
        if not reasons:
            reasons = dict.fromkeys(("error",) if self.record.error else ())
        return ", ".join(ENDINGS.get(reason, reason) for reason in reasons) or "n/a"


def make_rows(
    records: Sequence[RequestRecord], price: MachinePrice | None, labels: Sequence[str] | None = None
) -> list[Row]:
    """Return a row a record, in the given order, called after its number and its label (else its prompt)."""
    if labels is not None and len(labels) != len(records):
        raise ValueError(f"{len(records)} records want as many labels; got {len(labels)}")
    return [
        Row(
            index=index,
            label=cut(f"{index + 1} · {record.label if labels is None else labels[index]}"),
            record=record,
            times=phases(record),
            cost=None if price is None else cost(record, price),
        )
        for index, record in enumerate(records)
    ]


def origin_ns(rows: Sequence[Row]) -> int:
    """Return the first arrival, where the time axis begins."""
    return min((row.record.arrival_ns for row in rows), default=0)


def span_ns(rows: Sequence[Row]) -> int:
    """Return how long the run lasted from its first arrival; 1 at least, so that it can be divided by."""
    return max(1, max((row.end_ns for row in rows), default=0) - origin_ns(rows))
