"""Who used the engine's time: each step's nanoseconds split over the requests that shared it, exactly.

A step has a part that does not depend on its tokens (weights read, launches, Python) and a part that grows with them,
and over long contexts with the KV cache that attention reads. `fit` estimates `step = fixed + token · tokens (+ kv ·
kv_tokens)` from measured steps by iteratively reweighted least squares (Huber's weights, so that a hiccup of the
machine does not move it); `split` gives each of the R entries of a step `fixed / R + token · its tokens + kv · its
kv_tokens`, scaled to the measured step and rounded to whole nanoseconds by largest remainder. `Attribution` does both
as steps come in.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Container, Sequence

import numpy as np

from jupyter_infer.records import Fit, StepRecord, StepWork

__all__ = ["Attribution", "fit", "split"]

MIN_DISTINCT = 3  # distinct token counts below which a line through them says nothing
MIN_STEPS = 8
HUBER = 1.345  # 95 % efficiency on normal errors (Huber 1981)
KV_SPREAD = 2048  # KV tokens between the 10th and 90th percentile below which their term cannot be told from noise


def fit(steps: Sequence[StepRecord]) -> Fit:
    """Return the cost of a step, fitted to `steps` that computed tokens; without coefficients when they are too few or
    alike.

    No coefficient is negative: a term that would be is left out and the rest fitted again.
    """
    return _solve([_measured(step) for step in steps if step.work])


def split(step: StepRecord, by: Fit) -> tuple[int, ...]:
    """Return the nanoseconds of each entry of `step.work`; they sum to `step.duration_ns` exactly."""
    if not step.work:
        return ()
    if by.fixed_ns is None or by.token_ns is None:
        weights = [float(work.tokens) for work in step.work]
    else:
        fixed, token, kv = by.fixed_ns / len(step.work), by.token_ns, by.kv_token_ns or 0.0
        weights = [fixed + token * work.tokens + kv * work.kv_tokens for work in step.work]
    total = math.fsum(weights)  # whatever the order of the entries
    if total <= 0:
        weights, total = [1.0] * len(step.work), float(len(step.work))
    duration_ns = step.duration_ns
    exact = [duration_ns * weight / total for weight in weights]
    shares = [int(value) for value in exact]
    missing = duration_ns - sum(shares)
    if missing < 0:  # float error in a step of weeks: the largest has it to give
        largest = max(range(len(shares)), key=lambda i: (shares[i], _identity(step.work[i])))
        shares[largest] += missing
    elif missing:
        parts = zip(shares, exact, step.work, strict=True)
        ranks = [(share - value, work.request_id, work.sample) for share, value, work in parts]
        by_remainder = sorted(range(len(exact)), key=ranks.__getitem__)
        for turn in range(missing):
            shares[by_remainder[turn % len(shares)]] += 1
    return tuple(shares)


class Attribution:
    """Splits steps as they end. A step is split once, by the fit in force, so the parts always sum to the busy time.

    Parameters
    ----------
    warm_up
        Steps after a load that are split but not fitted: they pay for first-touch memory and lazy set-up.
    window
        Measured steps that a fit looks back on.
    """

    def __init__(self, *, warm_up: int = 4, window: int = 512) -> None:
        self.busy_ns = 0
        self.unattributed_ns = 0
        self.fit = Fit(0, None, None, None, None)
        self._skip = warm_up
        self._steps: deque[tuple[int, int, int]] = deque(maxlen=window)
        self._fitted = 0
        self._seen = 0

    def add(self, step: StepRecord, live: Container[str]) -> dict[tuple[str, str], int]:
        """Return the nanoseconds that the step gives to each live request id in each phase; the rest is unattributed.

        Parameters
        ----------
        step
            The step that just ended.
        live
            Ids of the requests that are not finished; a step in flight when its request was aborted is nobody's.
        """
        self.busy_ns += step.duration_ns
        given: dict[tuple[str, str], int] = {}
        for work, share in zip(step.work, split(step, self.fit), strict=True):
            if work.request_id in live:
                key = work.request_id, work.phase
                given[key] = given.get(key, 0) + share
        self.unattributed_ns += step.duration_ns - sum(given.values())
        if step.work:
            self._seen += 1
            if self._seen > self._skip:
                self._steps.append(_measured(step))
        return given

    def refit(self) -> Fit:
        """Fit anew if the steps grew by a tenth since the last fit, and return the coefficients in force."""
        if self._seen - self._fitted >= max(MIN_STEPS, min(len(self._steps), self._fitted) // 10):
            self.fit = _solve(self._steps)
            self._fitted = self._seen
        return self.fit


def _measured(step: StepRecord) -> tuple[int, int, int]:
    """Return what a fit needs of a step: tokens, KV tokens, nanoseconds."""
    return step.tokens, sum(work.kv_tokens for work in step.work), step.duration_ns


def _solve(measured: Sequence[tuple[int, int, int]]) -> Fit:
    table = np.array(measured, dtype=float).reshape(-1, 3)
    tokens, kv, time = table[:, 0], table[:, 1], table[:, 2]
    if len(measured) < MIN_STEPS or len(np.unique(tokens)) < MIN_DISTINCT:
        return Fit(len(measured), None, None, None, None)
    columns = [np.ones_like(tokens), tokens]
    if np.subtract(*np.percentile(kv, (90, 10))) >= KV_SPREAD:
        columns.append(kv)
    kept = list(range(len(columns)))
    while True:
        matrix = np.stack([columns[i] for i in kept], axis=1)
        solved = _huber(matrix, time)
        if len(kept) == 1 or solved.min() >= 0:
            break
        kept.pop(int(solved.argmin()))
    coefficients = [0.0, 0.0, 0.0]
    for i, value in zip(kept, solved, strict=True):
        coefficients[i] = max(float(value), 0.0)
    residual = _median(np.abs(time - matrix @ solved))
    return Fit(
        len(measured), coefficients[0], coefficients[1], coefficients[2] if len(columns) == 3 else None, residual
    )


def _huber(matrix: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the coefficients. Each round solves the normal equations, of columns brought to one scale, because they
    are a few numbers where the matrix has hundreds of rows.
    """
    scales = np.abs(matrix).max(axis=0)
    scales[scales == 0] = 1.0
    columns = matrix / scales
    weights = np.ones(len(values))
    solved = np.zeros(matrix.shape[1])
    for _ in range(20):
        weighted = columns.T * weights
        previous, solved = solved, np.linalg.lstsq(weighted @ columns, weighted @ values, rcond=None)[0]
        errors = np.abs(values - columns @ solved)
        scale = 1.4826 * _median(errors)  # the median absolute deviation as a standard deviation
        if scale == 0 or np.all(np.abs(solved - previous) <= 1e-8 + 1e-6 * np.abs(previous)):
            break
        weights = np.minimum(1.0, HUBER * scale / np.maximum(errors, 1e-9))
    found: np.ndarray = solved / scales
    return found


def _median(values: np.ndarray) -> float:
    ordered = np.sort(values)  # six times as quick as `numpy.median` for a few hundred values
    return float(ordered[(len(values) - 1) // 2] + ordered[len(values) // 2]) / 2


def _identity(work: StepWork) -> tuple[str, int]:
    return work.request_id, work.sample
