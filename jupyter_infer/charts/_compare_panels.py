"""The panels of a comparison: a metric each, a line an arm, a dot a run, on a zero-based axis of its own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from jupyter_infer.charts._compare_words import SIGNS, Entry
from jupyter_infer.charts.card import EDGE, INDENT
from jupyter_infer.charts.labels import cut, escape, fit, in_template, text_width, wrap_html
from jupyter_infer.charts.packed import pack
from jupyter_infer.charts.template import COLORS, INK, MUTED, SMALL
from jupyter_infer.comparison import METRICS, Spread, spread
from jupyter_infer.numbers import format_ns, format_share

__all__ = ["STATES", "Panels"]

STATES = {  # by what the cache did: symbol, the same in a key, and its name
    "cold": ("circle-open", "○", "cold run"),
    "warm": ("circle", "●", "warm run"),
    "first": ("diamond-open", "◇", "first run after the load"),
    "n/a": ("square-open", "□", "run, cache not known"),
}
TITLE = 22  # pixels over a panel
TICKS = 22  # pixels under one that another follows
ROWS = ((4, 32), (8, 20), (1000, 16))  # pixels an arm, by the number of arms
SIDE = (64, 170, 200)  # pixels that names or differences take at least, names and differences at most
BOLD = 1.12  # how much wider bold text is
TIMES = [seconds * 1e9 for seconds in (30, 60, 120, 300, 600, 1200, 1800, 3600)]  # between ticks of minutes
HOVER_WIDTH = 330
SPREAD, APART = 0.6, 0.26  # of a line, that its dots may take, and between two of them
MANY = 8  # runs of an arm, of more the dots are small
BEYOND = 1.6  # times the largest dot that an interval may stretch an axis to


class Panels:
    """What is drawn of `metrics` for the arms: traces, axes and notes, and the room that they take.

    Parameters
    ----------
    shown
        The arms, the one that the others are compared with first.
    metrics
        The metrics, one a panel from top to bottom.
    """

    def __init__(self, shown: Sequence[Entry], metrics: Sequence[str]) -> None:
        self._shown, self._metrics = shown, metrics
        self._row = next(pixels for count, pixels in ROWS if len(shown) <= count or count == ROWS[-1][0])
        self._lettered = self._row >= 30  # room for two lines
        self._spreads = {metric: [spread(entry.arm.values(metric)) for entry in shown] for metric in metrics}
        self._height = TITLE + len(shown) * self._row
        self.plot = max(len(metrics) * (self._height + TICKS) - TICKS, 40)
        # All long or all short: the first letters of a setting that all have tell nothing.
        fitting = all(text_width(entry.label, SMALL) <= SIDE[1] - EDGE - 10 for entry in shown)
        self._labels = [entry.label if fitting else entry.short_label for entry in shown]
        self.left = _room(self._labels)
        lines = [line for metric in metrics for text in self._texts(metric) for line in text]
        self.right = _room(lines, SIDE[2], BOLD)

    def traces(self) -> list[dict[str, Any]]:
        """Return the traces, two a panel: the dots, and the means with their intervals over them."""
        return [
            trace
            for number, metric in enumerate(self._metrics, 1)
            for trace in (self._dots(number, metric), self._means(number, metric))
        ]

    def layout(self) -> dict[str, Any]:
        """Return the axes, and a line at the mean of the first arm in each panel."""
        made: dict[str, Any] = {"hovermode": "closest", "shapes": []}
        if not self._metrics:
            return made | {"xaxis": {"visible": False}, "yaxis": {"visible": False}}
        count = len(self._shown)
        for number, metric in enumerate(self._metrics, 1):
            top, name = (number - 1) * (self._height + TICKS) + TITLE, "" if number == 1 else str(number)
            bottom = top + count * self._row
            made[f"yaxis{name}"] = {
                "domain": [max(0.0, 1 - bottom / self.plot), 1 - top / self.plot],
                "range": [count + 0.5, 0.5],
                "anchor": f"x{name}",
                "fixedrange": True,
                "showgrid": False,
                "zeroline": False,
                "tickvals": list(range(1, count + 1)),
                "ticktext": [escape(fit(label, self.left - EDGE - 8, SMALL)) for label in self._labels],
            }
            limit = self._limit(metric)
            ticks = _ticks(limit, TIMES if METRICS[metric].text is format_ns else ())
            made[f"xaxis{name}"] = {
                "range": [0, limit],
                "anchor": f"y{name}",
                "fixedrange": True,
                "tickvals": ticks,
                "ticktext": [escape(METRICS[metric].text(tick)) for tick in ticks],
            }
            first = self._spreads[metric][0]
            if first and count > 1:
                made["shapes"].append(
                    {
                        "type": "line",
                        "layer": "below",
                        "xref": f"x{name}",
                        "yref": f"y{name}",
                        "x0": first.mean,
                        "x1": first.mean,
                        "y0": 0.5,
                        "y1": count + 0.5,
                        "line": {"color": MUTED, "width": 1, "dash": "dot"},
                    }
                )
        return made

    def notes(self) -> list[dict[str, Any]]:
        """Return the titles over the panels, and the differences right of them."""
        made = []
        for number, metric in enumerate(self._metrics, 1):
            top, name = (number - 1) * (self._height + TICKS), "" if number == 1 else str(number)
            known = METRICS[metric]
            better = {True: "lower is better", False: "higher is better", None: ""}[known.lower_is_better]
            title = ", ".join([f"<b>{escape(metric)}</b>", *(text for text in (known.over, better) if text)])
            made.append(
                _note(title, INK, x=0, xshift=EDGE - INDENT - self.left)
                | {"yref": "paper", "y": 1 - top / self.plot, "yanchor": "top"}
            )
            for row, lines in enumerate(self._texts(metric), 1):
                told = row > 1 and metric in self._shown[row - 1].against and self._shown[row - 1].against[metric].told
                texts = [escape(line) for line in lines]
                text = "<br>".join([*texts[:-1], f"<b>{texts[-1]}</b>" if told else texts[-1]])
                color = INK if told else MUTED
                made.append(_note(text, color, x=1, xshift=8) | {"yref": f"y{name}", "y": row, "yanchor": "middle"})
        return made

    def _texts(self, metric: str) -> list[list[str]]:
        """Return what stands right of each arm: its mean, and how it is to the first one's."""
        made = []
        for entry, found in zip(self._shown, self._spreads[metric], strict=True):
            mean, against = METRICS[metric].text(found.mean if found else None), entry.against.get(metric)
            if against is None or against.value is None:
                made.append([mean])
                continue
            difference = f"{SIGNS[against.verdict]} {against.text}"
            made.append([mean, difference] if self._lettered else [difference])
        return made

    def _limit(self, metric: str) -> float:
        """Return the end of an axis: all dots are on it, and intervals as far as they leave the dots room."""
        largest = max((value for entry in self._shown for value in entry.arm.values(metric)), default=0.0)
        highs = [found.high for found in self._spreads[metric] if found and found.high is not None]
        return 1.06 * min(max([largest, *highs]), BEYOND * largest) or 1.0

    def _dots(self, number: int, metric: str) -> dict[str, Any]:
        x, y, symbols, texts = [], [], [], []
        for row, entry in enumerate(self._shown, 1):
            count = len(entry.arm.runs)
            for index, (run, figures, state) in enumerate(
                zip(entry.arm.runs, entry.arm.figures, entry.arm.states, strict=True)
            ):
                if (value := figures[metric]) is None:
                    continue
                x.append(value)
                # Apart, the first run on top: equal values would hide one another.
                y.append(row + (index - (count - 1) / 2) * min(SPREAD / max(count - 1, 1), APART))
                symbols.append(STATES[state][0])
                called = f" · {escape(cut(run.name, 24))}" if run.name else ""
                shown = escape(METRICS[metric].text(value))
                texts.append(f"<b>{shown}</b> · {entry.letter}, {index + 1} of {count}{called}<br>{STATES[state][2]}")
        return _on(number) | {
            "type": "scatter",
            "mode": "markers",
            "name": metric,
            "x": pack(x),
            "y": pack(y),
            "marker": {
                "symbol": symbols,
                "size": 8 if max(len(entry.arm.runs) for entry in self._shown) <= MANY else 5,
                "color": COLORS["prefill"],
                "line": {"width": 1.5, "color": COLORS["prefill"]},
            },
            "text": texts,
            "hovertemplate": f"%{{text}}<br><i>{_defined(metric)}</i><extra></extra>",
            "cliponaxis": False,
        }

    def _means(self, number: int, metric: str) -> dict[str, Any]:
        """Return the marks of the means; an arm of one run has none."""
        spreads = [found if found and found.low is not None else None for found in self._spreads[metric]]
        rows = list(range(1, len(spreads) + 1))
        return _on(number) | {
            "type": "scatter",
            "mode": "markers",
            "name": f"mean {metric}",
            "x": pack([None if found is None else found.mean for found in spreads]),
            "y": pack(rows),
            "error_x": {
                "type": "data",
                "symmetric": False,
                "array": pack([_apart(found, None if found is None else found.high) for found in spreads]),
                "arrayminus": pack([_apart(found, None if found is None else found.low) for found in spreads]),
                "color": INK,
                "thickness": 1.5,
                "width": 3,
            },
            "marker": {"symbol": "line-ns-open", "size": 13, "color": INK, "line": {"width": 2, "color": INK}},
            "text": [self._described(entry, metric, found) for entry, found in zip(self._shown, spreads, strict=True)],
            "hovertemplate": f"%{{text}}<br><i>{_defined(metric)}</i><extra></extra>",
        }

    def _described(self, entry: Entry, metric: str, found: Spread | None) -> str:
        if found is None:
            return ""
        show = METRICS[metric].text
        lines = [
            f"mean of {len(entry.arm.values(metric))} runs, 95 % interval {show(found.low)} to {show(found.high)}",
            f"noise {format_share(found.noise, 1)} (standard deviation / mean)",
        ]
        against = entry.against.get(metric)
        if against is not None and against.value is not None:
            lines.append(f"to {self._shown[0].letter}: {against.text}, {against.verdict}")
        told = "<br>".join(wrap_html(line, HOVER_WIDTH, SMALL) for line in lines)
        return f"<b>{escape(show(found.mean))}</b> · {escape(entry.label)}<br>{told}"


