"""The bars of the cost chart: the machine's whole time, and what each request cost by each way to count."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jupyter_infer.charts._cost_parts import SHARED, WALL, Measure, Parts, dollars, shared_ns, wall_ns
from jupyter_infer.charts.labels import cut, escape, in_template, text_width, wrap_html
from jupyter_infer.charts.packed import pack
from jupyter_infer.charts.template import COLORS, HATCH, INK, PLOT, SMALL, TEXT_ON
from jupyter_infer.metrics import DEFINITIONS
from jupyter_infer.numbers import format_count, format_ns, format_share
from jupyter_infer.pricing import api_usd, format_usd
from jupyter_infer.run import Run

__all__ = ["API", "REST", "api_panel", "panel", "strip"]

HOVER_WIDTH = 330
TOLD = 60  # requests whose hover texts are words
REST = {"unattributed": ("#d0d7de", "+", "not attributed"), "idle": ("#eef1f4", "/", "idle, nobody's")}
API = "API cost (another price)"


def strip(parts: Parts, measure: Measure) -> tuple[list[dict[str, Any]], str]:
    """Return the bar of the machine's whole time, a trace a part, and the unit of its axis."""
    amounts = {name: getattr(parts, name) for name in (*SHARED, *REST)}
    unit, size = measure.unit([measure.amount(parts.drawn)])
    traces = []
    for name, time_ns in amounts.items():
        if not time_ns:
            continue
        share = format_share(time_ns, parts.elapsed)
        trace = _bars(name, [(measure.amount(time_ns) or 0) / size], 1.0) | {"xaxis": "x9", "yaxis": "y9"}
        trace["customdata"] = [[escape(measure.text(time_ns)), format_ns(time_ns), share]]
        trace["hovertemplate"] = (
            f"<b>{named(name)}: %{{customdata[0]}}</b><br>%{{customdata[1]}} of the machine, %{{customdata[2]}} of "
            "the time from the first arrival on<extra></extra>"
        )
        texts = (f"{named(name)} {share}", share)
        room = 340 * time_ns / parts.drawn  # pixels of it on a narrow page
        trace["text"] = [next((text for text in texts if text_width(text, SMALL) + 8 <= room), "")]
        trace |= {"textposition": "inside", "insidetextanchor": "middle", "textangle": 0, "constraintext": "none"}
        trace["textfont"] = {"size": SMALL, "color": TEXT_ON.get(name, INK)}
        traces.append(trace)
    return traces, unit


def panel(kind: str, run: Run, measure: Measure, width: float) -> tuple[list[dict[str, Any]], str]:
    """Return the bars of shared or wall costs by phase, and the title of their axis."""
    phases, of = (SHARED, shared_ns) if kind == "shared" else (WALL, wall_ns)
    times = [of(record) for record in run.requests]
    if kind == "wall":  # one that did not get to its end has no wall cost, and parts of one would look like it
        times = [known if None not in known.values() else dict.fromkeys(known) for known in times]
    sums = [sum(ns or 0 for ns in known.values()) for known in times]
    unit, size = measure.unit([measure.amount(ns) for ns in sums])
    term = f"{kind} cost"
    traces = []
    for phase in phases:
        amounts = [measure.amount(known[phase]) for known in times]
        if not any(amounts):
            continue
        trace = _bars(phase, [None if amount is None else amount / size for amount in amounts], width)
        trace |= {"xaxis": "x" if kind == "shared" else "x2", "yaxis": "y"}
        told = [
            [measure.text(known[phase]), format_share(known[phase], all_of), measure.text(all_of)]
            for known, all_of in zip(times, sums, strict=True)
        ]
        trace |= _hover(run, f"{kind} {phase}", told, unit, DEFINITIONS[term])
        traces.append(trace)
    return traces, f"{kind} {'cost' if run.price is not None else 'time'}, {unit}"


def api_panel(run: Run, width: float) -> tuple[list[dict[str, Any]], str]:
    """Return bars without a filling of what the API takes, and the title of their axis."""
    api = run.header.api_price
    usd = [None if api is None else api_usd(record, api) for record in run.requests]
    unit, size = dollars(max((amount for amount in usd if amount is not None), default=0.0))
    trace = _bars("API", [None if amount is None else amount / size for amount in usd], width)
    trace |= {"name": API, "xaxis": "x3", "yaxis": "y"}
    outlined = {"color": PLOT, "line": {"width": 1.2, "color": INK}}
    trace["marker"] = outlined if len(usd) <= TOLD else {"color": "#d0d7de"}  # lines would be all that is seen
    told = [
        [format_usd(amount), f"{format_count(record.prompt_tokens)} in", f"{format_count(record.output_tokens)} out"]
        for amount, record in zip(usd, run.requests, strict=True)
    ]
    trace |= _hover(run, "API", told, unit, f"{DEFINITIONS['API cost']}; {api}")
    return [trace], f"API, {unit}"


def _hover(run: Run, name: str, told: Sequence[Sequence[str]], unit: str, meaning: str) -> dict[str, Any]:
    """Return what bars say: in words for some requests, from their numbers for many."""
    defined = in_template(wrap_html(meaning, HOVER_WIDTH, SMALL))
    if len(told) > TOLD:
        shown = f"%{{x:.3~g}} {escape(unit)}"
        return {"hovertemplate": f"<b>request %{{y}}</b><br><b>{name}: {shown}</b><br><i>{defined}</i><extra></extra>"}
    joined = " of " if name != "API" else ", "
    return {
        "customdata": [
            [escape(cut(f"{number} · {record.label}")), *map(escape, texts)]
            for number, (record, texts) in enumerate(zip(run.requests, told, strict=True), 1)
        ],
        "hovertemplate": (
            f"<b>%{{customdata[0]}}</b><br><b>{name}: %{{customdata[1]}}</b>, %{{customdata[2]}}{joined}"
            f"%{{customdata[3]}}<br><i>{defined}</i><extra></extra>"
        ),
    }


def _bars(name: str, values: Sequence[float | None], width: float) -> dict[str, Any]:
    color, hatch, _ = REST.get(name, (COLORS.get(name, PLOT), HATCH.get(name, ""), ""))
    marker: dict[str, Any] = {"color": color, "line": {"width": 0}}
    if hatch:
        marker["pattern"] = {
            "shape": hatch, "fillmode": "overlay", "size": 6, "solidity": 0.2, "fgcolor": INK, "fgopacity": 0.35,
        }  # fmt: skip
    return {
        "type": "bar",
        "orientation": "h",
        "name": named(name),
        "x": pack(values),
        "y0": 1,
        "dy": 1,
        "width": round(width, 4),
        "marker": marker,
    }


def named(name: str) -> str:
    return REST[name][2] if name in REST else name
