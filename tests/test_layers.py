"""Nothing imports upwards, and each foreign library is named where it belongs."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import jupyter_infer

PACKAGE = Path(jupyter_infer.__file__).parent

LAYERS = (
    {"errors", "interrupts", "versions", "_version"},
    {"records", "config", "numbers"},
    {
        "metrics",
        "gaps",
        "outliers",
        "pool",
        "pool_rebuild",
        "bandwidth",
        "bottleneck",
        "comparison",
        "run",
        "jsonl",
        "frames",
        "chrome_trace",
        "attribution",
        "pricing",
        "api_prices",
        "structured",
        "hardware",
        "kernelspec",
    },
    {"models"},
    {"engine"},
    {"charts", "markdown"},
    {"handle", "recorded", "result", "results", "batch", "loading", "session", "warm"},
    {"display"},
    {"widgets"},
    {"magics"},
    {"doctor", "bench"},
    {"cli", "__main__"},
)
HEIGHT = {name: height for height, names in enumerate(LAYERS) for name in names}

# Where a foreign library may be imported: prefixes of file names below the package.
PLACES = {
    "vllm": ("engine/vllm", "engine/trace.py", "bench/peers/stock_vllm.py"),
    "plotly": ("charts/",),
    "anywidget": ("widgets/",),
    "markdown_it": ("markdown.py",),
    "genai_prices": ("api_prices.py",),
    "IPython": ("display/", "widgets/", "magics/"),
}
# Charts and displays see records and events, never an engine.
BLIND = {"charts": {"engine", "models"}, "display": {"engine", "models"}}

HEAVY = ("vllm", "torch", "plotly", "pandas", "numpy")

MODULES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))


def imports(source: str, place: str) -> Iterator[str]:
    """Yield the full name of every module that `source` imports when it runs, wherever it does so."""
    parents = ["jupyter_infer", *Path(place).parts[:-1]]
    waiting: list[ast.AST] = [ast.parse(source)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            waiting += node.orelse
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = parents[: len(parents) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            # `from jupyter_infer import hardware` names a module; `from jupyter_infer.errors import x` none.
            yield from (f"{module}.{alias.name}" for alias in node.names) if module == "jupyter_infer" else (module,)
        else:
            waiting += ast.iter_child_nodes(node)


def offences(source: str, place: str) -> list[str]:
    """Return what is wrong with the imports of the module at `place`, a path below the package."""
    own = place.removesuffix(".py").split("/")[0]
    found = []
    for name in imports(source, place):
        top, _, rest = name.partition(".")
        if top == "jupyter_infer":
            ours = rest.split(".")[0]
            if ours not in HEIGHT:
                found.append(f"{place} imports {name}, which is in no layer")
            # The package's own face is above everything: it loads all of it lazily.
            elif own != "__init__" and HEIGHT[ours] > HEIGHT[own]:
                found.append(f"{place} imports {name}, which lies above it")
            elif ours in BLIND.get(own, ()):
                found.append(f"{place} imports {name}, which it is not to see")
        elif top in PLACES and not place.startswith(PLACES[top]):
            found.append(f"{place} imports {name}, which belongs in {' or '.join(PLACES[top])}")
    return found


@pytest.mark.parametrize("place", MODULES)
def test_no_module_imports_upwards_or_names_a_library_that_is_not_its_own(place: str) -> None:
    assert offences((PACKAGE / place).read_text(), place) == []


def test_every_module_is_in_a_layer() -> None:
    assert {place.removesuffix(".py").split("/")[0] for place in MODULES} - {"__init__"} <= set(HEIGHT)


@pytest.mark.parametrize(
    ("source", "place", "says"),
    [
        ("from jupyter_infer.session import Session", "engine/worker.py", "lies above it"),
        ("from jupyter_infer import session", "metrics.py", "lies above it"),
        ("def f():\n    from ..session import Session", "engine/worker.py", "lies above it"),
        ("from . import display", "result.py", "lies above it"),
        ("try:\n    import vllm.envs\nexcept ImportError: pass", "session.py", "engine/vllm"),
        ("import plotly.graph_objects as go", "result.py", "charts/"),
        ("from anywidget import AnyWidget", "magics/infer.py", "widgets/"),
        ("from IPython.display import display", "session.py", "display/"),
        ("from jupyter_infer.helpers import x", "session.py", "in no layer"),
        ("from jupyter_infer.engine.worker import EngineWorker", "charts/phases.py", "not to see"),
        ("if TYPE_CHECKING:\n    pass\nelse:\n    import vllm", "session.py", "engine/vllm"),
    ],
)
def test_a_bad_import_is_caught(source: str, place: str, says: str) -> None:
    (offence,) = offences(source, place)
    assert says in offence


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ("if TYPE_CHECKING:\n    import plotly\n    import pandas", "result.py"),
        ("if typing.TYPE_CHECKING:\n    from jupyter_infer.session import Session", "records.py"),
        ("import vllm.v1", "engine/vllm_api.py"),
        ("from jupyter_infer.result import Result", "session.py"),
        ("from .line import parse_line", "magics/infer.py"),
    ],
)
def test_a_good_import_passes(source: str, place: str) -> None:
    assert offences(source, place) == []


def test_importing_the_package_brings_no_heavy_library() -> None:
    code = (
        "import sys, time; begun = time.perf_counter(); import jupyter_infer; took = time.perf_counter() - begun\n"
        f"print(f'{{took:.3f}} s', file=sys.stderr); print(*sorted({set(HEAVY)!r} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    print(f"import jupyter_infer took {done.stderr.strip()}")  # shown by pytest -s; a number, not a test
    assert done.stdout.split() == []


def test_every_public_name_of_the_package_is_there() -> None:
    for name in jupyter_infer.__all__:
        assert getattr(jupyter_infer, name) is not None
    assert set(jupyter_infer.__all__) <= set(dir(jupyter_infer))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = jupyter_infer.nothing
