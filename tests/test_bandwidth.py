"""The speed at which memory is read."""

from __future__ import annotations

import pytest

from jupyter_infer.bandwidth import fastest, read_bandwidth


def test_it_is_the_fastest_try(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0, 2.0, 2.0, 2.5] + [3.0, 5.0] * 5)
    monkeypatch.setattr("jupyter_infer.bandwidth.time.perf_counter", lambda: next(times))
    assert fastest(lambda: None, 1000) == 2000.0


def test_a_read_has_a_speed() -> None:
    assert read_bandwidth(1 << 16) > 1e6
    assert read_bandwidth(0) > 0
