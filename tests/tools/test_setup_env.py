from __future__ import annotations

import fcntl
import json
import os
import sys
import threading
import tomllib
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import setup_env
from setup_env import Stop, Venv

from .conftest import ROOT, FakeVenv, Program


def cpu_venv(root: Path) -> Venv:
    return Venv(root / ".venv", "cpu")


# What must be there.


@pytest.mark.parametrize("version", [(3, 11), (3, 14)])
def test_supported_pythons_pass(version: tuple[int, int]) -> None:
    setup_env.check_python(version)


@pytest.mark.parametrize("version", [(3, 10), (3, 15), (2, 7)])
def test_other_pythons_are_told_what_to_do(version: tuple[int, int]) -> None:
    with pytest.raises(Stop, match=r"3\.11 to 3\.14.*PYTHON="):
        setup_env.check_python(version)


def test_linux_with_glibc_passes() -> None:
    setup_env.check_platform("Linux", "aarch64", "aarch64-unknown-linux-gnu")


@pytest.mark.parametrize(
    ("system", "machine", "host"),
    [("Darwin", "arm64", ""), ("Linux", "armv7l", ""), ("Linux", "x86_64", "x86_64-pc-linux-musl")],
)
def test_other_platforms_are_told_what_to_do(system: str, machine: str, host: str) -> None:
    with pytest.raises(Stop, match="use a container"):
        setup_env.check_platform(system, machine, host)


@pytest.mark.parametrize(
    ("script", "there"),
    [("echo 'GPU 0: H200'", True), ("echo 'No devices were found'", False), ("echo 'GPU 0'; exit 9", False)],
)
def test_a_gpu_counts_when_its_driver_answers(program: Program, script: str, there: bool) -> None:
    program("nvidia-smi", script)
    assert setup_env.nvidia_answers() is there


def test_without_nvidia_smi_there_is_no_gpu(program: Program) -> None:
    assert not setup_env.nvidia_answers()


# The index.


@pytest.fixture
def server() -> Iterator[tuple[str, list[int]]]:
    """A server on loopback, and the status that it answers."""
    status = [200]

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response(status[0])
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    listening = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=listening.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listening.server_port}/", status
    listening.shutdown()
    listening.server_close()
    thread.join()


@pytest.mark.parametrize(("status", "answered"), [(200, True), (403, True), (404, True), (503, False)])
def test_an_index_answers(server: tuple[str, list[int]], status: int, answered: bool) -> None:
    url, answer = server
    answer[0] = status
    assert setup_env.answers(url, 1.0) is answered


def test_an_index_that_is_down_does_not_answer(server: tuple[str, list[int]]) -> None:
    assert not setup_env.answers("http://127.0.0.1:1/", 1.0)


def test_a_certificate_that_python_does_not_know_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise OSError("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed")

    monkeypatch.setattr(setup_env.urllib.request, "urlopen", refuse)
    assert setup_env.answers("https://127.0.0.1/", 1.0)


