from __future__ import annotations

import pytest

from jupyter_infer.charts.labels import cut, escape, fit, in_template, one_line, text_width, wrap, wrap_html, wrap_parts


def test_one_line_folds_white_space_and_drops_what_cannot_be_drawn() -> None:
    assert one_line("a\n\tb\x00c\u202ed\u2066") == "a b cd"
    assert one_line("half \ud83d") == "half ?"


def test_cut() -> None:
    assert cut("short") == "short"
    assert cut("x" * 41) == "x" * 39 + "…"
    assert cut("x " * 1_000_000, 10) == "x x x x x…"
    assert cut(" " * 1000 + "x").endswith("…")  # something was left out


def test_escape_leaves_nothing_to_interpret() -> None:
    assert escape('<b> & "$x$" &lt;') == '&lt;b&gt; &amp; "&#36;x&#36;" &amp;lt;'


@pytest.mark.parametrize("text", ["many words in a line " * 9, "x" * 300, "调度器" * 50, "short " + "y" * 100, ""])
def test_wrap_keeps_the_text_and_the_width(text: str) -> None:
    lines = wrap(text, 200, 12)
    assert max(text_width(line, 12) for line in lines) <= 200
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")


def test_wrap_does_not_break_at_no_break_spaces() -> None:
    assert wrap("aaaa b\u00a0=\u00a0c", 60, 12) == ["aaaa", "b\u00a0=\u00a0c"]


def test_wrap_leaves_no_line_empty() -> None:
    assert all(wrap("x" * 30 + " y", 140, 12))


def test_wrap_parts_breaks_after_a_dot_only() -> None:
    assert wrap_parts("one two · three four · five", 95, 12) == ["one two ·", "three four ·", "five"]
    assert wrap_parts("one two · three", 300, 12) == ["one two · three"]
    assert wrap_parts("no dot in here", 50, 12) == ["no dot", "in here"]


@pytest.mark.parametrize("text", ["many words in a line " * 9, "x" * 300, "调度器" * 50, "a\u0301" * 200, "…" * 99])
@pytest.mark.parametrize("width", [12, 60, 133])
def test_fit_keeps_as_much_of_the_beginning_as_has_room(text: str, width: float) -> None:
    shown = fit(text, width, 12)
    begun = shown.removesuffix("…")
    assert shown.endswith("…")
    assert text.startswith(begun)
    assert text_width(shown, 12) <= width
    rest = text[len(begun) :].lstrip(" …")
    assert not rest or text_width(text[: len(text) - len(rest) + 1] + "…", 12) > width


def test_fit_leaves_what_fits_as_it_is() -> None:
    assert fit("a short one", 200, 12) == "a short one"
    assert fit("", 0, 12) == ""
    assert fit("already c…", 200, 12) == "already c…"
    assert fit("already cut…", 70, 12) == "already c…"  # one ellipsis
    assert fit("no room", 1, 12) == ""
    assert text_width(fit("x" * 10_000_000, 100, 12), 12) <= 100


def test_a_prompt_in_a_template_is_no_place_of_a_number() -> None:
    shown = in_template(escape("100 % of %{x} in %{customdata[0]:.2f}"))
    assert "%" not in shown
    assert shown.replace("&#37;", "%") == "100 % of %{x} in %{customdata[0]:.2f}"
    assert in_template(wrap_html("%{y} <b>", 300, 12)) == "&#37;{y} &lt;b&gt;"
