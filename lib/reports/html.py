"""An executed notebook as one HTML file that fetches nothing and can be read anywhere.

nbconvert walks the cells with a template of our own that inherits from none: its own templates load
scripts from the web and drop alt text. `markdown` makes the prose, and `audit` reads each piece and then
the whole page; what it refuses stops the build with the names of all cells at fault. The same notebook
gives the same bytes. Left out: widgets, which need a kernel; the page says where one was.
"""

from __future__ import annotations

import base64
import re
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bs4 import BeautifulSoup
from jinja2 import Environment, FileSystemLoader
from pygments.formatters import HtmlFormatter

from lib.reports import accessibility_check, markdown
from lib.reports.accessibility_check import ReportError

if TYPE_CHECKING:  # a kernel that writes a side page or the front page needs no notebook; importing it takes seconds
    from nbformat import NotebookNode

TEMPLATES = Path(__file__).with_name("template")
LIGHT, DARK = (
    "xcode",
    "lightbulb",
)  # palettes with a contrast of 4.5 and more on our grounds for code
IMAGES = ("image/svg+xml", "image/png", "image/gif", "image/jpeg", "image/webp")
WIDGET = "application/vnd.jupyter.widget-view+json"

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def page(
    notebook: NotebookNode, folder: str | Path = ".", name: str = "", title: str | None = None
) -> str:
    """The page of a notebook in memory.

    folder: where images that its Markdown names lie; they become part of the page. name: of the
    notebook. Raises ReportError naming each cell with a picture that says nothing, a reference to
    something outside the page, or a formula that cannot be shown.
    """
    from nbconvert.exporters.templateexporter import TemplateExporter

    cells = Cells(markdown.Document(Path(folder)))
    exporter = TemplateExporter(
        template_name="page",
        extra_template_basedirs=[str(TEMPLATES)],
        file_extension=".html",
        filters={
            "prose": cells.prose,
            "source": cells.source,
            "output": cells.output,
            "headings": lambda _: cells.document.headings,  # known once the cells are made
        },
    )
    report = {"css": stylesheet(), "name": name, "title": title or ""}
    made, _ = exporter.from_notebook_node(notebook, {"report": report})
    if cells.problems:
        raise ReportError(f"{name or 'the page'} is refused:\n  " + "\n  ".join(cells.problems))
    accessibility_check.check(made, f"the template of {name or 'the page'}")
    return made


def side_page(body: str, title: str) -> str:
    """A small complete page in the same style, for what a report shows in a frame."""
    made = fill("side.html.j2", body=body, title=title)
    accessibility_check.check(made, f"the page {title!r}")
    return made


def fill(template: str, **values: Any) -> str:
    """A template of this project with `values` and the style sheet; `body` is taken as it is."""
    environment = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True)
    return environment.get_template(template).render(css=stylesheet(), **values) + "\n"


def stylesheet() -> str:
    """The one style of all pages, with both palettes of code."""
    light = HtmlFormatter(style=LIGHT).get_token_style_defs("pre.code")
    dark = HtmlFormatter(style=DARK).get_token_style_defs("pre.code")
    css = (TEMPLATES / "style.css").read_text(encoding="utf-8")
    return "\n".join([css.rstrip(), *light, "@media (prefers-color-scheme: dark) {", *dark, "}"])


class Cells:
    """Makes pieces of cells, for a template or for slides, and notes in `problems` what is wrong with them."""

    def __init__(self, document: markdown.Document) -> None:
        self.document = document
        self.problems: list[str] = []

    def prose(self, cell: NotebookNode, number: int) -> str:
        """A Markdown cell as HTML."""
        return self._checked(
            cell,
            number,
            lambda: markdown.to_html(cell.source, self.document, cell.get("attachments")),
        )

    def source(self, cell: NotebookNode) -> str:
        """The code of a cell as HTML."""
        return markdown.code_block(cell.source.rstrip())

    def output(self, output: NotebookNode, cell: NotebookNode, number: int) -> str:
        """One output of a code cell as HTML; of several forms, the one that says most."""
        return self._checked(cell, number, lambda: self._output(output))

    def _checked(self, cell: NotebookNode, number: int, make) -> str:
        try:
            made = make()
            wrong = accessibility_check.problems(made)
        except (markdown.FormulaError, ReportError) as error:
            made, wrong = "", [str(error)]
        first = next((line.strip() for line in cell.source.splitlines() if line.strip()), "")
        self.problems += [f"cell {number} ({first[:60]!r}): {sentence}" for sentence in wrong]
        return made

    def _output(self, output: NotebookNode) -> str:
        if output.output_type == "stream":
            return _text(output.text, f"stream {output.name}")
        if output.output_type == "error":
            return _text(
                "\n".join(output.traceback) or f"{output.ename}: {output.evalue}", "stream stderr"
            )
        data = output.data
        if WIDGET in data:
            return '<p class="note">A control that moves once the notebook is open in JupyterLab.</p>\n'
        if "text/html" in data:
            return f'<div class="shown">{_with_headers(data["text/html"])}</div>\n'
        for kind in IMAGES:
            if kind in data:
                return _image(kind, data[kind], output.get("metadata", {}))
        for kind in ("text/markdown", "text/latex"):
            if kind in data:
                return f'<div class="prose">{markdown.to_html(data[kind], self.document)}</div>\n'
        return _text(data["text/plain"], "result") if "text/plain" in data else ""


def _text(text: str, kind: str) -> str:
    plain = escape(_ANSI.sub("", text).rstrip(), quote=False)
    return f'<pre class="{kind}" tabindex="0">{plain}</pre>\n' if plain else ""


def _with_headers(markup: str) -> str:
    """HTML whose tables say what each header heads; those of pandas do not."""
    if "<th" not in markup or all(
        "scope" in header for header in re.findall(r"<th\b[^>]*>", markup)
    ):
        return markup
    soup = BeautifulSoup(markup, "html.parser")
    for header in soup.find_all("th"):
        if not header.get_text(strip=True):
            header.name = "td"  # an empty header heads nothing
        elif not header.get("scope"):
            header["scope"] = "col" if header.find_parent("thead") else "row"
    return str(soup)


def _image(kind: str, content: str, metadata: dict[str, Any]) -> str:
    """An image output within the page; an svg too, so that its inner names cannot meet another's."""
    alt = metadata.get(kind, {}).get("alt") or metadata.get("alt") or ""
    if kind == "image/svg+xml":
        spoken = re.search(r"<svg\b[^>]*\baria-label=\"([^\"]+)\"", content)
        alt = alt or (spoken.group(1) if spoken else "")
        content = base64.b64encode(content.encode()).decode()
    return f'<img class="figure" src="data:{kind};base64,{"".join(content.split())}" alt="{escape(alt)}">\n'
