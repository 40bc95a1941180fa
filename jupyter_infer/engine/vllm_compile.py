"""Compiled models that are compiled once: where vLLM keeps them, and what it needs to load them again."""

from __future__ import annotations

import contextlib
import hashlib
import json
import platform
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from jupyter_infer import hardware
from jupyter_infer.engine.vllm_api import Vllm
from jupyter_infer.models.cache import cache_dir

__all__ = ["Compilation", "compiled_folder"]

PRICE = "1 to 3 minutes, once; later loads take seconds"


def compiled_folder(vllm: Vllm) -> Path:
    """Return where compiled models are kept, for these versions and this kind of CPU.

    The code is for the CPU that it was compiled on: another one, with the same home, could not run it. What else it
    depends on (model, precision, step size) vLLM has in the names of the folders below.
    """
    import torch

    parts = [vllm.version, torch.__version__, platform.python_version(), sorted(hardware.cpu_flags())]
    return cache_dir() / "compiled" / hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


class Compilation:
    """A load that compiles, or takes what an earlier one has compiled; use `watched` around the load.

    Parameters
    ----------
    begin
        Told the stage and a detail.
    """

    def __init__(self, begin: Callable[[str, str], None]) -> None:
        self._begin = begin
        self.begun = False

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Load with vLLM able to read what it wrote, and with nothing kept of it after an unload.

        vLLM calls `finalize_loading` of each artefact that it has loaded. On a CPU the artefact is PyTorch's plain
        function, which has no such method, so that vLLM takes it for damaged and compiles again, at every load.
        """
        import torch
        from torch._dynamo.convert_frame import _bytecode_hooks as hooks
        from vllm.compilation import decorators

        before = set(hooks)
        load, look = torch.compiler.load_compiled_function, decorators._try_load_aot_compiled_fn

        def load_whole(*args: Any, **kwargs: Any) -> Any:
            loaded = load(*args, **kwargs)
            function = loaded._artifacts.compiled_fn
            if not hasattr(function, "finalize_loading"):
                function.finalize_loading = lambda config: None
            return loaded

        def look_first(*args: Any, **kwargs: Any) -> Any:
            self.begun = True
            found = look(*args, **kwargs)
            if found is None:
                _need_compiler()
                self._begin("compile", PRICE)
            return found

        torch.compiler.load_compiled_function, decorators._try_load_aot_compiled_fn = load_whole, look_first
        try:
            yield
        finally:
            for hook in set(hooks) - before:  # vLLM's, for a compile; they would keep each model's weights for ever
                hooks.pop(hook)
            torch.compiler.load_compiled_function, decorators._try_load_aot_compiled_fn = load, look


def _need_compiler() -> None:
    """Raise now what PyTorch would say after a minute of tracing."""
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        get_cpp_compiler()
    except InvalidCxxCompiler:
        raise RuntimeError("no C++ compiler works here; install g++") from None
