"""The card under every chart: opaque, and readable whatever the theme of the page."""

from __future__ import annotations

import re

import pytest

from jupyter_infer.charts import COLORS, TEMPLATE, phases_figure, static_html
from jupyter_infer.charts.template import CARD, INK, MUTED, PLOT, TEXT_ON
from jupyter_infer.pricing import DEFAULT_PRICE

from .figures import spec
from .samples import make_batch, make_record

READABLE = 4.5  # WCAG 2's ratio for text of a usual size


def luminance(color: str) -> float:
    parts = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(text: str, ground: str) -> float:
    light, dark = sorted((luminance(text), luminance(ground)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_the_ratio_is_that_of_wcag() -> None:
    assert contrast("#ffffff", "#000000") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize(
    ("text", "ground"),
    [(ink, ground) for ink in (INK, MUTED) for ground in (CARD, PLOT)]
    + [(ink, COLORS[phase]) for phase, ink in TEXT_ON.items()],
)
def test_text_reads_well_on_what_lies_behind_it(text: str, ground: str) -> None:
    assert contrast(text, ground) >= READABLE


@pytest.mark.parametrize("count", [1, 3, 40])
def test_a_figure_brings_its_own_opaque_background(count: int) -> None:
    figure = phases_figure(make_batch(count, tokens=3), DEFAULT_PRICE)
    layout = figure.layout.template.layout
    for ground in (layout.paper_bgcolor, layout.plot_bgcolor, layout.hoverlabel.bgcolor):
        assert re.fullmatch(r"#[0-9a-f]{6}", ground)  # without transparency
    assert layout.paper_bgcolor == TEMPLATE["layout"]["paper_bgcolor"] == CARD
    own = spec(make_batch(count, tokens=3))["layout"]
    assert not {"paper_bgcolor", "plot_bgcolor", "font"} & set(own)  # nothing goes round the template
    assert {note["font"]["color"] for note in own["annotations"]} <= {INK, MUTED}


@pytest.mark.parametrize("count", [1, 3, 40])
def test_the_static_form_says_both_colours_of_all_its_text(count: int) -> None:
    """JupyterLab's styles colour tables and their rows by the theme, so each of them says its own."""
    html = static_html([make_record(load=9), *make_batch(count - 1, tokens=3)], DEFAULT_PRICE, status="done")
    for element in re.findall(r"<(?:div class|table|tr) ?[^>]*>", html):
        ground = re.search(r"background-color:(#[0-9a-f]{6})", element)
        ink = re.search(r"(?<!-)color:(#[0-9a-f]{6})", element)
        assert ground is not None
        assert ink is not None
        assert contrast(ink[1], ground[1]) >= READABLE
    for ink in re.findall(r"(?<!-)color:([^;\"]+)", html):
        assert ink in (INK, MUTED)
