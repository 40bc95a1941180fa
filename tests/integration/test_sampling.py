"""Sampling values of every kind and size: each runs or is refused in one line, and none harms those beside it."""

from __future__ import annotations

import math

import numpy

from jupyter_infer.engine.vllm_sampling import OWNED_SAMPLING
from jupyter_infer.errors import ConfigError
from jupyter_infer.session import Session

NUMBERS = (True, 0, 1, -1, 10**6, 2**31, 2**64, 0.5, -0.5, 1e300, math.inf, math.nan)
TEXTS = ("", "x", b"x")
LISTS = ([], [0], [1, 2], ["a"], [""], [None], [-1], [10**9], [2**70], [1.5], [[0]])
MAPPINGS = ({}, {"a": 1}, {1: 2}, {1: math.nan}, {10**9: 1}, {-1: 1})
OTHERS = (None, object, len)


def test_any_value_of_any_name_runs_or_is_refused_alone(session: Session) -> None:
    engine = session._worker.engine
    assert engine is not None
    names = sorted(engine._sampling._names - set(OWNED_SAMPLING))  # type: ignore[attr-defined]
    assert {"temperature", "logit_bias", "structured_outputs"} <= set(names)
    beside = session.submit("Count to one hundred.", max_tokens=30, ignore_eos=True)
    running, refused, reasons = [], [], set[str]()
    for name in names:
        for value in (*NUMBERS, *TEXTS, *LISTS, *MAPPINGS, *OTHERS):
            try:
                running.append(session.submit("Hi", **{"max_tokens": 2, "temperature": 0.7, name: value}))
            except ConfigError as error:
                refused.append(str(error))
    for handle in running:
        try:
            reasons.add(handle.record(120).finish_reason)
        except ConfigError as error:  # the engine itself refused it, after it was queued
            refused.append(str(error))
    assert reasons <= {"stop", "length"}
    assert [line for line in refused if "\n" in line or len(line) > 400] == []
    assert (len(refused) > 500, len(running) > 50) == (True, True)
    assert beside.record(60).output_tokens == 30
    assert session._worker.engine is engine  # it was not loaded again


def test_numbers_and_arrays_of_numpy_and_keys_of_json_are_numbers(session: Session) -> None:
    options = {
        "max_tokens": numpy.int64(2),
        "temperature": numpy.float32(0.5),
        "seed": numpy.int32(7),
        "stop_token_ids": numpy.array([5, 6]),
        "logit_bias": {numpy.int64(5): numpy.float32(1.0), "6": -1},
        "top_p": None,
    }
    sampling = session.generate("Hi", **options).record.sampling
    assert (sampling["max_tokens"], sampling["seed"], sampling["stop_token_ids"]) == (2, 7, [5, 6])
    assert session.generate("Hi", **sampling).record.sampling == sampling  # a record can be run again
