"""What ``%infer`` prints: facts of a session as lines of text."""

from __future__ import annotations

from collections.abc import Sequence

from jupyter_infer.charts.labels import cut
from jupyter_infer.models import CATALOG, canonical_name, on_disk
from jupyter_infer.numbers import format_count, format_ns, format_rate
from jupyter_infer.pricing import format_usd
from jupyter_infer.records import EngineInfo
from jupyter_infer.result import Result
from jupyter_infer.session import Session, Status

__all__ = ["describe", "describe_status", "history_table", "models_table", "tokens_table"]

HISTORY_SHOWN = 20
TOKENS_SHOWN = 200


def describe(info: EngineInfo) -> str:
    """Return what was loaded, in a line or two."""
    pool = f"{format_count(info.kv_blocks_total)} blocks × {info.block_size} tokens"
    size = f" = {info.kv_bytes / 2**20:,.0f} MiB" if info.kv_bytes is not None else ""
    lines = [
        f"✓ {info.model} · {info.engine} on {info.device} · {info.dtype} · "
        f"context {format_count(info.max_model_len)} · KV pool {pool}{size} · {info.threads or 'n/a'} threads · "
        f"loaded in {format_ns(info.load_ns)}",
        *info.notices,
    ]
    return "\n".join(lines)


def describe_status(status: Status) -> str:
    """Return the state of a session, one fact a line."""
    lines = [f"state      {status.state}"]
    if status.info is not None:
        info = status.info
        lines += [
            f"model      {info.model} ({info.engine} on {info.device}, {info.dtype})",
            f"context    {format_count(info.max_model_len)} tokens, at most {info.max_num_batched_tokens} a step",
            f"requests   {status.open_requests} open, at most {info.max_num_seqs} at once",
            f"KV pool    {format_count(status.kv_blocks_free)} of {format_count(info.kv_blocks_total)} blocks free",
            f"busy       {format_ns(status.busy_ns)} since the load",
        ]
    lines.append(f"memory     {status.rss_bytes / 2**20:,.0f} MiB resident")
    return "\n".join(lines)


def history_table(history: Sequence[Result]) -> str:
    """Return the last results, newest last, a line each."""
    if not history:
        return "nothing was asked yet"
    shown = list(history)[-HISTORY_SHOWN:]
    rows = [("id", "prompt", "in → out", "cached", "TTFT", "decode", "e2e", "shared cost", "end")]
    for result in shown:
        record, times = result.record, result.phases
        rows.append(
            (
                record.request_id,
                cut(record.label, 32),
                f"{format_count(record.prompt_tokens)} → {format_count(record.output_tokens)}",
                format_count(record.cached_tokens),
                format_ns(times.ttft_ns),
                format_rate(times.decode_tps),
                format_ns(times.e2e_ns),
                format_usd(result.cost.shared_usd),
                record.finish_reason,
            )
        )
    older = len(history) - len(shown)
    return _columns(rows, left={0, 1, 8}) + (f"\n… and {older:,} older ones" if older else "")


def models_table(session: Session) -> str:
    """Return the models of the catalogue, a line each."""
    loaded = canonical_name(session.model) if session.info else None
    rows = [("name", "hub id", "bf16 weights", "")]
    for model in CATALOG:
        place = "loaded" if model.name == loaded else "on this machine" if on_disk(model) else ""
        rows.append((model.name, model.hub_id, f"{model.weight_bytes / 1e9:.2g} GB", place))
    lines = _columns(rows, left={0, 1, 3})
    return f"{lines}\nalso: any hub id (org/name), a model folder, a .gguf file; next is {session.model}"


def tokens_table(model: str, text: str, tokens: Sequence[tuple[int, str]]) -> str:
    """Return how a text is cut into tokens: id and piece, the first ones only of a long text."""
    plural = "" if len(tokens) == 1 else "s"
    head = f"{len(tokens):,} token{plural} of {model} · {len(text):,} characters, without the chat template"
    pieces = [f"{token} {piece!r}" for token, piece in tokens[:TOKENS_SHOWN]]
    more = len(tokens) - len(pieces)
    return "\n".join([head, " · ".join(pieces), *([f"… and {more:,} more"] if more else [])])


def _columns(rows: Sequence[Sequence[str]], left: set[int]) -> str:
    """Return rows as lines with aligned columns; those in `left` are flush left, the others right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )
