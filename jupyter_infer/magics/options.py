"""The options of ``%%infer``."""

from __future__ import annotations

from jupyter_infer.magics.line import Option

__all__ = ["FORMATS", "OPTIONS", "SAMPLING"]

FORMATS = ("markdown", "text")

OPTIONS = (
    Option(("-m", "--model"), "MODEL", "use this model; it is loaded if another one is"),
    Option(("-s", "--system"), "TEXT", "a system message before the prompt"),
    Option(("-t", "--temperature"), "X", "0 always takes the likeliest token", float),
    Option(("--max-tokens",), "N", "output tokens at most (256)", int),
    Option(("--top-p",), "X", "draw from the likeliest tokens that together have this probability", float),
    Option(("--top-k",), "N", "draw from the N likeliest tokens", int),
    Option(("--seed",), "N", "the same seed gives the same answer", int),
    Option(("--stop",), "TEXT", "end before this text; can be repeated", many=True),
    Option(("--ignore-eos",), None, "go on to --max-tokens, even where the model would end"),
    Option(("-n",), "N", "this many answers to the one prompt", int),
    Option(("--logprobs",), "N", "keep how likely each token was, and the N likeliest ones, in the record", int),
    Option(("--schema",), "FILE|NAME", "the answer is JSON that fits this schema: a file, or a variable"),
    Option(("--regex",), "REGEX", "the whole answer matches this"),
    Option(("--choice",), "TEXT", "the answer is one of these texts; repeat it for each", many=True),
    Option(("--sampling",), "KEY VALUE", "any other sampling value of vLLM: --sampling min_p 0.05"),
    Option(("--no-template",), None, "a raw completion, without the model's chat template"),
    Option(("-c", "--continue"), None, "carry on the conversation of the last cell"),
    Option(("-i", "--interpolate"), None, "put values of variables in: {name}, {name.attribute}, {name[0]}"),
    Option(
        ("--split",),
        "[SEP]",
        "several prompts in the cell, run as one batch; between them a line SEP (---)",
        default="---",
    ),
    Option(("--prompts",), "NAME", "the prompts are this list of strings, run as one batch; the cell is empty"),
    Option(("--no-cache",), None, "compute the whole prompt, whatever the prefix cache has"),
    Option(("-b", "--background"), None, "return a handle at once; the text still comes to this cell"),
    Option(("-o", "--out"), "NAME", "keep the cell's value under this name"),
    Option(("-f", "--format"), "FORMAT", "markdown (default in a notebook) or text (default in a terminal)"),
    Option(("--no-stream",), None, "show the answer when it is whole"),
    Option(("--no-chart",), None, "show the status line without the chart"),
    Option(("--json",), None, "print one JSON object (a list for a batch) and nothing else"),
)

SAMPLING = ("temperature", "max_tokens", "top_p", "top_k", "seed", "stop", "ignore_eos", "n", "logprobs")
"""The options that are vLLM's sampling values, by its names."""
