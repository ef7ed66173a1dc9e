"""An executed lesson as slides: one HTML file that loads nothing, made of the same pieces as its report.

nbconvert's own slides load reveal.js from the web; these need none: every heading begins a slide, and so does
what follows a figure or a table. Scroll snapping shows one slide at a time even without the script, which
only adds keys (arrows, Home, End). Code is folded, cells that answer exercises and wall times are left out,
and print gives one slide a page (the script makes long ones smaller; without it they go on on the next).
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
from lib.reports import accessibility_check, html, markdown
from lib.reports.accessibility_check import ReportError
from lib.teaching.exercises import is_exercise

TEMPLATES = Path(__file__).with_name("template")
HIDDEN = {"parameters", "injected-parameters", "hide"}
_HEADING = re.compile(r"#{1,3} ")
_FENCE = re.compile(r"\s*(```|~~~)")
_FILLS = re.compile(r"<(?:figure|img|table)\b")


@dataclass
class Slide:
    """continues: the heading that it stands under, where it has none of its own; full: shows a figure or table."""

    continues: str = ""
    body: str = ""
    full: bool = False


def parts(text: str) -> list[tuple[str, str]]:
    """Markdown cut before every heading of the first three levels: (heading or "", text) each."""
    out: list[list[str]] = [[]]
    fenced = False
    for line in text.splitlines():
        fenced ^= bool(_FENCE.match(line))
        if _HEADING.match(line) and not fenced:
            out.append([])
        out[-1].append(line)
    cut = ["\n".join(lines) for lines in out if any(line.strip() for line in lines)]
    return [
        (part.split("\n", 1)[0].lstrip("# ") if _HEADING.match(part) else "", part) for part in cut
    ]


class _Deck:
    """Slides so far, and the pieces that make them."""

    def __init__(self, folder: Path) -> None:
        self.cells = html.Cells(markdown.Document(folder))
        self.slides: list[Slide] = []
        self.heading = ""

    def begin(self, heading: str = "") -> None:
        """A slide under a new heading, or one that goes on under the last."""
        self.heading = heading or self.heading
        self.slides.append(Slide("" if heading else self.heading))

    def prose(self, cell: nbformat.NotebookNode, number: int) -> None:
        """Each heading begins a slide; so does text after a figure, and each exercise."""
        for heading, text in parts(cell.source):
            new = heading or not self.slides or self.slides[-1].full or is_exercise(cell)
            if new and not (heading and self.slides and not self.slides[-1].body):
                self.begin(heading)
            piece = nbformat.v4.new_markdown_cell(text)
            if cell.get("attachments"):
                piece["attachments"] = cell.attachments
            self.slides[-1].body += f'<div class="prose">{self.cells.prose(piece, number)}</div>\n'

    def code(self, cell: nbformat.NotebookNode, number: int) -> None:
        """Folded code and what it showed, on a slide with the text before it if nothing else is there."""
        if not self.slides or self.slides[-1].full:
            self.begin()
        shown = "".join(
            self.cells.output(output, cell, number) for output in cell.outputs if not _timed(output)
        )
        source = f'<details class="source"><summary>Code</summary>\n{self.cells.source(cell)}</details>\n'
        self.slides[-1].body += f'<section class="cell">\n{source}{shown}</section>\n'
        self.slides[-1].full = bool(_FILLS.search(shown))


def _timed(output: nbformat.NotebookNode) -> bool:
    """Whether an output frames a side page of wall times, which lies elsewhere."""
    return "<iframe" in "".join(output.get("data", {}).get("text/html", ""))


def render(notebook: nbformat.NotebookNode, name: str, folder: Path) -> str:
    """The slides of an executed notebook; folder: where images that its Markdown names lie.

    Raises ReportError as the report does: for a picture that says nothing, or anything loaded from elsewhere.
    """
    deck = _Deck(folder)
    for number, cell in enumerate(notebook.cells, 1):
        if cell.cell_type == "markdown":
            deck.prose(cell, number)
        elif (
            cell.cell_type == "code"
            and not HIDDEN & set(cell.metadata.get("tags", []))
            and not is_exercise(cell)
        ):
            deck.code(cell, number)
    if deck.cells.problems:
        raise ReportError(
            f"the slides of {name} are refused:\n  " + "\n  ".join(deck.cells.problems)
        )
    first = next(
        (re.sub(r"<[^>]+>", "", entry.markup) for entry in deck.cells.document.headings), name
    )
    environment = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True)
    own, script = (
        (TEMPLATES / f"slides.{kind}").read_text(encoding="utf-8") for kind in ("css", "js")
    )
    made = environment.get_template("slides.html.j2").render(
        slides=deck.slides, name=name, title=first, css=html.stylesheet(), own=own, script=script
    )
    accessibility_check.check(made, f"the slides of {name}")
    return made + "\n"


def write(name: str, root: Path = ROOT) -> Path:
    """Write the slides of one lesson. Raises FileNotFoundError, with the remedy, where it was not run yet."""
    source = root / "reports/notebooks" / f"{name}.ipynb"
    if not source.exists():
        raise FileNotFoundError(
            f"{name} has not been run yet; run it first: make repro LESSON={name}"
        )
    notebook = nbformat.read(source, as_version=4)
    return artifacts.write_text(
        root / "reports/slides" / f"{name}.html", render(notebook, name, root / "notebooks")
    )


def main(arguments: list[str] | None = None) -> int:
    """Render executed lessons as slides in reports/slides; all that were run, if none is named."""
    parser = argparse.ArgumentParser(prog="python -m lib slides", description=main.__doc__)
    parser.add_argument("lessons", nargs="*", help="such as 05_budgeted_routing")
    parser.add_argument("--root", type=Path, default=ROOT, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    every = sorted(path.stem for path in (options.root / "notebooks").glob("[0-9]*.ipynb"))
    unknown = [name for name in options.lessons if name not in every]
    if unknown:
        print(
            f"error: there is no lesson {unknown[0]!r}; there are {', '.join(every)}",
            file=sys.stderr,
        )
        return 1
    failed = made = 0
    for name in options.lessons or every:
        try:
            print(f"slides: {write(name, options.root)}")
            made += 1
        except (FileNotFoundError, ReportError) as error:
            print(f"{'error' if options.lessons else 'left out'}: {error}", file=sys.stderr)
            failed += 1
    return 1 if failed and (options.lessons or not made) else 0
