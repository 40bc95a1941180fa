"""What stands on a screen is the answer, all of it, whatever it is and however it came; and it does nothing there."""

from __future__ import annotations

import html
import io
import re
import unicodedata
from collections import Counter
from html.parser import HTMLParser
from typing import Any

import pytest
from builders import make_record
from conftest import use_session
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jupyter_infer.charts import static_html
from jupyter_infer.charts.labels import cut, escape
from jupyter_infer.display import CellStreamView, CellView, TerminalView, cell, follow, printable
from jupyter_infer.display.text import joined
from jupyter_infer.engine.scripted import Script
from jupyter_infer.magics.tables import history_table
from jupyter_infer.markdown import MAX_CHARS, markdown_html
from jupyter_infer.pricing import DEFAULT_PRICE
from jupyter_infer.result import Result

from .timeline import Answer, Timeline, texts_of

HOSTILE = (
    '<img src=x onerror="window.__p=1"><script>window.__p=2</script>[a](javascript:window.__p=3) </pre><b>'
    "![b](http://a.org/__p.png) "
    '<iframe srcdoc="__p"> <a href=javascript:__p>c</a> &lt;script&gt;__p\n\n<svg/onload=__p>\n\n'
    '<style>@import "http://a.org/__p"</style>\n\n'
    "$\\href{javascript:__p}{x}$ \\(\\style{background:url(//__p)}{x}\\)\n\n"
    "```__p onclick=__p\n</code></pre><script>__p</script>\n```\n\n|<img onerror=__p>|\n|-|\n|</td><script>__p|"
)
PIECES = (
    *(
        "word",
        "é",
        "e\u0301\u0323",
        "語",
        "👩‍👩‍👧‍👦",
        "🏳️‍🌈",
        "🇩🇪",
        "שלום",
        "مرحبا",
        "می‌خواهم",
        "\u200f",
        "\u202e",
        "\u2067",
        "\u2069",
    ),
    *(
        " ",
        "\n",
        "\r\n",
        "\r",
        "\t",
        "\v",
        "\f",
        "\0",
        "\a",
        "\b\b",
        "\x1b[31m",
        "\x1b]0;t\x07",
        "\x1b[2J",
        "\x7f",
        "\x9b2J",
    ),
    *(
        "\x85",
        "\u2028",
        "\u2029",
        "\ufeff",
        "\ud800",
        "\udfff",
        "\\",
        "\\x1b",
        "<b>",
        "</pre>",
        "<script>",
        "&lt;",
        "&",
        "$",
        "`",
    ),
    *("**", "_", "# ", "- ", "> ", "|", "|-|\n", "```\n", "[a](javascript:x)", "![a](http://b)", "\n\n", "javascript:"),
)

texts = st.lists(st.sampled_from(PIECES) | st.characters(), max_size=25).map("".join)
pieces_of_texts = st.lists(st.lists(st.sampled_from(PIECES) | st.characters(), max_size=4).map("".join), max_size=12)
with_fixtures = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])

# One rule for what is shown of a character.


