"""Markdown to HTML with formulas as MathML, so that a page needs no script and no network.

mistune's math plugin finds `$..$` and `$$..$$`. It also takes money for formulas, so that one rule is
added: the text between two dollar signs must not read like prose or like an amount. "$9,700 and $3"
stays what it is, and `\\$9,700` is the way to be sure in every viewer. Code spans and blocks are left alone.
The converter takes much that is not LaTeX (an unknown command becomes its own name), so what it returns is checked.
Left out: macros, equation numbers and references to them.
"""

import base64
import html
import mimetypes
import re
import unicodedata
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

import mistune
from latex2mathml import converter
from mistune.plugins.math import math, math_in_list, math_in_quote, parse_inline_math
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import TextLexer, get_lexer_by_name
from pygments.util import ClassNotFound

_PROSE = re.compile(r"(?:^|\s)[A-Za-z]{2,}[,.;:]?\s+[A-Za-z]{2,}")
_PROSE_WORD = re.compile(r"(?<![\\\w])(?:[a-z]{3,}|an|as|at|by|in|is|of|on|or|to)(?!\w)")
_OPEN_AMOUNT = re.compile(r"\d[\d,.]*\s*(?:[kKMB]\b)?[^\\={}^_]*[-–/,;:(]")
_NAMED_TEXT = re.compile(r"\\(?:text|mathrm|operatorname|textit|textbf|mathit)\*?\{[^{}]*\}")
# names that the converter does not know, and what it calls the same thing
_SPELLINGS = (
    (re.compile(r"\{aligned\}"), "{align*}"),
    (re.compile(r"\\arg(max|min)(?![a-zA-Z])"), r"\\operatorname{arg\1}"),
    (re.compile(r"\\arg(?![a-zA-Z])"), r"\\operatorname{arg}"),
)
_LIMITS = {"max", "min", "argmax", "argmin", "sup", "inf", "lim"}
_ALPHABETS = {  # browsers dropped this attribute, the letters themselves are in Unicode
    "double-struck": "DOUBLE-STRUCK", "bold": "BOLD", "bold-italic": "BOLD ITALIC", "script": "SCRIPT",
    "fraktur": "FRAKTUR", "sans-serif": "SANS-SERIF", "monospace": "MONOSPACE",
}  # fmt: skip


MAX_IMAGE_BYTES = 5_000_000  # of an image that becomes part of a page
_ADDRESS = re.compile(r"[A-Za-z][\w+.-]*:|//|\\\\")


class EmbeddingError(ValueError):
    """An image that cannot become part of a page; the message names it and says what to do."""


class FormulaError(ValueError):
    """A formula that cannot be shown as MathML; the message holds its source."""


def mathml(tex: str, display: bool = False) -> str:
    """Converts a formula to MathML with its TeX as alternative text.

    Args:
        tex: The formula in LaTeX, without dollar signs.
        display: Whether it stands in a line of its own.

    Raises:
        FormulaError: If the converter gives up or meets a command it does not know.
    """
    tex = " ".join(tex.split())
    if not _has_balanced_braces(tex):
        raise FormulaError(f"formula has braces that do not match: {tex}")
    source = tex
    for pattern, replacement in _SPELLINGS:
        source = pattern.sub(replacement, source)
    try:
        root = converter.convert_to_element(source, display="block" if display else "inline")
    except Exception as error:  # the converter has a dozen error classes with empty messages
        raise FormulaError(f"formula not understood ({type(error).__name__}): {tex}") from error
    del root.attrib["xmlns"]  # HTML knows where MathML belongs
    for element in root.iter():
        _correct_element(element, tex)
    root.set("alttext", tex)
    return ElementTree.tostring(root, encoding="unicode")


def _has_balanced_braces(tex: str) -> bool:
    depth = 0
    for brace in re.findall(r"\\.|[{}]", tex):  # an escaped brace counts for nothing
        depth += {"{": 1, "}": -1}.get(brace, 0)
        if depth < 0:
            return False
    return depth == 0


def _correct_element(element: ElementTree.Element, tex: str) -> None:
    """Corrects one element of MathML from the converter: letters of an alphabet, operators and limits.

    Args:
        element: Which is changed.
        tex: The whole formula, for error messages.

    Raises:
        FormulaError: The converter did not understand the formula.
    """
    # The converter passes commands that it does not know through as text.
    raw_text = element.text or ""
    if re.match(r"\\[A-Za-z]", raw_text) or raw_text == "&":
        raise FormulaError(f"formula uses {raw_text!r}, which is not supported there: {tex}")
    if element.tag == "mo" and not raw_text and not element.attrib:
        raise FormulaError(rf"formula has an \operatorname of more than letters: {tex}")
    element.text = html.unescape(raw_text) or None  # it also leaves character references for later

    if (element.tag, element.text) == ("mi", "~"):
        # A relation needs the space around an operator, and its own character.
        element.tag = "mo"
        element.text = "∼"

    alphabet = _ALPHABETS.get(element.get("mathvariant", ""))
    if alphabet and element.tag in ("mi", "mn"):
        del element.attrib["mathvariant"]
        letters = [_letter_in_alphabet(letter, alphabet) for letter in element.text or ""]
        element.text = "".join(letters)

    # max, argmin and so on: the subscript stands below in a formula of its own, beside it in a line of text.
    first_child = element[0] if len(element) else None
    is_limit = first_child is not None and first_child.tag == "mo" and first_child.text in _LIMITS
    if element.tag == "msub" and is_limit:
        element.tag = "munder"
        first_child.set("movablelimits", "true")


