"""The real pool of KV blocks: every block, who holds it, and at any step that is remembered."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

import traitlets

from jupyter_infer.charts.static import table_html
from jupyter_infer.errors import ConfigError
from jupyter_infer.pool import PoolState
from jupyter_infer.recorded import Recorded
from jupyter_infer.records import EngineInfo, StepRecord
from jupyter_infer.run import Run
from jupyter_infer.session import Session
from jupyter_infer.widgets._base import InferWidget
from jupyter_infer.widgets._kv_frame import facts, pack
from jupyter_infer.widgets._kv_live import LivePool
from jupyter_infer.widgets._kv_shown import Shown
from jupyter_infer.widgets._kv_trace import Trace
from jupyter_infer.widgets._kv_words import HEAD, picture_html, reading, rows

__all__ = ["KVCacheMap"]

BYTES_A_SECOND = 200_000  # of block tables; a frame of a large pool is followed by a pause
NOTHING = "No model is loaded, so there is no pool."
NO_STEPS = "Nothing is known of the KV blocks of this run: its steps or its engine are not recorded."


class KVCacheMap(InferWidget):
    """The pool of KV blocks: who holds which, what is shared, cached and evicted, live and step by step.

    Parameters
    ----------
    shown
        A session, which is followed live; or what was recorded: a result, a batch, a run of a file. The session that
        cells share if left out.
    **traits
        As in `InferWidget`; ``session=`` and ``run=`` say the same by name.
    """

    front_end: ClassVar[str] = "kv_map"

    run: Run | None = traitlets.Any(None, allow_none=True)
    """The recorded run that is shown instead of the session: a result, a batch, a run of a file; default None."""
    position: int | None = traitlets.Int(None, allow_none=True).tag(sync=True)
    """The step that is shown, counted from 0 in what is remembered; to set it is to stop following (int or None if
    there are no steps; default: the last one of a session, the fullest of a recorded run)."""
    following: bool = traitlets.Bool(True).tag(sync=True)
    """Whether the map follows the engine live (bool, default True; False for a recorded run)."""

    _steps = traitlets.Int(0).tag(sync=True)  # that the slider goes over
    _recorded = traitlets.Bool(False).tag(sync=True)
    _sentence = traitlets.Unicode(NOTHING).tag(sync=True)
    _facts = traitlets.Dict(allow_none=True, default_value=None).tag(sync=True)
    _frame = traitlets.Bytes(b"").tag(sync=True)
    _track = traitlets.Dict(allow_none=True, default_value=None).tag(sync=True)

    def __init__(self, shown: Session | Recorded | Run | None = None, **traits: Any) -> None:
        self._setting: int | None = None  # the thread that sets traits as the widget itself does
        self._trace: Trace | None = None
        self._live: LivePool | None = None
        self._shown_state: Shown | None = None
        self._last_info: EngineInfo | None = None
        self._later_ns, self._was_busy, self._made = 0, False, False
        if isinstance(shown, Session):
            traits.setdefault("session", shown)
        elif shown is not None:
            traits.setdefault("run", shown)
        first = {name: traits.pop(name) for name in ("position", "following") if name in traits}
        super().__init__(**traits)
        self._made = True
        self._begin()
        for name, value in first.items():
            setattr(self, name, value)

    @property
    def state(self) -> PoolState | None:
        """Every block as it is shown: tables, tokens, reference counts, cached blocks; None if nothing is known."""
        return self._shown_state.state if self._shown_state else None

    def handle(self, kind: str, payload: dict[str, Any]) -> Mapping[str, Any] | None:
        """Go to a step, or follow the engine again."""
        if kind == "go":
            position = payload.get("position")
            if not isinstance(position, int):
                raise ConfigError("a step is a number")
            # Steps of a session are forgotten meanwhile: the page may name one too many.
            self._go(max(0, min(position, self._steps - 1)))
            return {"position": self.position}
        if kind == "follow":
            self.following = True
            return {"following": self.following}
        return super().handle(kind, payload)

    def tick(self) -> bool:
        """Look at the session while it is followed."""
        if self.run is not None or not self.following:
            return False
        session = self.session
        info, steps = session.info, session.steps
        status = session.status()  # after the steps: who was idle then has ended all of them
        busy = status.state in ("busy", "loading")
        if time.monotonic_ns() < self._later_ns:
            return True
        with self._pushing:
            if self.following:
                busy = self._follow(info, steps, idle=status.state == "idle") or busy
        if self._was_busy and not busy:
            self.refresh()
        self._was_busy = busy
        return busy

    def summary(self) -> str:
        """Return the sentence that reads it."""
        return f"KV cache: {self._sentence}"

    def static_html(self) -> str:
        """Return the sentence, a table of requests and a picture of the pool, a sign a block."""
        shown = self._shown_state
        if shown is None:
            return table_html(self.summary(), (), (), ())
        made = rows(shown)
        return table_html(self.summary(), (), HEAD if made else (), made) + picture_html(shown)

    # How.

    @contextmanager
    def _itself(self) -> Iterator[None]:
        """Set traits as the widget itself, and not as somebody who uses it."""
        with self._pushing:
            before, self._setting = self._setting, threading.get_ident()
            try:
                yield
            finally:
                self._setting = before

    @property
    def _theirs(self) -> bool:
        """Whether somebody else sets a trait."""
        return self._made and self._setting != threading.get_ident()

    def _begin(self) -> None:
        """Show from the beginning what is to be shown now."""
        with self._itself():
            self._trace, self._live = None, None
            if self.run is None:
                self.push(following=True, _recorded=False, _track=None)
                self._later_ns = 0
                self.tick()
                return
            trace = self._trace = Trace.of(self.run)
            self.push(following=False, _recorded=True, _steps=len(trace) if trace else 0)
            if trace is None:
                self._draw(None, position=None, _track=None, _sentence=NO_STEPS)
            else:
                self._draw(trace.shown(trace.fullest), position=trace.fullest, _track=trace.track())

    def _follow(self, info: EngineInfo | None, steps: tuple[StepRecord, ...], *, idle: bool) -> bool:
        """Bring the pool up to date and send it; return whether anything has changed."""
        if info is None or info.block_size < 1:
            self._live = None
            with self._itself():
                self._draw(None, position=len(steps) - 1 if steps else None, _steps=len(steps), _sentence=NOTHING)
            return False
        first = self._live is None or self._live.info != info
        if self._live is None or first:
            self._live, self._last_info = LivePool(info), info
        if not self._live.follow(steps, idle=idle) and not first:
            return False
        before = self._frame
        with self._itself():
            self._draw(self._live.shown(), position=len(steps) - 1 if steps else None, _steps=len(steps))
        if self._frame != before:
            self._later_ns = time.monotonic_ns() + 10**9 * len(self._frame) // BYTES_A_SECOND
        return not first

    def _go(self, position: int) -> None:
        """Show a step, and follow the engine no longer."""
        with self._itself():
            trace = self._trace or self._stop()
            if trace is None or not 0 <= position < len(trace):
                there = f"there are {len(trace)}, from 0 on" if trace else "there are none"
                raise ConfigError(f"no step {position}: {there}")
            self._draw(trace.shown(position), position=position, following=False)

    def _stop(self) -> Trace | None:
        """Return the steps that are remembered now, which the slider goes over until the engine is followed again."""
        session = self.session
        results, steps = tuple(session.history), session.steps
        info = session.info or self._last_info or next((result.engine for result in reversed(results)), None)
        if info is None or info.block_size < 1 or not steps:
            return None
        records = [result.record for result in results]
        self._trace = Trace(info, steps, records, complete=False)
        self.push(_steps=len(steps), _track=self._trace.track(), following=False)
        return self._trace

    def _draw(self, shown: Shown | None, **traits: Any) -> None:
        self._shown_state = shown
        if shown is None:
            self.push(_facts=None, _frame=b"", **traits)
        else:
            self.push(**{"_sentence": reading(shown), "_facts": facts(shown), "_frame": pack(shown), **traits})

    # What is set from outside.

    @traitlets.validate("run")
    def _check_run(self, proposal: Mapping[str, Any]) -> Run | None:
        value = proposal["value"]
        if value is None or isinstance(value, Run):
            return value
        if isinstance(value, Recorded):
            return value._one()[0]
        raise ConfigError(
            f"a map shows a session, a result, a batch or a recorded run, not a {type(value).__name__}; "
            "read a file with ji.read_runs(…)[0]"
        )

    @traitlets.observe("run", "session")
    def _on_other(self, change: Mapping[str, Any]) -> None:
        if self._theirs:
            self._begin()

    @traitlets.observe("position")
    def _on_position(self, change: Mapping[str, Any]) -> None:
        if not self._theirs:
            return
        try:
            if change["new"] is None:
                raise ConfigError("a step is a number")
            count = len(self._trace) if self._trace else self._steps
            self._go(change["new"] + count if change["new"] < 0 else change["new"])
        except ConfigError:
            with self._itself():
                self.position = change["old"]
            raise

    @traitlets.observe("following")
    def _on_following(self, change: Mapping[str, Any]) -> None:
        if not self._theirs:
            return
        if change["new"]:
            if self.run is not None:
                with self._itself():
                    self.following = False
                raise ConfigError("a recorded run cannot be followed; to follow the session again, set run = None")
            self._begin()
        elif self._trace is None:
            trace = self._stop()
            if trace is not None:
                self._go(len(trace) - 1)
