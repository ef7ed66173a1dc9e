"""The exercises as cells of the notebooks, and their worked solutions for whoever teaches.

`python -m lib exercises` writes the exercises of `lib.teaching.exercises_by_lesson` to the end of every
notebook, in one
form: the question with how hard, how important and how long, then a cell to answer in. Cells that it wrote
before carry the tag `exercise` and are replaced. With `--solutions 05_budgeted_routing` it changes nothing
and prints the worked solutions of that lesson.
"""

import argparse
from importlib import import_module
from pathlib import Path

import nbformat

from lib.config import ROOT
from lib.experiment import artifacts
from lib.reports.execute import strip_outputs
from lib.teaching import exercises_by_lesson
from lib.teaching.exercises_by_lesson import Exercises

TAG = "exercise"
INTRO = "## Exercises\n\nPut your answer in place of `None` and run the cell. What is not right yet gets a hint."


def numbers() -> list[str]:
    """The lessons that have exercises: 00, 01, ..."""
    return sorted(
        path.stem.removeprefix("lesson_")
        for path in Path(exercises_by_lesson.__file__).parent.glob("lesson_*.py")
    )


def load(number: str | None = None) -> dict[str, Exercises]:
    """The exercises of all lessons, or of one, by number. Raises ValueError for a lesson without any."""
    wanted = numbers() if number is None else [number]
    if not set(wanted) <= set(numbers()):
        raise ValueError(f"lesson {number!r} has no exercises; there are {', '.join(numbers())}")
    return {
        each: import_module(f"lib.teaching.exercises_by_lesson.lesson_{each}").EXERCISES
        for each in wanted
    }


def cells(number: str, exercises: Exercises) -> list[nbformat.NotebookNode]:
    """The cells of a lesson's exercises: introduction, import, and two for each."""
    new = nbformat.v4
    out = [
        new.new_markdown_cell(INTRO),
        new.new_code_cell(f"from lib.teaching.exercises_by_lesson.lesson_{number} import check"),
    ]
    for each in exercises:
        out += [new.new_markdown_cell(each.markdown()), new.new_code_cell(each.code())]
    for cell in out:
        cell.metadata["tags"] = [TAG]
    return out


def is_exercise(cell: nbformat.NotebookNode) -> bool:
    """Whether a cell was written here."""
    return TAG in cell.metadata.get("tags", [])


def with_exercises(
    notebook: nbformat.NotebookNode, number: str, exercises: Exercises
) -> nbformat.NotebookNode:
    """A clean copy of a notebook that ends with these exercises and no others."""
    copy = strip_outputs.clean(notebook)
    copy.cells = [cell for cell in copy.cells if not is_exercise(cell)] + cells(number, exercises)
    return strip_outputs.clean(copy)


def write(folder: Path) -> list[Path]:
    """Bring the exercises of every notebook in a folder up to date; returns those that changed."""
    changed = []
    for number, exercises in load().items():
        for path in sorted(folder.glob(f"{number}_*.ipynb")):
            text = strip_outputs.to_text(
                with_exercises(strip_outputs.read(path), number, exercises)
            )
            if text != path.read_text(encoding="utf-8"):
                changed.append(artifacts.write_text(path, text))
    return changed


def main(arguments: list[str] | None = None) -> None:
    """Write the exercises into the notebooks, or print a lesson's worked solutions."""
    parser = argparse.ArgumentParser(prog="python -m lib exercises", description=main.__doc__)
    parser.add_argument("--folder", type=Path, default=ROOT / "notebooks", help=argparse.SUPPRESS)
    parser.add_argument("--solutions", metavar="LESSON", help="such as 05_budgeted_routing, or all")
    options = parser.parse_args(arguments)
    if not options.solutions:
        for path in write(options.folder):
            print(f"exercises written into {path.name}")
        return
    try:
        found = load(None if options.solutions == "all" else options.solutions[:2])
    except ValueError as error:
        raise SystemExit(f"error: {error}") from None
    for exercises in found.values():
        for each in exercises:
            print(f"{each.id} ({each.facts})\n{each.question}\n\n{each.solution()}\n")
