"""What a playground shows of its runs: rows of the history, texts side by side, lines, and a card without a script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jupyter_infer.charts.labels import cut, one_line
from jupyter_infer.charts.static import table_html
from jupyter_infer.numbers import format_ns, format_rate
from jupyter_infer.pricing import format_usd
from jupyter_infer.widgets._playground_figures import final_figures
from jupyter_infer.widgets._playground_run import PlaygroundRun

__all__ = ["card_html", "row_of", "settings_line", "text_of"]

LABEL_CHARS = 80
STATIC_CHARS = 2_000
"""Characters of the answer on the card, which every saved notebook carries."""
COMPARED_CHARS = 20_000
"""Characters of an answer beside another one."""


def row_of(run: PlaygroundRun) -> dict[str, Any]:
    """Return what the history shows of a run that gave something."""
    assert run.kept is not None
    return {
        "number": run.number,
        "label": cut(one_line(run.prompt), LABEL_CHARS),
        "settings": settings_line(run.sampling) + (" · system message" if run.system else ""),
        "state": run.state,
        "figures": dict(final_figures(run.kept)),
    }


def text_of(run: PlaygroundRun) -> dict[str, Any]:
    """Return what stands beside another run in addition."""
    return {"text": _beginning(run.text, COMPARED_CHARS)}


def settings_line(sampling: Mapping[str, Any]) -> str:
    """Return sampling values in a line; those that are not in it are the model's own."""

    def said(name: str, value: Any) -> str:
        label = name.replace("_", "-")
        return label if value is True else f"{label} {f'{value:g}' if isinstance(value, float) else repr(value)}"

    named = [said(name, value) for name, value in sampling.items()]
    return " · ".join(named) or "the model's own settings"


def card_html(
    title: str,
    run: PlaygroundRun | None,
    prompt: str,
    system: str,
    sampling: Mapping[str, Any],
    history: Sequence[Mapping[str, Any]],
) -> str:
    """Return what is asked, the answer and the history as HTML that needs no script."""
    words = [f"Prompt: {_beginning(prompt, STATIC_CHARS)}"] if prompt else []
    if system:
        words.append(f"System: {_beginning(system, STATIC_CHARS)}")
    words.append(f"Settings: {settings_line(sampling)}")
    if run is not None and (text := run.text):
        words.append(f"Answer: {_beginning(text, STATIC_CHARS)}")
    head = ("run", "settings", "TTFT", "decode speed", "wall cost") if history else ()
    rows = [
        (
            f"{row['number']}: {row['label']}",
            row["settings"],
            format_ns(row["figures"]["ttft_ns"]),
            format_rate(row["figures"]["tokens_per_s"]),
            format_usd(row["figures"]["wall_usd"]),
        )
        for row in reversed(history)
    ]
    return table_html(title, words, head, rows)


def _beginning(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]} … (cut here)"
