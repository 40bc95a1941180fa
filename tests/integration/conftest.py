"""One real engine for all tests here: vLLM with the default model, loaded once a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from jupyter_infer.session import Session


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/integration/" in item.path.as_posix():
            item.add_marker(pytest.mark.integration)


@pytest.fixture(scope="session")
def shared() -> Iterator[Session]:
    """The session of all files here."""
    real = Session(kv_cache_memory_bytes=256 << 20)
    yield real
    real.unload()


@pytest.fixture(scope="module")
def session(shared: Session) -> Session:
    """A session with the default model and a small pool, loaded again if others had the process's engine meanwhile."""
    if shared.info is None:
        shared.load(take_over=True)
    return shared


@pytest.fixture
def cold(session: Session) -> Session:
    """The session with an empty prefix cache; afterwards nothing may be left running or holding blocks."""
    assert session.clear_cache()
    return session


@pytest.fixture(autouse=True)
def nothing_leaks(session: Session) -> Iterator[None]:
    yield
    status = session.status()
    assert status.open_requests == 0
    assert status.kv_blocks_free == status.info.kv_blocks_total if status.info else True


@pytest.fixture
def vllm_stats(session: Session, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """vLLM's own `RequestStateStats` by request id, collected from its finished outputs."""
    engine = session._worker.engine._engine  # type: ignore[union-attr]
    stats: dict[str, Any] = {}
    step = engine.step

    def collecting() -> Any:
        outputs = step()
        stats.update({output.request_id: output.metrics for output in outputs if output.finished})
        return outputs

    monkeypatch.setattr(engine, "step", collecting)
    return stats
