"""Compiled models: compiled once, found by the next process, eager where it cannot be done."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.tiny import SETTINGS, tiny_model


@pytest.fixture(autouse=True)
def nothing_leaks() -> None:
    """These tests have processes of their own; the shared engine is not loaded for them."""


HEAD = """
import gc, glob, json, os, sys
import jupyter_infer as ji

model, settings = sys.argv[1], {**json.loads(sys.argv[2]), "compile": True, "dtype": "float32"}
session = ji.Session(model)

def load(**more):
    stages = []
    info = session.load(model, progress=lambda stage: stages.append(stage.stage), **settings, **more)
    answer = session.generate("One two three", max_tokens=8, temperature=0, ignore_eos=True, template=False)
    return {"compiles": "compile" in stages, "notices": info.notices, "tokens": answer.text}
"""

ONCE = """
print(json.dumps(load()))
"""

LIFE = """
found, environ = {"first": load()}, dict(os.environ)
import torch
from torch._dynamo.convert_frame import _bytecode_hooks
from vllm.compilation import decorators

found["environ"] = [name for name in {*os.environ, *environ} if os.environ.get(name) != environ.get(name)]
session.unload()
gc.collect()
found["models left"] = sum(type(value).__name__ == "LlamaModel" for value in gc.get_objects())
found["hooks left"] = len(_bytecode_hooks)
found["patched"] = [f.__module__ for f in (torch.compiler.load_compiled_function, decorators._try_load_aot_compiled_fn)]
found["again, another pool"] = load(kv_cache_memory_bytes=32 << 20)
for artefact in glob.glob(os.environ["JUPYTER_INFER_CACHE"] + "/compiled/**/rank_0_0/model", recursive=True):
    os.truncate(artefact, 100)
found["damaged"] = load()
session.unload()
print(json.dumps(found))
"""


def run(script: str, model: str, cache: Path, **environ: str) -> Any:
    settings = json.dumps({name: value for name, value in SETTINGS.items() if name != "kv_cache_memory_bytes"})
    done = subprocess.run(
        [sys.executable, "-c", HEAD + script, model, settings],
        env={**os.environ, "JUPYTER_INFER_CACHE": str(cache), **environ},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler")
def test_a_compiled_model_is_compiled_once_and_leaves_nothing(tmp_path: Path) -> None:
    model = tiny_model(tmp_path / "tiny")
    found = run(LIFE, model, tmp_path / "cache")
    compiled = "compiled (torch.compile)"
    assert found["first"]["compiles"]
    assert compiled in found["first"]["notices"]
    again = found["again, another pool"]
    assert (again["compiles"], compiled in again["notices"]) == (False, True)
    assert (found["environ"], found["models left"], found["hooks left"]) == ([], 0, 0)
    assert found["patched"] == ["torch.compiler", "vllm.compilation.decorators"]
    assert found["damaged"]["compiles"]  # again, and no crash
    other = run(ONCE, model, tmp_path / "cache")
    assert not other["compiles"]
    eager = run(ONCE, model, tmp_path / "another cache", CXX="/bin/false")
    assert not eager["compiles"]
    assert "not compiled: no C++ compiler works here; install g++; %infer logs says more" in eager["notices"]
    answers = [part["tokens"] for part in (found["first"], again, found["damaged"], other, eager)]
    assert answers == [answers[0]] * 5  # in float32
