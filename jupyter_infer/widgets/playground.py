"""A place to try prompts: settings, the answer as it streams, its times token by token, and runs side by side."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, ClassVar

import traitlets

from jupyter_infer.charts.labels import one_line as in_one_line
from jupyter_infer.errors import ConfigError, InferError, PromptError
from jupyter_infer.models import default_model_here
from jupyter_infer.result import Result
from jupyter_infer.session import Session
from jupyter_infer.widgets._infer_cell import infer_cell
from jupyter_infer.widgets._job_words import error_line, stage_line
from jupyter_infer.widgets._playground_figures import NO_FIGURES, LiveFigures, final_figures
from jupyter_infer.widgets._playground_rows import card_html, row_of, text_of
from jupyter_infer.widgets._playground_run import PlaygroundRun
from jupyter_infer.widgets._running import RunningWidget
from jupyter_infer.widgets._token_log import TokenLog

__all__ = ["RUNS_KEPT", "Playground"]

RUNS_KEPT = 20
"""Runs in the history beside the pinned ones; older ones are dropped. `Session.history` has them still."""

VALUES = ("temperature", "top_p", "top_k", "max_tokens", "seed", "logprobs")
"""The traits that are sampling values if they are set, by vLLM's names."""

FIELDS = ("prompt", "system", *VALUES, "stop_strings", "ignore_eos")
"""The traits that say what is asked."""


