#!/usr/bin/env python3
"""Write the tables of docs/speed.md from what the benches measured, so that no figure is written by hand.

A table stands between ``<!-- table: NAME from FILE.json -->`` and ``<!-- /table -->``; the files are in docs/bench, as
``jupyter infer bench … --json`` printed them. A file that is not there yet gives a line that says so. ``--check``
writes nothing and exits with 1 if a table is not what its file gives.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "speed.md"
TABLE = re.compile(
    r"(?P<head><!-- table: (?P<name>\S+) from (?P<file>\S+\.json) -->\n).*?(?P<end><!-- /table -->)", re.DOTALL
)
UNKNOWN = "n/a"
NOT_BUSY = "Not measured yet (jupyter infer bench peers --beside-busy).\n"

Json = Mapping[str, Any]
Other = Callable[[str], Json]
"""Returns what another file of the folder holds, nothing if it is not there."""


def main(arguments: Sequence[str], page: Path = PAGE) -> int:
    """Write the tables of a page, or only look with ``--check``; return 1 if one was not as it must be."""
    if wrong := [word for word in arguments if word != "--check"]:
        print(f"unknown option {wrong[0]!r}; there is: --check", file=sys.stderr)
        return 2
    text = page.read_text(encoding="utf-8")
    try:
        written = TABLE.sub(lambda found: _written(found, page.parent / "bench"), text)
    except (LookupError, TypeError, ValueError) as error:
        print(f"{page.name}: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    if text.count("<!-- table:") != len(TABLE.findall(text)):
        print(f"{page.name}: a table has no end, or its first line is not '<!-- table: NAME from FILE.json -->'")
        return 1
    if written == text:
        return 0
    if "--check" in arguments:
        print(f"{page.name}: a table is not what its file gives; type: python tools/write_tables.py")
        return 1
    page.write_text(written, encoding="utf-8")
    print(f"{page.name}: written")
    return 0


def _written(found: re.Match[str], folder: Path) -> str:
    return found["head"] + table(found["name"], folder, found["file"]) + found["end"]


def table(name: str, folder: Path, file: str) -> str:
    """Return the Markdown of one table, with a final newline."""
    if name not in TABLES:
        raise LookupError(f"no table {name!r}; there is: {', '.join(TABLES)}")

    def other(file: str) -> Json:
        source = folder / file
        found: Json = json.loads(source.read_text(encoding="utf-8")) if source.exists() else {}
        return found

    found = other(file)
    return TABLES[name](found, other) if found else f"Not measured yet (docs/bench/{file}).\n"


def ratios(found: Json, other: Other) -> str:
    """Return ours at its best by each peer; targets.json holds what is aimed at: peer → number at once → ratio."""
    return _ratios(found, other("targets.json").get("ratio", {}))


def beside_busy(found: Json, other: Other) -> str:
    """Return the same beside a busy process."""
    busy = found.get("beside_busy")
    return _ratios(busy, other("targets.json").get("beside_busy", {})) if busy else NOT_BUSY


def decode(found: Json, other: Other) -> str:
    """Return decode speeds of ours at each setting and of the peers."""
    speeds = {name: one.get("decode_tps", {}) for part in ("ours", "peers") for name, one in found[part].items()}
    return _speeds(speeds, list(found["best"]))


def beside_busy_decode(found: Json, other: Other) -> str:
    """Return the same beside a busy process."""
    busy = found.get("beside_busy")
    return _speeds(busy["decode_tps"], list(busy["best"])) if busy else NOT_BUSY


def ceiling(found: Json, other: Other) -> str:
    """Return what memory allows one sequence, by setting of ours, and what was reached."""
    rows = []
    for name, one in found["ours"].items():
        weights = None if one.get("read_bytes") is None else one["read_bytes"] / 1e6
        speed = _median(one.get("decode_tps", {}).get("1"))
        share = one.get("of_ceiling")
        percent = UNKNOWN if share is None else f"{100 * share:.0f} %"
        rows.append([name, _number(weights), _number(one.get("ceiling_tps")), _number(speed), percent])
    return _markdown(["ours", "read for a token, MB", "ceiling, tok/s", "decode, tok/s", "of it"], rows)


def load(found: Json, other: Other) -> str:
    """Return load times, imports and the rest, of a first process and of later ones."""
    rows = [
        [name, *(_load(one["load"][kind]) for kind in ("cold", "warm"))] for name, one in _all(found) if "load" in one
    ]
    return _markdown(["", "first, s: imports + load", "later, s: imports + load"], rows)


def prefill(found: Json, other: Other) -> str:
    """Return the time to the first token, and prefill speeds by prompt length."""
    lengths = list(next((one["prefill_tps"] for _, one in _all(found) if "prefill_tps" in one), {}))
    rows = []
    for name, one in _all(found):
        if "prefill_tps" in one:
            ttft = _median(one["ttft_s"])
            cells = [_number(None if ttft is None else 1000 * ttft)]
            rows.append([name, *cells, *(_number(_median(one["prefill_tps"].get(length))) for length in lengths)])
    return _markdown(["", "TTFT, ms", *(f"{length} tokens, tok/s" for length in lengths)], rows)


def absent(found: Json, other: Other) -> str:
    """Return who was not measured, and why."""
    lines = [
        f"- {name}: {why}\n" for state in ("skipped", "unavailable", "failed") for name, why in found[state].items()
    ]
    return "".join(lines) or "All were measured.\n"


def setting(found: Json, other: Other) -> str:
    """Return what was measured, on what."""
    machine, engines = found["machine"], dict.fromkeys(one["version"] for _, one in _all(found) if "version" in one)
    bf16 = "with" if machine["bf16_matmul"] else "without"
    return (
        f"Measured {machine['date']}: {found['model']}, prompts of {found['prompt_tokens']} tokens, "
        f"{found['tokens']} output tokens, greedy; "
        f"{found['rounds']} rounds, {found['repeats']} runs of each kind in each. {machine['cpus']} CPUs "
        f"({machine['architecture']}, {bf16} bf16 products), memory read at {_number(found['probe']['gbps'])} GB/s; "
        f"Python {machine['python']}, {', '.join(engines)}.\n"
    )


def path(found: Json, other: Other) -> str:
    """Return what a step costs of our own, by the requests in it, in a new session and in an old one."""
    old, rows = found["old_session"], []
    for part in ("tracing", "recording"):
        for count, us in found[f"{part}_us_a_step"].items():
            rows.append([part, count, f"{us:,.0f}", f"{old[f'{part}_us_a_step'][count]:,.0f}"])
    after = f"after {old['requests']:,} requests, {old['steps']:,} steps, µs"
    return _markdown(["CPU time a step", "requests", "µs", after], rows)


def display(found: Json, other: Other) -> str:
    """Return what an update of the cell costs, by the length of the answer."""
    rows = [[f"{int(chars):,}", f"{us:,.0f}"] for chars, us in found["display_us_an_update"].items()]
    return _markdown(["characters of the answer", "CPU time an update, µs"], rows)


def step(found: Json, other: Other) -> str:
    """Return the parts of a decode step of one request, by setting."""
    parts = [name.removesuffix("_ms") for name in next(iter(found["steps"].values()))]
    rows = [[setting, *(f"{of[f'{part}_ms']:.2f}" for part in parts)] for setting, of in found["steps"].items()]
    return _markdown(["ms", *parts], rows)


def quality(found: Json, other: Other) -> str:
    """Return what each precision does to one text, and beside it how fast one sequence is decoded with it."""
    ours, rows = other("peers.json").get("ours", {}), []
    for name, of in found.items():
        if isinstance(of, Mapping):
            change = (
                UNKNOWN if name == "bf16" else f"{100 * (of['perplexity'] / found['bf16']['perplexity'] - 1):+.1f} %"
            )
            agreement = f"{100 * of['agreement']:.1f} %" if "agreement" in of else UNKNOWN
            speeds = [ours.get(setting, {}).get("decode_tps", {}).get("1") for setting in (name, f"{name} compiled")]
            rows.append(
                [name, f"{of['perplexity']:.3f}", change, agreement, *(_number(_median(speed)) for speed in speeds)]
            )
    head = [
        f"weights ({found['tokens']:,} tokens)",
        "perplexity",
        "to bf16",
        "agreement",
        "decode, tok/s",
        "compiled, tok/s",
    ]
    return _markdown(head, rows)


TABLES: dict[str, Callable[[Json, Other], str]] = {
    "setting": setting,
    "ratios": ratios,
    "decode": decode,
    "ceiling": ceiling,
    "beside-busy": beside_busy,
    "beside-busy-decode": beside_busy_decode,
    "load": load,
    "prefill": prefill,
    "absent": absent,
    "path": path,
    "display": display,
    "step": step,
    "quality": quality,
}


def _all(found: Json) -> list[tuple[str, Any]]:
    return [item for part in ("ours", "peers") for item in found[part].items()]


def _ratios(found: Json, aims: Json) -> str:
    counts = list(found["best"])
    rows = []
    for name, row in found["ratio"].items():
        cells = []
        for count in counts:
            cell, aim = _number((row or {}).get(count)), aims.get(name, {}).get(count)
            cells.append(cell if aim is None else f"{cell} (target {aim:g})")
        rows.append([f"ours ÷ {name}", *cells])
    like = found["like_for_like"]
    rows.append(["bf16 of ours ÷ vllm_all_cores", *(_number(like["ratio"][count]) for count in counts)])
    rows.append(["our best setting", *(found["best"][count] or UNKNOWN for count in counts)])
    return _markdown(["at once", *counts], rows)


def _speeds(speeds: Json, counts: Sequence[str]) -> str:
    rows = [[name, *(_spread(row.get(count)) for count in counts)] for name, row in speeds.items()]
    return _markdown(["tok/s at once", *counts], rows)


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def _median(figure: Json | None) -> float | None:
    return None if figure is None else figure["median"]


def _spread(figure: Json | None) -> str:
    if figure is None:
        return UNKNOWN
    return f"{_number(figure['median'])} ({_number(figure['min'])} to {_number(figure['max'])})"


def _load(found: Json | None) -> str:
    return UNKNOWN if found is None else f"{found['import_s']:.1f} + {found['load_s']:.1f}"


def _number(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
