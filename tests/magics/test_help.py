"""The help and the page that ``%%infer?`` shows: all of it, and no line too wide to read."""

from __future__ import annotations

from jupyter_infer.magics.commands import COMMANDS
from jupyter_infer.magics.help import help_text, page
from jupyter_infer.magics.infer import InferMagics
from jupyter_infer.magics.options import OPTIONS


def test_the_help_names_every_option_and_command() -> None:
    text = help_text(COMMANDS.values())
    for option in OPTIONS:
        assert ", ".join([*option.names[:-1], option.usage]) in text
        assert option.does in text
    for command in COMMANDS.values():
        assert command.usage in text
        assert command.does in text
    assert max(len(line) for line in text.splitlines()) <= 120


def test_the_page_of_the_magic_is_the_help_with_examples() -> None:
    text = page(COMMANDS.values())
    assert InferMagics.infer.__doc__ == text
    assert help_text(COMMANDS.values()) in text
    assert "%%infer --split" in text
    assert max(len(line) for line in text.splitlines()) <= 120
