from __future__ import annotations

import json
import sys
import tempfile

import pytest

from jupyter_infer import hardware
from jupyter_infer.errors import ConfigError
from jupyter_infer.kernelspec import install_kernel, kernel_env


@pytest.fixture(autouse=True)
def machine(monkeypatch, tmp_path):
    """A machine of 8 CPUs without a quota, and a Jupyter of its own."""
    monkeypatch.setattr(hardware, "cpu_affinity", lambda: 8)
    monkeypatch.setattr(hardware, "cpu_threads", lambda: 8)
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "jupyter"))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))


def read(folder):
    return json.loads((folder / "kernel.json").read_text())


def test_threads_wait_passively_and_nothing_is_reported():
    assert kernel_env() == {"GOMP_SPINCOUNT": "10000", "VLLM_NO_USAGE_STATS": "1"}


def test_threads_are_counted_where_a_quota_is_below_the_affinity(monkeypatch):
    monkeypatch.setattr(hardware, "cpu_threads", lambda: 2)
    assert kernel_env()["OMP_NUM_THREADS"] == "2"


def test_it_is_installed_for_the_user(tmp_path):
    folder = install_kernel()
    assert folder == tmp_path / "jupyter/kernels/jupyter-infer"
    spec = read(folder)
    assert spec["display_name"] == "Python 3 (jupyter-infer)"
    assert spec["argv"][0] == sys.executable
    assert "{connection_file}" in spec["argv"]
    assert spec["env"] == kernel_env()
    assert (folder / "logo-64x64.png").exists()


def test_it_is_installed_under_a_prefix(tmp_path):
    folder = install_kernel(prefix=str(tmp_path / "env"), name="Mine", display_name="My kernel")
    assert folder == tmp_path / "env/share/jupyter/kernels/mine"
    assert read(folder)["display_name"] == "My kernel"


def test_installing_again_replaces_it_and_leaves_nothing_behind(tmp_path, monkeypatch):
    first = install_kernel()
    (first / "stale").touch()
    monkeypatch.setattr(hardware, "cpu_threads", lambda: 3)
    second = install_kernel()
    assert second == first
    assert not (second / "stale").exists()
    assert read(second)["env"]["OMP_NUM_THREADS"] == "3"
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_bad_name_says_what_is_allowed():
    with pytest.raises(ConfigError, match="'my kernel' is no kernel name: use letters"):
        install_kernel(name="my kernel")


def test_a_place_that_cannot_be_written_says_which(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"cannot write .*file"):
        install_kernel(prefix=str(tmp_path / "file"))


def test_the_kernel_starts_with_the_variables(monkeypatch):
    from jupyter_client.manager import start_new_kernel

    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    install_kernel()
    manager, client = start_new_kernel(kernel_name="jupyter-infer")
    try:
        reply = client.execute(
            "import os", user_expressions={"rounds": "os.environ['GOMP_SPINCOUNT']"}, reply=True, timeout=60
        )
        assert reply["content"]["user_expressions"]["rounds"]["data"]["text/plain"] == "'10000'"
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
