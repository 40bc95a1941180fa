"""The build hook: bundles of the widgets' front end go into the wheel, so that users need no Node."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class FrontEndHook(BuildHookInterface):
    """Builds ``jupyter_infer/static`` where it is missing or of other sources (see ``tools/front_end.py``)."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """Return Node as a package of PyPI, if a build needs one and none is there."""
        return _tool().FrontEnd(Path(self.root)).requirements()

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build before the files are collected."""
        tool = _tool()
        try:
            tool.FrontEnd(Path(self.root), self.app.display_warning).build()
        except tool.FrontEndError as error:
            self.app.abort(f"the widgets' front end is missing: {error}")


def _tool() -> Any:
    path = Path(__file__).parent / "tools" / "front_end.py"
    spec = importlib.util.spec_from_file_location("jupyter_infer_front_end", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # a dataclass looks its module up
    spec.loader.exec_module(module)
    return module