def test_the_index_is_given_to_pip_only_for_cpus_and_when_it_answers(
    root: Path, fake_venv: FakeVenv, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(setup_env, "answers", lambda url: True)
    cpu_venv(root).install(["lab"])
    assert f"--extra-index-url {setup_env.TORCH_CPU_INDEX}" in fake_venv.pip_calls()[0]
    Venv(root / ".venv", "gpu").install(["lab"])
    assert "index-url" not in fake_venv.pip_calls()[0]


# The environment.


def test_an_environment_that_works_is_kept(root: Path, fake_venv: FakeVenv, capsys: pytest.CaptureFixture[str]) -> None:
    venv = cpu_venv(root)
    venv.make()
    venv.make()
    assert (fake_venv.folder / "version").exists()
    assert ".venv is there" in capsys.readouterr().out


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that make an environment; an empty one is made."""
    commands = []
    real = setup_env.subprocess.run

    def run(command: list[str], **kwargs: object) -> object:
        if command[1:3] != ["-m", "venv"]:
            return real(command, **kwargs)
        commands.append(command)
        FakeVenv(Path(command[3]))
        return setup_env.subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(setup_env.subprocess, "run", run)
    monkeypatch.setattr(setup_env, "VENV_BYTES", {"cpu": 1, "gpu": 1})
    return commands


def test_a_missing_environment_is_made(root: Path, made: list[list[str]]) -> None:
    cpu_venv(root).make()
    assert len(made) == 1


def moved(fake: FakeVenv) -> None:
    (fake.folder / "setup.json").write_text(json.dumps({"place": "/elsewhere", "engine": "the cpu engine"}))


def of_the_other_engine(fake: FakeVenv) -> None:
    Venv(fake.folder, "gpu").make()


def of_another_python(fake: FakeVenv) -> None:
    (fake.folder / "version").write_text("3 9\n")


def broken(fake: FakeVenv) -> None:
    (fake.folder / "bin" / "python").unlink()


def without_pip(fake: FakeVenv) -> None:
    fake.fails_at("import pip", "ensurepip")


@pytest.mark.parametrize("damage", [moved, of_the_other_engine, of_another_python, broken, without_pip])
def test_an_environment_that_cannot_be_used_is_made_anew(
    root: Path, fake_venv: FakeVenv, made: list[list[str]], damage: Callable[[FakeVenv], None]
) -> None:
    damage(fake_venv)
    (fake_venv.folder / "old").touch()
    cpu_venv(root).make()
    assert len(made) == 1
    assert not (fake_venv.folder / "old").exists()


def test_pip_is_put_where_it_lacks(root: Path, fake_venv: FakeVenv, made: list[list[str]]) -> None:
    fake_venv.fails_at("import pip")
    cpu_venv(root).make()
    assert "-m ensurepip" in (fake_venv.folder / "calls").read_text().splitlines()
    assert made == []


def test_a_folder_that_is_no_environment_is_never_removed(root: Path, made: list[list[str]]) -> None:
    precious = root / "home" / "thesis.txt"
    precious.parent.mkdir()
    precious.touch()
    with pytest.raises(Stop, match="not a virtual environment"):
        Venv(precious.parent, "cpu").make()
    assert precious.exists()
    assert made == []


def test_a_full_disk_is_said_before_anything_is_installed(
    root: Path, made: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(setup_env, "VENV_BYTES", {"cpu": 1 << 60})
    with pytest.raises(Stop, match="GB free"):
        cpu_venv(root).make()
    assert made == []


# Packages.


def test_packages_are_installed_once(root: Path, fake_venv: FakeVenv) -> None:
    cpu_venv(root).install(["lab", "test"])
    (call,) = fake_venv.pip_calls()
    assert call.endswith(f" --editable {root}[cpu,lab,test]")
    cpu_venv(root).install(["lab"])
    assert fake_venv.pip_calls() == []


def test_packages_are_installed_again_when_more_are_wanted(root: Path, fake_venv: FakeVenv) -> None:
    cpu_venv(root).install(["lab"])
    cpu_venv(root).install(["lab", "test"])
    assert len(fake_venv.pip_calls()) == 2


def test_packages_are_installed_again_when_the_project_file_changed(root: Path, fake_venv: FakeVenv) -> None:
    cpu_venv(root).install(["lab"])
    (root / "pyproject.toml").write_text("one = 2\n")
    cpu_venv(root).install(["lab"])
    assert len(fake_venv.pip_calls()) == 2


def test_a_failed_installation_is_said_and_tried_again(root: Path, fake_venv: FakeVenv) -> None:
    cpu_venv(root).install(["lab"])
    (root / "pyproject.toml").write_text("one = 2\n")
    fake_venv.pip_answers(1, "ERROR: No matching distribution found for torch\n")
    with pytest.raises(Stop, match=r"(?s)No matching distribution.*PIP_FIND_LINKS.*setup\.log"):
        cpu_venv(root).install(["lab"])
    assert "ERROR: No matching" in (fake_venv.folder / "setup.log").read_text()
    fake_venv.pip_answers(0, "")
    fake_venv.pip_calls()
    cpu_venv(root).install(["lab"])
    assert len(fake_venv.pip_calls()) == 1


def test_what_pip_was_stopped_at_is_installed_again(root: Path, fake_venv: FakeVenv) -> None:
    packages = fake_venv.folder / "lib" / "python3.11" / "site-packages"
    whole, half = packages / "whole-1.dist-info", packages / "half-1.dist-info"
    whole.mkdir(parents=True)
    half.mkdir()
    (whole / "INSTALLER").write_text("pip\n")
    cpu_venv(root).install(["lab"])
    assert whole.exists()
    assert not half.exists()


def test_a_damaged_state_file_counts_as_none(root: Path, fake_venv: FakeVenv) -> None:
    (fake_venv.folder / "setup.json").write_text('{"key": ')
    cpu_venv(root).install(["lab"])
    assert len(fake_venv.pip_calls()) == 1


# Beside torch.


def test_only_broken_add_ons_are_removed(fake_venv: FakeVenv) -> None:
    fake_venv.fails_at("torchvision", "torchcodec")
    setup_env.mend(str(fake_venv.folder / "bin" / "python"))
    (call,) = fake_venv.pip_calls()
    assert call.endswith("uninstall --quiet --yes torchvision torchcodec")


def test_add_ons_that_work_stay(fake_venv: FakeVenv) -> None:
    setup_env.mend(str(fake_venv.folder / "bin" / "python"))
    assert fake_venv.pip_calls() == []


def test_nothing_is_removed_when_torch_itself_is_broken(fake_venv: FakeVenv) -> None:
    fake_venv.fails_at("torch")
    with pytest.raises(Stop, match="torch cannot be imported"):
        setup_env.mend(str(fake_venv.folder / "bin" / "python"))
    assert fake_venv.pip_calls() == []


@pytest.mark.parametrize(("body", "removed"), [("", []), ("raise RuntimeError('no operator')", ["torchvision"])])
def test_add_ons_are_really_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, removed: list[str]
) -> None:
    (tmp_path / "torch.py").touch()
    (tmp_path / "torchvision.py").write_text(body)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(setup_env, "ADD_ONS", ("torchvision",))
    assert setup_env.broken_add_ons(sys.executable) == removed


def test_an_add_on_that_is_not_there_is_not_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(setup_env, "ADD_ONS", ("torch_add_on_that_nobody_has",))
    assert setup_env.broken_add_ons(sys.executable) == []


# The system.


def test_a_missing_library_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    installed: list[str] = []
    monkeypatch.setattr(setup_env, "_loads", lambda library: bool(installed))
    monkeypatch.setattr(setup_env, "can_install", lambda: True)
    monkeypatch.setattr(setup_env, "apt_install", installed.append)
    setup_env.get_libraries()
    assert installed == ["libnuma1"]


def test_a_missing_library_is_named_where_it_cannot_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup_env, "_loads", lambda library: False)
    monkeypatch.setattr(setup_env, "can_install", lambda: False)
    with pytest.raises(Stop, match="sudo apt-get install libnuma1"):
        setup_env.get_libraries()


def test_libraries_are_really_loaded() -> None:
    assert setup_env._loads("libc.so.6")
    assert not setup_env._loads("libnobody-has-this.so.1")


def test_a_chromium_that_does_not_run_is_none(program: Program) -> None:
    program("chromium", "echo 'install the snap' >&2; exit 1")
    assert setup_env.chromium() is None
    program("google-chrome", "echo 'Chrome 150'")
    assert setup_env.chromium() == "google-chrome"


def test_root_with_apt_can_install(program: Program, as_root: None) -> None:
    assert not setup_env.can_install()
    program("apt-get", "exit 0")
    assert setup_env.can_install()


def test_a_user_can_install_when_sudo_asks_nothing(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    program("apt-get", "exit 0")
    program("sudo", "exit 1")
    assert not setup_env.can_install()
    program("sudo", '[ "$1 $2" = "-n true" ]')
    assert setup_env.can_install()


def test_chromium_comes_from_apt_where_it_may(
    root: Path, fake_venv: FakeVenv, program: Program, as_root: None, tmp_path: Path
) -> None:
    installed = tmp_path / "programs" / "chromium"
    # In place of env, which finds what it runs on its own PATH: the real apt-get must not run here.
    program("env", f"case \"$*\" in *apt-get*'install --yes chromium') cp /bin/echo {installed} ;; esac")
    program("apt-get", "exit 1")
    cpu_venv(root).get_chromium()
    assert installed.exists()
    assert not [call for call in (fake_venv.folder / "calls").read_text().splitlines() if "install" in call]


def test_chromium_comes_from_playwright_elsewhere(root: Path, fake_venv: FakeVenv, program: Program) -> None:
    cpu_venv(root).get_chromium()
    assert "-m playwright install chromium" in (fake_venv.folder / "calls").read_text().splitlines()


def test_no_browser_anywhere_is_said(root: Path, fake_venv: FakeVenv, program: Program) -> None:
    fake_venv.fails_at("playwright")
    with pytest.raises(Stop, match="there is no browser"):
        cpu_venv(root).get_chromium()


# As a whole.


def test_a_stop_is_one_exit_status_and_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(python: str) -> None:
        raise Stop("do this")

    monkeypatch.setattr(setup_env, "mend", stop)
    assert setup_env.main(["mend"]) == 1
    assert "do this" in capsys.readouterr().err


def test_an_interrupt_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(python: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(setup_env, "mend", interrupt)
    assert setup_env.main(["mend"]) == 130
    assert "goes on from here" in capsys.readouterr().err


def test_the_whole_way(root: Path, fake_venv: FakeVenv, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup_env, "get_libraries", lambda: None)
    fetch = fake_venv.folder / "bin" / "jupyter-infer"
    fetch.write_text(f"#!/bin/sh\necho $* > {root}/fetched\n")
    fetch.chmod(0o755)
    arguments = ["venv", "lab,test", "--venv", str(fake_venv.folder), "--engine", "cpu", "--model"]
    assert setup_env.main(arguments) == 0
    assert (root / "fetched").read_text() == "fetch\n"
    fetch.write_text("#!/bin/sh\nexit 1\n")
    assert setup_env.main(arguments) == 1


def test_a_second_set_up_waits_for_the_first(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    holder = os.open(root, os.O_RDONLY)
    fcntl.flock(holder, fcntl.LOCK_EX)
    entered = threading.Event()

    def second() -> None:
        with setup_env.one_at_a_time():
            entered.set()

    thread = threading.Thread(target=second)
    thread.start()
    assert not entered.wait(0.2)
    os.close(holder)
    assert entered.wait(10)
    thread.join()
    assert "waiting" in capsys.readouterr().out


def test_what_is_said_twice_is_the_same() -> None:
    from jupyter_infer.doctor import packages

    first, too_new = (f"{major}.{minor}" for major, minor in setup_env.PYTHON_RANGE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == f">={first}"
    assert f">={first},<{too_new}" == packages.PYTHON_RANGE
    assert packages.ADD_ONS == setup_env.ADD_ONS
    assert packages.TORCH_CPU_INDEX == setup_env.TORCH_CPU_INDEX
