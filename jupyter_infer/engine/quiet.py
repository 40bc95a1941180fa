"""Loading an engine inside somebody's process without a trace in it.

vLLM writes to `os.environ` and prints to stdout, stderr and file descriptor 2. `quiet()` gives it the environment that
it needs, sends what it prints to a ring buffer (`LOGS`, shown by `%infer logs`) and puts everything back. Output of
other threads goes where it always goes. What vLLM does to random states and PyTorch is kept from happening in `quirks`.
"""

from __future__ import annotations

import contextlib
import io
import logging
import multiprocessing
import os
import sys
import tempfile
import threading
import warnings
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from typing import Any, TextIO

__all__ = ["LOGS", "attach_logs", "detach_logs", "quiet"]

LOGS: deque[str] = deque(maxlen=2000)
"""The last lines that the engine logged or printed."""

ENGINE_LOGGERS = ("vllm",)

ENGINE_VARIABLES = (
    *("VLLM_", "TORCH", "PYTORCH_", "TRITON_", "TILELANG_", "AITER_", "NUMEXPR_", "OMP_", "KMP_", "LOCAL_"),
    *("LD_LIBRARY_PATH", "LD_PRELOAD", "CUDA_", "NCCL_", "TOKENIZERS_"),
)
"""Beginnings of the environment variables that vLLM and its libraries write while they are loaded."""

_as_found: dict[str, tuple[bool, int]] = {}  # whether a logger propagated, and its level


class _Ring(logging.Handler):
    """Keeps formatted log records in `LOGS`."""

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(Exception):  # a broken log line must not break a step
            LOGS.extend(self.format(record).splitlines())


_RING = _Ring()
_RING.setFormatter(logging.Formatter("%(levelname)s %(asctime)s %(name)s: %(message)s", "%H:%M:%S"))


def attach_logs() -> None:
    """Send the engine's log records to `LOGS` and nowhere else."""
    for name in ENGINE_LOGGERS:
        logger = logging.getLogger(name)
        if _RING not in logger.handlers:
            logger.addHandler(_RING)
            _as_found[name] = logger.propagate, logger.level
        logger.propagate = False
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.INFO)


def detach_logs() -> None:
    """Undo `attach_logs`."""
    for name in ENGINE_LOGGERS:
        logger = logging.getLogger(name)
        logger.removeHandler(_RING)
        if name in _as_found:
            logger.propagate, level = _as_found.pop(name)
            logger.setLevel(level)


class _Split(io.TextIOBase):
    """A text stream that keeps one thread's output in `LOGS` and passes on everybody else's.

    Log handlers that libraries make while they are imported hold on to it, so it has to be of use for ever: after
    `pass_on` it is the stream below.
    """

    def __init__(self, thread: int, stream: TextIO) -> None:
        self._thread: int | None = thread
        self._stream = stream

    def pass_on(self) -> None:
        """Keep nothing from now on."""
        self._thread = None

    def write(self, text: str) -> int:
        if threading.get_ident() != self._thread:
            return self._stream.write(text)
        LOGS.extend(line for line in text.replace("\r", "\n").splitlines() if line.strip())
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(ValueError):  # closed at exit
            self._stream.flush()

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._stream.fileno()

    def __getattr__(self, name: str) -> Any:
        if name == "_stream":  # before `__init__` was there
            raise AttributeError(name)
        return getattr(self._stream, name)  # ipykernel tells its streams which cell runs: `set_parent`

    def isatty(self) -> bool:
        return threading.get_ident() != self._thread and self._stream.isatty()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return getattr(self._stream, "encoding", None) or "utf-8"


@contextlib.contextmanager
def quiet(environ: Mapping[str, str]) -> Iterator[None]:
    """Run the body with `environ` set and this thread's output in `LOGS`; afterwards the process is as it was.

    Restored: `os.environ`, `sys.stdout`, `sys.stderr`, `sys.excepthook`, file descriptor 2, warning filters and the
    start method of `multiprocessing`; on failure the engine's loggers too.
    """
    before_env, before_filters, before_hook = dict(os.environ), warnings.filters[:], sys.excepthook
    before_method = multiprocessing.get_start_method(allow_none=True)
    attach_logs()
    try:
        os.environ.update(environ)
        with _streams(), _file_descriptor_2():
            yield
    except BaseException:
        detach_logs()
        raise
    finally:
        _restore_environ(before_env, environ)
        warnings.filters[:] = before_filters  # type: ignore[index]
        sys.excepthook = before_hook  # torch.distributed puts "[rank0]" before every traceback
        if before_method is None:  # asking for it fixes it, and the user could not choose any more
            multiprocessing.set_start_method(None, force=True)


def _restore_environ(before: Mapping[str, str], ours: Collection[str]) -> None:
    """Undo what the engine's libraries did; what the user set meanwhile, in a cell of its own, stays."""
    for name in {*os.environ, *before}:
        if (name in ours or name.startswith(ENGINE_VARIABLES)) and os.environ.get(name) != before.get(name):
            if name in before:
                os.environ[name] = before[name]
            else:
                del os.environ[name]


@contextlib.contextmanager
def _streams() -> Iterator[None]:
    out, err, here = sys.stdout, sys.stderr, threading.get_ident()
    splits = _Split(here, out), _Split(here, err)
    sys.stdout, sys.stderr = splits
    try:
        yield
    finally:
        if sys.stdout is splits[0]:  # and nobody captures, in a cell that runs meanwhile
            sys.stdout = out
        if sys.stderr is splits[1]:
            sys.stderr = err
        for split in splits:
            split.pass_on()


@contextlib.contextmanager
def _file_descriptor_2() -> Iterator[None]:
    """Keep what native code prints in `LOGS`; Python's own stderr, if it is that descriptor, goes round it."""
    with contextlib.ExitStack() as stack:
        try:
            caught = stack.enter_context(tempfile.TemporaryFile())
            saved = os.dup(2)
        except OSError:  # no descriptor 2, as under some services; or no room for another file
            yield
            return
        split = sys.stderr
        if isinstance(split, _Split) and _is_descriptor_2(split):
            stack.callback(setattr, split, "_stream", split._stream)
            split._stream = stack.enter_context(open(os.dup(saved), "w", encoding=split.encoding, buffering=1))
        os.dup2(caught.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(saved, 2)
            os.close(saved)
            caught.seek(0)
            LOGS.extend(line for line in caught.read().decode(errors="replace").splitlines() if line.strip())


def _is_descriptor_2(stream: Any) -> bool:
    try:
        return bool(stream.fileno() == 2)
    except (OSError, ValueError, io.UnsupportedOperation):
        return False
