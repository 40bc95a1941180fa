r"""A model's answer, written in Markdown, as HTML that is safe in a notebook's output.

JupyterLab cleans no output of a trusted notebook, so nothing unsafe may be written in the first place: raw HTML is
shown as text, nothing is fetched, and a link leads to http, https or mailto. Formulas keep their delimiters, for the
host to typeset; each other dollar and backslash stands in an element of its own, where no typesetter pairs it with the
next one: prices stay prices.
"""

from __future__ import annotations

import functools
import html
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token

__all__ = ["MAX_CHARS", "markdown_html"]

MAX_CHARS = 40_000
"""Worst cases take about a second at this size: mostly open brackets, and tables of empty cells."""
MAX_NESTING = 20
"""Levels of blocks; a list takes two. markdown-it drops what lies deeper, and we then render nothing."""

STYLE = "max-width:50em;overflow-x:auto;overflow-wrap:break-word"
CODE_STYLE = "margin:1em 0;padding:.5em 1em;border:1px solid #8886"
"""The host's colours and a border of a grey that shows on light and dark; JupyterLab sets code off by nothing."""

_ADDRESS = re.compile(r"https?://[^/\\]|mailto:", re.IGNORECASE)
"""A browser takes `http:a` for a page of the notebook's own server."""

_LANGUAGE = re.compile(r"[\w+-]+", re.ASCII)

_PIPE = re.compile(r"(?<!\\)\|")
"""What stands between two cells of a table."""

# Between the delimiters stand escaped pairs and other characters. No formula holds the beginning of another one, so
# that many unclosed ones cost no more than one, nor a backtick, since code comes first: `$6 and code `[$]``.
_INSIDE = r"((?:\\{}|[^\\`{}])++)"
_DOUBLE = re.compile(r"(?<!\$)\$\$(?![),;:])" + _INSIDE.format(".", "$") + r"\$\$(?!\$)", re.DOTALL)
_ROUND = re.compile(r"\\\(" + _INSIDE.format("[^()]", "") + r"\\\)")
_SQUARE = re.compile(r"\\\[" + _INSIDE.format(r"[^\[\]]", "") + r"\\\]")
# Pandoc's rule keeps `$5, then $6` as it is; with letters outside and a comma inside excluded, `$HOME:$PATH`, too.
_SINGLE = re.compile(r"(?<![\w$])\$(?![\s),;:])" + _INSIDE.format(".", r"$\n") + r"(?<!\s)\$(?![\w$])")
# `$5 to 6$`, `$$ and $$`: words, and nothing that only mathematics has.
_WORD = re.compile(r"\s\(?[^\W\d_]{2}")
_MARKS = re.compile(r"[\\=+^_<>{}]")

_UNSAFE_TEX = re.compile(
    r"\\(?:bbox|class|cssId|data|[egx]?def|definecolor|fcolorbox|href|html[A-Za-z]*|includegraphics|let|math(?:tip|toolsset)"
    r"|mmlToken|[Nn]ew(?:command|environment|extarrow|tagform)|(?:re)?new(?:command|environment|tagform)|providecommand"
    r"|Declare[A-Za-z]*|require|setOptions|style|texttip|unicode|url)(?![A-Za-z])"
)
"""Commands that link, style, load, or change what other formulas mean."""


def markdown_html(text: str) -> str | None:
    r"""Return Markdown as safe HTML, or None where plain text serves better.

    Parameters
    ----------
    text
        CommonMark with tables, ``~~strikethrough~~`` and formulas as ``\(x\)``, ``$x$``, ``\[x\]`` or ``$$x$$``; a
        single newline breaks the line. The caller has made it printable: control characters are escapes already.

    Returns
    -------
    str or None
        One ``div``; None for an empty text, for one of over 40,000 characters, or if the HTML would be over twice the
        text's size plus 4 kB, or its lists and quotations are nested too deeply.
    """
    if not text.strip() or len(text) > MAX_CHARS:
        return None
    parser = _parser()
    try:
        env: dict[str, Any] = {}
        tokens = parser.parse(text, env)
        if any(token.nesting == 1 and token.level >= MAX_NESTING - 1 for token in tokens):
            return None
        body = parser.renderer.render(tokens, parser.options, env)
    except RecursionError:
        return None
    made = f'<div style="{STYLE}">\n{body}</div>'
    return made if _size(made) <= 2 * _size(text) + 4096 else None