def _on(number: int) -> dict[str, str]:
    name = "" if number == 1 else str(number)
    return {"xaxis": f"x{name}", "yaxis": f"y{name}"}


def _apart(found: Spread | None, end: float | None) -> float:
    return 0.0 if found is None or end is None else abs(end - found.mean)


def _defined(metric: str) -> str:
    known = METRICS[metric]
    text = f"{metric} = {known.definition}{f'; {known.over}' if known.over else ''}"
    return in_template(wrap_html(text, HOVER_WIDTH, SMALL))


def _note(text: str, color: str, *, x: float, xshift: float) -> dict[str, Any]:
    return {
        "text": text,
        "font": {"size": SMALL, "color": color},
        "align": "left",
        "showarrow": False,
        "xref": "paper",
        "x": x,
        "xanchor": "left",
        "xshift": xshift,
    }


def _room(texts: Sequence[str], most: int = SIDE[1], wider: float = 1.0) -> int:
    """Return the pixels that texts beside a plot take, within bounds."""
    widths = [wider * text_width(text, SMALL) + EDGE + 10 for text in texts]
    return round(min(max([SIDE[0], *widths]), most))


def _ticks(limit: float, steps: Sequence[float] = ()) -> list[float]:
    """Return three to six round numbers from 0 up to `limit`, apart by one of `steps` if it is that large."""
    unit = 10.0 ** math.floor(math.log10(limit))
    rounds = [part * unit for part in (0.1, 0.2, 0.25, 0.5, 1, 2)]
    if steps and limit >= 3 * steps[0]:
        rounds = [*steps, *(step for step in rounds if step > steps[-1])]
    step = next(step for step in rounds if limit / step < 5)
    return [count * step for count in range(int(limit / step + 1e-9) + 1)]