def _letter_in_alphabet(letter: str, alphabet: str) -> str:
    """Looks up a letter in a mathematical alphabet of Unicode, such as ℝ for R in "DOUBLE-STRUCK".

    Args:
        letter: Latin or Greek.
        alphabet: Its name in Unicode.

    Returns:
        The letter there; unchanged where Unicode has none.
    """
    name = unicodedata.name(letter, "")
    name = name.removeprefix("LATIN ").removeprefix("GREEK ").replace("LETTER ", "")
    for candidate in (f"MATHEMATICAL {alphabet} {name}", f"{alphabet} {name}"):
        try:
            return unicodedata.lookup(candidate)
        except KeyError:
            continue
    return letter


def is_formula(tex: str) -> bool:
    """Whether the text between two dollar signs is a formula rather than prose.

    Two words in a row are prose; so is an amount ("9,700 ...") followed by a word, and an amount that ends in the
    middle of something ("5/", "9,700-").

    Args:
        tex: The text.
    """
    starts_with_digit = bool(re.match(r"\d", tex))
    if starts_with_digit and _OPEN_AMOUNT.fullmatch(tex):
        return False
    without_commands = re.sub(r"\\[a-zA-Z]+", " ", _NAMED_TEXT.sub(" ", tex))
    if _PROSE.search(without_commands):
        return False
    return not (starts_with_digit and _PROSE_WORD.search(without_commands))


def _parse_inline_formula(
    parser: mistune.InlineParser, match: re.Match, state: mistune.InlineState
) -> int | None:
    """Parses an inline formula for mistune, but leaves dollar signs of money and prose alone.

    Args:
        parser: Parser of inline text.
        match: The text between dollar signs.
        state: State of the parser.

    Returns:
        Where parsing goes on; None where it is no formula.
    """
    tex = match["math_text"]
    if tex is not None:
        # A dollar sign closes no formula after a blank, and opens none inside a word, as in US$.
        follows_word = re.search(r"\w$", state.src[: match.start()])
        if follows_word or tex != tex.rstrip() or "`" in tex or not is_formula(tex):
            return None  # the dollar sign is text, and parsing goes on behind it
    return parse_inline_math(parser, match, state)


def guard_money(parser: mistune.Markdown) -> None:
    """A mistune plugin for after `math`: amounts in dollars are no formulas."""
    parser.inline.register("inline_math", None, _parse_inline_formula)


@dataclass(frozen=True)
class Heading:
    """An entry of the table of contents; `markup` is the heading's inner HTML."""

    level: int
    slug: str
    markup: str


