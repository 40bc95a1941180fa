"""A disk that is full while a model is written, and a model whose files are damaged or go away."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from models.conftest import write_gguf

from jupyter_infer.engine.scripted import ScriptedEngine
from jupyter_infer.errors import ModelError
from jupyter_infer.models import cache_dir, gguf, resolve

from .conftest import POOL, QUICK, SCRIPT, Cells, settled


def in_cache() -> list[str]:
    """Return what the model cache holds, but for locks."""
    folder = cache_dir() / "models"
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".lock") if folder.is_dir() else []


@pytest.mark.parametrize("cells", QUICK, indirect=True)
def test_a_disk_that_is_full_is_one_line_and_the_next_try_works(
    cells: Cells, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, write = write_gguf(tmp_path / "tiny.gguf"), gguf.write_folder

    def factory(model: str, settings: Any, progress: Any) -> Any:
        if model.endswith(".gguf"):
            resolve(model)
        return lambda on_worker: ScriptedEngine(SCRIPT)

    def on_a_full_disk(path: Path, folder: Path, **options: Any) -> None:
        (folder / "model.safetensors").symlink_to("/dev/full")  # takes everything, and then says that it is full
        write(path, folder, **options)

    monkeypatch.setattr(cells.session, "_factory", factory)
    engine = cells.session._worker.engine
    with monkeypatch.context() as patch:
        patch.setattr(gguf, "write_folder", on_a_full_disk)
        line = cells.line_of(f"%infer load {path}", ModelError)
    assert line == f"ModelError: the disk of {cache_dir()} is full; set JUPYTER_INFER_CACHE to a folder with room"
    assert in_cache() == []
    assert cells.session._worker.engine is engine  # what was there is there
    cells.well()
    cells.ask(f"%%infer -m {path} --max-tokens 1\nHi")
    assert len(in_cache()) == 1
    cells.well()


LIMITED = """
import json, resource, sys
from jupyter_infer.errors import ModelError
from jupyter_infer.models import cache_dir, resolve

limits, found = resource.getrlimit(resource.RLIMIT_FSIZE), {}
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
try:
    resolve(sys.argv[1])
except ModelError as error:
    found["line"] = str(error)
found["left"] = [path.name for path in (cache_dir() / "models").iterdir() if path.suffix != ".lock"]
resource.setrlimit(resource.RLIMIT_FSIZE, limits)
found["bytes"] = resolve(sys.argv[1]).weight_bytes
print(json.dumps(found))
"""


def test_a_file_that_may_not_grow_is_one_line_and_the_next_try_works(tmp_path: Path) -> None:
    """A limit of the system itself, which it enforces in the middle of a write."""
    path = write_gguf(tmp_path / "tiny.gguf")
    done = subprocess.run([sys.executable, "-c", LIMITED, str(path)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr[-2000:]
    found = json.loads(done.stdout)
    why = os.strerror(errno.EFBIG)
    assert found["line"] == f"cannot write to {cache_dir()} ({why}); set JUPYTER_INFER_CACHE to a folder with room"
    assert found["left"] == []
    assert found["bytes"] > 20_000


# A model's folder.


def linked(folder: Path) -> Path:
    """Return a folder with links to the files of the default model."""
    folder.mkdir()
    for path in resolve("smollm2-135m").path.iterdir():
        if path.is_file():
            (folder / path.name).symlink_to(path)
    return folder


@pytest.mark.integration
@pytest.mark.parametrize("cells", ["vllm"], indirect=True)
def test_weights_that_end_too_early_are_one_line_and_the_next_cell_loads_what_was_there(
    cells: Cells, tmp_path: Path
) -> None:
    folder = linked(tmp_path / "damaged")
    weights = (folder / "model.safetensors").resolve()
    (folder / "model.safetensors").unlink()
    with weights.open("rb") as whole:
        (folder / "model.safetensors").write_bytes(whole.read(10_000_000))
    line = cells.line_of(f"%infer load {folder} --kv-cache-memory-bytes {POOL['kv_cache_memory_bytes']}", ModelError)
    assert str(folder) in line
    cells.well()
    assert cells.session.model == "smollm2-135m"


@pytest.mark.integration
@pytest.mark.parametrize("cells", ["vllm"], indirect=True)
def test_a_folder_that_goes_away_harms_no_engine_and_is_missed_by_the_next_load(cells: Cells, tmp_path: Path) -> None:
    folder = linked(tmp_path / "gone")
    cells.run(f"%infer load {folder} --kv-cache-memory-bytes {POOL['kv_cache_memory_bytes']}")
    assert cells.session.info.model == "gone"
    shutil.rmtree(folder)
    cells.answers_right()  # what is loaded is loaded
    cells.run("%infer unload")
    line = cells.line_of("%%infer\nHi", ModelError)
    assert line.startswith(f"ModelError: no folder {folder}")
    cells.quiet()
    cells.session.load("smollm2-135m", **POOL)
    settled(lambda: cells.session.info is not None, "it is not loaded")
    cells.well()
