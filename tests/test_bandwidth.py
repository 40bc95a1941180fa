"""The speed at which memory is read."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_infer.bandwidth import fastest, read_bandwidth


def test_it_is_the_fastest_try(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0, 2.0, 2.0, 2.5] + [3.0, 5.0] * 5)
    monkeypatch.setattr("jupyter_infer.bandwidth.time.perf_counter", lambda: next(times))
    assert fastest(lambda: None, 1000) == 2000.0


def test_a_read_has_a_speed() -> None:
    found = read_bandwidth(1 << 16)
    assert found is not None
    assert found > 1e6


def test_without_room_nothing_is_measured_instead_of_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jupyter_infer.hardware.memory_available", lambda: 1 << 17)
    assert read_bandwidth((1 << 16) + 1) is None
    assert read_bandwidth(1 << 16) is not None

    def full(*given: Any, **more: Any) -> Any:
        raise RuntimeError("out of memory")

    monkeypatch.setattr("torch.ones", full)
    assert read_bandwidth(1 << 16) is None
