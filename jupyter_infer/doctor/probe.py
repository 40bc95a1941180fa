"""Asking other interpreters and the package metadata, so that nothing heavy or broken is imported here."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from jupyter_infer.versions import installed

__all__ = ["failure", "installed", "pip"]


def pip(arguments: str, python: str | None = None) -> str:
    """Return a pip command line for the environment of `python`, by default this one's.

    It says plain ``pip`` only where that is this environment's: installing into another one is the usual mistake.
    """
    if python is None:
        found = shutil.which("pip")
        if found and Path(found).parent == Path(sys.executable).parent:
            return f"pip {arguments}"
    python = python or sys.executable
    return f'"{python}" -m pip {arguments}' if " " in python else f"{python} -m pip {arguments}"


def failure(statements: str, timeout_s: float) -> str | None:
    """Run Python statements in a process of their own; return None if they ran, else in one line why not.

    Raises
    ------
    TimeoutError
        They were still running after `timeout_s` seconds, and were stopped.
    """
    # Left by `_exit`, because native libraries that were imported well can still crash when the interpreter closes.
    program = f"{statements}\nimport os\nos._exit(0)"
    try:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", program],
            env={**os.environ, "VLLM_NO_USAGE_STATS": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"not done after {timeout_s:.0f} s") from None
    if done.returncode == 0:
        return None
    if done.returncode < 0:
        name = signal.Signals(-done.returncode).name
        hint = {"SIGKILL": ", which is mostly the out-of-memory killer", "SIGILL": ", not built for this CPU"}
        return f"killed by {name}{hint.get(name, '')}"
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    return lines[-1] if lines else f"exit status {done.returncode}"