@functools.cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    options = {"html": False, "breaks": True, "xhtmlOut": False, "maxNesting": MAX_NESTING}
    parser = MarkdownIt("commonmark", options).enable(["table", "strikethrough"])
    parser.disable("reference")  # a list of sources, `[1]: https://…`, would vanish from the answer
    parser.validateLink = lambda url: bool(_ADDRESS.match(url))  # type: ignore[method-assign]
    parser.inline.ruler.before("escape", "formula", _inline_formula)
    parser.block.ruler.at("table", _table, {"alt": ["paragraph", "reference"]})
    interrupts = ["paragraph", "blockquote", "list"]
    parser.block.ruler.before("fence", "formula_block", _block_formula, {"alt": interrupts})
    rules: dict[str, Callable[[Token], str]] = {
        "text": lambda token: _text(token.content),
        "link_open": _link,
        "image": lambda token: _text(f"{token.content} ({token.attrs.get('src', '')})".lstrip()),
        "fence": _code,
        "code_block": _code,
        "formula": lambda token: f"<span>{_formula(token.content)}</span>",
        "formula_block": lambda token: f"<div>{_formula(token.content)}</div>\n",
        "td_open": _cell,
        "th_open": _cell,
    }
    for name, rule in rules.items():
        parser.add_render_rule(name, lambda _, tokens, index, *__, rule=rule: rule(tokens[index]))
    return parser


def _inline_formula(state: StateInline, silent: bool) -> bool:
    """Take a formula within a line or a paragraph: a rule of the parser."""
    for pattern in (_DOUBLE, _SINGLE, _ROUND, _SQUARE):
        found = pattern.match(state.src, state.pos, state.posMax)
        if found and not _is_prose(found[0]):
            if not silent:
                state.push("formula", "", 0).content = found[0]
            state.pos = found.end()
            return True
    return False


def _block_formula(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Take a formula on lines of its own, which may look like lists or headings: a rule of the parser."""
    first = _line(state, start)
    pattern, closer = {"$$": (_DOUBLE, "$$"), r"\[": (_SQUARE, r"\]")}.get(first[:2], (None, ""))
    if pattern is None or state.is_code_block(start):
        return False
    lines = [first]
    # It ends at the first line that could close it or begin another one, so that no line is looked at often.
    while closer not in lines[-1][2 if len(lines) == 1 else 0 :]:
        number = start + len(lines)
        if number >= end or state.isEmpty(number) or state.sCount[number] < state.blkIndent:
            return False
        lines.append(_line(state, number))
        if first[:2] in lines[-1] and closer != first[:2]:
            return False
    content = "\n".join(lines)
    if not pattern.fullmatch(content) or (len(lines) == 1 and _is_prose(content)):
        return False
    if not silent:
        token = state.push("formula_block", "", 0)
        token.block, token.content, token.map = True, content, [start, start + len(lines)]
        state.line = start + len(lines)
    return True


def _table(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Take a table, a rule of the parser, and keep what that drops: cells beyond the head's, in a row's last one."""
    from markdown_it.rules_block import table

    before = len(state.tokens)
    if not table(state, start, end, silent):
        return False
    if silent:  # it was only asked whether a table begins here
        return True
    made = state.tokens[before:]
    rows = [index for index, token in enumerate(made) if token.type == "tr_open"]
    for first, after in zip(rows, [*rows[1:], len(made)], strict=True):
        number = (made[first].map or [start])[0]
        cells = [token for token in made[first:after] if token.type == "inline"]
        parts = _PIPE.split(_line(state, number).removeprefix("|"))
        parts = parts[:-1] if not parts[-1] else parts
        if len(parts) > len(cells):
            cells[-1].content = "|".join(parts[len(cells) - 1 :]).replace("\\|", "|").strip()
    return True


def _is_prose(source: str) -> bool:
    """Return whether dollars stand around words rather than mathematics."""
    return source[0] == "$" and bool(_WORD.search(source)) and not _MARKS.search(source)


def _line(state: StateBlock, number: int) -> str:
    return state.src[state.bMarks[number] + state.tShift[number] : state.eMarks[number]].strip()


def _formula(source: str) -> str:
    """Return a formula for the host to typeset, or as literal text if it could do more than mathematics."""
    return _text(source).replace("\n", "<br>\n") if _UNSAFE_TEX.search(source) else html.escape(source)


def _link(token: Token) -> str:
    # Of a link's attributes only the address is taken from the text; one that is not allowed leads nowhere.
    url = str(token.attrs.get("href", ""))
    if not _ADDRESS.match(url):
        return "<a>"
    return f'<a href="{html.escape(url)}" target="_blank" rel="noopener noreferrer nofollow">'


def _code(token: Token) -> str:
    info = token.info.strip()
    language, _, rest = info.partition(" ")
    named = f' class="language-{language}"' if _LANGUAGE.fullmatch(language) else ""
    told = f"<p>{_text(info)}</p>\n" if info and (rest or not named) else ""  # words that stand where a language does
    return f'{told}<pre style="{CODE_STYLE}"><code{named}>{html.escape(token.content)}</code></pre>\n'


def _cell(token: Token) -> str:
    # JupyterLab aligns the cells of an output to the right, which suits numbers and not words.
    style = token.attrs.get("style", "text-align:left")
    return f'<{token.tag} style="{style}">'


def _text(text: str) -> str:
    """Return text escaped, its marks of mathematics in elements of their own, where no typesetter pairs them."""
    return re.sub(r"[$\\]", r"<span>\g<0></span>", html.escape(text))


def _size(text: str) -> int:
    return len(text.encode(errors="replace"))
