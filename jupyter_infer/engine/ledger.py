"""From steps and outputs to token events and request records: the book that the worker keeps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from jupyter_infer.attribution import Attribution
from jupyter_infer.engine.protocol import EngineRequest, SampleOutput, StepResult
from jupyter_infer.records import RequestRecord, SampleRecord, StepRecord, TokenEvent, plain

__all__ = ["Ledger"]


@dataclass(slots=True)
class _Sample:
    events: list[TokenEvent] = field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    preempted_ns: int | None = None  # it is preempted since
    resumed_ns: int | None = None  # it was computing again, or had all again, at


@dataclass(slots=True)
class _Entry:
    request: EngineRequest
    model: str
    arrival_ns: int
    load_ns: int | None
    enqueued_ns: int | None
    samples: list[_Sample]
    cached_tokens: int | None = None
    started_ns: int | None = None
    stalls: list[tuple[int, int]] = field(default_factory=list)  # from, to; those of several samples may overlap
    preemptions: int = 0
    shared_ns: dict[str, int] = field(default_factory=lambda: {"prefill": 0, "decode": 0, "stalled": 0})


class Ledger:
    """Keeps the open requests of one loaded engine and closes each into a `RequestRecord`, once."""

    def __init__(self, model: str) -> None:
        self.attribution = Attribution()
        self._model = model
        self._open: dict[str, _Entry] = {}

    def open(self, request: EngineRequest, *, arrival_ns: int, enqueued_ns: int, load_ns: int | None) -> None:
        """Begin the account of a request that was handed to the engine."""
        samples = [_Sample() for _ in range(request.samples)]
        self._open[request.request_id] = _Entry(request, self._model, arrival_ns, load_ns, enqueued_ns, samples)

    def book(self, result: StepResult) -> tuple[list[TokenEvent], list[RequestRecord]]:
        """Enter what one call of `Engine.step` did; return the new events, and the records of requests that ended."""
        for step in result.steps:
            self._enter(step)
        if not result.outputs:
            return [], []
        last = result.steps[-1] if result.steps else None
        events, ended = [], []
        for output in result.outputs:
            entry = self._open.get(output.request_id)
            if entry is None or last is None:
                continue
            events.append(self._event(entry, output, last))
            if output.finish_reason is not None and all(sample.finish_reason for sample in entry.samples):
                ended.append(self.close(output.request_id, last.end_ns))
        return events, ended

    def close(self, request_id: str, now_ns: int, *, reason: str = "abort", error: str | None = None) -> RequestRecord:
        """End the account of a request: samples that did not end by themselves get `reason`."""
        entry = self._open.pop(request_id)
        times = [event.time_ns for sample in entry.samples for event in sample.events if event.token_ids]
        # The share of a run's earlier steps is fixed; what is frozen here are the coefficients in force at the end.
        fit = self.attribution.refit()
        shared = entry.shared_ns if entry.started_ns is not None else {}
        return RequestRecord(
            request_id=request_id,
            model=entry.model,
            label=entry.request.label,
            prompt=entry.request.prompt.text,
            prompt_tokens=len(entry.request.prompt.token_ids),
            cached_tokens=entry.cached_tokens,
            sampling={name: plain(value) for name, value in entry.request.sampling.items()},
            samples=tuple(
                SampleRecord(i, tuple(sample.events), sample.finish_reason or reason, sample.stop_reason)
                for i, sample in enumerate(entry.samples)
            ),
            load_ns=entry.load_ns,
            arrival_ns=entry.arrival_ns,
            enqueued_ns=entry.enqueued_ns,
            started_ns=entry.started_ns,
            first_token_ns=min(times, default=None),
            last_token_ns=max(times, default=None),
            finished_ns=now_ns,
            stalled_ns=_union_ns(entry.stalls),
            preemptions=entry.preemptions,
            shared_prefill_ns=shared.get("prefill"),
            shared_decode_ns=shared.get("decode"),
            shared_stalled_ns=shared.get("stalled"),
            fit=fit,
            error=error,
        )

    def _enter(self, step: StepRecord) -> None:
        for (request_id, phase), share in self.attribution.add(step, self._open).items():
            self._open[request_id].shared_ns[phase] += share
        self.attribution.refit()  # now and then: a long first batch must not wait for its end to be split by a fit
        for request_id, index in step.preempted:
            if entry := self._open.get(request_id):
                entry.preemptions += 1
                sample = entry.samples[index]
                if sample.events:  # before its first token, the wait is prefill
                    sample.preempted_ns = step.start_ns if sample.preempted_ns is None else sample.preempted_ns
                    sample.resumed_ns = None
        for work in step.work:
            entry = self._open.get(work.request_id)
            if entry is None:
                continue
            if entry.started_ns is None:
                entry.started_ns = step.start_ns
            sample = entry.samples[work.sample]
            if sample.preempted_ns is not None:
                if work.recomputed_tokens:
                    sample.resumed_ns = step.end_ns
                elif sample.resumed_ns is None:
                    sample.resumed_ns = step.start_ns
                if work.output_tokens:
                    entry.stalls.append((sample.preempted_ns, sample.resumed_ns))
                    sample.preempted_ns = sample.resumed_ns = None

    def _event(self, entry: _Entry, output: SampleOutput, step: StepRecord) -> TokenEvent:
        sample = entry.samples[output.sample]
        if output.cached_tokens is not None and entry.cached_tokens is None:
            entry.cached_tokens = output.cached_tokens
        event = TokenEvent(
            request_id=output.request_id,
            sample=output.sample,
            step=step.index,
            time_ns=step.end_ns,
            token_ids=output.token_ids,
            text=output.text,
            finish_reason=output.finish_reason,
            stop_reason=output.stop_reason,
            logprobs=output.logprobs,
        )
        sample.events.append(event)
        if output.finish_reason is not None:
            sample.finish_reason, sample.stop_reason = output.finish_reason, output.stop_reason
        return event


def _union_ns(spans: Iterable[tuple[int, int]]) -> int:
    """Return the time that is in any of the spans."""
    total = end_ns = 0
    for begin, end in sorted(spans):
        total += max(0, end - max(begin, end_ns))
        end_ns = max(end_ns, end)
    return total
