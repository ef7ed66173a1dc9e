"""An executed lesson as slides: one HTML file that loads nothing, made of the same pieces as its report.

nbconvert's SlidesExporter is of no use offline: its template loads reveal.js and require.js from the web, and no
package in requirements.lock has a copy of reveal.js that could be put into the page. So these slides need neither:
every heading begins a slide, and so does whatever follows a figure or a table. Of these a lesson keeps at most 16, for
20 minutes (`select_slides`). Scroll snapping shows one slide at a
time even without the script, which only adds keys (arrows, Home, End). Code is folded. Solutions, answers to
exercises and wall times are left out. Print gives one slide a page (the script makes long ones smaller; without it
they continue on the next).
"""

import argparse
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import nbformat
from jinja2 import Environment, FileSystemLoader

from lib.config import ROOT
from lib.experiment import artifacts
from lib.plots import accessibility_check, pages
from lib.plots.accessibility_check import ReportError
from lib.reports import html, markdown
from lib.teaching import solution_cells
from lib.teaching.exercises import is_exercise
from lib.teaching.quizzes import is_quiz

TEMPLATES = Path(__file__).with_name("template")
MOST_SLIDES = 16  # of a lesson, for 20 minutes; the first and the last are among them
MINUTES_PER_SLIDE = 1.2
HIDDEN = {"parameters", "injected-parameters", "hide"}
_HEADING = re.compile(r"#{1,3} ")
_FENCE = re.compile(r"\s*(```|~~~)")
_NEGATIVE = re.compile(r"<h[23][^>]*>[^<]*(?:did not work|[Ll]imits)")
_FILLS = re.compile(r"<(?:figure|img|table)\b")


@dataclass
class Slide:
    """One slide.

    Attributes:
        continues: The heading that it stands under, where it has none of its own.
        body: HTML.
        full: Whether it shows a figure or a table, so that whatever follows begins a new slide.
    """

    continues: str = ""
    body: str = ""
    full: bool = False


def split_at_headings(text: str) -> list[tuple[str, str]]:
    """Splits Markdown before every heading of the first three levels.

    Args:
        text: Markdown.

    Returns:
        (heading or "", text with the heading) of each section.
    """
    sections: list[list[str]] = [[]]  # lines of each
    in_code_block = False
    for line in text.splitlines():
        if _FENCE.match(line):
            in_code_block = not in_code_block
        if _HEADING.match(line) and not in_code_block:
            sections.append([])
        sections[-1].append(line)
    headed_sections = []
    for lines in sections:
        if not any(line.strip() for line in lines):
            continue
        heading = lines[0].lstrip("# ") if _HEADING.match(lines[0]) else ""
        headed_sections.append((heading, "\n".join(lines)))
    return headed_sections


def select_slides(slides: list[Slide], most: int = MOST_SLIDES) -> list[Slide]:
    """Selects what a class sees in 20 minutes, in the order of the lesson.

    Figures come first, then what did not work and the beginnings of sections. Of what is left, equations come before
    other text. A slide that holds no more than a table, code or text that goes on is left out.

    Args:
        slides: All slides of a lesson.
        most: How many are kept at most.

    Returns:
        The title and the slides with the highest rank, the earlier one where two are alike.
    """
    ranks = {}  # lower is kept first, by place
    for place, slide in enumerate(slides):
        is_negative = bool(_NEGATIVE.search(slide.body))
        if place == 0 or is_negative:
            ranks[place] = 0
        elif "<figure" in slide.body:
            ranks[place] = 1
        elif "<math" in slide.body:
            ranks[place] = 2
        elif not slide.continues and not slide.full:
            ranks[place] = 3
    kept = sorted(sorted(ranks, key=lambda place: (ranks[place], place))[:most])
    return [slides[place] for place in kept]


class _Deck:
    """The slides of a lesson, as far as they are made."""

    def __init__(self, folder: Path) -> None:
        self.cells = html.Cells(markdown.Document(folder))
        self.slides: list[Slide] = []
        self.heading = ""

    def begin_slide(self, heading: str = "") -> None:
        """Begins a slide under a new heading, or one that continues the last."""
        self.heading = heading or self.heading
        self.slides.append(Slide("" if heading else self.heading))

    def add_prose(self, cell: nbformat.NotebookNode, number: int) -> None:
        """Adds a Markdown cell to the slides: each heading begins a slide, and so does text after a figure.

        Args:
            cell: The cell.
            number: Its number, for error messages.
        """
        for heading, text in split_at_headings(cell.source):
            begins = heading or not self.slides or self.slides[-1].full
            # A heading takes over a slide that is still empty.
            last_is_empty = bool(self.slides) and not self.slides[-1].body
            if begins and not (heading and last_is_empty):
                self.begin_slide(heading)
            section_cell = nbformat.v4.new_markdown_cell(text)
            if cell.get("attachments"):
                section_cell["attachments"] = cell.attachments
            prose = self.cells.prose(section_cell, number)
            self.slides[-1].body += f'<div class="prose">{prose}</div>\n'

    def add_code(self, cell: nbformat.NotebookNode, number: int) -> None:
        """Adds a code cell and its output to the slides, folded, on the slide of the text before it unless that is
        full.

        Args:
            cell: The cell, with outputs.
            number: Its number, for error messages.
        """
        if not self.slides or self.slides[-1].full:
            self.begin_slide()
        outputs = [output for output in cell.outputs if not _shows_wall_times(output)]
        output_html = "".join(self.cells.output(output, cell, number) for output in outputs)
        code = f'<details class="source"><summary>Code</summary>\n{self.cells.source(cell)}</details>\n'
        self.slides[-1].body += f'<section class="cell">\n{code}{output_html}</section>\n'
        self.slides[-1].full = bool(_FILLS.search(output_html))


