"""A quicker first cell: vLLM's files in the page cache, or vLLM itself imported, before the engine is asked for.

A load writes down what it read (`remember`), so the next kernel reads exactly that ahead, what is large first. Of
shared libraries that is a quarter of their bytes: the chunks with a page in memory. A thread does the reading, which is
little but system calls, and those do not hold the interpreter. It is not niced: a thread that is kept waiting while it
holds the interpreter keeps the cell waiting.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import importlib.util
import os
import sys
import threading
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from jupyter_infer import hardware
from jupyter_infer.engine.protocol import Engine, Progress
from jupyter_infer.models import CATALOG, cache_dir, default_model, resolve
from jupyter_infer.models.hub import cached_snapshot
from jupyter_infer.models.wheel import cached_wheel_model
from jupyter_infer.records import LoadStage

__all__ = ["LEVELS", "Level", "prepare", "remember", "warm", "warm_files", "warm_imports"]

Level = Literal["off", "files", "imports"]
LEVELS: tuple[Level, ...] = ("off", "files", "imports")

Piece = tuple[str, int, int]
"""A file, an offset and a length."""

CHUNK = 1 << 18
"""Shared libraries are noted in pieces of this size: two of the usual read-aheads."""

AT_ONCE = 1 << 21
"""Bytes asked for before waiting for them: the kernel ignores what exceeds a disk's read-ahead limit, and a user's own
reads must not queue behind all of ours."""

PIECES_AT_ONCE, PAUSE_S = 5, 0.001
"""How many pieces are read without a pause. Taking the interpreter back after each system call costs a busy cell some
tenths of a second in all; spread over ten seconds nobody feels them, and beside an idle one reading takes 1.5 s."""

IMPORT_EXIT_S = 10.0
"""How long the end of the process waits for an import ahead, as it does for a load."""

_FILES, _IMPORTS = "jupyter-infer-warm-files", "jupyter-infer-warm-imports"

_threads: dict[str, threading.Thread] = {}
_lock = threading.Lock()


def warm(level: Level) -> None:
    """Start what `level` says in the background and return; each happens once a process. ``%load_ext`` calls it."""
    if level != "off":
        warm_files()
    if level == "imports":
        warm_imports()


def warm_files() -> threading.Thread | None:
    """Bring the files of vLLM and of the model into the page cache; return the thread, or None where that is no use."""
    if not hasattr(os, "posix_fadvise") or "vllm" in sys.modules:
        return None
    return _once(_FILES, _read_ahead)


def warm_imports() -> threading.Thread | None:
    """Import vLLM in the background; return the thread, or None where it is imported or a load has begun.

    A load waits for it (`prepare`), and so does the end of the process, for a thread inside PyTorch can crash it then.
    """
    if "vllm" in sys.modules and _IMPORTS not in _threads:
        return None
    thread = _once(_IMPORTS, _import)
    return thread if thread.ident is not None else None


def prepare(model: str, settings: Mapping[str, Any], progress: Progress) -> Callable[[Progress], Engine]:
    """Return what builds vLLM's engine: a session's factory that waits for an import ahead and notes what was read."""
    with _lock:
        importing = _threads.setdefault(_IMPORTS, threading.Thread())  # never to be started: a load imports it now
    if importing.is_alive():  # two imports, or two `quiet`, must not run side by side
        progress(LoadStage("import", "vLLM and PyTorch", time.monotonic_ns()))
        importing.join()
    from jupyter_infer.engine import vllm_load

    build = vllm_load.prepare(model, settings, progress)

    def noted(progress: Progress) -> Engine:
        engine = build(progress)
        remember(model)
        return engine

    return noted


def remember(model: str) -> None:
    """Write down which files the import of vLLM and the load of `model`, which must be over, have read."""
    place = _place()
    if place is None or not hasattr(os, "posix_fadvise"):
        return
    with contextlib.suppress(Exception):  # whatever is odd about the modules of others: a load must not end of a note
        specs = [getattr(module, "__spec__", None) for module in list(sys.modules.values())]  # in order of import
        modules = [path for spec in specs if (path := getattr(spec, "cached", None))]  # None for a shared library
        # Large ones first: beside an import that has begun already, thousands of small ones would come too late.
        pieces = [*_mapped(), *_whole(_model_files(resolve(model).path)), *_whole(modules)]
        place.parent.mkdir(parents=True, exist_ok=True)
        beside = place.with_suffix(f".{os.getpid()}.tmp")
        beside.write_text("".join(f"{offset} {length} {path}\n" for path, offset, length in pieces), encoding="utf-8")
        beside.replace(place)


def _once(name: str, target: Callable[[], None]) -> threading.Thread:
    with _lock:
        if name not in _threads:
            _threads[name] = threading.Thread(target=target, name=name, daemon=True)
            _threads[name].start()
        return _threads[name]


def _import() -> None:
    from jupyter_infer.engine.quiet import detach_logs, quiet
    from jupyter_infer.engine.vllm_api import import_vllm
    from jupyter_infer.engine.vllm_load import LOAD_ENVIRON
    from jupyter_infer.kernelspec import kernel_env

    atexit.register(_threads[_IMPORTS].join, IMPORT_EXIT_S)
    with contextlib.suppress(Exception), quiet({**kernel_env(), **LOAD_ENVIRON}):  # the first cell will say why not
        import_vllm()
    detach_logs()


def _read_ahead() -> None:
    with contextlib.suppress(OSError, ValueError):
        pieces = _noted() or _first_time()
        if sum(length for _, _, length in pieces) > hardware.memory_available() // 2:
            return  # it would push out what somebody uses
        asked = 0
        for number, (path, offset, length) in enumerate(pieces):
            if number % PIECES_AT_ONCE == 0:
                time.sleep(PAUSE_S)
            with contextlib.suppress(OSError), _opened(path) as file:  # it may have vanished
                for begin in range(offset, offset + length, AT_ONCE):
                    size = min(AT_ONCE, offset + length - begin)
                    os.posix_fadvise(file, begin, size, os.POSIX_FADV_WILLNEED)
                    asked += size
                    if asked >= AT_ONCE:
                        os.pread(file, 1, begin + size - 1)  # waits until it is there
                        asked = 0


@contextlib.contextmanager
def _opened(path: str) -> Iterator[int]:
    """Yield a descriptor: `open` makes three system calls, and each can cost this thread a wait for the interpreter."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield file
    finally:
        os.close(file)


