"""How a test runs a cell."""

from __future__ import annotations

from typing import Any

import pytest
from IPython.core.displaypub import CapturingDisplayPublisher


def ask(shell: Any, cell: str) -> Any:
    """Run a cell; return its value, or raise what it raised."""
    outcome = shell.run_cell(cell, store_history=True)
    if outcome.error_in_exec is not None:
        raise outcome.error_in_exec
    return outcome.result


@pytest.fixture
def kernel(shell: Any) -> Any:
    """The shell as if a kernel had it; its displays are in `shell.display_pub.outputs`."""
    shell.kernel = object()
    shell.display_pub = CapturingDisplayPublisher()
    return shell


def shown(kernel: Any) -> list[str]:
    """Return what the displays of a kernel show in the end, in the order of their places."""
    places: dict[str, str] = {}
    for number, message in enumerate(kernel.display_pub.outputs):
        place = (message.get("transient") or {}).get("display_id", str(number))
        places[place] = message["data"]["text/plain"]
    return list(places.values())
