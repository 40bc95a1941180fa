"""A place in the output of a cell that can be written to again, from any thread and whatever else runs."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from jupyter_infer.errors import InferError

__all__ = ["Place", "draw_later"]


class Place:
    """One display. It is made on the thread and in the cell that it belongs to.

    It keeps the publisher that it was made with: a later cell's ``%%capture`` puts another one in its place, and must
    not get what belongs to this cell.
    """

    def __init__(self) -> None:
        from IPython.core.interactiveshell import InteractiveShell

        shell = InteractiveShell.instance()
        self._publisher, self._formatter = shell.display_pub, shell.display_formatter
        self._transient = {"display_id": uuid.uuid4().hex}
        self.made = False

    def show(self, data: Mapping[str, Any], metadata: Mapping[str, Any] | None = None) -> None:
        """Show a MIME bundle in place of what is there."""
        self._publisher.publish(
            data=dict(data), metadata=dict(metadata or {}), transient=self._transient, update=self.made
        )
        self.made = True

    def show_text(self, text: str) -> None:
        """Show plain text in place of what is there."""
        self.show({"text/plain": text})

    def show_object(self, value: Any) -> None:
        """Show a value as a cell that ends with it would."""
        self.show(*self._formatter.format(value))


def draw_later(make: Callable[[], Any], waiting: str) -> None:
    """Show `waiting` in a place of its own, and then what `make` returns, which is called on a thread of its own.

    An error that a user can mend is shown as a line; None leaves the place as it is.
    """
    place = Place()
    place.show_text(waiting)

    def draw() -> None:
        try:
            value = make()
        except InferError as error:
            place.show_text(f"{type(error).__name__}: {error}")
        else:
            if value is not None:
                place.show_object(value)

    threading.Thread(target=draw, name="jupyter-infer-display", daemon=True).start()
