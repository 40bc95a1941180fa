"""Files read ahead, and vLLM imported ahead, while the user's cell runs: what is read, when not, and what is left."""

from __future__ import annotations

import atexit
import errno
import importlib.machinery
import importlib.util
import logging
import mmap
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import FAST

from jupyter_infer import warm
from jupyter_infer.engine import vllm_api, vllm_load
from jupyter_infer.engine.quiet import LOGS
from jupyter_infer.engine.scripted import ScriptedEngine
from jupyter_infer.errors import EngineNotInstalled, ModelError
from jupyter_infer.records import LoadStage
from jupyter_infer.session import Session

MIB = 1 << 20

Asked = list[tuple[str, int, int]]


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forget what this process has warmed, and let no test read gigabytes or leave a thread."""
    monkeypatch.setattr(warm, "_threads", {})
    monkeypatch.delitem(sys.modules, "vllm", raising=False)
    monkeypatch.setattr(warm.hardware, "memory_available", lambda: 100 * MIB)
    yield
    for thread in warm._threads.values():
        if thread.ident is not None:  # it was started
            thread.join(10)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("jupyter-infer-warm")]


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a vllm and a torch that break when they are imported."""
    for name, library in (("vllm", "_C.abi3.so"), ("torch", "lib/libtorch.so.2")):
        place = tmp_path / "site" / name / library
        place.parent.mkdir(parents=True)
        place.write_bytes(b"l" * 1000)
        (tmp_path / "site" / name / "__init__.py").write_text("raise AssertionError('imported')")
        (tmp_path / "site" / name / "notes.txt").write_text("no library")

    def find_spec(name: str, package: str | None = None) -> importlib.machinery.ModuleSpec | None:
        return importlib.machinery.PathFinder.find_spec(name, [str(tmp_path / "site")])

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)
    return tmp_path / "site"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """What the kernel was asked to read: file name, offset and length."""
    seen: Asked = []

    def note(file: int, offset: int, length: int, advice: int) -> None:
        assert advice == os.POSIX_FADV_WILLNEED
        seen.append((os.path.basename(os.readlink(f"/proc/self/fd/{file}")), offset, length))

    monkeypatch.setattr(os, "posix_fadvise", note)
    return seen


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The default model, on disk."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "tokenizer.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"w" * (5 * MIB))
    (folder / "pytorch_model.bin").write_bytes(b"w")
    monkeypatch.setattr(warm, "cached_wheel_model", lambda model: folder)
    return folder


def module(cached: str | None) -> Any:
    return SimpleNamespace(__spec__=SimpleNamespace(cached=cached))


def finish(thread: threading.Thread | None) -> None:
    assert thread is not None
    thread.join(10)
    assert not thread.is_alive()


def test_the_first_time_shared_libraries_and_the_model_are_read_ahead(
    packages: Path, model: Path, asked: Asked
) -> None:
    finish(warm.warm_files())
    assert {(name, length) for name, _, length in asked if "safetensors" not in name} == {
        ("_C.abi3.so", 1000),
        ("libtorch.so.2", 1000),
        ("config.json", 2),
        ("tokenizer.json", 2),
    }
    # In pieces: the kernel ignores what exceeds the read-ahead limit of the disk.
    weights = [(offset, length) for name, offset, length in asked if name == "model.safetensors"]
    assert weights == [(0, 2 * MIB), (2 * MIB, 2 * MIB), (4 * MIB, MIB)]
    assert "vllm" not in sys.modules


