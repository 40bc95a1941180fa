"""What widgets send to their views, and a ticker that ticks when a test says so."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jupyter_infer.widgets import InferWidget
from jupyter_infer.widgets._ticker import TICKER


@pytest.fixture
def sent() -> Callable[[InferWidget], list[dict[str, Any]]]:
    """Return a function that gives the list of what a widget sends from now on."""

    def record(widget: InferWidget) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = []
        assert widget.comm is not None
        widget.comm.send = lambda data=None, **more: messages.append(data)
        return messages

    return record


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """Close the widgets of a test, and wait until the ticker has nothing to do."""
    from ipywidgets import Widget

    yield
    Widget.close_all()
    for thread in threading.enumerate():
        if thread.name == "jupyter-infer-widgets":
            thread.join(10)
    assert not TICKER.running