def test_control_characters_and_halves_of_pairs_are_escapes_and_all_others_are_kept() -> None:
    """The rule for each character that there is: Unicode's classes Cc and Cs, but for tab and newline."""
    for code in range(0x110000):
        char = chr(code)
        escaped = char not in "\t\n" and unicodedata.category(char) in ("Cc", "Cs")
        expected = (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}") if escaped else char
        assert printable(char) == expected


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("\x1b]8;;http://a.org\x07link", "\\x1b]8;;http://a.org\\x07link"),
        ("over\rwritten", "over\\x0dwritten"),
        ("line\r\nline", "line\\x0d\nline"),
        ("a\bb\0c\x7fd\x9be\x85f", "a\\x08b\\x00c\\x7fd\\x9be\\x85f"),
        ("\\x1b", "\\x1b"),  # a model may write an escape itself
        ("a\u2028b\u2029c", "a\u2028b\u2029c"),  # separators, and no control characters
        ("می‌خواهم \u200fשלום\u200e e\u0301 👩‍👩‍👧‍👦\ufeff\xad", "می‌خواهم \u200fשלום\u200e e\u0301 👩‍👩‍👧‍👦\ufeff\xad"),
    ],
)
def test_what_is_shown(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_marks_of_direction_are_kept_and_reach_no_line_of_ours(outputs: list[Any]) -> None:
    """Text from right to left needs some of them. The effect of any ends with its line, and ours are other lines."""
    text = "a \u202eb\u2067c \u202dd"
    assert printable(text) == text
    stream = io.StringIO()
    TerminalView(stream).end([text])
    assert stream.getvalue() == f"{text}\n"
    CellView().end([text])
    assert outputs[-1]["data"]["text/plain"] == text
    assert re.search(r"<p>(.*)</p>", outputs[-1]["data"]["text/html"])[1] == text  # type: ignore[index]
    assert cut(text) == "a bc d"  # beside figures of ours they go


@given(texts, texts)
def test_pieces_are_shown_as_their_text_is(first: str, second: str) -> None:
    assert printable(first) + printable(second) == printable(first + second)
    assert printable(printable(first)) == printable(first)
    printable(first).encode()  # any stream and any message can carry it


# However an answer comes.


@with_fixtures
@given(pieces=pieces_of_texts, markdown=st.booleans())
def test_a_cell_ends_with_the_whole_text(
    timeline: Timeline, outputs: list[Any], pieces: list[str], markdown: bool
) -> None:
    outputs.clear()
    timeline.now = 0.0
    follow([Answer(timeline, pieces).handle], CellView(markdown=markdown))
    assert texts_of(outputs)[-1] == printable("".join(pieces))


@with_fixtures
@given(pieces=pieces_of_texts, paces=st.lists(st.sampled_from([0.0, 0.05, 1.0]), min_size=12, max_size=12))
def test_each_state_of_a_cell_is_a_beginning_of_its_end(
    timeline: Timeline, outputs: list[Any], pieces: list[str], paces: list[float]
) -> None:
    outputs.clear()
    view, text, shown = CellView(markdown=False), "", ""
    for piece, pace in zip(pieces, paces, strict=False):
        timeline.sleep(pace)
        text += piece
        if view.update([text]):
            shown = printable(text)
        assert texts_of(outputs)[-1:] in ([shown], [])
    view.end([text])
    whole = printable(text)
    assert texts_of(outputs)[-1] == whole
    assert all(whole.startswith(state) for state in texts_of(outputs))


@with_fixtures
@given(text=texts, cuts=st.lists(st.integers(0, 60), max_size=6).map(sorted), limit=st.integers(1, 30))
def test_a_long_text_grows_by_its_end_and_a_count_of_the_rest(
    timeline: Timeline, outputs: list[Any], monkeypatch: pytest.MonkeyPatch, text: str, cuts: list[int], limit: int
) -> None:
    monkeypatch.setattr(cell, "TAIL_CHARS", limit)
    outputs.clear()
    view = CellView(markdown=False)
    for end in cuts:
        timeline.sleep(1)
        view.update([text[:end]])
        so_far, state = printable(text[:end]), texts_of(outputs)[-1]
        above = len(so_far) - limit
        assert state == (
            so_far if above <= 0 else f"… {above:,} characters above are shown at the end\n{so_far[-limit:]}"
        )
    view.end([text])
    assert texts_of(outputs)[-1] == printable(text)


@with_fixtures
@given(pieces=pieces_of_texts, paces=st.lists(st.sampled_from([0.0, 0.05, 1.0]), min_size=12, max_size=12))
def test_a_stream_gets_each_character_once(
    timeline: Timeline, outputs: list[Any], pieces: list[str], paces: list[float]
) -> None:
    for kind in (TerminalView, CellStreamView):
        stream, text = io.StringIO(), ""
        view = kind(stream)
        for piece, pace in zip(pieces, paces, strict=False):
            timeline.sleep(pace)
            text += piece
            written = stream.getvalue()
            expected = printable(text) if view.update([text]) else written
            assert stream.getvalue() == expected
        view.end([text])
        assert stream.getvalue() == f"{printable(text)}\n"


@with_fixtures
@given(answers=st.lists(texts, min_size=2, max_size=4), cuts=st.lists(st.integers(0, 60), min_size=4, max_size=4))
def test_several_answers_are_all_there(
    timeline: Timeline, outputs: list[Any], answers: list[str], cuts: list[int]
) -> None:
    numbered = "\n\n".join(f"[{number}] {printable(text)}" for number, text in enumerate(answers, 1))
    assert joined(answers) == numbered
    for view in (CellView(), CellView(markdown=False)):
        timeline.sleep(10)
        view.update([text[:end] for text, end in zip(answers, cuts, strict=False)])
        view.end(answers)
        assert texts_of(outputs)[-1] == numbered
    stream = io.StringIO()
    view = TerminalView(stream)
    view.update(answers)
    view.end(answers)
    assert stream.getvalue() == f"{numbered}\n"


# What an answer does: nothing.

ALLOWED = {
    *(
        "div",
        "span",
        "p",
        "br",
        "hr",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "ul",
        "ol",
        "li",
        "blockquote",
        "pre",
        "code",
    ),
    *("em", "strong", "s", "a", "table", "thead", "tbody", "tr", "th", "td", "b"),
}
ATTRIBUTES = {"href", "target", "rel", "class", "style", "start"}
LOADING = re.compile(r"[\\@<>{}]|url|image|expression|content|/\*|//", re.IGNORECASE)


class Inert(HTMLParser):
    """Reads HTML as a browser would; fails if it could run, load or open anything but a link to the web."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.text = ""
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ALLOWED, tag
        for name, value in attrs:
            assert name in ATTRIBUTES, name
            assert name != "href" or re.match(r"https?://[^/\\]|mailto:", value or ""), value
            assert name != "style" or not LOADING.search(value or ""), value

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_comment(self, data: str) -> None:
        raise AssertionError("a comment")

    handle_decl = handle_pi = unknown_decl = handle_comment


@with_fixtures
@given(answers=st.lists(texts | st.just(HOSTILE), min_size=1, max_size=3))
def test_a_cell_holds_nothing_that_acts(outputs: list[Any], answers: list[str]) -> None:
    outputs.clear()
    CellView().end(answers)
    (message,) = outputs
    assert set(message["data"]) <= {"text/plain", "text/html"}
    assert message["metadata"] == {}
    Inert(message["data"].get("text/html", ""))


WORD = re.compile(r"w\d+x")
MARKUP = (
    *(
        "[",
        "](",
        ")",
        "](https://a.org/",
        "![",
        "*",
        "**",
        "_",
        "`",
        "``",
        "```",
        "~~~",
        "\n",
        "\n\n",
        " ",
        "    ",
        "\t",
        "- ",
    ),
    *(
        "1. ",
        "> ",
        "# ",
        "|",
        "|",
        "|",
        "|-|-|\n",
        "|-|\n",
        "-|-\n",
        "---\n",
        "===\n",
        "<",
        ">",
        "</div>",
        "<!--",
        "-->",
        "]]>",
    ),
    *(
        "$",
        "$$",
        "\\(",
        "\\)",
        "\\[",
        "\\]",
        "\\",
        "{",
        "}",
        "~~",
        ":",
        "&amp;",
        "&#60;",
        "\\|",
        "javascript:",
        "[a]: ",
        "!",
    ),
)


@settings(max_examples=500)
@given(st.lists(st.sampled_from(MARKUP) | st.integers(0, 99).map("w{}x".format), max_size=40).map("".join))
def test_no_word_of_an_answer_is_lost_in_markdown(text: str) -> None:
    """In its text or in the address of a link; quotes are left out, because a link's title is not shown."""
    made = markdown_html(text)
    if made is not None:
        Inert(made)
        assert Counter(WORD.findall(html.unescape(made))) >= Counter(WORD.findall(text))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("|a|b|\n|-|-|\n|1|2|3|4|\n|5|", "a b 1 2|3|4 5"),
        ("a|b\n-|-\n1|`x || y`|2\n", "a b 1 x || y|2"),
        ("> |a|\n> |-|\n> |1\\|2|3", "a 1|2|3"),
        ("```The answer is 5\nx\n```", "The answer is 5 x"),
        ('```python title="a<b>"\nx\n```', 'python title="a<b>" x'),
        ("```c#\nx\n```", "c# x"),
        ("```python\nx\n```", "x"),
    ],
)
def test_what_markdown_would_drop_is_shown(text: str, shown: str) -> None:
    """Cells of a table beyond those of its head, and words where the language of a code block stands."""
    assert " ".join(Inert(markdown_html(text) or "").text.split()) == shown


