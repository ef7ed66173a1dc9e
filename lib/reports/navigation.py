"""The order of the lessons, and the links from a page to its neighbours.

The order is that of the notebooks' names, which begin with a number: `05_budgeted_routing`. An appendix of a lesson has
the same number and a letter, `05a_calibration`, and is read from its lesson; "next" leads from lesson to lesson. Titles
are the notebooks' first headings, so that nothing has to be entered twice. Left out: pages without a number, such as
the glossary.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path

from lib.reports import markdown

FRONT_PAGE = "index.html"
_NAME = re.compile(r"(?P<number>\d\d)(?P<letter>[a-z]?)_\w+")
_FIRST_HEADING = re.compile(r"^# +(.+)$", re.MULTILINE)


@dataclass(frozen=True)
class LessonLink:
    """A lesson that a page links to.

    Attributes:
        name: The notebook's name.
        title: Its first heading without what follows the colon, as HTML.
    """

    name: str
    title: str

    @property
    def address(self) -> str:
        """The page, seen from another page of the report."""
        return f"{self.name}.html"

    @property
    def number(self) -> str:
        """What a reader calls it, such as 05 or 05a."""
        return self.name.split("_")[0]


@dataclass(frozen=True)
class Neighbours:
    """Where a page leads to; None where there is no such lesson.

    Attributes:
        previous: The lesson before.
        next: The lesson after.
        lesson: Of an appendix, the lesson that it belongs to.
        appendices: Of a lesson, its appendices.
    """

    previous: LessonLink | None = None
    next: LessonLink | None = None
    lesson: LessonLink | None = None
    appendices: tuple[LessonLink, ...] = ()


def list_lessons(notebooks: Path) -> list[str]:
    """The names of all lessons and appendices of a folder, in the order in which they are read."""
    names = [path.stem for path in notebooks.glob("*.ipynb") if _NAME.fullmatch(path.stem)]
    return sorted(names, key=_split_name)


def find_neighbours(name: str, notebooks: Path) -> Neighbours:
    """Finds where the page of a notebook leads to.

    Args:
        name: The notebook's name.
        notebooks: The folder of all notebooks.

    Returns:
        The neighbours; none at all for a notebook that is not in the folder.
    """
    names = list_lessons(notebooks)
    if name not in names:
        return Neighbours()
    number, letter = _split_name(name)
    previous_lesson = next_lesson = lesson = None
    appendices = []
    for other_name in names:
        other_number, other_letter = _split_name(other_name)
        if other_letter:
            # Nothing but its own lesson leads to an appendix.
            if other_number == number and not letter:
                appendices.append(make_link(other_name, notebooks))
        elif other_number < number:
            previous_lesson = other_name  # the last one below stays
        elif other_number > number:
            next_lesson = next_lesson or other_name  # the first one above stays
        elif letter:
            lesson = other_name
    links = [
        make_link(linked_name, notebooks) if linked_name else None
        for linked_name in (previous_lesson, next_lesson, lesson)
    ]
    return Neighbours(*links, tuple(appendices))


def make_link(name: str, notebooks: Path) -> LessonLink:
    """Makes the link to a lesson, with the first heading of its notebook up to a colon as text.

    Args:
        name: Name of the lesson.
        notebooks: Folder of the notebooks.
    """
    notebook = json.loads((notebooks / f"{name}.ipynb").read_text(encoding="utf-8"))
    # What follows the colon says more than a link has room for.
    for cell in notebook["cells"]:
        heading = _FIRST_HEADING.search("".join(cell["source"]))
        if cell["cell_type"] == "markdown" and heading:
            document = markdown.Document(notebooks)
            markdown.to_html(f"# {heading[1].split(':')[0]}", document)
            return LessonLink(name, document.headings[0].markup)
    return LessonLink(name, name)


def _split_name(name: str) -> tuple[str, str]:
    """The number of a lesson and the letter of an appendix, which is empty for a lesson."""
    return _NAME.fullmatch(name).group("number", "letter")
