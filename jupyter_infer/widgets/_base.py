"""What all widgets have in common: their bundle, their session, requests and replies, and a form without a script."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import anywidget
import traitlets

from jupyter_infer.charts.template import CARD, FONT, MUTED
from jupyter_infer.display.place import Place
from jupyter_infer.errors import ConfigError, InferError, nearest
from jupyter_infer.session import Session, current_session
from jupyter_infer.widgets._messages import Event, answer, one_line
from jupyter_infer.widgets._ticker import TICKER

__all__ = ["InferWidget"]

STATIC = Path(__file__).parent.parent / "static"
PLACES_KEPT = 8  # displays of a widget whose static form is refreshed
HINT = (
    "As it was when its last run ended, or else when it was shown. For the live widget, run the cell in JupyterLab or "
    "another host of widgets."
)


class InferWidget(anywidget.AnyWidget):
    """Base of all widgets.

    A widget names its bundle in `front_end`, draws its traits in ``js/src/NAME.ts``, answers requests in `handle`,
    and says itself without a script in `summary` and `static_html`. If it shows what changes by itself, it has a
    `tick`.

    Parameters
    ----------
    session
        The session that it shows; the one that cells share if left out.
    **traits
        Values of its public traits, and ipywidgets' own (``layout`` …).

    Raises
    ------
    TypeError
        If a keyword is no trait; it names the near ones.
    InferError
        If the front end is not built.
    """

    front_end: ClassVar[str] = ""
    """Name of the bundle in ``jupyter_infer/static``, without its ending."""

    session: Session = traitlets.Instance(Session)
    """The session that is shown (`Session`, default: `current_session()`). Stays in the kernel."""

    _id = traitlets.Unicode().tag(sync=True)  # its model's, by which a view finds its model and its static form

    def __init_subclass__(cls, **kwargs: Any) -> None:
        # Only where a class names one: traitlets makes a class of each widget that gets more traits.
        if "front_end" in cls.__dict__ and (bundle := STATIC / f"{cls.front_end}.js").exists():
            cls._esm = bundle  # anywidget makes of it a file that can be watched
        super().__init_subclass__(**kwargs)

    def __init__(self, **traits: Any) -> None:
        public = [name for name in self.trait_names() if not name.startswith("_")]
        for name in traits:
            if name not in self.trait_names() and name != "model_id":
                raise TypeError(
                    f"{type(self).__name__}() got an unexpected keyword argument {name!r}{nearest(name, public)}"
                )
        if not hasattr(type(self), "_esm"):
            raise InferError("the widgets' front end is not built; type: python tools/front_end.py build")
        if traits.get("session", ...) is None:
            del traits["session"]
        traits.setdefault("_view_count", 0)  # a number lets the views count themselves
        traits["_id"] = traits.setdefault("model_id", uuid.uuid4().hex)
        self._shown = False
        self._pushing = threading.RLock()
        self._places: list[Place] = []
        super().__init__(**traits)
        _keep_routes(self.comm)
        self.on_msg(self._on_message)

    @traitlets.default("session")
    def _default_session(self) -> Session:
        return current_session()

    # What a widget is made of.

    def handle(self, kind: str, payload: dict[str, Any]) -> Mapping[str, Any] | None:
        """Return the payload of the reply to a view's request; an error becomes a reply of one line."""
        raise ConfigError(f"{type(self).__name__} knows no request {kind!r}")

    def tick(self) -> bool:
        """Look at the session, `push` what has changed, and return whether something goes on.

        Called on the ticker's thread while the widget is shown: 8 times a second while something goes on, else twice.
        """
        return False

    def summary(self) -> str:
        """Return what it shows in a line of plain text."""
        return type(self).__name__

    def static_html(self) -> str:
        """Return what it shows as HTML that needs no script: an opaque card (`jupyter_infer.charts.static`)."""
        raise NotImplementedError

    # What it can use.

    def push(self, **values: Any) -> bool:
        """Set traits from any thread, send what has changed in one message, and return whether something had."""
        with self._pushing:
            changed = {name: value for name, value in values.items() if getattr(self, name) != value}
            if changed:
                with self.hold_sync():
                    for name, value in changed.items():
                        setattr(self, name, value)
            return bool(changed)

    def set_together(self, values: Mapping[str, Any]) -> None:
        """Set traits as a view has them: all of them, or none.

        Raises
        ------
        ConfigError
            If one of them takes no such value.
        """
        try:
            with self._pushing, self.hold_trait_notifications():  # which would hold what another thread pushes, too
                for name, value in values.items():
                    setattr(self, name, value)
        except traitlets.TraitError as error:
            raise ConfigError(one_line(error).partition(": ")[2]) from None

    def set_state(self, sync_data: dict[str, Any]) -> None:
        """Take what a view set; not while another thread pushes, because it holds notifications."""
        with self._pushing:
            super().set_state(sync_data)

    def tell(self, kind: str, payload: Mapping[str, Any]) -> None:
        """Send an event to the views that are there; what must be there for later ones is a trait."""
        event: Event = {"kind": kind, "id": "", "payload": dict(payload)}
        self.send(event)

    def refresh(self) -> None:
        """Bring the static form up to date wherever it was shown: call it when a run ends."""
        if self.comm is None or not _in_kernel():
            return
        for place in self._places:
            place.show(self._static())

    # How.

    @property
    def shown(self) -> bool:
        """Whether somebody may see it: it was displayed, and no front end said that all of its views are gone."""
        return self._shown and self.comm is not None

    def close(self) -> None:
        """Close it, and its views with it."""
        TICKER.remove(self)
        super().close()

    def __repr__(self) -> str:
        return f"<{self.summary()}>"

    def _ipython_display_(self) -> None:
        """Display it, and below it its static form, which its views keep out of sight.

        They are two outputs, because a host that is sent the first one again makes a second view of it.
        """
        self._show()
        if self.comm is not None and _in_kernel():
            data, metadata = self._view()
            Place().show({**data, "text/plain": "", "text/html": ""}, metadata)
        place = Place()
        place.show(self._static())
        self._places = [*self._places[1 - PLACES_KEPT :], place]

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return both as one bundle, for who displays it otherwise."""
        self._show()
        data, metadata = self._view()
        return {**data, **self._static()}, metadata

    def _show(self) -> None:
        self._shown = True
        self.tick()  # what is shown first is how things stand now
        TICKER.add(self)

    def _view(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return what makes a host draw a view; nothing if it is closed."""
        if self.comm is None:
            return {}, {}
        data, metadata = super()._repr_mimebundle_() or ({}, {})
        return dict(data), dict(metadata)

    def _static(self) -> dict[str, str]:
        """Return its static form, for pages and programs that draw no widgets."""
        hint = f"background-color:{CARD};color:{MUTED};font-family:{FONT};font-size:11px;padding:0 14px 8px"
        html = f'{self.static_html()}<div style="{hint}">{HINT}</div>'
        return {"text/plain": self.summary(), "text/html": f'<div class="ji-still-{self._id}">{html}</div>'}

    @traitlets.observe("_view_count")
    def _count_views(self, change: Mapping[str, Any]) -> None:
        if change["new"]:
            self._shown = True
            TICKER.add(self)
        elif change["old"]:
            self._shown = False

    def _on_message(self, widget: Any, content: Any, buffers: Any) -> None:
        if (reply := answer(self.handle, content)) is not None:
            self.send(reply)


def _keep_routes(comm: Any) -> None:
    """Let what a view sends go where the view sends it.

    ipykernel 7.4 hands it to the shell that the widget last sent from instead (`BaseComm._reply_subshell_for`). For a
    widget that its own thread keeps up to date that is the main one, and Stop would wait for the end of the cell.
    """
    if hasattr(comm, "_reply_subshell_for"):
        comm._reply_subshell_for = lambda data, default: default


def _in_kernel() -> bool:
    from IPython.core.interactiveshell import InteractiveShell

    return InteractiveShell.initialized() and getattr(InteractiveShell.instance(), "kernel", None) is not None
