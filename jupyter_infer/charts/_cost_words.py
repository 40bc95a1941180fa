"""The sentences under the cost chart, and its prices of a million tokens."""

from __future__ import annotations

from collections.abc import Collection

from jupyter_infer.charts._cost_parts import SHARED, UNITS, Measure, Parts
from jupyter_infer.metrics import DEFINITIONS, phases
from jupyter_infer.numbers import format_count, format_share, format_times
from jupyter_infer.pricing import api_blended, api_usd, format_usd, per_million
from jupyter_infer.run import Run

__all__ = ["api_total", "cost_advice", "cost_caption", "cost_reading"]

IDLE = 0.05  # of the elapsed time, from which on the reading tells it
ALONE = 1.3  # times the shared cost: requests whose wall cost is less had the machine almost to themselves
STALLED = 0.1  # of the shared cost, from which on lost KV is worth a larger pool


def cost_reading(run: Run, parts: Parts) -> str:
    """Return one sentence on where the money went."""
    if not run.requests:
        return "No request ran."
    measure, count = Measure(run.price), len(run.requests)
    many = f"{format_count(count)} request{'' if count == 1 else 's'}"
    if all(record.shared_ns is None for record in run.requests):
        return f"Shared cost of {many}: n/a, because no step computed anything of {'it' if count == 1 else 'them'}."
    if never := sum(record.shared_ns is None for record in run.requests):  # of these no step computed anything
        many = f"{format_count(count - never)} of {many}"
    phase = max(SHARED, key=lambda name: getattr(parts, name))
    texts = [f"Shared cost of {many}: {measure.text(parts.shared)}"]
    if run.price is None:
        took = f"{many} took {measure.text(parts.shared)} of the engine's work"
        texts = [f"No machine price is set, so times stand for costs; {took}"]
    texts[0] += f", {format_share(getattr(parts, phase), parts.shared)} of it {phase}"
    ratio, wall = _wall(run)
    if ratio is not None and ratio >= 1.05 and count > 1:
        paid = "paid by the wall clock, as if each had the machine to itself, it would be"
        taken = "by the wall clock they took" if run.price is None else paid
        texts.append(f"{taken} {format_times(ratio)} times as much")
    elif wall is not None:
        texts.append(f"by the wall clock it was {measure.text(wall)}")
    if parts.idle is not None and parts.elapsed and parts.idle >= IDLE * parts.elapsed:
        idle = f"{measure.text(parts.idle)} ({format_share(parts.idle, parts.elapsed)} of the time)"
        texts.append(f"nobody's request pays for {idle} in which the machine idled")
    return "; ".join(texts) + "."


def cost_advice(run: Run, parts: Parts) -> str | None:
    """Return one sentence that says what would make the run cheaper, if it speaks for one."""
    if not run.requests or not parts.shared:
        return None
    if parts.stalled >= STALLED * parts.shared:
        return (
            f"{format_share(parts.stalled, parts.shared)} of it computed lost KV again: load with a larger pool, "
            "%infer load --kv-cache-memory-bytes."
        )
    ratio, _ = _wall(run)
    if len(run.requests) > 1 and ratio is not None and ratio < ALONE:
        return (
            f"The requests had the machine almost to themselves (wall cost {format_times(ratio)} × shared cost): sent "
            "as one batch, %%infer --prompts NAME, they share their steps."
        )
    return "Set what the machine costs: %infer price USD_PER_HOUR." if run.price is None else None


def cost_caption(run: Run, parts: Parts, units: Collection[str]) -> str:
    """Return the prices, and what a million tokens cost at them, in parts of a caption; `units` are on the axes."""
    terms = [f"{term} = {DEFINITIONS[term]}" for term in ("shared cost", "wall cost")]
    terms.append("not attributed = busy − shared costs: other requests' work, and what is nobody's")
    if parts.idle is None:
        terms.append("idle and not attributed n/a: not all steps of this run are remembered")
    terms += [f"1 {unit} = {format_usd(size)}" for unit, size in UNITS.items() if unit in units and size < 1]
    texts = [_machine_price(run, parts), *_api_price(run)]
    return " · ".join([*texts, *terms])


def _machine_price(run: Run, parts: Parts) -> str:
    price = run.price
    if price is None:
        return "machine price: n/a"
    each = per_million(run.requests, price, busy_ns=parts.busy, elapsed_ns=parts.elapsed)
    texts = [f"machine price: {price} ({price.source})"]
    texts.append(f"$ / 1M tokens while busy: {_three(each.input, each.output, each.blended)}")
    if each.utilisation:
        busy = format_share(parts.busy, parts.elapsed)
        texts.append(f"with idle time (busy {busy}): {_three(*each.at_utilisation())}")
    return " · ".join(texts)


def _api_price(run: Run) -> list[str]:
    api = run.header.api_price
    if api is None:
        return []
    seller = f" of {api.provider}" if api.provider else ""
    return [
        f"API price, another one: {api.name}{seller}, {api} a million tokens ({api.source})",
        f"all requests at it: {format_usd(api_total(run))}, "
        f"blended {format_usd(api_blended(run.requests, api))} / 1M tokens",
    ]


def api_total(run: Run) -> float | None:
    """Return what all requests would cost at the API's prices, or None if one of them is not known."""
    api = run.header.api_price
    costs = [] if api is None else [api_usd(record, api) for record in run.requests]
    known = [usd for usd in costs if usd is not None]
    return sum(known) if costs and len(known) == len(costs) else None


def _three(given: float | None, made: float | None, blended: float | None) -> str:
    return f"{format_usd(given)} in, {format_usd(made)} out, {format_usd(blended)} blended"


def _wall(run: Run) -> tuple[float | None, int | None]:
    """Return wall cost / shared cost of the requests of which both are known, and their time by the wall clock."""
    both = [
        (wall, shared)
        for record in run.requests
        if (wall := phases(record).e2e_ns) is not None and (shared := record.shared_ns) is not None
    ]
    wall, shared = sum(wall for wall, _ in both), sum(shared for _, shared in both)
    return (wall / shared if shared else None), (wall if both else None)
