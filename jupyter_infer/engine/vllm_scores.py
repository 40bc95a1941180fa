"""How well a model predicts a text, asked of vLLM's own loop with nothing of ours around it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from jupyter_infer.engine.sizing import plan_load
from jupyter_infer.engine.vllm_api import import_vllm
from jupyter_infer.engine.vllm_load import LOAD_ENVIRON
from jupyter_infer.models import ResolvedModel

__all__ = ["token_scores"]

STEP = 128
"""Tokens a step: vLLM holds the probabilities of the whole vocabulary for each of them."""


def token_scores(
    model: ResolvedModel, settings: Mapping[str, Any], text: str, *, longest: int
) -> tuple[list[float], list[int]]:
    """Return the log-probability of each token of a text after those before it, and the likeliest token there.

    The first token has nothing before it and is left out.

    Parameters
    ----------
    model
        What to load, as it is.
    settings
        vLLM `EngineArgs` over those that suit the machine.
    text
        The text, without a chat template.
    longest
        How many tokens to read at most.
    """
    os.environ.update(LOAD_ENVIRON)
    vllm = import_vllm()
    small = {"max_num_seqs": 1, "max_num_batched_tokens": STEP}
    plan = plan_load(model, {**small, **settings}, gpu=vllm.device == "cuda")
    engine = vllm.LLMEngine.from_engine_args(
        vllm.EngineArgs(model=str(model.path), disable_log_stats=True, **plan.settings)
    )
    room = min(longest, engine.model_config.max_model_len - 1)
    ids = engine.get_tokenizer().encode(text)[:room]
    params = vllm.SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=1)
    engine.add_request("text", vllm.tokens_input(ids), params)
    answers: list[Any] = []
    while engine.has_unfinished_requests():
        answers += engine.step()
    rows = answers[-1].prompt_logprobs[1:]
    scores = [float(row[token].logprob) for token, row in zip(ids[1:], rows, strict=True)]
    return scores, [next(token for token, found in row.items() if found.rank == 1) for row in rows]
