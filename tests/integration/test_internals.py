"""The parts of vLLM below its public API are where we look for them."""

from __future__ import annotations

import ast
from pathlib import Path

import jupyter_infer
from jupyter_infer.engine import vllm_internals


def test_the_installed_vllm_has_every_internal() -> None:
    assert list(vllm_internals.missing()) == []


def test_an_internal_that_is_gone_is_reported(monkeypatch) -> None:
    gone = vllm_internals.Internal("vllm.v1.request:Request", ("nothing",), ("nobody",))
    monkeypatch.setattr(vllm_internals, "INTERNALS", (gone,))
    assert len(list(vllm_internals.missing())) == 2


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
