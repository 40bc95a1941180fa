"""An answer in Markdown becomes HTML that shows all of it and does nothing else."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_infer import markdown
from jupyter_infer.markdown import MAX_CHARS, markdown_html

VOID = {"br", "hr"}
PLAIN = {"p", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "li", "blockquote", "em", "strong", "s", "span", "code", "div"}
PLAIN |= {"table", "thead", "tbody", "tr", "a", "ol"} | VOID
LINK = r"(?:https?://[^/\\\s]|mailto:)\S*"
ATTRIBUTES = {
    "a": {"href": LINK, "target": "_blank", "rel": "noopener noreferrer nofollow"},
    "code": {"class": r"language-[A-Za-z0-9_+-]+"},
    "div": {"style": re.escape(markdown.STYLE)},
    "ol": {"start": r"\d+"},
    "pre": {"style": re.escape(markdown.CODE_STYLE)},
    "td": {"style": "text-align:(?:left|center|right)"},
    "th": {"style": "text-align:(?:left|center|right)"},
}


class Page(HTMLParser):
    """Reads HTML as a browser would, and knows what may be in it."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.links: list[str] = []
        self.nodes: list[tuple[str, str]] = []
        self.feed(source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in PLAIN | set(ATTRIBUTES), tag
        for name, value in attrs:
            assert re.fullmatch(ATTRIBUTES.get(tag, {}).get(name, "(?!)"), value or ""), (tag, name, value)
            self.links += [value or ""] if name == "href" else []
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        self.nodes.append(("", ""))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        self.nodes.append(("", ""))

    def handle_data(self, data: str) -> None:
        assert self.open, "text outside the element"
        self.nodes.append((self.open[-1], data))

    def handle_comment(self, data: str) -> None:
        raise AssertionError("a comment")

    def handle_decl(self, decl: str) -> None:
        raise AssertionError("a declaration")

    def unknown_decl(self, data: str) -> None:
        raise AssertionError("a declaration")

    def handle_pi(self, data: str) -> None:
        raise AssertionError("a processing instruction")

    @property
    def text(self) -> str:
        return "".join(data for _, data in self.nodes)

    @property
    def code(self) -> list[str]:
        return [data for tag, data in self.nodes if tag == "code"]

    @property
    def maths(self) -> list[str]:
        """What a typesetter reads: pieces of text outside code in which a mark has a partner."""
        return [data for tag, data in self.nodes if tag != "code" and re.search(r"[$\\]", data) and len(data) > 1]


def page(text: str) -> Page:
    made = markdown_html(text)
    assert made is not None
    return Page(made)


def words(text: str) -> list[str]:
    return text.split()


def test_prices_formulas_and_code_side_by_side() -> None:
    shown = page(r"It costs $5, then $6. Also \(x^2\), $$y$$ and code `[$]\d+` ")
    assert shown.maths == [r"\(x^2\)", "$$y$$"]
    assert shown.code == [r"[$]\d+"]
    assert shown.text.strip() == r"It costs $5, then $6. Also \(x^2\), $$y$$ and code [$]\d+"


@pytest.mark.parametrize(
    "text",
    [
        "from $5 to 6$ and $10 (or 10$)",
        "$5/$6, US$5/A$6, **$5**–**$6**, $1,000-$2,000",
        "set $HOME:$PATH and $HOME and $PATH",
        "a $ b $ c",
        r"a \$x\$ b",
        r"a \\(x\\) b",
        "$$ and $$$$",
        "$$–$$$",
        "cafés ($$) and bars ($$), A: $$, B: $$",
        "Café: $$\nBar: $$",
        "$a\nb$",
        "$6 and code `[$]`",
        r"\(x and \[y",
        r"\begin{align}x\end{align}",
    ],
)
def test_what_is_no_formula_gives_a_typesetter_nothing(text: str) -> None:
    assert page(text).maths == []


@pytest.mark.parametrize(
    ("text", "maths"),
    [
        ("so $x^2$, ($y$) and $2x \\le 3$.", ["$x^2$", "$y$", r"$2x \le 3$"]),
        ("$a_1$ and $b_1$ *c*", ["$a_1$", "$b_1$"]),
        (r"inline \( a < b \) and \[y\] and words", [r"\( a < b \)", r"\[y\]"]),
        (r"$5 is \(\$5\) or $\$6$", [r"\(\$5\)", r"$\$6$"]),
        ("Text:\n\\[\nx\n- y\n\\]\nmore", ["\\[\nx\n- y\n\\]"]),
        ("$$\n# a\n\\\\[2pt]\n= b\n$$", ["$$\n# a\n\\\\[2pt]\n= b\n$$"]),
        ("$$\nsin(x) - ab\n$$", ["$$\nsin(x) - ab\n$$"]),
        ("1. a\n\n   $$\n   x\n   $$\n2. b", ["$$\nx\n$$"]),
        ("> \\[\n> x\n> \\]", ["\\[\nx\n\\]"]),
        (r"[see $x$](https://a.org/)", ["$x$"]),
        ("|$a$|$5|$6|\n|-|-|-|", ["$a$"]),
    ],
)
def test_formulas_keep_their_source(text: str, maths: list[str]) -> None:
    assert page(text).maths == maths


def test_a_formula_ends_with_its_block() -> None:
    assert page("$$\nx\n\ny\n$$").maths == []
    assert page("- \\[ x\n\n\\] y").maths == []
    assert page("    $$x$$").code == ["$$x$$\n"]


@pytest.mark.parametrize(
    "command",
    [
        r"\href{javascript:1}{x}",
        r"\style{color:red}{x}",
        r"\class{c}{x}",
        r"\cssId{i}{x}",
        r"\data{a=b}{x}",
        r"\require{html}",
        r"\includegraphics{http://a}",
        r"\def\x{y}",
        r"\newcommand{\x}{y}",
        r"\renewcommand{\x}{y}",
        r"\let\x\y",
        r"\htmlClass{c}{x}",
        r"\bbox[background:url(http://a)]{x}",
        r"\mmlToken{mi}[href='http://a']{x}",
        r"\unicode[x]{65}",
        r"\text{\url{http://a}}",
    ],
)
@pytest.mark.parametrize("delimiters", [("$", "$"), ("$$", "$$"), (r"\(", r"\)"), (r"\[", r"\]"), ("$$\n", "\n$$")])
def test_a_formula_that_could_do_more_is_shown_literally(command: str, delimiters: tuple[str, str]) -> None:
    source = f"{delimiters[0]}{command}{delimiters[1]}"
    shown = page(source)
    assert shown.maths == []
    assert words(shown.text) == words(source)


def test_harmless_commands_of_similar_names_are_typeset() -> None:
    source = r"$\left. \newline \neq \textstyle x \defeq \dataset \right.$"
    assert page(source).maths == [source]


@pytest.mark.parametrize(
    "text",
    [
        '<img src=x onerror="window.__p=1"><script>window.__p=2</script>',
        "</pre><b></div></div>",
        "<!-- a --><?php b ?><!DOCTYPE c><![CDATA[d]]>",
        "<div>\n<style>*{}</style>\n</div>",
        "[a](javascript:window.__p=3)",
        "[a](JaVaScRiPt:x) [b](vbscript:x) [c](data:text/html,x) [d](file:///etc/passwd)",
        "[a](relative/page) [b](//host/page) [c](#part) [d](http:page) [e](https:///page)",
        "<javascript:x> <file:///x>",
        "![a](plot.png) ![b](data:image/png;base64,AA)",
        "[1]: https://a.org/source\n[2]: javascript:x",
    ],
)
def test_what_is_not_allowed_is_text(text: str) -> None:
    shown = page(text)
    assert words(shown.text) == words(text)
    assert shown.links == []


def test_links() -> None:
    shown = page('[a](https://a.org/?b=1&c="d" "title") <http://b.org/$x> [m](mailto:a@b.org)')
    assert shown.links == ["https://a.org/?b=1&c=%22d%22", "http://b.org/$x", "mailto:a@b.org"]
    assert shown.text.strip() == "a http://b.org/$x m"
    assert page(r"[a](java&#10;script:x) [b](&#106;avascript:x)").links == []


def test_an_image_is_its_text_and_its_address() -> None:
    shown = page("![a *plot* of \\(x\\)](http://a.org/p.png) ![](http://b.org/)")
    assert shown.text.strip() == r"a *plot* of \(x\) (http://a.org/p.png) (http://b.org/)"
    assert shown.links == shown.maths == []


def test_blocks() -> None:
    shown = page("# H\n\n3. a\n   - b\n\n> c\n\n---\n\n|x|y|\n|-|-:|\n|1|~~2~~|\n\none\ntwo **b** *i*")
    assert {"h1", "ol", "ul", "li", "blockquote", "hr", "table", "th", "td", "s", "br", "strong", "em"} <= set(
        shown.tags
    )
    made = markdown_html("|x|y|\n|-|-:|\n|1|2|")
    assert made is not None
    assert '<td style="text-align:left">1</td>\n<td style="text-align:right">2</td>' in made
    assert markdown_html("one\ntwo\n\nthree") == (
        f'<div style="{markdown.STYLE}">\n<p>one<br>\ntwo</p>\n<p>three</p>\n</div>'
    )


@pytest.mark.parametrize(
    ("info", "attribute"),
    [
        ("python", ' class="language-python"'),
        ("c++ title=x", ' class="language-c++"'),
        ("c#", ""),
        ('"onclick=x', ""),
        ("a&quot;b", ""),
        ("é", ""),
        ("", ""),
    ],
)
def test_only_a_plain_name_of_a_language_becomes_a_class(info: str, attribute: str) -> None:
    made = markdown_html(f"```{info}\n<b> $x$ \\(y\\)\n```")
    assert made is not None
    assert f"<code{attribute}>&lt;b&gt; $x$ \\(y\\)\n</code>" in made
    assert Page(made).maths == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \n\n",
        "a" * (MAX_CHARS + 1),
        "$" * 5000,
        "> " * 500 + "deep",
        "\n".join("  " * level + "- deep" for level in range(50)),
    ],
)
def test_plain_text_where_html_would_cost_too_much_or_lose_words(text: str) -> None:
    assert markdown_html(text) is None


