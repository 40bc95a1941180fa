"""The extension loads beside nothing but IPython: what is heavy, or for charts and widgets, comes when it is used."""

from __future__ import annotations

import json
import subprocess
import sys

LATER = ("anywidget", "ipywidgets", "plotly", "pandas", "torch", "vllm", "transformers", "markdown_it")

SCRIPT = """
import json, sys

from importlib.machinery import PathFinder

find_spec = PathFinder.find_spec  # as if they were not installed
PathFinder.find_spec = lambda name, *rest: None if name.partition(".")[0] in LATER else find_spec(name, *rest)
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance(colors="nocolor")
cells = ["import jupyter_infer", "%load_ext jupyter_infer", "%infer help", "%infer status", '''
import jupyter_infer.session as ours
from jupyter_infer.engine.scripted import Script, ScriptedEngine
ours._current = ours.Session("scripted", factory=lambda *wanted: lambda progress: ScriptedEngine(Script()))
''', "%%infer --no-chart -f text\\nHi", "%unload_ext jupyter_infer"]
failed = [cell for cell in cells if not shell.run_cell(cell).success]
print(json.dumps([failed, sorted(set(LATER) & set(sys.modules))]), file=sys.stderr)
"""


def test_the_extension_loads_and_answers_without_what_only_charts_and_engines_need() -> None:
    script = f"LATER = {LATER!r}\n{SCRIPT}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert json.loads(done.stderr.splitlines()[-1]) == [[], []]
    assert "Traceback" not in done.stdout + done.stderr
    assert "Hello, world.\n" in done.stdout
