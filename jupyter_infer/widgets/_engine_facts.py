"""The model and the engine's settings as a line to read."""

from __future__ import annotations

from jupyter_infer.numbers import NOT_KNOWN, format_count
from jupyter_infer.session import Session, Status

__all__ = ["engine_facts"]


def engine_facts(session: Session, status: Status) -> list[list[str]]:
    """Return pairs of label and value: the model first, then what holds for the one that is loaded."""
    info = status.info
    if info is None:
        after = "loading" if status.state == "loading" else "not loaded; the first run loads it"
        return [["model", session.model], ["engine", after]]
    device = info.device if info.dtype in ("", "none") else f"{info.device}, {info.dtype}"
    return [
        ["model", info.model],
        ["engine", info.engine],
        ["device", device],
        ["context", f"{format_count(info.max_model_len)} tokens"],
        ["a step", f"{format_count(info.max_num_batched_tokens)} tokens at most"],
        ["KV pool", f"{format_count(info.kv_blocks_total)} blocks of {format_count(info.block_size)}"],
        ["threads", NOT_KNOWN if info.threads is None else format_count(info.threads)],
    ]
