from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from jupyter_infer.charts import static_html
from jupyter_infer.pricing import DEFAULT_PRICE

from .samples import aborted_in_prefill, aborted_in_queue, make_batch, make_record, one_token

EVIL = '<img src=x onerror="window.__p=1"><script>window.__p=2</script></pre><b>'


class Page(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_there_is_no_script_and_nothing_to_fetch() -> None:
    html = static_html([make_record(prompt=EVIL, model=EVIL, error=EVIL)] * 2, DEFAULT_PRICE, status=EVIL)
    page = Page(html)
    assert {tag for tag, _ in page.tags} <= {"div", "span", "table", "tr", "th", "td"}
    assert {name for _, attributes in page.tags for name in attributes} <= {"style", "class"}
    assert "url(" not in html
    text = "".join(page.texts)
    assert EVIL in text  # the status, literally
    assert "<img src=x onerror=" in text.replace(EVIL, "", 1)  # a label, cut


def test_two_prices_are_no_formula() -> None:
    page = Page(static_html([make_record(prompt=r"$x$ \(y\)")] * 2, DEFAULT_PRICE, status="≈$1 @ $2/h"))
    assert "≈$1 @ $2/h" in "".join(page.texts)
    assert all(text in ("$", "\\") or not re.search(r"[$\\]", text) for text in page.texts)


def test_every_figure_of_a_request_is_shown() -> None:
    text = " ".join(Page(static_html([make_record(cached=16)], DEFAULT_PRICE, status="ok")).texts)
    for figure in ("24 → 64", "16 (warm)", "12 ms", "320 ms", "1.64 s", "332 ms", "26 ms", "38.5 tok/s", "1.97 s"):
        assert figure in text
    for figure in ("5.6e-6", "2.7e-5", "stop", "arrival → first output token", "0.05/h assumed"):
        assert figure in text


@pytest.mark.parametrize("price", [DEFAULT_PRICE, None])
def test_what_is_not_known_is_not_zero(price: object) -> None:
    records = [aborted_in_queue(), aborted_in_prefill(), one_token()]
    page = Page(static_html(records, price, status="ok"))  # type: ignore[arg-type]
    assert page.texts.count("n/a") >= 10
    assert "aborted" in page.texts
    assert "token limit" in page.texts


def test_equal_prompts_are_a_line_each_with_its_own_figures() -> None:
    records = [make_record(f"r{i}", prefill=100 * (i + 1)) for i in range(3)]
    texts = Page(static_html(records, DEFAULT_PRICE, status="")).texts
    for number in (1, 2, 3):
        assert texts.count(f"{number} · Why is the sky blue?") == 1
    assert [texts.count(f"{100 * number + 12} ms") for number in (1, 2, 3)] == [1, 1, 1]  # TTFT


def test_boxes_keep_the_proportions() -> None:
    html = static_html([make_record(queued=100, prefill=300, itl=600, tokens=2, load=5000)], DEFAULT_PRICE, status="")
    assert re.findall(r"float:left;width:([\d.]+)%", html) == ["10", "30", "60"]
    assert "load before" in html


def test_boxes_of_a_line_never_exceed_it() -> None:
    html = static_html(make_batch(50, tokens=37), DEFAULT_PRICE, status="")
    for bar in re.findall(r'<div style="width:150px.*?</th>|<div style="width:150px.*?</td>', html):
        assert sum(map(float, re.findall(r"float:left;width:([\d.]+)%", bar))) <= 100


def test_sizes() -> None:
    assert len(static_html([make_record(load=1, stalled=9)], DEFAULT_PRICE, status="x" * 130).encode()) <= 10_000
    many = static_html(make_batch(500, tokens=3), DEFAULT_PRICE, status="")
    assert len(many.encode()) <= 4_000  # the figure beside it has them all, and both are saved
    assert "… and 498 more requests" in many
    some = static_html(make_batch(32, tokens=3), DEFAULT_PRICE, status="")
    assert len(some.encode()) <= 10_500
    assert "… and 20 more requests" in some
    assert some.count("<tr") == 13
    assert static_html(make_batch(64, tokens=3), DEFAULT_PRICE, status="").count("<tr") == 9
    assert "more requests" not in static_html(make_batch(12, tokens=3), DEFAULT_PRICE, status="")
    assert static_html([], None, status="nothing ran")
