"""What the engine leaves behind in a process; each case in a fresh one, because the first load counts."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

import pytest

from jupyter_infer.hardware import gpu


@pytest.fixture(autouse=True)
def nothing_leaks() -> None:
    """These tests have processes of their own; the shared engine is not loaded for them."""


def run(script: str) -> Any:
    """Run a script in a fresh interpreter; return the JSON that it prints. Nothing else may be printed."""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=400, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr[-2000:]
    return json.loads(done.stdout)


ENVIRONMENT = """
import asyncio, faulthandler, gc, json, locale, logging, multiprocessing, os, random, signal, sys, tempfile, threading
import warnings
import types
import numpy, psutil, torch
import jupyter_infer as ji

class Proxy:
    __slots__ = ()
    def __getattr__(self, name):
        raise RuntimeError("working outside of its context")

class Library:
    @property
    def __dict__(self):
        return object()

odd = sys.modules["odd"] = types.ModuleType("odd")  # what a user can have imported, and nobody can look at
odd.proxy, odd.library = Proxy(), Library()

def state():
    own = psutil.Process()
    return {
        "random": random.getstate(),
        "numpy": [*(str(part) for part in numpy.random.get_state()), repr(numpy.geterr())],
        "torch": torch.random.get_rng_state().tolist(),
        "torch modes": repr((
            torch.get_default_dtype(), torch.get_default_device(), torch.is_grad_enabled(),
            torch.is_inference_mode_enabled(), torch.are_deterministic_algorithms_enabled(),
            torch.get_float32_matmul_precision(), torch.get_num_threads(), torch.get_num_interop_threads(),
            torch.set_num_threads,
        )),
        "logging": (
            [repr(handler) for handler in logging.root.handlers], logging.root.level, logging.root.manager.disable,
            repr(logging.getLogRecordFactory()), repr(warnings.showwarning),
        ),
        "streams": [id(stream) for stream in (sys.stdin, sys.stdout, sys.stderr)],
        "hooks": [repr(hook) for hook in (sys.excepthook, sys.displayhook, sys.unraisablehook, threading.excepthook)],
        "descriptors": [os.fstat(fd).st_ino for fd in (0, 1, 2)],
        "signals": [repr(signal.getsignal(number)) for number in sorted(signal.valid_signals())],
        "signal mask": repr(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "environ": dict(os.environ),
        "gc": (gc.isenabled(), gc.get_threshold(), gc.get_freeze_count(), len(gc.callbacks), gc.get_debug()),
        "filters": [repr(entry) for entry in warnings.filters],
        "interpreter": (sys.getswitchinterval(), sys.getrecursionlimit(), repr((sys.getprofile(), sys.gettrace()))),
        "place": (os.getcwd(), tempfile.tempdir, locale.setlocale(locale.LC_ALL), sys.argv),
        "start method": multiprocessing.get_start_method(allow_none=True),
        "loop": type(asyncio.get_event_loop_policy()).__name__,
        "fault handler": faulthandler.is_enabled(),
        "children": len(own.children()),
        "open files": own.num_fds(),
        "engine threads": [t.name for t in threading.enumerate() if t.name.startswith("jupyter-infer")],
    }

def changed(before):
    return [name for name, value in state().items() if json.dumps(value) != json.dumps(before[name])]

def own_threads():
    return psutil.Process().num_threads(), sorted(thread.name for thread in threading.enumerate())

def ask():
    random.seed(1)
    session.generate("Hello", max_tokens=3, temperature=1.0)
    session.generate("Hello", max_tokens=3, temperature=1.0, structured_outputs={"choice": ["yes"]})
    return random.random()

def fail():
    try:
        session.load(kv_cache_memory_bytes=1024)  # no room for a block: it fails after the engine before was closed
    except ji.InferError:
        pass

random.seed(1)
numpy.random.seed(2)
torch.manual_seed(3)
before, session, seen = state(), ji.Session(kv_cache_memory_bytes=64 << 20), {}
fail()
seen["a first load that fails"] = changed(before)
session.load(kv_cache_memory_bytes=64 << 20)
seen["load"] = changed(before)
drawn = [random.random()]
drawn.append(ask())
random.setstate(before["random"])
seen["infer"] = changed(before)
fail()
seen["a load that fails"] = changed(before)
threads = [own_threads()]
session.load(kv_cache_memory_bytes=64 << 20)
drawn.append(ask())
random.setstate(before["random"])
session.unload()
seen["unload"] = changed(before)
threads.append(own_threads())
from jupyter_infer.engine.quiet import LOGS
print(json.dumps({"seen": seen, "drawn": drawn, "logs": len(LOGS), "threads": threads}))
"""


def test_the_process_is_as_it_was_and_nothing_is_printed() -> None:
    found = run(ENVIRONMENT)
    assert found["seen"] == {
        "a first load that fails": [],
        "load": ["open files", "engine threads"],  # while a model is loaded
        "infer": ["open files", "engine threads"],
        "a load that fails": [],
        "unload": [],
    }
    assert found["drawn"] == [0.13436424411240122] * 3  # random.seed(1); random.random()
    (before, names), (after, names_after) = found["threads"]
    assert names == names_after
    assert after <= before  # beside a busy neighbour a step gives a thread of OpenMP's up
    assert found["logs"] > 0  # what it would have printed


MEMORY = """
import json
import jupyter_infer as ji
from jupyter_infer.hardware import rss_bytes

settings = {"kv_cache_memory_bytes": 256 << 20, "dtype": "bfloat16"}
session, loaded, freed, kept = ji.Session(**settings), [], [], []
for cycle in range(5):
    session.load()
    kept.append(session.submit("Hello", max_tokens=2))  # what the user holds on to pins nothing
    kept.append(kept[-1].result())
    loaded.append(rss_bytes())
    if cycle == 4:  # a load replaces the engine before
        session.load(**settings, max_model_len=512)
        kept.append(session.generate("Hello", max_tokens=2))
        loaded.append(rss_bytes())
    session.unload()
    freed.append(rss_bytes())
print(json.dumps({"loaded": loaded, "freed": freed}))
"""


def test_memory_of_the_small_profile_and_over_five_cycles() -> None:
    found = run(MEMORY)
    assert max(found["loaded"]) <= 1.5e9
    assert max(found["freed"]) <= 0.8e9
    # It levels off at about 5 %: libraries fill their caches.
    assert found["freed"][-1] <= 1.10 * found["freed"][0]
    assert max(found["loaded"]) <= 1.10 * found["loaded"][0]


LIMITS = """
import json, resource
import psutil
import jupyter_infer as ji
from jupyter_infer.magics.tables import describe
from jupyter_infer.metrics import itl_ns

def limit(soft):
    resource.setrlimit(resource.RLIMIT_AS, (soft, resource.getrlimit(resource.RLIMIT_AS)[1]))
    return soft

def refused(**settings):
    try:
        session.load(**settings)
    except Exception as error:
        return [type(error).__name__, str(error)]

seen, used = {}, lambda: psutil.Process().memory_info().vms
seen["limit"] = limit(8 << 30)
session = ji.Session()
drafts = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3, "prompt_lookup_min": 1}
info = session.load(dtype="bfloat16", speculative_config=drafts)
seen |= {"settings": info.settings, "kv_bytes": info.kv_bytes, "said": describe(info), "used": used()}
prompt = "Repeat: one two three one two three one two three one two"
result = session.generate(prompt, template=False, max_tokens=30, temperature=0, ignore_eos=True)
times, work = result.phases, [work for step in result.steps for work in step.work]
seen["answer"] = {
    "tokens": [len(event.token_ids) for event in result.record.samples[0].events],
    "output_tokens": result.usage.output_tokens,
    "gaps": itl_ns(result.record),
    "decode_ns": times.decode_ns,
    "tpot_ns": times.tpot_ns,
    "work": [[w.output_tokens, w.draft_tokens, w.accepted_tokens] for w in work],
}
session.unload()
limit(used() + (300 << 20))
seen["too small"] = refused(dtype="bfloat16")
limit(8 << 30)
seen["again"] = refused(dtype="bfloat16")
seen["tokens"] = session.generate("Hi", max_tokens=3, ignore_eos=True).usage.output_tokens
print(json.dumps(seen, default=str))
"""


@pytest.fixture(scope="module")
def limited() -> Any:
    """What a process saw that may use 8 GiB of addresses, which needs no root: a model, drafts, too small a limit."""
    if gpu() is not None:
        pytest.skip("CUDA takes more addresses than any machine has memory")
    return run(LIMITS)


def test_under_a_limit_the_pool_is_chosen_within_it_and_shown(limited: Any) -> None:
    pool = limited["settings"]["kv_cache_memory_bytes"]
    assert 64 << 20 <= limited["kv_bytes"] <= pool <= 1 << 30
    assert limited["used"] < limited["limit"]
    assert f"= {limited['kv_bytes'] / 2**20:,.0f} MiB" in limited["said"]


def test_too_small_a_limit_is_refused_with_the_numbers_and_the_process_lives(limited: Any) -> None:
    kind, line = limited["too small"]
    assert kind == "NotEnoughMemory"
    assert re.fullmatch(
        r"the model needs about [\d,]+ MiB and [\d,]+ MiB are free of the [\d,]+ MiB that this process may use; .*",
        line,
    )
    assert limited["tokens"] == 3  # of a load within a larger one


def test_a_step_that_gives_several_tokens_is_one_gap(limited: Any) -> None:
    """With drafts a step gives up to four tokens; each counts, and the gap before them counts once."""
    answer = limited["answer"]
    assert max(answer["tokens"]) > 1
    assert sum(answer["tokens"]) == answer["output_tokens"] == 30
    assert len(answer["gaps"]) == len(answer["tokens"]) - 1 < 29
    assert sum(answer["gaps"]) == answer["decode_ns"]
    assert answer["tpot_ns"] == answer["decode_ns"] / 29
    assert [output for output, _, _ in answer["work"]] == answer["tokens"]
    for output, drafts, accepted in answer["work"]:
        assert output == 1 + accepted if drafts else output == 1


def test_a_load_works_with_numba_in_the_process(limited: Any) -> None:
    assert limited["again"] is None


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
