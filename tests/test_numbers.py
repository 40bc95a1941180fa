"""Numbers as people read them: three digits, the unit that fits, and n/a for what is not known."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_infer.numbers import (
    NOT_KNOWN,
    axis_unit,
    format_count,
    format_ns,
    format_rate,
    format_share,
    format_times,
)

MINUTE = 60_000_000_000


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (0, "0 s"),
        (12, "12 ns"),
        (999.9, "1 µs"),
        (3_400, "3.4 µs"),
        (999_900, "1 ms"),
        (81_000_000, "81 ms"),
        (999_999_999, "1 s"),
        (1_750_000_000, "1.75 s"),
        (59_940_000_000, "59.9 s"),
        (59_960_000_000, "1 min"),
        (MINUTE, "1 min"),
        (2 * MINUTE + 5_000_000_000, "2 min 5 s"),
        (59 * MINUTE + 59_700_000_000, "1 h"),
        (62 * MINUTE, "1 h 2 min"),
        (60 * 1000 * MINUTE, "1,000 h"),
        (-1_500_000, "−1.5 ms"),
        (None, "n/a"),
        (math.nan, "n/a"),
        (math.inf, "n/a"),
    ],
)
def test_durations(duration: float | None, text: str) -> None:
    assert format_ns(duration) == text


@given(st.integers(0, 10**18))
def test_no_duration_has_an_exponent_or_a_unit_too_small(duration: int) -> None:
    text = format_ns(duration)
    assert "e+" not in text
    assert "60 s" not in text.split(" min ")[-1:]
    assert "60 min" not in text


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        (36.24, "36.2 tok/s"),
        (1840.4, "1,840 tok/s"),
        (99.96, "100 tok/s"),
        (0.5, "0.5 tok/s"),
        (None, "n/a"),
        (math.inf, "n/a"),
        (math.nan, "n/a"),
    ],
)
def test_rates(rate: float | None, text: str) -> None:
    assert format_rate(rate) == text


def test_a_rate_has_the_unit_that_is_given() -> None:
    assert format_rate(2.0, "steps/s") == "2 steps/s"


@pytest.mark.parametrize(("count", "text"), [(0, "0"), (12345, "12,345"), (None, "n/a")])
def test_counts(count: int | None, text: str) -> None:
    assert format_count(count) == text


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [
        (63, 100, "63 %"),
        (4, 1000, "0.4 %"),
        (1, 100_000, "under 0.1 %"),
        (0, 10, "0 %"),
        (10, 10, "100 %"),
        (1, 0, "n/a"),
        (None, 10, "n/a"),
        (1, None, "n/a"),
        (math.nan, 1, "n/a"),
    ],
)
def test_shares(part: float | None, whole: float | None, text: str) -> None:
    assert format_share(part, whole) == text


def test_what_is_not_known_is_never_a_nought() -> None:
    assert {format_ns(None), format_rate(None), format_count(None), format_share(None, None)} == {NOT_KNOWN}


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(1.0, "1"), (1.26, "1.3"), (9.94, "9.9"), (9.96, "10"), (12.4, "12"), (1840.2, "1,840"), (None, "n/a")],
)
def test_times(ratio: float | None, text: str) -> None:
    assert format_times(ratio) == text


@pytest.mark.parametrize(
    ("most", "unit"),
    [(0, ("ms", 1e6)), (999e6, ("ms", 1e6)), (1e9, ("s", 1e9)), (599e9, ("s", 1e9)), (6e11, ("min", 6e10))],
)
def test_an_axis_has_the_unit_that_fits(most: float, unit: tuple[str, float]) -> None:
    assert axis_unit(most) == unit
