"""``%infer price``: what the machine and an API cost, and what that makes a million tokens."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from jupyter_infer.api_prices import api_price
from jupyter_infer.errors import ConfigError, nearest
from jupyter_infer.magics.line import Option, parse_line, split_line
from jupyter_infer.metrics import busy_ns
from jupyter_infer.numbers import format_ns, format_share
from jupyter_infer.pricing import DEFAULT_PRICE, ApiPrice, MachinePrice, api_blended, format_usd, per_million

if TYPE_CHECKING:
    from jupyter_infer.magics.infer import InferMagics
    from jupyter_infer.session import Session

__all__ = ["describe_prices", "price"]

OPTIONS = (
    Option(("--watts",), "W", "what the machine draws", float),
    Option(("--kwh",), "USD", "dollars a kWh", float),
    Option(("--api",), "NAME", "a model of an API, or IN,OUT or IN,CACHED,OUT dollars a million tokens"),
)


def price(magics: InferMagics, rest: str) -> None:
    """Show the prices of the session, set what the line gives, or set both back with ``clear``."""
    session = magics.session
    if rest == "clear":
        session.price, session.api_price = DEFAULT_PRICE, None
    elif rest:
        # Both are made before one is set: a line that is refused changes nothing.
        session.price, session.api_price = _prices(rest, session)
    print(describe_prices(session))  # noqa: T201


def describe_prices(session: Session) -> str:
    """Return the prices of a session, and dollars a million tokens if it has results."""
    machine, api = session.price, session.api_price
    total = "" if machine.watts is None else f" = {format_usd(machine.total_usd_per_hour)}/h"
    taken = "n/a; %infer price --api NAME"
    if api is not None:
        seller = api.provider and f" of {api.provider}"
        taken = f"{api.name}{seller or ''}: {api} a million tokens ({api.source})"
    lines = [f"machine price {machine}{total} ({machine.source}); results that are there keep theirs"]
    lines.append(f"API price {taken}")
    return "\n".join([*lines, *_per_million(session)])


def _per_million(session: Session) -> list[str]:
    """Return dollars a million tokens as lines: of the machine while busy and as it was used, and of the API."""
    runs = session.runs.data
    if not runs:
        return []
    run = runs[-1]
    records, (begun, ended) = run.requests, run.span_ns
    busy, elapsed = run.busy_ns, ended - begun
    if busy is None and run.steps:  # of what is remembered
        busy, elapsed = busy_ns(run.steps), run.steps[-1].end_ns - run.steps[0].start_ns
    machine = per_million(records, session.price, busy_ns=busy, elapsed_ns=elapsed)
    share = format_share(busy, elapsed)
    span = f" (busy {format_ns(busy)} of {format_ns(elapsed)})" if machine.utilisation is not None else ""
    rows = [
        ("machine at 100 % utilisation", machine.input, machine.output, machine.blended),
        (f"machine at {share} utilisation{span}", *machine.at_utilisation()),
    ]
    if (api := session.api_price) is not None:
        rows.append((f"API {api.name}", api.input_usd, api.output_usd, api_blended(records, api)))
    texts = [(label, *(format_usd(usd) for usd in figures)) for label, *figures in rows]
    table = [("$ / 1M tokens", "in", "out", "blended"), *texts]
    wide = max(len(row[0]) for row in table)
    return [f"{label:<{wide}}" + "".join(f"  {text:>9}" for text in figures) for label, *figures in table]


def _prices(rest: str, session: Session) -> tuple[MachinePrice, ApiPrice | None]:
    """Return the prices that the line gives, and the present one of what it does not name."""
    known = [name for option in OPTIONS for name in option.names]
    there_is = f"; there is: {', '.join(known)}"
    for word in split_line(rest):
        if word.text.startswith("--") and not (word.quoted or word.given or word.text in known):
            raise ConfigError(f"unknown option {word.text!r}{nearest(word.text, known) or there_is}")
    parsed = parse_line(rest, OPTIONS)
    api = parsed.options.get("api")
    watts, kwh = parsed.options.get("watts"), parsed.options.get("kwh")
    if (watts is None) != (kwh is None) or (watts is not None and not parsed.words):
        raise ConfigError("--watts and --kwh go together, after the price: %infer price 0.40 --watts 65 --kwh 0.30")
    if "clear" in parsed.words:
        raise ConfigError("clear stands alone and sets both prices back: %infer price clear")
    machine = session.price
    if parsed.words:
        dollars = _number(parsed.words[0].removesuffix("/h"))
        if len(parsed.words) > 1 or not 0 <= dollars < math.inf:
            typed = " ".join(parsed.words)
            raise ConfigError(f"%infer price takes dollars an hour, such as 0.40, or clear; got {typed!r}")
        machine = MachinePrice(dollars, watts, kwh)
    return machine, session.api_price if api is None else _api(api)


def _api(text: str) -> ApiPrice:
    """Return the API price that a name stands for, or that is given in dollars a million tokens."""
    if "," not in text:
        return api_price(text)
    dollars = [_number(part) for part in text.split(",")]
    if len(dollars) not in (2, 3) or not all(0 <= usd < math.inf for usd in dollars):
        raise ConfigError(
            f"--api takes a name, or dollars a million tokens, IN,CACHED,OUT such as 2,0.5,8; got {text!r}"
        )
    return ApiPrice("given", None, dollars[0], dollars[1] if len(dollars) == 3 else None, dollars[-1])


def _number(text: str) -> float:
    try:
        return float(text.strip().removeprefix("$"))
    except ValueError:
        return math.nan
