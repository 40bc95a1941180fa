"""The parts of vLLM below its public API are where we look for them."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import jupyter_infer
from jupyter_infer.engine import vllm_internals

# In a process of its own: importing vLLM's CPU worker replaces parts of torch.cuda.
SCRIPT = """
from jupyter_infer.engine import vllm_internals as found
print(list(found.missing()))
found.INTERNALS = (found.Internal("vllm.v1.request:Request", ("nothing",), ("nobody",)),)
print(list(found.missing()))
"""


def test_the_installed_vllm_has_every_internal_and_one_that_is_gone_is_reported() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=300, check=True)
    request = "vllm.v1.request:Request"
    assert done.stdout.splitlines() == ["[]", str([f"{request}.nothing", f"{request}.nobody"])]


def test_every_import_of_vllm_is_on_the_list() -> None:
    listed = {(i.where.partition(":")[0], name) for i in vllm_internals.INTERNALS for name in i.members}
    listed |= {tuple(i.where.split(":")) for i in vllm_internals.INTERNALS if ":" in i.where}
    modules = {f"{module}.{name}" for module, name in listed} | {m for m, _ in listed}
    for path in (Path(jupyter_infer.__file__).parent / "engine").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("vllm"):
                for alias in node.names:
                    known = (node.module, alias.name) in listed or f"{node.module}.{alias.name}" in modules
                    assert known, f"{path.name} uses {node.module}.{alias.name}"
