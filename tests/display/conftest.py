"""A timeline in place of the clock, and the display messages of a kernel."""

from __future__ import annotations

from typing import Any

import pytest
from IPython.core.displaypub import CapturingDisplayPublisher

from jupyter_infer.display import cell, loop, stream

from .timeline import Timeline


@pytest.fixture
def timeline(monkeypatch: pytest.MonkeyPatch) -> Timeline:
    made = Timeline()
    for module in (cell, loop, stream):
        monkeypatch.setattr(module, "time", made)
    monkeypatch.setattr(loop, "_wait", made.wait)
    return made


@pytest.fixture
def outputs(plain_shell: Any) -> list[dict[str, Any]]:
    """The display messages of a kernel, in order."""
    plain_shell.display_pub = CapturingDisplayPublisher()
    return plain_shell.display_pub.outputs
