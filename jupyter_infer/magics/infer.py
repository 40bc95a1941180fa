"""``%%infer`` and ``%infer``: options → session → display, and nothing else."""

from __future__ import annotations

import json
from typing import Any

from IPython.core.magic import Magics, line_cell_magic, magics_class, no_var_expand
from traitlets import Bool, Enum, Float, Int, Unicode, observe

from jupyter_infer.batch import BatchHandle
from jupyter_infer.display import View, follow, view_for, wait_for
from jupyter_infer.engine.protocol import Message
from jupyter_infer.errors import ConfigError, InferError
from jupyter_infer.frames import request_figures
from jupyter_infer.handle import RequestHandle
from jupyter_infer.interrupts import held
from jupyter_infer.magics.ask import Ask, read_ask
from jupyter_infer.magics.body import keep_bodies, leave_bodies
from jupyter_infer.magics.chat import Chat
from jupyter_infer.magics.commands import COMMANDS, run_command
from jupyter_infer.magics.complete import complete_lines, leave_lines
from jupyter_infer.magics.help import page
from jupyter_infer.magics.options import FORMATS
from jupyter_infer.result import Refused, Result
from jupyter_infer.results import Results
from jupyter_infer.session import Session, current_session
from jupyter_infer.warm import LEVELS, warm

__all__ = ["InferMagics", "Interrupted", "register", "unregister"]


KEPT = "the text so far is kept; %infer last shows its times"


class Interrupted(KeyboardInterrupt):
    """An interrupt of a cell whose answer so far was kept: stops "Run all" like any other, and is one line long."""

    def _render_traceback_(self) -> list[str]:
        return [f"Interrupted: {self}"]


