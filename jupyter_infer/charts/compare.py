"""The chart of a comparison: runs on shared axes, and whether arms differ by more than repeats of one do."""

from __future__ import annotations

from collections.abc import Sequence

from jupyter_infer.charts._compare_panels import STATES, Panels
from jupyter_infer.charts._compare_words import PANELS, SIGNS, Entry, advise, caption, entries, read, table
from jupyter_infer.charts.card import KeyEntry, card_layout
from jupyter_infer.charts.chart import Chart
from jupyter_infer.charts.template import COLORS, INK, MUTED
from jupyter_infer.comparison import HIGHER, LOWER, METRICS, SAME, UNDECIDED, arms, compare
from jupyter_infer.errors import ConfigError
from jupyter_infer.run import Run

__all__ = ["compare_chart"]


def compare_chart(runs: Sequence[Run], *, title: str = "", labels: Sequence[str] | None = None) -> Chart:
    """Return a panel a metric, a line an arm and a dot a run, with the difference to the first arm and its noise.

    Runs with the same settings are repeats of one arm; a run that is given twice is one.

    Parameters
    ----------
    runs
        Two runs or more, each what was asked together.
    title
        The status line, as plain text.
    labels
        The arm of each run, as plain text; default: arms are told apart, and called, by their settings.

    Raises
    ------
    ConfigError
        If there are fewer than two runs, or not as many labels as runs.
    """
    compared = arms(runs, labels)
    if sum(len(arm.runs) for arm in compared) < 2:
        what = "the same run twice" if len(runs) > 1 else f"{len(runs)} run{'' if len(runs) == 1 else 's'}"
        raise ConfigError(f"a comparison takes two runs or more, not {what}; type: ji.compare(a, b)")
    found = {metric: [compare(compared[0], arm, metric) for arm in compared[1:]] for metric in METRICS}
    shown = entries(compared, found)
    metrics = [metric for metric in PANELS if any(arm.values(metric) for arm in compared)]
    reading, advice = read(shown, metrics), advise(shown) if metrics else None

    import plotly.graph_objects as go

    panels = Panels(shown, metrics)
    layout = card_layout(
        plot=panels.plot,
        left=panels.left,
        right=panels.right,
        title=title,
        key=_key(shown, metrics) if metrics else [],
        caption=caption(shown),
        reading=reading,
        advice=advice,
    )
    layout |= panels.layout()
    layout["annotations"] = [*layout["annotations"], *panels.notes()]
    figure = go.Figure({"data": panels.traces(), "layout": layout})
    return Chart(figure, title, reading, advice, table(shown))


def _key(shown: Sequence[Entry], metrics: Sequence[str]) -> list[KeyEntry]:
    states = {state for entry in shown for state in entry.arm.states}
    verdicts = {entry.against[metric].verdict for entry in shown[1:] for metric in metrics}
    first = shown[0].letter
    names = {LOWER: f"lower than {first}", HIGHER: f"higher than {first}", SAME: SAME, UNDECIDED: "one run each"}
    key = [KeyEntry(sign, COLORS["prefill"], name) for state, (_, sign, name) in STATES.items() if state in states]
    if any(len(entry.arm.runs) > 1 for entry in shown):
        key.append(KeyEntry("┼", INK, "mean and its 95 % interval"))
    key += [KeyEntry("┊", MUTED, f"mean of {first}" if len(shown[0].arm.runs) > 1 else first)] if len(shown) > 1 else []
    return key + [KeyEntry(SIGNS[verdict], INK, name) for verdict, name in names.items() if verdict in verdicts]
