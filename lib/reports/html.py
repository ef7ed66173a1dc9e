"""An executed notebook as one HTML file that fetches nothing and can be read anywhere.

nbconvert walks the cells with a template of our own that inherits from none: its own templates load
scripts from the web and drop alt text. `markdown` makes the prose, and `accessibility_check` reads each piece and then
the whole page; what it refuses stops the build with the names of all cells at fault. The same notebook
gives the same bytes. Around the cells stand links to the neighbouring lessons (`navigation`), the contents, and the
answer that the lesson gives (`answers`). Left out: widgets, which need a kernel; the page says where one was.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bs4 import BeautifulSoup

from lib.experiment import artifacts
from lib.plots import accessibility_check, pages
from lib.plots.accessibility_check import GENERATED_ALT, IMAGES, ReportError
from lib.reports import markdown, navigation

if TYPE_CHECKING:  # a kernel that writes a side page or the front page needs no notebook; importing it takes seconds
    from nbformat import NotebookNode

TEMPLATES = Path(__file__).with_name("template")
STUDENT_TAG = "notes"  # of the cells that only a student's copy has (`lib.teaching.student_copies`)
_WIDGET = "application/vnd.jupyter.widget-view+json"

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def page(
    notebook: NotebookNode,
    folder: str | Path = ".",
    name: str = "",
    title: str | None = None,
    reports: str | Path | None = None,
) -> str:
    """Renders an executed notebook as one page.

    Args:
        notebook: The notebook, in memory.
        folder: Where its neighbours lie, and images that its Markdown names; images become part of the page.
        name: The notebook's name.
        title: The page's title; by default the notebook's first heading.
        reports: Where the lesson left its metrics, its card and its figures; without it the page gives no answer.

    Returns:
        HTML that loads nothing.

    Raises:
        ReportError: If a cell has a picture without alt text, a reference to something outside the page, or a formula
            that cannot be shown, the message names each such cell; or if its answer is not in order.
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
            "headings": lambda _: cells.document.headings,  # known once the cells are rendered
        },
    )
    report = {
        "css": pages.stylesheet(),
        "name": name,
        "title": title or "",
        "neighbours": navigation.find_neighbours(name, Path(folder)),
        "front_page": navigation.FRONT_PAGE,
        "answer": read_answer(notebook, name, Path(reports)) if reports else "",
        "answer_is_open": not is_student_copy(notebook),
    }
    html, _ = exporter.from_notebook_node(notebook, {"report": report})
    if cells.problems:
        raise ReportError(f"{name or 'the page'} is refused:\n  " + "\n  ".join(cells.problems))
    accessibility_check.check(html, f"the template of {name or 'the page'}")
    return html


def read_answer(notebook: NotebookNode, name: str, reports: Path) -> str:
    """Reads what stands at the top of a lesson's page: its answer, with its key figure.

    Args:
        notebook: The executed lesson.
        name: Its name.
        reports: Where it left its metrics, its card and its figures.

    Returns:
        HTML; empty for a lesson without an answer.

    Raises:
        ReportError: If the answers are not in order.
    """
    from lib.reports import answers  # imported late: it brings the language of the claims

    metrics_path = reports / "metrics" / f"{name}.json"
    card_path = reports / "lessons" / f"{name}.json"
    if not metrics_path.is_file() or not card_path.is_file():
        return ""
    card = artifacts.read_json(card_path)
    try:
        answer = answers.render_answer(name, artifacts.read_json(metrics_path), card["profile"])
    except answers.AnswerError as error:
        raise ReportError(f"the answer of {name}: {error}") from error
    if not answer:
        return ""

    # The drawing of the notebook can be read on a phone and in the dark; the file is for all other kinds of figures.
    path = reports / card["key_figure"]
    figure = find_figure(notebook, path.stem)
    if not figure:
        picture = base64.b64encode(path.read_bytes()).decode()
        figure = _render_image("image/png", picture, {"alt": card["key_figure_alt"]})
    return f'{answer}<div class="shown">{figure}</div>'


def find_figure(notebook: NotebookNode, name: str) -> str:
    """Finds the HTML of a figure in an executed notebook.

    Args:
        notebook: The notebook.
        name: The figure's name in `Lesson.figure`.

    Returns:
        Its HTML; empty if it is not there.
    """
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if data.get("text/plain", "").startswith(f"figure {name}: "):
                return data["text/html"]
    return ""


def is_student_copy(notebook: NotebookNode) -> bool:
    """Whether a notebook is a student's copy, which folds the answer away."""
    return any(STUDENT_TAG in cell.metadata.get("tags", []) for cell in notebook.cells)


