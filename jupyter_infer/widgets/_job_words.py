"""Where a job of a widget is, and why it failed, in a line."""

from __future__ import annotations

from typing import Any

from jupyter_infer.charts.labels import cut, one_line
from jupyter_infer.errors import InferError
from jupyter_infer.widgets import _messages
from jupyter_infer.widgets._job import Job

__all__ = ["error_line", "stage_line"]

STAGE_CHARS = 80


def stage_line(job: Job[Any]) -> str:
    """Return where the load is that a job waits for."""
    if job.stopping:
        return "stopping"
    if (stage := job.stage) is None:
        return ""
    return cut(f"{stage.stage}, {stage.detail}" if stage.detail else stage.stage, STAGE_CHARS)


def error_line(error: Exception) -> str:
    """Return an error as a line; one that the user can mend says what to do, and its kind adds nothing."""
    return one_line(str(error)) if isinstance(error, InferError) else _messages.one_line(error)
