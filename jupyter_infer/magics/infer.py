"""``%%infer`` and ``%infer``: options → session → display, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from IPython.core.magic import Magics, line_cell_magic, magics_class, no_var_expand

from jupyter_infer.display import follow, view_for
from jupyter_infer.engine.quiet import LOGS
from jupyter_infer.errors import ConfigError, PromptError, nearest
from jupyter_infer.magics.body import keep_bodies, leave_bodies
from jupyter_infer.magics.help import help_text
from jupyter_infer.magics.line import parse_line
from jupyter_infer.magics.options import OPTIONS, sampling_of
from jupyter_infer.numbers import format_count, format_ns
from jupyter_infer.records import EngineInfo
from jupyter_infer.result import Result
from jupyter_infer.session import Session, Status, current_session

__all__ = ["InferMagics", "Interrupted", "register", "unregister"]


class Interrupted(KeyboardInterrupt):
    """An interrupt of a cell whose answer so far was kept: stops "Run all" like any other, and is one line long."""

    def _render_traceback_(self) -> list[str]:
        return [f"Interrupted: {self}"]


@magics_class
class InferMagics(Magics):
    """The two magics, on the session that cells, widgets and scripts share."""

    @property
    def session(self) -> Session:
        """The shared session."""
        return current_session()

    @no_var_expand
    @line_cell_magic
    def infer(self, line: str, cell: str | None = None) -> Any:
        """Send the cell to the model: its text is the prompt, as typed. ``%infer help`` lists options and commands."""
        return self._command(line) if cell is None else self._ask(line, cell)

    def _ask(self, line: str, cell: str) -> Result | None:
        parsed = parse_line(line, OPTIONS)
        if parsed.words:
            raise ConfigError(f"{parsed.words[0]!r} is no option; the prompt goes below the %%infer line")
        prompt = cell.removesuffix("\n")
        if not prompt.strip():
            raise PromptError("the prompt is empty; write the question below the %%infer line")
        sampling = sampling_of(parsed.options, _settable(parsed.others))
        view = view_for(self.shell)
        session = self.session
        if (model := parsed.options.get("model")) is not None and model.lower() != session.model.lower():
            session.load(model, progress=view.progress)
        handle = session.submit(prompt, system=parsed.options.get("system"), progress=view.progress, **sampling)
        try:
            follow([handle], view)
        except KeyboardInterrupt:
            view.later([handle], lambda: session.result(handle))
            raise Interrupted("the text so far is kept; %infer last shows its times") from None
        return session.result(handle)

    def _command(self, line: str) -> Any:
        name, rest = [*line.split(maxsplit=1), "", ""][:2]
        commands: dict[str, Callable[[str], Any]] = {
            "load": self._load,
            "unload": self._unload,
            "status": self._status,
            "stop": self._stop,
            "last": self._last,
            "logs": self._logs,
            "help": self._help,
        }
        if name not in commands:
            if not name:
                return self._help("")
            raise ConfigError(f"unknown command {name!r}{nearest(name, commands)}; there is: {', '.join(commands)}")
        return commands[name](rest.strip())

    def _load(self, rest: str) -> None:
        parsed = parse_line(rest, ())
        if len(parsed.words) > 1:
            raise ConfigError(f"one model at a time; got {', '.join(parsed.words)}")
        settings, view = _settable(parsed.others), view_for(self.shell)
        info = self.session.load(parsed.words[0] if parsed.words else None, progress=view.progress, **settings)
        view.end([describe(info)])

    def _unload(self, rest: str) -> None:
        _no_more(rest, "unload")
        self.session.unload()
        print("unloaded")  # noqa: T201

    def _status(self, rest: str) -> None:
        _no_more(rest, "status")
        print(describe_status(self.session.status()))  # noqa: T201

    def _stop(self, rest: str) -> None:
        _no_more(rest, "stop")
        print(f"stopped {self.session.stop()} requests" if self.session.info else "nothing runs")  # noqa: T201

    def _last(self, rest: str) -> Result:
        _no_more(rest, "last")
        if not self.session.history:
            raise ConfigError("nothing was asked yet; write a question in a %%infer cell")
        return self.session.history[-1]

    def _logs(self, rest: str) -> None:
        _no_more(rest, "logs")
        print("\n".join(LOGS) or "no logs yet: nothing was loaded")  # noqa: T201

    def _help(self, rest: str) -> None:
        print(help_text())  # noqa: T201


def describe(info: EngineInfo) -> str:
    """Return what was loaded, in a line or two."""
    pool = f"{format_count(info.kv_blocks_total)} blocks × {info.block_size} tokens"
    size = f" = {info.kv_bytes / 2**20:,.0f} MiB" if info.kv_bytes is not None else ""
    lines = [
        f"✓ {info.model} · {info.engine} on {info.device} · {info.dtype} · "
        f"context {format_count(info.max_model_len)} · KV pool {pool}{size} · {info.threads or 'n/a'} threads · "
        f"loaded in {format_ns(info.load_ns)}",
        *info.notices,
    ]
    return "\n".join(lines)


def describe_status(status: Status) -> str:
    """Return the state of a session, one fact a line."""
    lines = [f"state      {status.state}"]
    if status.info is not None:
        info = status.info
        lines += [
            f"model      {info.model} ({info.engine} on {info.device}, {info.dtype})",
            f"context    {format_count(info.max_model_len)} tokens, at most {info.max_num_batched_tokens} a step",
            f"requests   {status.open_requests} open, at most {info.max_num_seqs} at once",
            f"KV pool    {format_count(status.kv_blocks_free)} of {format_count(info.kv_blocks_total)} blocks free",
            f"busy       {format_ns(status.busy_ns)} since the load",
        ]
    lines.append(f"memory     {status.rss_bytes / 2**20:,.0f} MiB resident")
    return "\n".join(lines)


def register(shell: Any) -> None:
    """Register the magics; twice does no harm."""
    shell.register_magics(InferMagics(shell))
    keep_bodies(shell)


def unregister(shell: Any) -> None:
    """Take the magics away and free the engine."""
    for kind in ("line", "cell"):
        shell.magics_manager.magics[kind].pop("infer", None)
    leave_bodies(shell)
    current_session().unload()


def _settable(others: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return options that the engine is to judge; refuses names that mean something else in the session's methods."""
    if "model" in others:
        raise ConfigError("the model stands first; type %infer load MODEL")
    for name in ("self", "prompt", "progress"):
        if name in others:
            raise ConfigError(f"unknown option '--{name}'; %infer help lists them")
    return others


def _no_more(rest: str, command: str) -> None:
    if rest:
        raise ConfigError(f"%infer {command} takes nothing more; got {rest!r}")
