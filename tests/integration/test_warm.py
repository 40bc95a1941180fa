"""vLLM imported ahead in the background, a load that comes meanwhile, and what the load notes; in a fresh process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import json, os, sys, threading
from pathlib import Path
from jupyter_infer import warm
from jupyter_infer.session import Session

warm._place = lambda: Path(sys.argv[1]) / "list.txt"  # not among the user's own
before = dict(os.environ), sys.stdout, sys.stderr, os.fstat(2).st_ino
warm.warm_imports()
session, stages = Session(factory=warm.prepare, kv_cache_memory_bytes=64 << 20), []
session.load(progress=lambda stage: stages.append(stage.stage))
tokens = session.generate("Hello", max_tokens=3, ignore_eos=True).usage.output_tokens
after = dict(os.environ), sys.stdout, sys.stderr, os.fstat(2).st_ino
names = [thread.name for thread in threading.enumerate() if "warm" in thread.name]
print(json.dumps({"same": after == before, "stages": stages, "tokens": tokens, "threads": names}))
session.unload()
"""


@pytest.fixture(autouse=True)
def nothing_leaks() -> None:
    """The process is its own; the shared engine is not loaded for it."""


def test_a_load_beside_an_import_ahead_leaves_no_trace_and_notes_what_it_read(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)], capture_output=True, text=True, timeout=400, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert list(dict.fromkeys(found["stages"]))[-1] == "ready"
    assert (found["same"], found["tokens"], found["threads"]) == (True, 3, [])
    pieces = [line.split(" ", 2) for line in (tmp_path / "list.txt").read_text().splitlines()]
    (weights,) = ((int(offset), int(length), path) for offset, length, path in pieces if path.endswith(".safetensors"))
    assert weights[:2] == (0, Path(weights[2]).stat().st_size)
    libraries = {path for _, _, path in pieces if ".so" in path}
    assert any("/vllm/_C" in path for path in libraries)
    assert any("libtorch" in path for path in libraries)
    assert any(path.endswith(".pyc") and "/vllm/v1/engine/" in path for _, _, path in pieces)
