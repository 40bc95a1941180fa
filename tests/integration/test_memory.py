"""The memory that vLLM takes is what we chose, whatever it finds out about the machine by itself."""

from __future__ import annotations

import io
import os
from typing import Any

import pytest

from jupyter_infer.magics.tables import describe
from jupyter_infer.session import Session

# A machine with a terabyte, as a small container of it sees it.
MEMINFO = "\n".join(
    f"Node 0 {name}: {kilobytes} kB"
    for name, kilobytes in {
        "MemTotal": 2**30,
        "MemFree": 2**29,
        "Active(file)": 1024,
        "Inactive(file)": 1024,
        "SReclaimable": 1024,
    }.items()
)


@pytest.mark.parametrize("numa", [True, False], ids=["NUMA file", "no NUMA file"])
def test_the_pool_has_the_size_that_we_chose_with_and_without_a_numa_file(
    session: Session, monkeypatch: pytest.MonkeyPatch, numa: bool
) -> None:
    """Left to itself, vLLM heeds a container's limit with such a file only, and takes a share of the host without."""
    engine: Any = session._worker.engine
    if engine.info.device != "cpu":
        pytest.skip("on a GPU the pool is in its own memory")
    from vllm.utils import cpu_resource_utils

    exists = os.path.exists
    monkeypatch.setattr(
        cpu_resource_utils.os.path, "exists", lambda path: numa if "/node/" in str(path) else exists(path)
    )
    monkeypatch.setattr(cpu_resource_utils, "open", lambda path: io.StringIO(MEMINFO), raising=False)
    chosen = engine.info.settings["kv_cache_memory_bytes"]
    assert engine._engine.model_executor.determine_available_memory() == [chosen]
    assert chosen // 2 < engine.info.kv_bytes <= chosen  # whole blocks of it
    assert f"= {engine.info.kv_bytes / 2**20:,.0f} MiB" in describe(engine.info)
