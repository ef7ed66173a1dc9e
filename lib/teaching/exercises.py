"""The exercises as cells of the notebooks, and their worked solutions for teachers.

`python -m lib exercises` writes the exercises of `lib.teaching.exercises_by_lesson` to the end of every
notebook, in one form: the question with its difficulty, importance and time, then a cell to answer in. It also
writes the quiz into the middle (`lib.teaching.quizzes`) and the further reading before the exercises
(`lib.teaching.readings`). Cells that it wrote before carry the tags `exercise`, `quiz` and `reading`, and are
replaced. With `--solutions 05_budgeted_routing`
it changes nothing and prints the worked solutions of that lesson, first those that stand in the notebook itself
(`lib.teaching.solution_cells`).
"""

import argparse
from importlib import import_module
from pathlib import Path

import nbformat

from lib.config import ROOT
from lib.experiment import artifacts
from lib.reports.execute import strip_outputs
from lib.teaching import exercises_by_lesson, quizzes, readings, solution_cells
from lib.teaching.exercises_by_lesson import Exercises
from lib.teaching.quizzes_by_lesson import Quiz

TAG = "exercise"
INTRO = "## Exercises\n\nPut your answer in place of `None` and run the cell. What is not right yet gets a hint."


def lesson_numbers() -> list[str]:
    """The lessons that have exercises: 00, 01, ..."""
    folder = Path(exercises_by_lesson.__file__).parent
    return sorted(path.stem.removeprefix("lesson_") for path in folder.glob("lesson_*.py"))


def load(number: str | None = None) -> dict[str, Exercises]:
    """Loads the exercises of all lessons, or of one.

    Args:
        number: The lesson, such as 05; all if None.

    Returns:
        The exercises by lesson number.

    Raises:
        ValueError: If the lesson has no exercises.
    """
    available = lesson_numbers()
    if number is not None and number not in available:
        raise ValueError(f"lesson {number!r} has no exercises; there are {', '.join(available)}")
    exercises = {}
    for lesson in available if number is None else [number]:
        module = import_module(f"lib.teaching.exercises_by_lesson.lesson_{lesson}")
        exercises[lesson] = module.EXERCISES
    return exercises


def make_cells(number: str, exercises: Exercises) -> list[nbformat.NotebookNode]:
    """Makes the notebook cells of a lesson's exercises: introduction, import, and two cells for each exercise.

    Args:
        number: Number of the lesson.
        exercises: The exercises.
    """
    v4 = nbformat.v4
    cells = [
        v4.new_markdown_cell(INTRO),
        v4.new_code_cell(f"from lib.teaching.exercises_by_lesson.lesson_{number} import check"),
    ]
    for exercise in exercises:
        cells.append(v4.new_markdown_cell(exercise.markdown()))
        cells.append(v4.new_code_cell(exercise.code()))
    for cell in cells:
        cell.metadata["tags"] = [TAG]
    return cells


def is_exercise(cell: nbformat.NotebookNode) -> bool:
    """Whether a cell was written by this module."""
    return TAG in cell.metadata.get("tags", [])


def replace_teaching_cells(
    notebook: nbformat.NotebookNode, number: str, exercises: Exercises, quiz: Quiz
) -> nbformat.NotebookNode:
    """Copies a lesson with this quiz, its further reading, these exercises and no others.

    Args:
        notebook: The lesson.
        number: Its number, such as 05.
        exercises: For its end.
        quiz: For its middle.

    Returns:
        The copy.

    Raises:
        ValueError: If the heading that should follow the quiz is missing.
    """
    copy = strip_outputs.clean(notebook)
    lesson_cells = [
        cell for cell in copy.cells if not is_exercise(cell) and not readings.is_reading(cell)
    ]
    copy.cells = quizzes.insert_quiz(lesson_cells, number, quiz)
    copy.cells += [readings.make_cell(number), *make_cells(number, exercises)]
    return strip_outputs.clean(copy)  # once more: ids of cells follow from their places


def write(folder: Path) -> list[Path]:
    """Updates the exercises, quiz and reading list in every notebook of a folder.

    Args:
        folder: Folder of the notebooks.

    Returns:
        Paths of the notebooks that changed.
    """
    # Only what differs is written, so that the paths returned are real changes.
    changed = []
    quiz_by_lesson = quizzes.load()
    for number, exercises in load().items():
        for path in sorted(folder.glob(f"{number}_*.ipynb")):
            notebook = replace_teaching_cells(
                strip_outputs.read(path), number, exercises, quiz_by_lesson[number]
            )
            text = strip_outputs.to_text(notebook)
            if text != path.read_text(encoding="utf-8"):
                changed.append(artifacts.write_text(path, text))
    return changed


def main(arguments: list[str] | None = None) -> None:
    """Write exercises, quizzes and reading into the notebooks, or print a lesson's worked solutions."""
    parser = argparse.ArgumentParser(prog="python -m lib exercises", description=main.__doc__)
    parser.add_argument("--folder", type=Path, default=ROOT / "notebooks", help=argparse.SUPPRESS)
    parser.add_argument("--solutions", metavar="LESSON", help="such as 05_budgeted_routing, or all")
    parser.add_argument(
        "--notebook", type=Path, metavar="FOLDER", help="write the solutions notebook there, too"
    )
    options = parser.parse_args(arguments)
    if not options.solutions:
        for path in write(options.folder):
            print(f"exercises, quiz and reading written into {path.name}")
        return
    try:
        by_lesson = load(None if options.solutions == "all" else options.solutions[:2])
    except ValueError as error:
        raise SystemExit(f"error: {error}") from None
    if options.notebook:
        from lib.teaching import solutions_notebook  # which imports this module

        print(f"solutions: {solutions_notebook.write(options.notebook)}\n")
    # Solutions that stand in a notebook, then those of the exercises at its end.
    for number, exercises in by_lesson.items():
        for path in sorted(options.folder.glob(f"{number}_*.ipynb")):
            for cell in filter(solution_cells.is_solution, strip_outputs.read(path).cells):
                print(f"In {path.name}:\n\n{cell.source}\n")
        for exercise in exercises:
            print(f"{exercise.id} ({exercise.facts})\n{exercise.question}\n")
            print(f"{exercise.solution()}\n")