@magics_class
class InferMagics(Magics):
    """The two magics, on the session that cells, widgets and scripts share."""

    model = Unicode(None, allow_none=True, help="--model of cells that name none").tag(config=True)
    system = Unicode(None, allow_none=True, help="--system of cells that give none").tag(config=True)
    temperature = Float(None, allow_none=True, help="--temperature of cells that give none").tag(config=True)
    max_tokens = Int(None, allow_none=True, help="--max-tokens of cells that give none").tag(config=True)
    top_p = Float(None, allow_none=True, help="--top-p of cells that give none").tag(config=True)
    top_k = Int(None, allow_none=True, help="--top-k of cells that give none").tag(config=True)
    seed = Int(None, allow_none=True, help="--seed of cells that give none").tag(config=True)
    format = Enum(FORMATS, None, allow_none=True, help="--format of cells that give none").tag(config=True)
    chart = Bool(True, help="False shows the status line alone, as --no-chart does").tag(config=True)
    stream = Bool(True, help="False shows an answer when it is whole, as --no-stream does").tag(config=True)

    warm = Enum(LEVELS, "files", help="what %load_ext reads ahead, or imports, in the background").tag(config=True)

    _chat: Chat | None = None
    _asked: RequestHandle | BatchHandle | None = None

    @observe("warm")
    def _warm(self, change: Any) -> None:
        warm(change["new"])

    @property
    def session(self) -> Session:
        """The shared session."""
        return current_session()

    @no_var_expand
    @line_cell_magic
    def infer(self, line: str, cell: str | None = None) -> Any:  # noqa: D102 – it is the page below
        return run_command(self, line) if cell is None else self._ask(line, cell)

    infer.__doc__ = page(COMMANDS.values())

    def forget_chat(self) -> None:
        """Let ``--continue`` find nothing."""
        self._chat = None

    def forget_last(self) -> None:
        """Let ``%infer last`` find nothing of a cell's."""
        self._asked = None

    def last(self) -> Result | Results | None:
        """Return what the last cell gave, or a script since; waits for the step of an interrupted one."""
        newest = self.session.history[-1] if self.session.history else None
        try:
            own = None if self._asked is None else self._asked.result()
        except InferError:
            own = None
        if own is None or newest is None:
            return own or newest
        arrivals = [result.record.arrival_ns for result in (own.done if isinstance(own, Results) else [own])]
        return newest if newest.record.arrival_ns > max(arrivals, default=0) else own

    def mute(self, value: Any) -> None:
        """Keep a cell's value as ``_`` and ``Out[n]`` without showing it."""
        self.shell.displayhook.update_user_ns(value)

    def _ask(self, line: str, cell: str) -> Result | Results | RequestHandle | BatchHandle | None:
        ask = read_ask(line, cell, self._defaults(), self.shell.user_ns, self.shell.user_ns_hidden)
        messages = self._conversation() if ask.continues else []
        view = self._view(ask)
        handle: RequestHandle | BatchHandle | None = None
        try:
            with held() as interrupt:
                handle = self._submitted(ask, messages, view)
                interrupt.undo = handle.cancel
                if ask.background:
                    return self._follow_later(ask, handle, view)
                self._remember(ask, messages, handle)
                return self._follow(ask, handle, view)
        except Interrupted:
            raise
        except KeyboardInterrupt:
            raise Interrupted("nothing was asked" if handle is None else KEPT) from None

    def _follow(self, ask: Ask, handle: RequestHandle | BatchHandle, view: View) -> Result | Results | None:
        """Show the text as it comes; return the cell's value."""
        try:
            handles = handle if isinstance(handle, BatchHandle) else [handle]
            if ask.shown == "json":
                wait_for(handles)
            else:
                follow(handles, view, stream=ask.stream)
        except KeyboardInterrupt:
            handle.cancel()
            self._keep(ask, handle)
            view.later(lambda: self._partly(ask, handle, view), "■ interrupted …")
            raise Interrupted(KEPT) from None
        result = self.session.result(handle)
        self._keep(ask, result)
        if ask.shown == "json":
            view.end([_json(result)])
        else:
            self._hint(ask, view)
        if ask.shown in ("chart", "status"):
            return result.shown_as(ask.shown)
        self.mute(result)
        return None

    def _view(self, ask: Ask) -> View:
        if ask.shown == "json":
            return view_for(self.shell, "text", in_place=ask.background)
        if (
            ask.format is None and ask.sampling.get("structured_outputs") is not None
        ):  # Markdown would take JSON's indentation
            return view_for(self.shell, "text", in_place=True)
        return view_for(self.shell, ask.format, in_place=ask.background)

    def _submitted(self, ask: Ask, messages: list[Message], view: View) -> RequestHandle | BatchHandle:
        """Hand the request over; a load that it waits for is shown, and goes from the cell if it comes to nothing."""
        options = {"template": ask.template, "model": ask.model, "progress": view.progress, **ask.sampling}
        try:
            if ask.continues:
                return self.session.submit([*messages, {"role": "user", "content": ask.prompts[0]}], **options)
            if ask.batch:
                return self.session.submit_batch(ask.prompts, system=ask.system, **options)
            return self.session.submit(ask.prompts[0], system=ask.system, **options)
        except KeyboardInterrupt:
            view.clear()
            if self.session.status().state == "loading":
                raise Interrupted("the model loads on; the next cell uses it, %infer unload ends it") from None
            raise Interrupted("nothing was asked") from None
        except BaseException:
            view.clear()
            raise

    def _partly(self, ask: Ask, handle: RequestHandle | BatchHandle, view: View) -> Result | Results:
        """Return what an interrupted cell gave, once the step that ran then is over, with all of its text shown."""
        result = self.session.result(handle)
        self._keep(ask, result)
        if ask.shown != "json":
            view.amend(_texts(result))
        return result.shown_as("chart" if ask.shown == "chart" else "status")  # a mark there must be

    def _follow_later(
        self, ask: Ask, handle: RequestHandle | BatchHandle, view: View
    ) -> RequestHandle | BatchHandle | None:
        """Let the text come to this cell while others run; return the cell's value."""
        muted = ask.shown == "nothing"

        def make() -> Result | Results | None:
            follow(handle if isinstance(handle, BatchHandle) else [handle], view, stream=ask.stream)
            result = self.session.result(handle)
            if muted:
                return None if result.status.startswith(("✓", "✂")) else result.shown_as("status")
            return result.shown_as("status") if ask.shown == "status" else result

        if getattr(self.shell, "kernel", None) is not None:  # a terminal has one place, where the next prompt stands
            view.update(["…"])  # here, because a display that another thread makes goes to the cell that runs then
            view.later(make, "" if muted else "▷ in the background …")
        self._hint(ask, view)
        self._keep(ask, handle)
        if muted:
            self.mute(handle)
            return None
        return handle

    def _hint(self, ask: Ask, view: View) -> None:
        """Say what the cell may have meant otherwise."""
        if ask.hint:
            view.note(f"hint: {ask.hint}")
        info = self.session.info
        if ask.template and info is not None and not info.chat_template:
            view.note(f"hint: {info.model} has no chat template: the text was completed as it stands (--no-template)")

    def _keep(self, ask: Ask, value: Any) -> None:
        """Keep a cell's value under the name that the cell gives it."""
        if ask.out is not None:
            self.shell.user_ns[ask.out] = value

    def _conversation(self) -> list[Message]:
        messages = self._chat.messages() if self._chat is not None else []
        if not any(message["role"] == "assistant" for message in messages):
            raise ConfigError("there is no conversation to continue; ask without --continue first")
        return messages

    def _remember(self, ask: Ask, messages: list[Message], handle: RequestHandle | BatchHandle) -> None:
        """Keep what ``--continue`` goes on with, one answer to one question, and what ``%infer last`` shows."""
        self._asked, self._chat = handle, None
        if isinstance(handle, RequestHandle) and handle.samples == 1 and ask.template:
            before = list(messages)
            if ask.system is not None and not messages:
                before = [{"role": "system", "content": ask.system}]
            self._chat = Chat((*before, {"role": "user", "content": ask.prompts[0]}), handle)

    def _defaults(self) -> dict[str, Any]:
        """Return the options that are set by configuration."""
        names = ("model", "system", "temperature", "max_tokens", "top_p", "top_k", "seed", "format")
        defaults = {name: value for name in names if (value := getattr(self, name)) is not None}
        switches = {"no_chart": not self.chart, "no_stream": not self.stream}
        return defaults | {name: True for name, is_set in switches.items() if is_set}


