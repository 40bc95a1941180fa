"""A process at its memory limit: one line that says what needs less, and what needs less works."""

from __future__ import annotations

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
