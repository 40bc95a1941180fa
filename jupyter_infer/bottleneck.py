"""What limited a run: its whole time, split by what it was spent on or waited for.

A step in which requests waited counts as what they waited for: places in the batch (*cap*), the token budget
(*budget*, also of those in the batch that it left out) or KV blocks (*pool*). Every other step is split by the fit of
`jupyter_infer.attribution`: what grows with its tokens is *compute*; reading the weights once, at the bandwidth that
was measured, and what grows with the KV cache that it read is *bandwidth*; planning, taking in and the rest of the
fixed part (launches, Python) is *host*. Between steps it is the host's time while a request is open, and *idle* while
none is. The parts add up to the time, exactly.

Without a measured bandwidth the fixed part is not divided further (*fixed*), and without a fit a step's computing is
not divided at all (*model*).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from jupyter_infer.records import EngineInfo, Fit, StepRecord
from jupyter_infer.run import Run

__all__ = ["KINDS", "Bottleneck", "bottleneck"]

KINDS = {
    "cap": "requests waited for a place in the batch",
    "budget": "requests waited for room in a step, or were left out of it",
    "pool": "requests waited for KV blocks, or were preempted for them",
    "compute": "what grows with the tokens of a step",
    "bandwidth": "reading the weights, and what grows with the KV cache read",
    "host": "planning, launching, taking in, and gaps between steps",
    "fixed": "the fixed part of steps: reading the weights, and the host",
    "model": "the model's time, not divided: too few different steps were seen",
    "idle": "no request was there",
}
"""What time can have been spent on, and what that means."""


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """The time of a run by kind, in nanoseconds: `sum(parts.values()) == elapsed_ns`, exactly."""

    elapsed_ns: int  # from the first arrival to the last end
    parts: dict[str, int]  # by kind, without those that have none
    bandwidth: float | None = None  # bytes a second that were assumed for the weights

    @property
    def kind(self) -> str | None:
        """What took most of the time; None if there was none."""
        return max(self.parts, key=self.parts.__getitem__, default=None)

    @property
    def shares(self) -> dict[str, float]:
        """The parts as fractions of the time, the largest first."""
        found = sorted(self.parts.items(), key=lambda part: -part[1])
        return {kind: part / self.elapsed_ns for kind, part in found}


def bottleneck(run: Run, *, fit: Fit | None = None, bandwidth: float | None = None) -> Bottleneck | None:
    """Return what limited a run; None if its steps or its engine are not all known, or it is a replay.

    Parameters
    ----------
    run
        What was run.
    fit
        What a step costs; the one in force when the run's last request ended, if left out.
    bandwidth
        Bytes a second at which memory was seen to be read (`jupyter_infer.session.Session.bandwidth`).
    """
    begun, ended = run.span_ns
    if run.engine is None or run.engine.is_replay or not run.steps or not run.complete or ended <= begun:
        return None
    fit = fit or max(run.requests, key=lambda record: record.finished_ns).fit
    weights_ns = _weights_ns(run.engine, bandwidth)
    parts = dict.fromkeys(KINDS, 0)
    open_times = _joined((record.arrival_ns, record.finished_ns) for record in run.requests)
    now = begun
    for step in run.steps:
        start, end = max(step.start_ns, now), min(step.end_ns, ended)
        if end <= start:
            continue
        for kind, part in _between(now, start, open_times).items():
            parts[kind] += part
        for kind, part in _split(run, step, fit, weights_ns, end - start).items():
            parts[kind] += part
        now = end
    for kind, part in _between(now, ended, open_times).items():
        parts[kind] += part
    return Bottleneck(
        ended - begun,
        {kind: part for kind, part in parts.items() if part},
        bandwidth if weights_ns is not None else None,
    )


def _split(run: Run, step: StepRecord, fit: Fit | None, weights_ns: float | None, own_ns: int) -> dict[str, int]:
    """Return the parts of `own_ns` of a step: all of it, or what of it lies in the run."""
    if (waited := _waited_for(run, step)) is not None:
        return {waited: own_ns}
    host_ns = step.schedule_ns + step.update_ns
    weights = {"host": float(host_ns)}
    if fit is None or fit.fixed_ns is None or fit.token_ns is None:
        weights["model"] = float(step.forward_ns)
    else:
        fixed = max(0.0, fit.fixed_ns - host_ns)
        kv = (fit.kv_token_ns or 0.0) * sum(work.kv_tokens for work in step.work)
        model = {"compute": fit.token_ns * step.tokens, "bandwidth": kv}
        if weights_ns is None:
            model["fixed"] = fixed
        else:
            model["bandwidth"] += min(fixed, weights_ns)
            model["host"] = max(0.0, fixed - weights_ns)
        total = sum(model.values())
        for kind, part in (model if total > 0 else {"model": 1.0}).items():
            weights[kind] = weights.get(kind, 0.0) + step.forward_ns * part / (total or 1.0)
    return _shared_out(own_ns, weights)


def _waited_for(run: Run, step: StepRecord) -> str | None:
    """Return what requests waited for while a step ran; None if none did, or the limits are not known."""
    if step.preempted:
        return "pool"
    if (limits := run.limits_of(step)) is None:
        return None
    spent = step.tokens >= limits.max_num_batched_tokens
    if spent and len(step.work) < step.running:  # some of the batch got nothing
        return "budget"
    if not step.waiting:
        return None
    if step.running >= limits.max_num_seqs:
        return "cap"
    return "budget" if spent else "pool"


def _weights_ns(engine: EngineInfo, bandwidth: float | None) -> float | None:
    return engine.weight_bytes / bandwidth * 1e9 if engine.weight_bytes and bandwidth else None


def _shared_out(amount: int, weights: dict[str, float]) -> dict[str, int]:
    """Return whole parts of an amount by their weights; the largest takes what rounding leaves."""
    total = sum(weights.values())
    if total <= 0:
        return {"host": amount}
    parts = {kind: int(amount * weight / total) for kind, weight in weights.items()}
    parts[max(parts, key=parts.__getitem__)] += amount - sum(parts.values())
    return parts


def _joined(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the union of spans of time, in order."""
    joined: list[tuple[int, int]] = []
    for begun, ended in sorted(spans):
        if joined and begun <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], ended)
        else:
            joined.append((begun, ended))
    return joined


def _between(begun: int, ended: int, open_times: Sequence[tuple[int, int]]) -> dict[str, int]:
    """Return the parts of a time without a step: the host's while a request was open, else idle."""
    if ended <= begun:
        return {}
    busy = sum(max(0, min(ended, last) - max(begun, first)) for first, last in open_times)
    return {"host": busy, "idle": ended - begun - busy}