class Cells:
    """Renders cells as pieces of HTML, for a template or for slides.

    Attributes:
        document: What the cells of one page share.
        problems: What is wrong with the pieces so far, one sentence each, with the cell's number and first line.
    """

    def __init__(self, document: markdown.Document) -> None:
        self.document = document
        self.problems: list[str] = []

    def prose(self, cell: NotebookNode, number: int) -> str:
        """Renders a Markdown cell."""

        def render() -> str:
            return markdown.to_html(cell.source, self.document, cell.get("attachments"))

        return self._render_checked(cell, number, render)

    def source(self, cell: NotebookNode) -> str:
        """Renders the code of a cell."""
        return markdown.code_block(cell.source.rstrip())

    def output(self, output: NotebookNode, cell: NotebookNode, number: int) -> str:
        """Renders one output of a code cell; of several forms, the one that says most."""
        return self._render_checked(cell, number, lambda: self._render_output(output))

    def _render_checked(self, cell: NotebookNode, number: int, render: Callable[[], str]) -> str:
        """Renders a part of a cell, and records what is wrong with its HTML.

        Args:
            cell: The cell.
            number: Its number, for messages.
            render: Renders the part.

        Returns:
            The HTML; empty where it cannot be rendered.
        """
        try:
            html = render()
            problems = accessibility_check.problems(html)
        except (markdown.FormulaError, markdown.EmbeddingError, ReportError) as error:
            html = ""
            problems = [str(error)]
        self.problems += [f"{name_cell(cell, number)}: {problem}" for problem in problems]
        return html

    def _render_output(self, output: NotebookNode) -> str:
        """Renders an output of a cell in the best of its formats.

        Args:
            output: Stream, error or data.

        Returns:
            HTML; empty where it has no format that the page can show.
        """
        if output.output_type == "stream":
            return _render_text(output.text, f"stream {output.name}")
        if output.output_type == "error":
            traceback = "\n".join(output.traceback)
            return _render_text(traceback or f"{output.ename}: {output.evalue}", "stream stderr")
        data = output.data
        # A widget needs a kernel, which the page has not.
        if _WIDGET in data:
            return '<p class="note">A control that moves once the notebook is open in JupyterLab.</p>\n'
        if "text/html" in data:
            return f'<div class="shown">{_add_header_scopes(data["text/html"])}</div>\n'
        for media_type in IMAGES:
            if media_type in data:
                return _render_image(media_type, data[media_type], output.get("metadata", {}))
        for media_type in ("text/markdown", "text/latex"):
            if media_type in data:
                prose = markdown.to_html(data[media_type], self.document)
                return f'<div class="prose">{prose}</div>\n'
        return _render_text(data["text/plain"], "result") if "text/plain" in data else ""


def name_cell(cell: NotebookNode, number: int) -> str:
    """Names a cell by its number, from 1, and its first line."""
    first_line = next((line.strip() for line in cell.source.splitlines() if line.strip()), "")
    return f"cell {number} ({first_line[:60]!r})"


def _render_text(text: str, css_class: str) -> str:
    plain = escape(_ANSI.sub("", text).rstrip(), quote=False)
    return f'<pre class="{css_class}" tabindex="0">{plain}</pre>\n' if plain else ""


def _add_header_scopes(markup: str) -> str:
    """Adds to the headers of HTML tables whether they head a row or a column, for screen readers.

    Args:
        markup: HTML, perhaps with tables of pandas, which lack it.
    """
    headers = re.findall(r"<th\b[^>]*>", markup)
    if "<th" not in markup or all("scope" in header for header in headers):
        return markup
    soup = BeautifulSoup(markup, "html.parser")
    for header in soup.find_all("th"):
        if not header.get_text(strip=True):
            header.name = "td"  # an empty header heads nothing
        elif not header.get("scope"):
            header["scope"] = "col" if header.find_parent("thead") else "row"
    return str(soup)


def _render_image(media_type: str, content: str, metadata: dict[str, Any]) -> str:
    """Renders an image output as HTML, embedded in the page.

    Args:
        media_type: Such as "image/png".
        content: The image in base64, or SVG as text.
        metadata: Metadata of the output, with its alternative text.
    """
    own_metadata = metadata.get(media_type, {})
    alt = own_metadata.get("alt") or metadata.get("alt") or ""
    if media_type == "image/svg+xml":
        # As an <img>, so that the names inside one svg cannot collide with those of another.
        label = re.search(r"<svg\b[^>]*\baria-label=\"([^\"]+)\"", content)
        if not alt and label:
            alt = label.group(1)
        content = base64.b64encode(content.encode()).decode()
    uri = f"data:{media_type};base64,{''.join(content.split())}"
    picture = f'<img class="figure" src="{uri}" alt="{escape(alt)}">\n'
    if own_metadata.get(GENERATED_ALT):
        picture += f'<p class="note">{escape(alt, quote=False)} (No alt text was given.)</p>\n'
    return picture
