#!/usr/bin/env python3
"""Run the parts of the test suite in order, all of them whatever fails, and say how long each took.

The Python that runs this runs them: ``.venv/bin/python tools/run_tests.py unit browser``.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

PYTEST = ("-m", "pytest", "--color=auto")
PLAIN = (*PYTEST, "-p", "no:nbval")  # importing it takes seconds, and only notebooks need it
# Part → the command lines that it is, each run by `python`, in the order of their cost.
PARTS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "ruff": (("-m", "ruff", "check"), ("-m", "ruff", "format", "--check")),
    "mypy": (("-m", "mypy"),),
    "js": tuple(("tools/front_end.py", command) for command in ("build", "lint", "types", "test")),
    "unit": ((*PLAIN, "-m", "not integration and not browser"),),
    # Two files at a time: most of it is importing vLLM and loading models, each on one core.
    "integration": ((*PLAIN, "-m", "integration", "-n", "2", "--dist", "loadfile"),),
    # The kernel is this environment's, and only cells that say so have their output compared: answers differ between
    # machines, errors do not.
    "notebooks": ((*PYTEST, "--nbval-lax", "--nbval-current-env", "notebooks"),),
    "browser": ((*PLAIN, "-m", "browser"),),
}
NO_TESTS = 5  # pytest's exit status where it found nothing to run


def main(names: Sequence[str], run: Callable[[Sequence[str]], int] | None = None) -> int:
    """Run the named parts, all of them if none is named; return 1 if one failed."""
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        print(f"unknown part {unknown[0]!r}; there is: {', '.join(PARTS)}", file=sys.stderr)
        return 2
    run = run or _run
    rows: list[tuple[str, float, str]] = []
    try:
        for name in names or PARTS:
            print(f"\n── {name} {'─' * (76 - len(name))}", flush=True)
            begun = time.monotonic()
            status = [run([sys.executable, *command]) for command in PARTS[name]]
            rows.append((name, time.monotonic() - begun, _result(status)))
    except KeyboardInterrupt:
        rows.append((name, time.monotonic() - begun, "stopped"))
    print(f"\n{'part':<12} {'seconds':>8}  result")
    for name, seconds, result in rows:
        print(f"{name:<12} {seconds:>8.1f}  {result}")
    print(f"{'in all':<12} {sum(seconds for _, seconds, _ in rows):>8.1f}", flush=True)
    return int(any(result != "passed" for _, _, result in rows))


def _run(command: Sequence[str]) -> int:
    return subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL).returncode


def _result(statuses: Sequence[int]) -> str:
    if NO_TESTS in statuses:
        return "FAILED: no test was found"
    return "FAILED" if any(statuses) else "passed"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
