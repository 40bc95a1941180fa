"""The files around the package: the Makefile, CI's script and Binder's configuration."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import setup_env

from .conftest import ROOT

Make = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def make() -> Make:
    """Run make without doing anything, as if it had been typed: a make around these tests must not be seen."""
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    outer = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "VENV", "PYTHON", "ENGINE", "ARGS")

    def run(*arguments: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
        environment = {name: value for name, value in os.environ.items() if name not in outer}
        if path is not None:
            environment["PATH"] = path
        command = [str(shutil.which("make")), "--dry-run", "--no-print-directory", *arguments]
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)

    return run


def test_make_alone_lists_the_commands(make: Make) -> None:
    assert "awk" in make().stdout  # help is the default goal


def test_make_takes_the_named_python_and_engine(make: Make) -> None:
    typed = make("demo", "PYTHON=/opt/python", "ENGINE=gpu", "VENV=/tmp/elsewhere").stdout
    assert "/opt/python tools/setup_env.py venv --venv /tmp/elsewhere --engine gpu lab --model" in typed
    assert "/tmp/elsewhere/bin/jupyter-infer demo" in typed


def test_make_finds_a_python(make: Make, tmp_path: Path) -> None:
    (tmp_path / "python3").symlink_to(sys.executable)
    typed = make("check", "VENV=/nowhere", path=f"{tmp_path}:/usr/bin:/bin").stdout
    assert typed.startswith("python3 tools/setup_env.py venv")


def test_make_passes_over_a_python_that_is_too_old(make: Make, tmp_path: Path) -> None:
    for name, status in (("python3", 1), ("python3.12", 0)):
        (tmp_path / name).write_text(f"#!/bin/sh\nexit {status}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "sh").symlink_to("/bin/sh")
    typed = make("check", "VENV=/nowhere", path=str(tmp_path)).stdout
    assert typed.startswith("python3.12 tools/setup_env.py")


def test_make_says_what_to_do_without_a_python(make: Make, tmp_path: Path) -> None:
    (tmp_path / "sh").symlink_to("/bin/sh")
    done = make("check", "VENV=/nowhere", path=str(tmp_path))
    assert done.returncode != 0
    assert "no Python 3.11 to 3.14 was found" in done.stderr
    assert "PYTHON=" in done.stderr


@pytest.mark.parametrize("target", ["test-js", "test-unit", "test-integration", "test-notebooks", "test-browser"])
def test_each_part_has_a_target(make: Make, target: str) -> None:
    typed = make(target, "PYTHON=python3", "VENV=/tmp/v").stdout
    assert typed.endswith(f"/tmp/v/bin/python tools/run_tests.py {target.removeprefix('test-')}\n")


@pytest.mark.parametrize("script", [".ci/run", "binder/postBuild", "binder/start"])
def test_scripts_can_be_run_and_parse(script: str) -> None:
    assert os.access(ROOT / script, os.X_OK)
    assert subprocess.run(["bash", "-n", str(ROOT / script)]).returncode == 0


def test_binder_installs_extras_that_exist_from_the_right_index() -> None:
    requirements = (ROOT / "binder" / "requirements.txt").read_text()
    assert f"--extra-index-url {setup_env.TORCH_CPU_INDEX}\n" in requirements
    # With a leading dot, so that Binder's builder copies the repository before it installs.
    extras = re.search(r"^--editable=\.\[(.+)\]$", requirements, re.MULTILINE)
    assert extras is not None
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(extras[1].split(",")) <= set(project["optional-dependencies"])


def test_binder_gets_the_libraries_that_vllm_needs() -> None:
    assert (ROOT / "binder" / "apt.txt").read_text().split() == list(setup_env.LIBRARIES.values())


def test_links_between_the_documents_lead_somewhere() -> None:
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_readme_lists_the_options_and_commands_of_the_help() -> None:
    from jupyter_infer.magics.commands import COMMANDS
    from jupyter_infer.magics.options import OPTIONS

    readme = (ROOT / "README.md").read_text()
    for option in OPTIONS:
        usage = option.usage.replace("|", "\\|")  # a bar in a table's cell
        names = ", ".join(f"`{name}`" for name in [*option.names[:-1], usage])
        assert f"| {names} | {option.does} |" in readme
    for command in COMMANDS.values():
        usage = command.usage.replace("|", "\\|")
        assert f"| `%infer {usage}` | {command.does} |" in readme


def test_the_readme_lists_the_models() -> None:
    from jupyter_infer.models import CATALOG

    readme = (ROOT / "README.md").read_text()
    for model in CATALOG:
        assert f"| `{model.name}` | {model.hub_id} |" in readme
