"""What ``%infer help`` and ``%%infer?`` say."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from jupyter_infer.magics.options import OPTIONS

__all__ = ["help_text", "page"]

_RULES = r"""
Below the line stands the prompt, as typed. The model's chat template is applied to it.

    %%infer -t 0 --max-tokens 64          a short answer, the likeliest one
    Why is the sky blue?

    %%infer -s "be brief" -i              values of variables: {name} {name.attribute} {name[0]}
    Summarise {text}

    %%infer -c                            goes on with the conversation of the cell before
    And at night?

    %%infer --split --max-tokens 16 -o r  two prompts, one batch; r holds the results
    One fruit?
    ---
    One colour?

A value in quotes is a Python string: --stop "\n\n" is two line breaks. A bare one is taken as typed. Options have no
abbreviations, and those that stand below the first line are part of the prompt.

The cell's value is a Result (of a batch Results): .text .usage .phases .cost .steps .record, .figure("steps"),
.to_pandas(), .to_jsonl("run.jsonl"), .to_trace("run.json"). `;` at the end of the line or of the cell mutes it: the
answer alone is shown. An interrupt stops the request and keeps the text so far. Defaults are set by
%config InferMagics.max_tokens = 100 or in ipython_config.py: %config InferMagics lists them. Engine settings belong to
%infer load.
"""


class _Command(Protocol):
    @property
    def usage(self) -> str: ...
    @property
    def does(self) -> str: ...


def help_text(commands: Iterable[_Command]) -> str:
    """Return options and commands, one a line."""
    options = [
        (", ".join([*option.names[:-1], option.usage]), option.does)  # -s, --system TEXT
        for option in OPTIONS
    ]
    return "\n".join(
        [
            "%%infer [options]",
            *_lines(options, 30),
            "%infer COMMAND",
            *_lines([(command.usage, command.does) for command in commands], 30),
        ]
    )


def page(commands: Iterable[_Command]) -> str:
    """Return what ``%%infer?`` shows: what it is, examples, options, commands."""
    head = "Send the cell to a vLLM engine in this kernel and show where its time and cost went."
    return f"{head}\n{_RULES}\n{help_text(commands)}"


def _lines(rows: Iterable[tuple[str, str]], width: int) -> list[str]:
    return [f"  {name:<{width}}{does}" for name, does in rows]
