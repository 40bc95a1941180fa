"""Notebooks under nbval: streams and updates of displays do not make a run differ from the saved one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
COMPARED = "nbval-check-output"

SETUP = """
import jupyter_infer.session as ours
from jupyter_infer.engine.scripted import Script, ScriptedEngine
script = Script(answer=lambda prompt: [f"word{number} " for number in range(60)], step_ns=lambda tokens: 10_000_000)
ours._current = ours.Session("scripted", factory=lambda *wanted: lambda progress: ScriptedEngine(script))
"""
CELLS = [
    "%load_ext jupyter_infer",
    SETUP,
    "%%infer -o result\nIn a display that is updated, with a chart.",
    "%%infer -f text\nOn stdout, in pieces.",
    "%%infer -b -o job\nIn the background.",
    "%infer history",
]
VALUES = ["print(result.text)", "print(job.result().usage.output_tokens)", "%%infer -f text;\nMuted, so stdout is all."]


@pytest.fixture(autouse=True)
def nothing_leaks() -> None:
    """The kernels are processes of their own; the shared engine is not loaded for them."""


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A notebook that was run and saved."""
    book = nbformat.v4.new_notebook()
    book.cells = [nbformat.v4.new_code_cell(source) for source in CELLS]
    book.cells += [nbformat.v4.new_code_cell(source, metadata={"tags": [COMPARED]}) for source in VALUES]
    NotebookClient(book, kernel_name="python3").execute()
    path = tmp_path_factory.mktemp("notebooks") / "saved.ipynb"
    nbformat.write(book, path)
    return path


def test_a_saved_notebook_passes_each_time_and_a_value_that_differs_is_found(saved: Path) -> None:
    book = nbformat.read(saved, as_version=4)
    nbformat.write(book, saved.with_name("again.ipynb"))
    book.cells[-1].outputs[0]["text"] = "another answer\n"
    nbformat.write(book, saved.with_name("changed.ipynb"))
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--nbval-lax", "--nbval-current-env", str(saved.parent)]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, cwd=saved.parent, check=False)
    cells = len(CELLS) + len(VALUES)
    assert f"1 failed, {3 * cells - 1} passed" in done.stdout
    assert f"changed.ipynb::Cell {cells - 1}" in done.stdout
    assert "another answer" in done.stdout


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_committed_notebooks_compare_printed_values_alone(path: Path) -> None:
    """A time, a cost, a chart or a display that is updated differs from run to run."""
    cells: list[Any] = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    assert not [output for cell in cells for output in cell.outputs if output.output_type == "error"]
    compared = [cell for cell in cells if COMPARED in cell.metadata.get("tags", [])]
    assert compared
    for cell in compared:
        assert [(output.output_type, output.name) for output in cell.outputs] == [("stream", "stdout")]
        assert not cell.source.startswith("%%infer")