def register(shell: Any) -> None:
    """Register the magics; twice does no harm."""
    _forget(shell)
    magics = InferMagics(shell)
    shell.register_magics(magics)
    warm(magics.warm)
    keep_bodies(shell)
    complete_lines(shell)


def unregister(shell: Any) -> None:
    """Take the magics away and free the engine."""
    _forget(shell)
    for kind in ("line", "cell"):
        shell.magics_manager.magics[kind].pop("infer", None)
    leave_bodies(shell)
    leave_lines(shell)
    current_session().unload()


def _forget(shell: Any) -> None:
    """Take earlier magics of ours off the list that ``%config`` shows."""
    shell.configurables[:] = [found for found in shell.configurables if not isinstance(found, InferMagics)]


def _json(result: Result | Results) -> str:
    """Return the figures of a result as JSON; a batch is a list, a prompt that was refused has an error."""

    def plain(item: Result | Refused) -> dict[str, Any]:
        if isinstance(item, Refused):
            return {"error": f"{type(item.error).__name__}: {item.error}"}
        return {
            **request_figures(item.record, item.price, item.api_price),
            "texts": item.texts,
            "price": str(item.price),
        }

    found = plain(result) if isinstance(result, Result) else [plain(item) for item in result]
    return json.dumps(found)  # in ASCII, which no display changes


def _texts(result: Result | Results) -> list[str]:
    """Return every text that a cell shows, in order."""
    items = [result] if isinstance(result, Result) else list(result)
    return [
        text
        for item in items
        for text in (item.texts if isinstance(item, Result) else [f"{type(item.error).__name__}: {item.error}"])
    ]
