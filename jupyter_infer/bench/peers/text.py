"""The peers' bench as tables for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jupyter_infer.numbers import NOT_KNOWN

__all__ = ["peers_text"]


def peers_text(found: Mapping[str, Any]) -> str:
    """Return what `measure_peers` returned as tables."""
    counts = list(found["best"])
    lines = [
        f"{found['model']}, {found['tokens']} output tokens after {found['prompt_tokens']}, greedy; medians of "
        f"{found['rounds']} rounds",
        *_ratios("decode, ours at its best ÷ theirs", found, counts),
        "",
        "decode, tok/s: median (lowest to highest)",
        _row("", [f"{count} at once" for count in counts], 22),
    ]
    for part in ("ours", "peers"):
        for name, one in found[part].items():
            speeds = one.get("decode_tps") or {}
            lines.append(_row(name, [_spread(speeds.get(count)) for count in counts], 22))
    lengths = [*next((one["prefill_tps"] for one in _measured(found)), {})]
    head = ["TTFT", *(f"{length} tokens" for length in lengths), "cold load", "warm load", "of ceiling"]
    lines += ["", "TTFT, s; prefill, tok/s; load, s (imports + the rest)", _row("", head)]
    for part in ("ours", "peers"):
        for name, one in found[part].items():
            if "load" not in one:
                continue
            prefill = [_number((one["prefill_tps"].get(length) or {}).get("median")) for length in lengths]
            loads = [_load(one["load"][kind]) for kind in ("cold", "warm")]
            cells = [_number((one["ttft_s"] or {}).get("median")), *prefill, *loads, _number(one.get("of_ceiling"))]
            lines.append(_row(name, cells))
    probe = found["probe"]
    lines += [
        "",
        f"memory: {_number(probe['sum_gbps'])} GB/s by a sum, {_number(probe['matvec_gbps'])} GB/s by a bf16 "
        "matrix-vector product",
        "of ceiling: decode of one sequence by what the faster of these ÷ the weights' bytes allows",
    ]
    if beside := found.get("beside_busy"):
        lines += ["", *_ratios("beside a busy process: decode, ours at its best ÷ theirs", beside, counts)]
        lines += ["", "beside a busy process: decode, tok/s", _row("", [f"{count} at once" for count in counts], 22)]
        for name, speeds in beside["decode_tps"].items():
            lines.append(_row(name, [_spread(speeds.get(count)) for count in counts], 22))
    for state in ("skipped", "unavailable", "failed"):
        lines += [f"{name} ({state}): {why}" for name, why in found[state].items()]
    return "\n".join(lines)


def _ratios(title: str, found: Mapping[str, Any], counts: Sequence[str]) -> list[str]:
    like = found["like_for_like"]
    rows = {**found["ratio"], "bf16 ÷ vllm_all_cores": like["ratio"]}
    lines = [title, _row("", [f"{count} at once" for count in counts])]
    lines += [_row(name, [_number((row or {}).get(count)) for count in counts]) for name, row in rows.items()]
    return [*lines, _row("our best setting", [found["best"][count] or NOT_KNOWN for count in counts])]


def _measured(found: Mapping[str, Any]) -> list[Any]:
    return [one for part in ("ours", "peers") for one in found[part].values() if "prefill_tps" in one]


def _row(name: str, cells: Sequence[str], width: int = 14) -> str:
    return f"  {name:<22}" + "".join(f"{cell:>{width}}" for cell in cells)


def _number(value: float | None) -> str:
    if value is None:
        return NOT_KNOWN
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _spread(figure: Mapping[str, Any] | None) -> str:
    if figure is None:
        return NOT_KNOWN
    return f"{_number(figure['median'])} ({_number(figure['min'])} to {_number(figure['max'])})"


def _load(load: Mapping[str, float] | None) -> str:
    return NOT_KNOWN if load is None else f"{load['import_s']:.1f} + {load['load_s']:.1f}"