def test_a_text_that_is_too_long_for_markdown_is_as_inert(outputs: list[Any]) -> None:
    text = HOSTILE + "x" * MAX_CHARS
    CellView().end([text])
    assert outputs[-1]["data"] == {"text/plain": text}


class Tags(HTMLParser):
    """All tags of a page, and what stands in attributes and scripts."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.acting: list[str] = []
        self.text = ""
        self._raw = False
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self._raw = tag in ("script", "style")
        self.acting += [f"{tag} {name}={value}" for name, value in attrs if name != "class"]

    def handle_endtag(self, tag: str) -> None:
        self._raw = False

    def handle_data(self, data: str) -> None:
        if self._raw:
            self.acting.append(data)
        else:
            self.text += data


def test_a_saved_page_holds_nothing_of_an_answer_that_acts(
    plain_shell: Any, scripted_session: Any, outputs: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cell, its result, its plain form and the history, as nbconvert writes them into a page."""
    session = scripted_session(Script(answer=lambda prompt: [prompt], step_ns=lambda tokens: 0))
    use_session(session, monkeypatch)

    def page(answer: str) -> Tags:
        from nbconvert import HTMLExporter
        from nbformat.v4 import new_code_cell, new_notebook, new_output

        outputs.clear()
        result = session.generate(answer)
        CellView().end([result.text])
        CellView(markdown=False).end([result.text])
        stream = io.StringIO()
        TerminalView(stream).end([result.text])
        data, metadata = plain_shell.display_formatter.format(result)
        made = [new_output("display_data", message["data"]) for message in outputs]
        made += [new_output("stream", name="stdout", text=stream.getvalue() + history_table(session.history))]
        made += [new_output("execute_result", data, metadata=metadata)]
        made += [new_output("display_data", {"text/html": data["text/html"]})]
        return Tags(HTMLExporter().from_notebook_node(new_notebook(cells=[new_code_cell("x", outputs=made)]))[0])

    plain, hostile = page("plain"), page(HOSTILE)
    added = hostile.tags - plain.tags
    assert set(added) <= ALLOWED
    assert not [acting for acting in hostile.acting if "__p" in acting]
    assert hostile.text.count('<img src=x onerror="window.__p=1">') >= 3  # shown, three times


@given(prompt=texts | st.just(HOSTILE))
def test_a_prompt_is_one_inert_line_where_requests_are_listed(prompt: str) -> None:
    record = make_record(prompt=prompt, label=prompt[:200])
    head, *rows = history_table([Result(record, DEFAULT_PRICE)] * 2).split("\n")
    assert head.startswith("id")
    assert len(rows) == 2
    for shown in (*rows, cut(prompt)):
        assert shown == printable(shown)
        assert not re.search("[\n\u2028\u2029\u202a-\u202e\u2066-\u2069]", shown)
    Inert(static_html([record] * 2, DEFAULT_PRICE, status=prompt))
    assert "<" not in escape(cut(prompt))
    assert html.unescape(escape(cut(prompt))) == cut(prompt)