def _shows_wall_times(output: nbformat.NotebookNode) -> bool:
    """Whether an output frames a side page, which lies elsewhere."""
    return "<iframe" in "".join(output.get("data", {}).get("text/html", ""))


def render(notebook: nbformat.NotebookNode, name: str, folder: Path) -> str:
    """Renders the slides of an executed notebook.

    Args:
        notebook: The executed notebook.
        name: Its name.
        folder: Where images that its Markdown names lie.

    Returns:
        HTML that loads nothing.

    Raises:
        ReportError: For a picture without alt text, or anything loaded from elsewhere, as for the report.
    """
    # A class sees neither solutions nor exercises nor the quiz, which stand in the student copies.
    deck = _Deck(folder)
    for number, cell in enumerate(notebook.cells, 1):
        if solution_cells.is_solution(cell) or is_exercise(cell) or is_quiz(cell):
            continue
        if cell.cell_type == "markdown":
            deck.add_prose(cell, number)
        elif cell.cell_type == "code":
            is_hidden = HIDDEN & set(cell.metadata.get("tags", []))
            if not is_hidden:
                deck.add_code(cell, number)
    problems = deck.cells.problems
    if problems:
        raise ReportError(f"the slides of {name} are refused:\n  " + "\n  ".join(problems))

    # Style and script become part of the page, which loads nothing.
    headings = deck.cells.document.headings
    title = re.sub(r"<[^>]+>", "", headings[0].markup) if headings else name
    environment = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True)
    page = environment.get_template("slides.html.j2").render(
        slides=select_slides(deck.slides),
        name=name,
        title=title,
        css=pages.stylesheet(),
        own=(TEMPLATES / "slides.css").read_text(encoding="utf-8"),
        script=(TEMPLATES / "slides.js").read_text(encoding="utf-8"),
    )
    accessibility_check.check(page, f"the slides of {name}")
    return page + "\n"


def write(name: str, root: Path = ROOT) -> Path:
    """Writes the slides of one lesson.

    Args:
        name: The lesson.
        root: The project.

    Returns:
        The path of the slides.

    Raises:
        FileNotFoundError: If the lesson was not run yet; the message says how to.
    """
    source = root / "reports/notebooks" / f"{name}.ipynb"
    if not source.exists():
        raise FileNotFoundError(
            f"{name} has not been run yet; run it first: make repro LESSON={name}"
        )
    notebook = nbformat.read(source, as_version=4)
    slides = render(notebook, name, root / "notebooks")
    return artifacts.write_text(root / "reports/slides" / f"{name}.html", slides)


def main(arguments: list[str] | None = None) -> int:
    """Render executed lessons as slides in reports/slides; all that were run, if none is named."""
    parser = argparse.ArgumentParser(prog="python -m lib slides", description=main.__doc__)
    parser.add_argument("lessons", nargs="*", help="such as 05_budgeted_routing")
    parser.add_argument("--root", type=Path, default=ROOT, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    all_lessons = sorted(path.stem for path in (options.root / "notebooks").glob("[0-9]*.ipynb"))
    unknown = [name for name in options.lessons if name not in all_lessons]
    if unknown:
        print(
            f"error: there is no lesson {unknown[0]!r}; there are {', '.join(all_lessons)}",
            file=sys.stderr,
        )
        return 1
    num_written = num_failed = 0
    for name in options.lessons or all_lessons:
        try:
            path = write(name, options.root)
            num_slides = path.read_text(encoding="utf-8").count('<section class="slide')
            minutes = round(num_slides * MINUTES_PER_SLIDE)
            print(f"slides: {path}: {num_slides} slides, about {minutes} minutes")
            num_written += 1
        except (FileNotFoundError, ReportError) as error:
            print(f"{'error' if options.lessons else 'left out'}: {error}", file=sys.stderr)
            num_failed += 1
    # Without names, lessons that were not run yet are no failure, unless there is none at all.
    return 1 if num_failed and (options.lessons or not num_written) else 0
