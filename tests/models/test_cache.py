from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from jupyter_infer.errors import ModelError
from jupyter_infer.models.cache import cache_dir, cached, fill, require_space


def check(folder: Path) -> None:
    if not (folder / "whole").exists():
        raise ModelError("not whole")


def build(folder: Path) -> None:
    (folder / "part").write_text("part")
    (folder / "whole").write_text("whole")


def entries(cache: Path) -> set[str]:
    return {path.name for path in (cache / "models").iterdir() if path.suffix != ".lock"}


def test_cache_dir_is_the_named_one_else_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JUPYTER_INFER_CACHE", "~/models")
    assert cache_dir() == Path.home() / "models"
    monkeypatch.delenv("JUPYTER_INFER_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_dir().name == "jupyter-infer"
    if sys.platform == "linux":
        assert cache_dir() == tmp_path / "jupyter-infer"


def test_fill_builds_once(own_cache: Path) -> None:
    assert cached("a", check) is None
    folder = fill("a", build, check)
    assert folder == cached("a", check) == own_cache / "models" / "a"

    def again(_: Path) -> None:
        raise AssertionError("built twice")

    assert fill("a", again, check) == folder
    assert entries(own_cache) == {"a"}


def test_a_damaged_folder_is_built_again(own_cache: Path) -> None:
    folder = fill("a", build, check)
    (folder / "whole").unlink()
    assert cached("a", check) is None
    assert (fill("a", build, check) / "whole").exists()


@pytest.mark.parametrize("error", [ModelError("bad file"), KeyboardInterrupt(), ZeroDivisionError()])
def test_a_failed_build_leaves_nothing(own_cache: Path, error: BaseException) -> None:
    def fail(folder: Path) -> None:
        (folder / "part").write_text("part")
        raise error

    with pytest.raises(type(error)):
        fill("a", fail, check)
    assert entries(own_cache) == set()


def test_an_incomplete_build_is_not_kept(own_cache: Path) -> None:
    with pytest.raises(ModelError, match="not whole"):
        fill("a", lambda folder: None, check)
    assert entries(own_cache) == set()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_one_line(own_cache: Path, code: int) -> None:
    def fail(folder: Path) -> None:
        (folder / "part").write_text("part")
        raise OSError(code, os.strerror(code))

    with pytest.raises(ModelError, match=r"is full; set JUPYTER_INFER_CACHE") as raised:
        fill("a", fail, check)
    assert "\n" not in str(raised.value)
    assert entries(own_cache) == set()


def test_a_cache_that_cannot_be_written_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("JUPYTER_INFER_CACHE", str(tmp_path / "file"))
    with pytest.raises(ModelError, match="cannot write to"):
        fill("a", build, check)


def test_require_space(own_cache: Path, tmp_path: Path) -> None:
    require_space(tmp_path, 1)
    with pytest.raises(ModelError, match=r"has .* MB free; set JUPYTER_INFER_CACHE"):
        require_space(tmp_path, 10**18)


CHILD = """
    import os, signal, sys, time
    from pathlib import Path
    from jupyter_infer.models.cache import fill

    def check(folder):
        assert (folder / "whole").exists()

    def build(folder):
        with open(os.environ["BUILDS"], "a") as log:
            log.write(f"{os.getpid()}\\n")
        (folder / "part").write_text("part")
        print("building", flush=True)
        sys.stdin.readline()
        (folder / "whole").write_text("whole")

    print(fill("a", build, check), flush=True)
"""


def child(tmp_path: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "BUILDS": str(tmp_path / "builds"), "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", textwrap.dedent(CHILD)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_killed_build_is_never_taken_for_a_model(own_cache: Path, tmp_path: Path) -> None:
    with child(tmp_path) as process:
        assert read_line(process) == "building"
        process.send_signal(signal.SIGKILL)
    assert entries(own_cache) == {"a.tmp"}
    assert cached("a", check) is None
    # The next build, of any model, clears what the dead one left.
    fill("b", build, check)
    assert entries(own_cache) == {"b"}
    assert (fill("a", build, check) / "whole").exists()


def test_a_running_build_is_left_alone_and_waited_for(own_cache: Path, tmp_path: Path) -> None:
    with child(tmp_path) as first:
        assert read_line(first) == "building"
        fill("b", build, check)
        assert entries(own_cache) == {"a.tmp", "b"}
        with child(tmp_path) as second:
            first.communicate("\n")
            assert read_line(second) == str(own_cache / "models" / "a")
            second.communicate("")
        assert (first.returncode, second.returncode) == (0, 0)
    assert (tmp_path / "builds").read_text().split() == [str(first.pid)]
    assert entries(own_cache) == {"a", "b"}
