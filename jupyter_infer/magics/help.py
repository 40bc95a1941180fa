"""What ``%infer help`` says."""

from __future__ import annotations

from jupyter_infer.magics.options import OPTIONS

__all__ = ["COMMANDS", "help_text"]

COMMANDS = {
    "load [MODEL] [--NAME VALUE …]": "load a model; any vLLM engine setting: --max-model-len 2048 --dtype bfloat16",
    "unload": "free the engine's memory",
    "status": "model, state, KV pool, memory",
    "stop": "abort all requests",
    "last": "the last result again, with its chart",
    "logs": "what the engine logged",
    "help": "this text",
}


def help_text() -> str:
    """Return options and commands, one a line."""
    options = [(f"{', '.join(o.names)}{f' {o.value}' if o.value else ''}", o.does) for o in OPTIONS]
    options.append(("--NAME VALUE", "any other vLLM sampling value: --top-p 0.9 --min-p 0.05 --n 3"))
    return "\n".join(
        [
            "%%infer [options]         the cell's text is the prompt, as typed",
            *(f"  {names:<24}{does}" for names, does in options),
            '  a quoted value is a Python string: --stop "\\n\\n"',
            "%infer COMMAND",
            *(f"  {names:<30}{does}" for names, does in COMMANDS.items()),
        ]
    )
