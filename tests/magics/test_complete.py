"""Tab in the lines of the magics."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_infer.magics.commands import COMMANDS
from jupyter_infer.models import known_models


def completions(shell: Any, code: str) -> list[str]:
    """Return what a front end would offer at the end of `code`, as whole words."""
    from IPython.core.completer import provisionalcompleter

    with provisionalcompleter():
        found = list(shell.Completer.completions(code, len(code)))
    return [code[: completion.start].rsplit(" ", 1)[-1] + completion.text for completion in found]


@pytest.mark.parametrize(
    ("code", "offered"),
    [
        ("%%infer --max", {"--max-tokens"}),
        ("%%infer --no", {"--no-template", "--no-cache", "--no-stream", "--no-chart"}),
        ("%%infer -t 0 --te", set()),  # it is there already
        ("%%infer --stop a --st", {"--stop"}),  # it can be repeated
        ("%%infer --log", {"--logprobs"}),
        ("%%infer -m smol", {"smollm2-135m"}),
        ("%%infer --format ma", {"markdown"}),
        ("%%infer --prompts q", {"questions"}),
        ("%infer lo", {"load", "logs"}),
        ("%infer clear ", {"chat", "history", "cache"}),
        ("%infer load qwen3-0", {"qwen3-0.6b"}),
        ("%infer load --", {"--bits", "--compile"}),
        ("%infer load qwen3-0.6b --bits 8 --", {"--compile"}),
    ],
)
def test_tab_offers_what_can_stand_there(shell: Any, code: str, offered: set[str]) -> None:
    shell.user_ns |= {"questions": ["a"], "quiet": "text"}
    found = set(completions(shell, code))
    assert offered <= found
    ours = {name for name in found if name.startswith("--") or name in COMMANDS or name in known_models()}
    assert ours <= offered


def test_tab_offers_all_of_it(shell: Any) -> None:
    assert set(COMMANDS) <= set(completions(shell, "%infer "))
    assert {"--model", "--json", "-n"} <= set(completions(shell, "%%infer -"))


def test_the_prompt_is_not_completed_as_options(shell: Any) -> None:
    assert "--max-tokens" not in completions(shell, "%%infer\nuse --max")
    assert "--max-tokens" not in completions(shell, "x = 1\n%%infer --max")


def test_completion_goes_with_the_extension(shell: Any) -> None:
    shell.run_line_magic("unload_ext", "jupyter_infer")
    assert "--max-tokens" not in completions(shell, "%%infer --max")
    shell.run_line_magic("load_ext", "jupyter_infer")
    shell.run_line_magic("reload_ext", "jupyter_infer")
    assert completions(shell, "%%infer --max") == ["--max-tokens"]
