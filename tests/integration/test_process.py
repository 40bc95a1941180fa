"""What the engine leaves behind in a process; each case in a fresh one, because the first load counts."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def nothing_leaks() -> None:
    """These tests have processes of their own; the shared engine is not loaded for them."""


def run(script: str) -> Any:
    """Run a script in a fresh interpreter; return the JSON that it prints. Nothing else may be printed."""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=400, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr[-2000:]
    return json.loads(done.stdout)


ENVIRONMENT = """
import gc, json, logging, os, random, signal, sys, threading, warnings
import numpy, torch
import jupyter_infer as ji

def state():
    return {
        "random": random.getstate(),
        "numpy": [str(part) for part in numpy.random.get_state()],
        "torch": torch.random.get_rng_state().tolist(),
        "root": ([repr(handler) for handler in logging.root.handlers], logging.root.level),
        "record factory": repr(logging.getLogRecordFactory()),
        "streams": (id(sys.stdout), id(sys.stderr), id(sys.excepthook)),
        "descriptors": [os.fstat(fd).st_ino for fd in (1, 2)],
        "signals": [repr(signal.getsignal(s)) for s in (signal.SIGINT, signal.SIGTERM)],
        "environ": dict(os.environ),
        "gc": (gc.isenabled(), gc.get_threshold(), gc.get_freeze_count(), len(gc.callbacks)),
        "threads": (torch.get_num_threads(), repr(torch.set_num_threads)),
        "filters": len(warnings.filters),
        "engine threads": [t.name for t in threading.enumerate() if t.name.startswith("jupyter-infer")],
    }

def changed(before):
    return [name for name, value in state().items() if json.dumps(value) != json.dumps(before[name])]

random.seed(1)
numpy.random.seed(2)
torch.manual_seed(3)
before, session, seen = state(), ji.Session(kv_cache_memory_bytes=64 << 20), {}
session.load()
seen["load"] = [name for name in changed(before) if name != "engine threads"]
drawn = random.random()
random.seed(1)
session.generate("Hello", max_tokens=3, temperature=1.0)
seen["infer"] = [name for name in changed(before) if name != "engine threads"]
try:
    session.load(kv_cache_memory_bytes=1024)  # no room for a block: it fails after the engine before was closed
except ji.InferError:
    pass
seen["failed load"] = [name for name in changed(before) if name != "engine threads"]
session.load()
session.unload()
seen["unload"] = changed(before)
from jupyter_infer.engine.quiet import LOGS
print(json.dumps({"seen": seen, "drawn": drawn, "logs": len(LOGS)}))
"""


def test_the_process_is_as_it_was_and_nothing_is_printed() -> None:
    found = run(ENVIRONMENT)
    assert found["seen"] == {"load": [], "infer": [], "failed load": [], "unload": []}
    assert found["drawn"] == 0.13436424411240122  # random.seed(1); random.random()
    assert found["logs"] > 0  # what it would have printed


MEMORY = """
import json
import jupyter_infer as ji
from jupyter_infer.hardware import rss_bytes

session, loaded, freed = ji.Session(kv_cache_memory_bytes=256 << 20, dtype="bfloat16"), [], []
for cycle in range(5):
    session.load()
    kept = session.generate("Hello", max_tokens=2)  # a result that the user holds on to pins nothing
    loaded.append(rss_bytes())
    session.unload()
    freed.append(rss_bytes())
print(json.dumps({"loaded": loaded, "freed": freed}))
"""


def test_memory_of_the_small_profile_and_over_five_cycles() -> None:
    found = run(MEMORY)
    assert max(found["loaded"]) <= 1.5e9
    assert max(found["freed"]) <= 0.8e9
    # It levels off after the fourth cycle, at about 4 %: libraries fill their caches.
    assert found["freed"][-1] <= 1.05 * found["freed"][0]
    assert found["loaded"][-1] <= 1.10 * found["loaded"][0]


def test_the_demo_prints_one_json_object_with_all_figures() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "jupyter_infer", "demo", "--json", "--max-tokens", "8"],
        capture_output=True,
        text=True,
        timeout=400,
        check=True,
    )
    assert "loading · weights" in done.stderr  # seen while the engine's own output goes to its log
    found = json.loads(done.stdout)
    names = (
        "text model prompt_tokens cached_tokens output_tokens queued_s prefill_s decode_s ttft_s tpot_s e2e_s wall_s "
        "load_s shared_s cost_usd price finish_reason rss_bytes kv_blocks_total kv_blocks_free"
    )
    assert list(found) == names.split()
    assert found["output_tokens"] == 8
    assert found["finish_reason"] == "length"
    assert found["queued_s"] + found["prefill_s"] + found["decode_s"] == pytest.approx(found["e2e_s"], abs=1e-8)
    assert 0 < found["shared_s"] <= found["e2e_s"] <= found["wall_s"]
    assert found["kv_blocks_free"] == found["kv_blocks_total"]
