"""A process at its memory limit: one line that says what needs less, and what needs less works."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from jupyter_infer.errors import NotEnoughMemory

from .conftest import Cells

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("cells", ["vllm"], indirect=True)
def test_a_pool_that_the_system_does_not_give_is_one_line_and_the_next_cell_loads(
    cells: Cells, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every check said that there was room."""
    import torch

    cells.session.unload()
    with monkeypatch.context() as patch:
        cells.row.stages(patch, "KV pool", lambda: torch.empty(1 << 50, dtype=torch.uint8))
        line = cells.line_of("%%infer\nHi", NotEnoughMemory)
    assert "a smaller --max-model-len or --kv-cache-memory-bytes needs less" in line
    cells.quiet()
    cells.well()


LIMITED = """
import json, resource
import psutil
import jupyter_infer as ji

session, found = ji.Session(kv_cache_memory_bytes=32 << 20), {}
session.load()
session.unload()
soft, hard = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (psutil.Process().memory_info().vms + (1400 << 20), hard))
try:
    session.load(kv_cache_memory_bytes=4 << 30)
except ji.InferError as error:
    found["error"] = type(error).__name__, str(error)
session.load(kv_cache_memory_bytes=32 << 20)
found["tokens"] = session.generate("Hi", max_tokens=3, ignore_eos=True).usage.output_tokens
session.unload()
resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
print(json.dumps(found))
"""


def test_a_process_with_a_limit_refuses_what_does_not_fit_and_loads_what_does() -> None:
    done = subprocess.run([sys.executable, "-c", LIMITED], capture_output=True, text=True, timeout=400, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr[-2000:]
    found = json.loads(done.stdout)
    name, line = found["error"]
    assert name == "NotEnoughMemory"
    assert "\n" not in line
    assert "--kv-cache-memory-bytes" in line
    assert found["tokens"] == 3
