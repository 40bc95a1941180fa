"""The one thread that keeps live widgets up to date, at the pace of a screen."""

from __future__ import annotations

import logging
import threading
import weakref
from typing import Protocol

__all__ = ["IDLE_S", "TICKER", "TICK_S", "Ticker", "Ticking"]

TICK_S = 0.12
"""Between two looks while something goes on: 8 a second, of at most 20 messages a second that a page should get."""
IDLE_S = 0.5
"""Between two looks while nothing does; nothing is sent then, since nothing has changed."""


class Ticking(Protocol):
    """What is kept up to date."""

    @property
    def shown(self) -> bool:
        """Whether somebody may see it."""

    def tick(self) -> bool:
        """Look, send what has changed, and return whether something goes on."""


class Ticker:
    """Calls `tick` of what was added to it, on a thread of its own that lives while something of it is shown.

    Widgets are held weakly. One whose `tick` fails is left alone until it is added again.
    """

    def __init__(self, tick_s: float = TICK_S, idle_s: float = IDLE_S) -> None:
        self._tick_s, self._idle_s = tick_s, idle_s
        self._widgets: weakref.WeakSet[Ticking] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, widget: Ticking) -> None:
        """Keep a widget up to date while it is shown; adding it twice is adding it once."""
        with self._lock:
            self._widgets.add(widget)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="jupyter-infer-widgets", daemon=True)
                self._thread.start()
        self._wake.set()

    def remove(self, widget: Ticking) -> None:
        """Leave a widget alone from now on."""
        with self._lock:
            self._widgets.discard(widget)
        self._wake.set()

    @property
    def running(self) -> bool:
        """Whether its thread is there."""
        return self._thread is not None

    def _run(self) -> None:
        while True:
            self._wake.clear()
            with self._lock:
                for widget in [widget for widget in self._widgets if not widget.shown]:
                    self._widgets.discard(widget)
                if not self._widgets:
                    self._thread = None
                    return
                widgets = list(self._widgets)
            going_on = [self._tick(widget) for widget in widgets]
            del widgets[:]  # held weakly while it waits
            self._wake.wait(self._tick_s if any(going_on) else self._idle_s)

    def _tick(self, widget: Ticking) -> bool:
        try:
            return widget.tick()
        except Exception:  # a fault of one widget must not stop the others
            logging.getLogger(__name__).exception("a widget could not be kept up to date")
            with self._lock:
                self._widgets.discard(widget)
            return False


TICKER = Ticker()
"""The ticker of this process."""