class Playground(RunningWidget[PlaygroundRun]):
    """Type a prompt, set the sampling values, run it, and see where each token's time went.

    All that can be done on the page can be done from Python: ``pg.prompt = "…"; pg.temperature = 0; pg.run();
    pg.stop(); pg.result; pg.history``. A model loads with the first run, never because a field was changed. One run
    goes on at a time; another one is refused until it is over or stopped.

    Parameters
    ----------
    session
        The session that is asked; the one that cells share if left out.
    **traits
        Values of its traits.
    """

    front_end: ClassVar[str] = "playground"
    called: ClassVar[str] = "playground"

    prompt: str = traitlets.Unicode().tag(sync=True)
    """What is asked (str, default empty)."""
    system: str = traitlets.Unicode().tag(sync=True)
    """The system message before it (str, default empty: none)."""
    temperature: float | None = traitlets.Float(None, allow_none=True).tag(sync=True)
    """0 always takes the likeliest token (float or None, default None: the model's own)."""
    top_p: float | None = traitlets.Float(None, allow_none=True).tag(sync=True)
    """Draw from the likeliest tokens that together have this probability (float or None, default None)."""
    top_k: int | None = traitlets.Int(None, allow_none=True).tag(sync=True)
    """Draw from so many of the likeliest tokens (int or None, default None)."""
    max_tokens: int | None = traitlets.Int(None, allow_none=True).tag(sync=True)
    """Output tokens at most (int or None, default None: 256)."""
    seed: int | None = traitlets.Int(None, allow_none=True).tag(sync=True)
    """The same seed gives the same answer (int or None, default None: another one each time)."""
    stop_strings: list[str] = traitlets.List(traitlets.Unicode()).tag(sync=True)
    """The answer ends before any of these texts (list of str, default none)."""
    ignore_eos: bool = traitlets.Bool(False).tag(sync=True)
    """Go on to `max_tokens`, even where the model would end (bool, default False)."""
    logprobs: int | None = traitlets.Int(None, allow_none=True).tag(sync=True)
    """Show how likely each token was, and so many of the likeliest ones, 1 to 20 (int or None, default None: neither).
    vLLM reports the model's own distribution: before temperature, top-k, top-p and penalties, unless the model was
    loaded with another `logprobs_mode`."""
    shade: str = traitlets.Enum(["itl", "logprob"], "itl").tag(sync=True)
    """What the shade of a token tells (str, default ``"itl"``): ``"itl"`` is how long it was waited for, ``"logprob"``
    how likely it was, where the run that is shown has that."""
    pinned: list[int] = traitlets.List(traitlets.Int()).tag(sync=True)
    """Numbers of the runs that stay in the history (list of int, default none)."""
    compared: list[int] = traitlets.List(traitlets.Int()).tag(sync=True)
    """Numbers of the two runs that are shown side by side, or of the first of them (list of int, default none)."""
    _shown_run = traitlets.Int(0).tag(sync=True)  # whose answer the next six are
    _settled = traitlets.List().tag(sync=True)
    _recent = traitlets.List().tag(sync=True)
    _latest = traitlets.List().tag(sync=True)
    _odds_settled = traitlets.List().tag(sync=True)  # one for each of those, if asked for
    _odds_recent = traitlets.List().tag(sync=True)
    _odds_latest = traitlets.List().tag(sync=True)
    _status = traitlets.Unicode().tag(sync=True)
    _figures = traitlets.Dict().tag(sync=True)
    _history = traitlets.List().tag(sync=True)
    _beside = traitlets.List().tag(sync=True)  # the runs that are compared

    def __init__(self, session: Session | None = None, **traits: Any) -> None:
        self._runs: list[PlaygroundRun] = []
        self._forget_answer()
        super().__init__(session=session, **traits)

    @traitlets.default("_figures")
    def _no_figures(self) -> Mapping[str, Any]:
        return dict(NO_FIGURES)

    # What a script uses.

    def run(self) -> PlaygroundRun:
        """Ask, and return the run at once; it loads the model first if need be, and tells a refusal in `result()`.

        Raises
        ------
        EngineBusy
            If a run of this playground goes on.
        PromptError
            If the prompt is empty.
        """
        with self._looking:
            self._check_idle("run again")
            if not self.prompt.strip():
                raise PromptError("the prompt is empty; write one, then run it")
            self._forget_answer()
            number = self._count + 1
            run = PlaygroundRun(number, self.session, self.prompt, self.system, self.sampling, self._ended)
            self._start(run)
        return run

    def clear(self) -> None:
        """Take the answer and its figures away; what is asked and the history stay.

        Raises
        ------
        EngineBusy
            If a run goes on.
        """
        with self._looking:
            self._check_idle("clear it")
            self._run = None
            self._forget_answer()
            self.push(state="idle", error="", _stage="", **self._of_answer(), _figures=dict(NO_FIGURES), _status="")
        self.refresh()

    @property
    def sampling(self) -> dict[str, Any]:
        """The sampling values that are set, by vLLM's names."""
        values = {name: value for name in VALUES if (value := getattr(self, name)) is not None}
        if self.stop_strings:
            values["stop"] = list(self.stop_strings)
        return values | ({"ignore_eos": True} if self.ignore_eos else {})

    @property
    def result(self) -> Result | None:
        """What the run gave that is shown, or None if there is none yet."""
        return None if self._run is None else self._run.kept

    @property
    def history(self) -> list[Result]:
        """What the runs gave that the history shows, oldest first."""
        return [run.kept for run in tuple(self._runs) if run.kept is not None]

    def cell(self) -> str:
        """Return the text of an ``%%infer`` cell that asks the same."""
        if not self.prompt.strip():
            raise PromptError("the prompt is empty; write one, then copy it")
        return infer_cell(self.prompt, self.system, self.sampling, self._other_model())

    def use(self, number: int) -> None:
        """Set what is asked to what a run of the history asked."""
        run = self._known(number)
        values: dict[str, Any] = dict.fromkeys(FIELDS) | {"stop_strings": [], "ignore_eos": False}
        values |= {"prompt": run.prompt, "system": run.system, **run.sampling}
        values["stop_strings"] = values.pop("stop", [])
        self.push(**values)

    # What a widget is made of.

    def handle(self, kind: str, payload: dict[str, Any]) -> Mapping[str, Any] | None:
        """Answer ``run``, ``cell``, ``use``, ``pin`` and ``compare``, and what every widget with runs does."""
        if kind in ("run", "cell"):
            self._take(payload)
            return {"number": self.run().number} if kind == "run" else {"text": self.cell()}
        number = payload.get("number")
        if not isinstance(number, int) or kind not in ("use", "pin", "compare"):
            return super().handle(kind, payload)
        self._known(number)
        if kind == "use":
            self.use(number)
            return None
        name = {"pin": "pinned", "compare": "compared"}[kind]
        others = [other for other in getattr(self, name) if other != number]
        setattr(self, name, [*others, number] if payload.get("on") else others)
        return None

    def summary(self) -> str:
        """Return the playground in a line: the model, and the last run's status or the state."""
        model = self._engine[0][1] if self._engine else ""
        return in_one_line(f"Playground · {self._status or f'{model} · {self.error or self.state}'}")

    def static_html(self) -> str:
        """Return the settings, the answer and the history on a card."""
        return card_html(self.summary(), self._run, self.prompt, self.system, self.sampling, self._history)

    # How.

    def _forget_answer(self) -> None:
        self._tokens, self._events_seen = TokenLog(), 0
        self._live: LiveFigures | None = None

    def _take(self, payload: Mapping[str, Any]) -> None:
        """Set the fields as a view has them: what it typed last may still be on its way."""
        self.set_together({name: payload[name] for name in FIELDS if name in payload})

    def _of_run(self, run: PlaygroundRun) -> dict[str, Any]:
        """Return the traits that show a run."""
        over, handle = run.done, run.handle
        state = run.state if run.done == over else "running"
        values: dict[str, Any] = {"state": state, "_stage": stage_line(run) if state == "loading" else ""}
        if handle is not None:
            new = handle.events_after(self._events_seen)
            self._events_seen += len(new)
            self._tokens.add(new)
            if self._live is None and run.arrival_ns is not None:
                self._live = LiveFigures(handle.request_id, run.arrival_ns, lambda: run.session.steps)
            if self._live is not None:
                self._live.add(new)
            if new and self.shown:
                handle.shown()
        values |= self._of_answer()
        if over and run.kept is not None:
            values |= {"_figures": dict(final_figures(run.kept)), "_status": run.kept.status}
        else:
            values |= {"_status": "", "_figures": self._so_far(over=over)}
        values["error"] = "" if run.error is None else error_line(run.error)
        return values

    def _so_far(self, *, over: bool) -> dict[str, Any]:
        if self._live is None:
            return dict(NO_FIGURES)
        now_ns = time.monotonic_ns()
        if over:  # it failed, and has no record
            self._live.end(now_ns)
        return dict(self._live.at(now_ns, self.session.price))

    def _of_answer(self) -> dict[str, Any]:
        settled, recent, latest = self._tokens.entries.parts
        number = 0 if self._run is None else self._run.number
        values = {"_shown_run": number, "_settled": settled, "_recent": recent, "_latest": latest}
        names = ("_odds_settled", "_odds_recent", "_odds_latest")
        return values | dict(zip(names, self._tokens.odds.parts, strict=True))

    def _ended(self, run: PlaygroundRun) -> None:
        """Keep a run that is over and show its end; called on the run's thread."""
        with self._looking:
            if run.kept is not None:
                self._runs.append(run)
                kept = {*self.pinned, *(other.number for other in self._runs[-RUNS_KEPT:])}
                self._runs = [other for other in self._runs if other.number in kept]
            self.tick()
            known = {other.number for other in self._runs}
            self.push(
                _history=[row_of(other) for other in self._runs],
                compared=[number for number in self.compared if number in known],
            )
        self.refresh()

    def _known(self, number: int) -> PlaygroundRun:
        for run in tuple(self._runs):
            if run.number == number:
                return run
        raise ConfigError(f"the history has no run {number}")

    @traitlets.validate("pinned", "compared")
    def _only_known(self, proposal: Mapping[str, Any]) -> list[int]:
        known = {run.number for run in tuple(self._runs)}
        numbers = [number for number in dict.fromkeys(proposal["value"]) if number in known]
        return numbers[-2:] if proposal["trait"].name == "compared" else numbers

    @traitlets.observe("compared")
    def _compare(self, change: Mapping[str, Any]) -> None:
        self.push(_beside=[row_of(run) | text_of(run) for number in change["new"] for run in [self._known(number)]])

    def _other_model(self) -> str:
        """Return the model's name if a cell has to say it, because it is not the one that cells load by default."""
        try:
            return "" if self.session.model == default_model_here() else self.session.model
        except InferError:  # none fits here
            return self.session.model