def _place() -> Path | None:
    """Return where the list for this Python and this vLLM is kept, or None without vLLM; imports neither."""
    with contextlib.suppress(OSError, ValueError, ImportError):
        spec = importlib.util.find_spec("vllm")
        if spec is not None and spec.origin:
            about = f"{sys.version}\n{spec.origin}\n{os.stat(spec.origin).st_mtime_ns}"
            return cache_dir() / "warm" / f"{hashlib.sha256(about.encode()).hexdigest()[:12]}.txt"
    return None


def _noted() -> list[Piece]:
    """Return what a load wrote down, or nothing. Line by line: one long call would hold the interpreter."""
    pieces: list[Piece] = []
    place = _place()
    if place is not None and place.is_file():
        with place.open(encoding="utf-8") as lines:
            for line in lines:
                offset, length, path = line.rstrip("\n").split(" ", 2)
                pieces.append((path, int(offset), int(length)))
    return pieces


def _first_time() -> list[Piece]:
    """Return the shared libraries of PyTorch and vLLM and the default model of a CPU, before any load was noted."""
    files: list[str] = []
    for package in ("torch", "vllm"):
        if (spec := importlib.util.find_spec(package)) is not None and spec.origin:
            folder = Path(spec.origin).parent
            files += [str(path) for pattern in ("*.so", "lib/*.so*") for path in sorted(folder.glob(pattern))]
    model = next(model for model in CATALOG if model.name == default_model(None, False))
    model_folder = cached_wheel_model(model) or cached_snapshot(model.hub_id)
    if model_folder is not None:
        files += _model_files(model_folder)
    return _whole(files)


def _model_files(folder: Path) -> list[str]:
    return [str(path) for pattern in ("*.json", "*.safetensors") for path in sorted(folder.glob(pattern))]


def _whole(files: Iterable[str]) -> list[Piece]:
    pieces = []
    for path in dict.fromkeys(files):
        with contextlib.suppress(OSError, ValueError):
            pieces.append((path, 0, os.stat(path).st_size))
    return pieces


def _mapped() -> list[Piece]:
    """Return the chunks of this process's shared libraries that have a page in its memory."""
    page = os.sysconf("SC_PAGE_SIZE")
    rows = [line.split(None, 5) for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()]
    rows = [row for row in rows if len(row) == 6 and row[5].startswith("/")]
    libraries = {row[5] for row in rows if "x" in row[1]}  # and no data that the user has mapped
    chunks: dict[str, set[int]] = {}
    with open("/proc/self/pagemap", "rb", buffering=0) as pagemap:
        for addresses, _, offset, _, _, path in rows:
            if path not in libraries:
                continue
            begin, end = (int(text, 16) // page for text in addresses.split("-"))
            entries = array("Q", os.pread(pagemap.fileno(), (end - begin) * 8, begin * 8))
            first, per_chunk = int(offset, 16) // page, CHUNK // page
            for chunk in range(first // per_chunk, (first + end - begin - 1) // per_chunk + 1):
                of_chunk = entries[max(0, chunk * per_chunk - first) : (chunk + 1) * per_chunk - first]
                if max(of_chunk, default=0) >> 63:  # the bit that says: present
                    chunks.setdefault(path, set()).add(chunk)
    pieces: list[Piece] = []
    for path, found in chunks.items():
        for chunk in sorted(found):
            if pieces and pieces[-1][0] == path and sum(pieces[-1][1:]) == chunk * CHUNK:
                pieces[-1] = (path, pieces[-1][1], pieces[-1][2] + CHUNK)
            else:
                pieces.append((path, chunk * CHUNK, CHUNK))
    return pieces