@dataclass
class Document:
    """What the cells of one page share: headings so far, and where local images lie.

    Attributes:
        folder: Images are named relative to it.
        headings: Those of the cells so far.
        repository: Images come from below it; by default the parent of a folder `notebooks`, else `folder`.
    """

    folder: Path
    headings: list[Heading] = field(default_factory=list)
    repository: Path | None = None

    def __post_init__(self) -> None:
        if self.repository is None:
            folder = Path(self.folder).resolve()
            self.repository = folder.parent if folder.name == "notebooks" else folder

    def heading(self, level: int, markup: str) -> Heading:
        """Registers a heading of the page under a unique anchor.

        Args:
            level: 1 for the title.
            markup: Its content as HTML.
        """
        text = html.unescape(re.sub(r"<[^>]+>", "", markup))
        base_slug = re.sub(r"[^\w]+", "-", text.lower()).strip("-") or "section"
        used_slugs = {entry.slug for entry in self.headings}
        slug = base_slug
        number = 1
        while slug in used_slugs:
            number += 1
            slug = f"{base_slug}-{number}"
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
        super().__init__(
            escape=False, allow_harmful_protocols=True
        )  # the accessibility check reads every address
        self.document, self.attachments = document, attachments

    def inline_math(self, tex: str) -> str:
        return mathml(tex)

    def block_math(self, tex: str) -> str:
        markup = mathml(tex, display=True)
        return f'<span class="formula" tabindex="0">{markup}</span>\n'

    def text(self, text: str) -> str:
        if "$$" in text or "\\begin{" in text:
            raise FormulaError(
                f"formula without its two pairs of $$: {' '.join(text.split())[:80]}"
            )
        return super().text(text)

    def table(self, text: str) -> str:
        opening = '<div class="scroll" role="group" aria-label="Table" tabindex="0">'
        return f"{opening}<table>\n{text}</table></div>\n"

    def table_cell(self, text: str, align: str | None = None, head: bool = False) -> str:
        style = f' style="text-align:{align}"' if align else ""
        if head and text.strip():
            return f'<th scope="col"{style}>{text}</th>\n'
        return f"<td{style}>{text}</td>\n"

    def block_code(self, code: str, info: str | None = None) -> str:
        return code_block(code, ((info or "").split() or ["text"])[0])

    def heading(self, text: str, level: int, **attrs) -> str:
        """Renders a heading with a link to itself; mistune calls it.

        Args:
            text: Its content as HTML.
            level: 1 for the title.
            attrs: Ignored.
        """
        entry = self.document.heading(level, text)
        label = html.escape(html.unescape(re.sub(r"<[^>]+>", "", text)))
        link = (
            f'<a class="anchor" href="#{entry.slug}" aria-label="Link to {label}">#</a>'
            if level > 1
            else ""
        )
        return f'<h{level} id="{entry.slug}">{text}{link}</h{level}>\n'

    def image(self, text: str, url: str, title: str | None = None) -> str:
        caption = f' title="{html.escape(title)}"' if title else ""
        return f'<img src="{self._embed_image(url)}" alt="{html.escape(text)}"{caption}>'

    def _embed_image(self, url: str) -> str:
        """Returns an image as a data URI, so that the page loads nothing.

        Args:
            url: Path of a file, or "attachment:NAME"; an address on the network is returned as it is, and refused
                later.

        Raises:
            EmbeddingError: It is missing or too large.
        """
        if url.startswith("attachment:"):
            attachment = self.attachments.get(url.removeprefix("attachment:"))
            if not attachment:
                return html.escape(url)
            media_type, content = next(iter(attachment.items()))
            num_bytes = len(content) * 3 / 4  # base64 makes four characters of three bytes
            if num_bytes > MAX_IMAGE_BYTES:
                raise EmbeddingError(
                    f"the attachment {url!r} has {num_bytes / 1e6:.1f} MB; make it smaller, "
                    f"a page takes images of {MAX_IMAGE_BYTES / 1e6:g} MB"
                )
            return f"data:{media_type};base64,{content}"
        if _ADDRESS.match(url):
            return html.escape(url)
        path = _find_image(unquote(html.unescape(url)), self.document)
        media_type = mimetypes.guess_type(path.name)[0]
        return f"data:{media_type};base64,{base64.b64encode(path.read_bytes()).decode()}"


def _find_image(name: str, document: Document) -> Path:
    """Finds the file of an image.

    Args:
        name: Relative to the document's folder, as its Markdown names it.
        document: The page.

    Raises:
        EmbeddingError: If it is no image of the repository, or too large for a page.
    """
    remedy = "copy it into the repository and name it relative to the notebook"
    if Path(name).is_absolute():
        raise EmbeddingError(f"the image {name!r} is named by an absolute path; {remedy}")
    # Symbolic links are followed before anything is decided.
    path = (document.folder / name).resolve()
    repository = document.repository.resolve()
    if not path.is_relative_to(repository):
        raise EmbeddingError(f"the image {name!r} lies outside the repository; {remedy}")
    if any(part.startswith(".") for part in path.relative_to(repository).parts):
        raise EmbeddingError(f"the image {name!r} lies in a hidden folder or file; {remedy}")
    if not path.is_file():
        raise EmbeddingError(f"the image {name!r} is no file; correct its name, or {remedy}")
    if not (mimetypes.guess_type(path.name)[0] or "").startswith("image/"):
        raise EmbeddingError(
            f"{name!r} is no image by its name; a page embeds png, svg, gif, jpg, webp"
        )
    size = path.stat().st_size
    if size > MAX_IMAGE_BYTES:
        raise EmbeddingError(
            f"the image {name!r} has {size / 1e6:.1f} MB; make it smaller, a page takes images of "
            f"{MAX_IMAGE_BYTES / 1e6:g} MB"
        )
    return path


_PLUGINS = (
    "table",
    "strikethrough",
    "task_lists",
    "def_list",
    math,
    math_in_quote,
    math_in_list,
    guard_money,
)


def to_html(text: str, document: Document, attachments: dict | None = None) -> str:
    """Renders one Markdown cell.

    Args:
        text: The Markdown.
        document: The page that it becomes part of; its headings are registered there.
        attachments: The cell's images by name, each by media type in base64.

    Raises:
        FormulaError: If a formula cannot be shown.
        EmbeddingError: If an image cannot become part of the page.
    """
    renderer = _Renderer(document, attachments or {})
    return mistune.create_markdown(renderer=renderer, plugins=_PLUGINS)(text)
