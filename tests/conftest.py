"""A home of its own for every test, sessions on a scripted engine, and a fresh IPython with the extension in it."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from jupyter_infer.engine.scripted import Script, ScriptedEngine
from jupyter_infer.models import cache_dir
from jupyter_infer.session import Session

settings.register_profile("default", deadline=None, derandomize=True, print_blob=True)  # no test asserts a duration
settings.register_profile("search", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in the background of a shell without job control
    signal.signal(signal.SIGINT, signal.default_int_handler)

REAL_CACHE = cache_dir()  # as it is before a test isolates itself

FAST = Script(step_ns=lambda tokens: 1_000)  # the real clock, and steps that cost next to nothing


@pytest.fixture(autouse=True)
def own_home(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Keep a test away from the user's files; tests with a real model keep the real model cache."""
    home = tmp_path_factory.mktemp("home")
    places = {
        "HOME": home,
        "XDG_CACHE_HOME": home / ".cache",
        "XDG_CONFIG_HOME": home / ".config",
        "XDG_DATA_HOME": home / ".local/share",
        "XDG_STATE_HOME": home / ".local/state",
        "JUPYTER_CONFIG_DIR": home / ".jupyter",
        "JUPYTER_DATA_DIR": home / ".local/share/jupyter",
        "JUPYTER_RUNTIME_DIR": home / ".local/share/jupyter/runtime",
        "IPYTHONDIR": home / ".ipython",
        "JUPYTER_INFER_CACHE": home / ".cache/jupyter-infer",
    }
    if any(request.node.get_closest_marker(name) for name in ("integration", "browser")):
        places["JUPYTER_INFER_CACHE"] = REAL_CACHE
    for name, place in places.items():
        monkeypatch.setenv(name, str(place))
    for name in ("JUPYTER_PATH", "JUPYTER_CONFIG_PATH", "JUPYTER_PREFER_ENV_PATH"):
        monkeypatch.delenv(name, raising=False)
    return home


def engine_threads() -> list[threading.Thread]:
    """Return the threads of engine workers that are alive."""
    return [thread for thread in threading.enumerate() if thread.name == "jupyter-infer-engine"]


@pytest.fixture
def no_engine_threads() -> Iterator[None]:
    """Fail a test that leaves a thread of an engine behind."""
    before = engine_threads()
    yield
    for thread in engine_threads():
        if thread not in before:
            thread.join(10)  # it answers that the engine is closed just before it ends
            assert not thread.is_alive(), "an engine's thread outlived its session"


@pytest.fixture
def scripted_session(no_engine_threads: None) -> Iterator[Callable[..., Session]]:
    """Return a function that makes a session on a scripted engine; sessions are unloaded afterwards.

    `engines` of a session made here lists the engines that it built.
    """
    made: list[Session] = []

    def make(script: Script = FAST, *, sleep: Callable[[int], None] | None = None, **options: Any) -> Session:
        engines: list[ScriptedEngine] = []

        def build(on_worker: Callable[[Any], None]) -> ScriptedEngine:
            engines.append(ScriptedEngine(script, sleep=sleep))
            return engines[-1]

        session = Session("scripted", factory=lambda model, values, progress: build, **options)
        session.engines = engines  # type: ignore[attr-defined]
        made.append(session)
        return session

    yield make
    for session in made:
        session.unload()


@pytest.fixture
def session(scripted_session: Callable[..., Session]) -> Session:
    """A session on a scripted engine that answers "Hello, world." in four tokens."""
    return scripted_session()


@pytest.fixture
def plain_shell(own_home: Path) -> Iterator[Any]:
    """A fresh IPython without the extension, as a kernel has one (`display` finds it)."""
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    kept = sys.modules["__main__"], sys.excepthook, sys.displayhook, sys.stdout, sys.stderr
    InteractiveShell.clear_instance()
    # No history file: it would need SQLite and a thread of its own. And nothing is read ahead for a scripted engine.
    config = Config(HistoryManager={"enabled": False}, InferMagics={"warm": "off"})
    shell = InteractiveShell.instance(config=config, colors="nocolor")
    yield shell
    shell.user_ns.clear()
    atexit.unregister(shell.atexit_operations)  # it collects garbage, once for each shell of the run
    InteractiveShell.clear_instance()
    sys.modules["__main__"], sys.excepthook, sys.displayhook, sys.stdout, sys.stderr = kept


@pytest.fixture
def shell(plain_shell: Any, session: Session, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A fresh IPython with the extension loaded, on a scripted session."""
    use_session(session, monkeypatch)
    plain_shell.run_line_magic("load_ext", "jupyter_infer")
    return plain_shell


def use_session(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `current_session()` return `session` for the length of a test."""
    monkeypatch.setattr("jupyter_infer.session._current", session)
