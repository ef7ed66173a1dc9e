"""Markdown to HTML with formulas as MathML, so that a page needs no script and no network.

A formula is `$..$` or `$$..$$`. Money is not: a dollar sign opens a formula only before something
that is not a blank, closes it only after something that is not a blank and not before a digit or
letter, and what lies between must not read like prose. So "$9,700 and $3" stays what it is, and
`\\$9,700` is the way to be sure in every viewer. Code spans and blocks are left alone.
"""

from __future__ import annotations

import base64
import html
import mimetypes
import re
from dataclasses import dataclass, field
from pathlib import Path

import mistune
from latex2mathml import converter
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import TextLexer, get_lexer_by_name
from pygments.util import ClassNotFound

_INLINE = r"(?<![\\$\w])\$(?P<inline_tex>[^\s$`](?:[^$`]*[^\s$`\\])?)\$(?![\w$])"
_DISPLAY = r"\$\$(?P<display_tex>[^$]+?)\$\$"
_BLOCK = r"^ {0,3}\$\$(?P<block_tex>[^$]+?)\$\$[ \t]*(?:\n|$)"
_PROSE = re.compile(r"(?:^|\s)[A-Za-z]{2,}[,.;:]?\s+[A-Za-z]{2,}")
_PROSE_WORD = re.compile(r"(?:^|\s)[a-z]{3,}(?:\s|[,.;:]|$)")
_NAMED_TEXT = re.compile(r"\\(?:text|mathrm|operatorname|textit|textbf|mathit)\*?\{[^{}]*\}")
# names that the converter does not know, and what it calls the same thing
_SPELLINGS = (
    (re.compile(r"\{aligned\}"), "{align*}"),
    (re.compile(r"\\operatorname\*\s*"), r"\\operatorname"),
    (re.compile(r"\\arg(?![a-zA-Z])"), r"\\operatorname{arg}"),
)


class FormulaError(ValueError):
    """A formula that cannot be shown as MathML; the message holds its source."""


def mathml(tex: str, display: bool = False) -> str:
    """A formula as MathML with its TeX as alternative text.

    Raises FormulaError where the converter gives up or meets a command it does not know.
    """
    source = tex.strip()
    for pattern, replacement in _SPELLINGS:
        source = pattern.sub(replacement, source)
    try:
        out = converter.convert(source, display="block" if display else "inline")
    except Exception as error:  # the converter has a dozen error classes with empty messages
        raise FormulaError(f"formula not understood ({type(error).__name__}): {tex.strip()}") from error
    unknown = re.findall(r">(\\[a-zA-Z]+)<", out)
    if unknown or "<mi>&</mi>" in out:
        raise FormulaError(f"formula uses {', '.join(unknown) or '& outside an array'}, not supported: {tex.strip()}")
    return out.replace("<math ", f'<math alttext="{html.escape(tex.strip())}" ', 1)


def is_formula(tex: str) -> bool:
    """Whether what stands between two dollar signs is a formula rather than a stretch of prose.

    Two words in a row are prose; so is an amount ("9,700 ...") followed by a word.
    """
    bare = re.sub(r"\\[a-zA-Z]+", " ", _NAMED_TEXT.sub(" ", tex))
    if _PROSE.search(bare):
        return False
    return not (re.match(r"\d", tex) and _PROSE_WORD.search(bare))


def _inline_formula(inline, match: re.Match, state) -> int:
    tex = match.group("inline_tex")
    if not is_formula(tex):
        state.append_token({"type": "text", "raw": "$"})
        return match.start() + 1
    state.append_token({"type": "formula", "raw": tex, "attrs": {"display": False}})
    return match.end()


def _display_formula(inline, match: re.Match, state) -> int:
    state.append_token({"type": "formula", "raw": match.group("display_tex"), "attrs": {"display": True}})
    return match.end()


def _block_formula(block, match: re.Match, state) -> int:
    state.append_token({"type": "formula", "raw": match.group("block_tex"), "attrs": {"display": True}})
    return match.end()


def formulas(md: mistune.Markdown) -> None:
    """The mistune plugin for `$..$` and `$$..$$`."""
    md.block.register("block_formula", _BLOCK, _block_formula, before="fenced_code")
    md.inline.register("display_formula", _DISPLAY, _display_formula, before="link")
    md.inline.register("inline_formula", _INLINE, _inline_formula, before="link")


@dataclass(frozen=True)
class Heading:
    """An entry of the table of contents; `markup` is the heading's inner HTML."""

    level: int
    slug: str
    markup: str


@dataclass
class Document:
    """What the cells of one page share: headings so far, and where local images lie."""

    folder: Path
    headings: list[Heading] = field(default_factory=list)

    def heading(self, level: int, markup: str) -> Heading:
        """Register a heading under an anchor that no other heading of the page has."""
        text = html.unescape(re.sub(r"<[^>]+>", "", markup))
        base = re.sub(r"[^\w]+", "-", text.lower()).strip("-") or "section"
        taken = {entry.slug for entry in self.headings}
        slug = next(s for n in range(1, len(taken) + 2) if (s := base if n == 1 else f"{base}-{n}") not in taken)
        self.headings.append(Heading(level, slug, markup))
        return self.headings[-1]


def code_block(source: str, language: str = "python") -> str:
    """Source with Pygments classes; scrollable code can be reached with the keyboard."""
    try:
        lexer = get_lexer_by_name(language)
    except ClassNotFound:
        lexer = TextLexer()
    return f'<pre class="code" tabindex="0">{highlight(source, lexer, HtmlFormatter(nowrap=True))}</pre>\n'


class _Renderer(mistune.HTMLRenderer):
    def __init__(self, document: Document, attachments: dict) -> None:
        super().__init__(escape=False)
        self.document, self.attachments = document, attachments

    def formula(self, tex: str, display: bool) -> str:
        markup = mathml(tex, display)
        return f'<div class="formula" tabindex="0">{markup}</div>\n' if display else markup

    def block_code(self, code: str, info: str | None = None) -> str:
        return code_block(code, (info or "text").split()[0])

    def heading(self, text: str, level: int, **attrs) -> str:
        entry = self.document.heading(level, text)
        link = f'<a class="anchor" href="#{entry.slug}" aria-label="Link to this section">#</a>' if level > 1 else ""
        return f'<h{level} id="{entry.slug}">{text}{link}</h{level}>\n'

    def image(self, text: str, url: str, title: str | None = None) -> str:
        caption = f' title="{html.escape(title)}"' if title else ""
        return f'<img src="{self._embedded(url)}" alt="{html.escape(text)}"{caption}>'

    def _embedded(self, url: str) -> str:
        if url.startswith("attachment:"):
            kind, content = next(iter(self.attachments[url.removeprefix("attachment:")].items()))
            return f"data:{kind};base64,{content}"
        path = self.document.folder / url
        if re.match(r"[a-z]+:|//", url) or not path.is_file():
            return html.escape(url)  # the page's own check names the cell and refuses it
        kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        return f"data:{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"


def to_html(text: str, document: Document, attachments: dict | None = None) -> str:
    """One Markdown cell as HTML. Raises FormulaError for a formula that cannot be shown."""
    renderer = _Renderer(document, attachments or {})
    plugins = ["table", "strikethrough", "task_lists", "def_list", formulas]
    return mistune.create_markdown(renderer=renderer, plugins=plugins)(text)