def test_without_a_model_on_disk_nothing_is_fetched(
    packages: Path, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("asked for the network")

    monkeypatch.setattr(warm, "resolve", refuse)
    monkeypatch.setattr("socket.getaddrinfo", refuse)
    monkeypatch.setattr(warm, "cached_snapshot", lambda repo_id: None)
    finish(warm.warm_files())
    assert {name for name, *_ in asked} == {"_C.abi3.so", "libtorch.so.2"}


def test_after_a_load_exactly_what_it_read_is_read_ahead(
    packages: Path, model: Path, asked: Asked, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    library, compiled, gone = tmp_path / "a library.so", tmp_path / "module.pyc", tmp_path / "gone.pyc"
    library.write_bytes(b"l" * MIB)
    compiled.write_bytes(b"c" * 300)
    gone.write_bytes(b"c")
    modules = {"read": compiled, "gone": gone, "never there": tmp_path / "no.pyc", "library": None}
    specs = {name: module(path and str(path)) for name, path in modules.items()}
    specs["__main__"] = SimpleNamespace(__spec__=None)
    monkeypatch.setattr(warm, "sys", SimpleNamespace(version="3", modules=specs))
    monkeypatch.setattr(warm, "_mapped", lambda: [(str(library), 1 << 18, 1 << 19)])
    monkeypatch.setattr(warm, "resolve", lambda name: SimpleNamespace(path=model / name))
    (model / "some-model").mkdir()
    (model / "some-model" / "model.safetensors").write_bytes(b"w" * 10)
    warm.remember("some-model")
    gone.unlink()
    monkeypatch.setattr(warm, "_first_time", lambda: pytest.fail("a load was noted"))
    finish(warm.warm_files())
    assert asked == [("a library.so", 1 << 18, 1 << 19), ("model.safetensors", 0, 10), ("module.pyc", 0, 300)]
    assert [path.suffix for path in (warm.cache_dir() / "warm").iterdir()] == [".txt"]


def test_another_vllm_makes_the_list_void(packages: Path, monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    monkeypatch.setattr(warm, "resolve", lambda name: SimpleNamespace(path=model))
    warm.remember("some-model")
    assert warm._noted()
    os.utime(packages / "vllm/__init__.py", (1, 1))
    assert warm._noted() == []


def test_what_cannot_be_noted_does_not_break_a_load(packages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_model(name: str) -> Any:
        raise ModelError("it is gone")

    monkeypatch.setattr(warm, "resolve", no_model)
    warm.remember("some-model")
    assert warm._noted() == []
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)  # no vLLM: a scripted engine
    warm.remember("some-model")


@pytest.mark.skipif(not os.path.exists("/proc/self/pagemap"), reason="the kernel shows no page maps")
def test_of_a_library_the_chunks_in_memory_are_noted(tmp_path: Path) -> None:
    (library := tmp_path / "some.so").write_bytes(bytes(8 * warm.CHUNK))
    (data := tmp_path / "data.bin").write_bytes(bytes(8 * warm.CHUNK))
    with library.open("rb") as code, data.open("rb") as other:
        kinds = mmap.PROT_READ | mmap.PROT_EXEC, mmap.PROT_READ
        of_code = mmap.mmap(code.fileno(), 7 * warm.CHUNK, prot=kinds[0], offset=warm.CHUNK)
        of_data = mmap.mmap(other.fileno(), 0, prot=kinds[1])
        with of_code, of_data:
            of_code.madvise(mmap.MADV_RANDOM)  # no neighbours
            middle = warm.CHUNK // 2  # a fault brings a few pages on both sides
            _ = *(of_code[chunk * warm.CHUNK + middle] for chunk in (0, 1, 4)), of_data[middle]
            found = {(path, offset, length) for path, offset, length in warm._mapped() if str(tmp_path) in path}
    assert found == {(str(library), warm.CHUNK, 2 * warm.CHUNK), (str(library), 5 * warm.CHUNK, warm.CHUNK)}


@pytest.mark.parametrize(("spare", "read"), [(0, True), (-2, False)])
def test_nothing_is_read_that_takes_more_than_half_of_the_free_memory(
    spare: int, read: bool, packages: Path, model: Path, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = sum(length for *_, length in warm._first_time())
    assert needed == 2 * 1000 + 2 * 2 + 5 * MIB
    monkeypatch.setattr(warm.hardware, "memory_available", lambda: 2 * needed + spare)
    finish(warm.warm_files())
    assert bool(asked) is read


def test_an_error_of_the_disk_is_nobodys_concern(
    packages: Path, model: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    def broken(*args: int) -> None:
        raise OSError(errno.EIO, "broken disk")

    monkeypatch.setattr(os, "posix_fadvise", broken)
    before = sorted(os.listdir("/proc/self/fd"))
    finish(warm.warm_files())
    assert sorted(os.listdir("/proc/self/fd")) == before
    assert not recwarn.list  # pytest's word for a thread that died


def test_twice_is_once(packages: Path, model: Path, asked: Asked) -> None:
    first = warm.warm_files()
    assert warm.warm_files() is first
    finish(first)
    read = list(asked)
    finish(warm.warm_files())
    assert asked == read != []


@pytest.mark.parametrize(
    ("level", "started"),
    [("off", set()), ("files", {warm._FILES}), ("imports", {warm._FILES, warm._IMPORTS})],
)
def test_a_level_starts_what_it_says(
    level: warm.Level, started: set[str], packages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm, "_read_ahead", lambda: None)
    monkeypatch.setattr(warm, "_import", lambda: None)
    warm.warm(level)
    assert set(warm._threads) == started


def test_with_vllm_in_the_process_there_is_nothing_to_warm(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace())  # type: ignore[arg-type]
    warm.warm("imports")
    assert (warm._threads, asked) == ({}, [])


def test_without_the_system_call_no_thread_starts(packages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "posix_fadvise")
    warm.warm("files")
    assert warm._threads == {}


class Import:
    """Stands in for the import of vLLM, until it is let go on."""

    def __init__(self) -> None:
        self.begun, self.go_on, self.threads = threading.Event(), threading.Event(), list[str]()

    def __call__(self) -> None:
        self.threads.append(threading.current_thread().name)
        os.environ["VLLM_WRITTEN"] = "1"
        print("noise of an import")
        self.begun.set()
        assert self.go_on.wait(10)


@pytest.fixture
def importing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Import]:
    """An import of vLLM that has begun in the background."""
    stand_in = Import()
    monkeypatch.setattr(vllm_api, "import_vllm", stand_in)
    monkeypatch.setattr(atexit, "register", lambda *args: None)
    warm.warm_imports()
    assert stand_in.begun.wait(10)
    yield stand_in
    stand_in.go_on.set()
    warm._threads[warm._IMPORTS].join(10)


def test_an_import_ahead_leaves_no_trace(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    logger, before = logging.getLogger("vllm"), (dict(os.environ), sys.stdout, sys.stderr)
    logs = (logger.handlers[:], logger.propagate, logger.level)
    stand_in = Import()
    stand_in.go_on.set()
    monkeypatch.setattr(vllm_api, "import_vllm", stand_in)
    LOGS.clear()
    finish(warm.warm_imports())
    assert stand_in.threads == [warm._IMPORTS]
    assert (dict(os.environ), sys.stdout, sys.stderr) == before
    assert (logger.handlers, logger.propagate, logger.level) == logs
    assert capfd.readouterr() == ("", "")
    assert "noise of an import" in LOGS


def test_an_import_that_fails_is_left_to_the_cell_that_needs_it(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
) -> None:
    def missing() -> None:
        raise EngineNotInstalled("vLLM is not installed")

    monkeypatch.setattr(vllm_api, "import_vllm", missing)
    finish(warm.warm_imports())
    assert (capfd.readouterr(), recwarn.list) == (("", ""), [])


def test_a_load_waits_for_the_import_and_says_so(
    importing: Import, monkeypatch: pytest.MonkeyPatch, no_engine_threads: None
) -> None:
    order: list[str] = []

    def prepare(model: str, settings: Any, progress: Any) -> Callable[[Any], ScriptedEngine]:
        order.append(f"load {warm._threads[warm._IMPORTS].is_alive()}")
        return lambda progress: ScriptedEngine(FAST)

    monkeypatch.setattr(vllm_load, "prepare", prepare)
    monkeypatch.setattr(warm, "remember", lambda model: order.append(f"noted {model}"))
    session = Session("some-model", factory=warm.prepare)

    def told(stage: LoadStage) -> None:  # it goes on only once the stage was seen
        order.append(stage.stage)
        if stage.stage == "import":
            importing.go_on.set()

    assert session.load(progress=told).model
    first = list(dict.fromkeys(order))  # a stage that lasts is told again
    assert first[first.index("import") :] == ["import", "load False", "noted some-model", "ready"]
    session.unload()


def test_once_a_load_has_begun_nothing_is_imported_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = Import()
    stand_in.go_on.set()
    monkeypatch.setattr(vllm_api, "import_vllm", stand_in)
    monkeypatch.setattr(vllm_load, "prepare", lambda *args: None)
    warm.prepare("some-model", {}, lambda stage: None)
    assert warm.warm_imports() is None
    assert stand_in.threads == []