def test_nested_as_answers_are() -> None:
    assert "deep" in page("\n".join("  " * level + "- deep" for level in range(6))).text


def test_an_exhausted_stack_means_plain_text(monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted() -> None:
        raise RecursionError

    monkeypatch.setattr(markdown._parser(), "parse", lambda *_: exhausted())
    assert markdown_html("a") is None


@pytest.mark.parametrize(
    "text",
    ["[", "*a ", "`", "> ", "$", "\\(", "\\[\n", "$$a\n", "<", "![", "[a](", "*[", "- ", "a**b", "|a", "$x$ \\(y\\) "],
)
def test_much_of_one_thing_is_safe(text: str) -> None:
    made = markdown_html((text * MAX_CHARS)[:10_000])
    assert made is None or Page(made)


PIECES = [
    *(
        "a",
        "word",
        "5",
        "$",
        "$$",
        "\\",
        "\\(",
        "\\)",
        "\\[",
        "\\]",
        "`",
        "```",
        "~~~\n",
        "<",
        ">",
        "</div>",
        "<script>",
    ),
    *(
        "<!--",
        "&lt;",
        "&#60;",
        "&",
        '"',
        "'",
        "[",
        "](",
        ")",
        "![",
        "](javascript:x)",
        "](https://a.org/ 't')",
        "<http://b>",
    ),
    *(
        "\n",
        "\n\n",
        " ",
        "    ",
        "> ",
        "- ",
        "1. ",
        "# ",
        "|",
        "|-|-|\n",
        "*",
        "**",
        "_",
        "~~",
        "---\n",
        "===\n",
        "[a]: ",
        "{",
    ),
    *(
        "}",
        "\\href{",
        "\\style",
        "%",
        "\t",
        "\r",
        "\0",
        "\u202e",
        "é",
        "😀",
        "\ud800",
        "onclick=",
        "javascript:",
        "://",
    ),
]
MARKUP = st.one_of(st.text(), st.lists(st.sampled_from(PIECES), max_size=60).map("".join))


@given(MARKUP)
def test_any_text_gives_only_known_tags_and_attributes(text: str) -> None:
    made = markdown_html(text)
    if made is not None:
        shown = Page(made)
        assert not any(markdown._UNSAFE_TEX.search(formula) for formula in shown.maths)


@given(st.text(alphabet="ab5$ (,:\n", max_size=80))
def test_no_word_is_lost_between_dollars(text: str) -> None:
    made = markdown_html(text)
    assert words(Page(made).text if made else text) == words(text)


@given(st.text(alphabet="ab5$\\()[]<>&*_{}\"'|!#", min_size=1, max_size=40), MARKUP)
def test_code_is_shown_as_it_is(code: str, after: str) -> None:
    assert page(f"costs $5: `{code}` or $6").code == [code]
    fence = page(f"\\(x $y\n~~~~\n{code}\n~~~~\n")
    assert fence.code == [f"{code}\n"]
    assert fence.maths == []


def test_the_parser_is_imported_when_it_is_needed() -> None:
    code = "import sys, jupyter_infer, jupyter_infer.markdown; assert 'markdown_it' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("before", ["Here:\n", "1. x\n\n   ", "> ", "text `code`\n"])
def test_a_table_may_follow_a_line_of_text(before: str) -> None:
    rows = ("| a | b |", "|---|---|", "| 1 | 2 |")
    indent = "   " if before.startswith("1.") else "> " if before == "> " else ""
    assert "<table" in (markdown_html(before + f"\n{indent}".join(rows)) or "")
