"""The quiz of a lesson as two cells of its notebook: the questions, and a cell to answer in.

They carry the tag `quiz` and stand before the heading that `lib.teaching.quizzes_by_lesson` names. A cell that has
text above this heading is cut in two there.
"""

import re
from importlib import import_module
from pathlib import Path

import nbformat

from lib.teaching import quizzes_by_lesson
from lib.teaching.quizzes_by_lesson import Quiz

TAG = "quiz"
INTRO = "**Quiz.** Three questions on what you have read so far. Put a letter in place of `None`."
_SECTION = re.compile(r"^## .*$", re.MULTILINE)


def load() -> dict[str, Quiz]:
    """The quizzes by lesson number: 00, 01, ..."""
    quizzes = {}
    for path in sorted(Path(quizzes_by_lesson.__file__).parent.glob("lesson_*.py")):
        module = import_module(f"{quizzes_by_lesson.__name__}.{path.stem}")
        quizzes[path.stem.removeprefix("lesson_")] = module.QUIZ
    return quizzes


def is_quiz(cell: nbformat.NotebookNode) -> bool:
    """Whether a cell was written by this module."""
    return TAG in cell.metadata.get("tags", [])


def make_cells(number: str, quiz: Quiz) -> list[nbformat.NotebookNode]:
    """Makes the two notebook cells of a lesson's quiz: its questions, and a cell for the answers.

    Args:
        number: Number of the lesson.
        quiz: The questions.
    """
    questions = [question.markdown(i) for i, question in enumerate(quiz.questions, 1)]
    lines = [f"from lib.teaching.quizzes_by_lesson.lesson_{number} import quiz", ""]
    lines += [f"quiz({i}, None)" for i in range(1, len(quiz.questions) + 1)]
    cells = [
        nbformat.v4.new_markdown_cell("\n\n".join([INTRO, "\n".join(questions)])),
        nbformat.v4.new_code_cell("\n".join(lines)),
    ]
    for cell in cells:
        cell.metadata["tags"] = [TAG]
    return cells


def insert_quiz(
    cells: list[nbformat.NotebookNode], number: str, quiz: Quiz
) -> list[nbformat.NotebookNode]:
    """Inserts a quiz into the cells of a lesson, in place of the one that is there.

    Args:
        cells: Cells of the lesson, without its exercises.
        number: The lesson, such as 05.
        quiz: Its quiz.

    Returns:
        The cells with the quiz.

    Raises:
        ValueError: If the heading that should follow the quiz is missing.
    """
    lesson_cells = [cell for cell in cells if not is_quiz(cell)]
    index, offset = _find_place(lesson_cells, number, quiz.before)
    section_cell = lesson_cells[index]
    before = lesson_cells[:index]

    # What stands above the heading becomes a cell of its own.
    text_above = section_cell.source[:offset].rstrip()
    if text_above:
        before.append(nbformat.v4.new_markdown_cell(text_above))
    section_cell.source = section_cell.source[offset:]
    return [*before, *make_cells(number, quiz), *lesson_cells[index:]]


def _find_place(
    cells: list[nbformat.NotebookNode], number: str, heading: str | None
) -> tuple[int, int]:
    """Finds where the quiz is inserted: before a heading, the nearest to the middle of the notebook.

    Args:
        cells: Cells of the notebook.
        number: Number of the lesson, for the error message.
        heading: The heading that must follow; None for any heading of a section.

    Returns:
        Index of the cell with the heading, and the heading's offset in its text.

    Raises:
        ValueError: There is no such heading.
    """
    # Places are counted in characters, which cutting a cell does not change, but for blank lines.
    places = []
    position = 0
    for index, cell in enumerate(cells):
        if cell.cell_type == "markdown":
            for match in _SECTION.finditer(cell.source):
                places.append((position + match.start(), index, match))
        position += len(cell.source)
    if heading is not None:
        places = [place for place in places if place[2].group().rstrip() == heading]
    if not places:
        wanted = f"heading {heading!r}" if heading else "section"
        raise ValueError(f"lesson {number} has no {wanted} for its quiz to stand before")
    _, index, match = min(places, key=lambda place: abs(place[0] - position / 2))
    return index, match.start()
