"""Copies of the notebooks for a class: `student/`, which git ignores.

A copy has no outputs, a cell for notes at the end of every section, and the exercises still to be answered;
cells tagged `solution` are left out. `student/exercises.ipynb` gathers the exercises of all lessons. Findings
are sentences that code makes from results, so they appear once a student has run the lesson.

What is hidden and what is not: no file of `student/` holds a solution, but answers are checked by
`lib.teaching.exercises_by_lesson`, which stands in the same checkout and can be read. This keeps honest people from
stumbling over an answer; it is no examination. Files that a student has worked in are not overwritten unless asked
to.
"""

import argparse
import re
from pathlib import Path

import nbformat

from lib.config import ROOT
from lib.experiment import artifacts
from lib.reports.execute import strip_outputs
from lib.teaching import exercises

SOLUTION = "solution"
NOTES = "*Notes:*"
NOTES_TAG = "notes"
WORKBOOK = "exercises"
_SECTION = re.compile(r"^## ", re.MULTILINE)
_OPENING = """# Exercises of all lessons

Answer in place of `None` and run the cell. Cells stand on their own; what a check needs of its lesson is made \
beside it. `make student` wrote this file, and never overwrites one that you have changed."""


def copy(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """A student's copy of a lesson."""
    cells = []
    for cell in strip_outputs.clean(notebook).cells:
        if SOLUTION in cell.metadata.get("tags", []):
            continue
        begins = cell.cell_type == "markdown" and _SECTION.search(cell.source)
        if begins and len(cells) > 1 and not exercises.is_exercise(cells[-1]):
            cells.append(_notes())
        cells.append(cell)
    return _made(cells)


def workbook(root: Path) -> nbformat.NotebookNode:
    """The exercises of all lessons that have a notebook, one section each."""
    cells = [nbformat.v4.new_markdown_cell(_OPENING)]
    for number, known in exercises.load().items():
        for path in sorted((root / "notebooks").glob(f"{number}_*.ipynb")):
            title = strip_outputs.read(path).cells[0].source.split("\n", 1)[0].lstrip("# ")
            cells.append(nbformat.v4.new_markdown_cell(f"## {number} {title}"))
            own = exercises.cells(number, known)[1:]
            needs = sorted({name for each in known for name in each.needs})
            cells.append(own[0])
            if needs:
                cells.append(
                    nbformat.v4.new_code_cell(
                        "from lib import config as params\n\nsettings = params.settings()"
                    )
                )
            cells += [*own[1:], _notes()]
    return _made(cells)


def _notes() -> nbformat.NotebookNode:
    return nbformat.v4.new_markdown_cell(NOTES, metadata={"tags": [NOTES_TAG]})


def _made(cells: list[nbformat.NotebookNode]) -> nbformat.NotebookNode:
    notebook = nbformat.v4.new_notebook()
    notebook.cells = cells
    return strip_outputs.clean(notebook)


def write(root: Path, target: Path, force: bool = False) -> tuple[list[Path], list[Path]]:
    """Write all copies; returns those written, and those kept because somebody has worked in them.

    What was written is remembered by its hash, so that a copy nobody touched follows its lesson.
    """
    made = {
        path.name: copy(strip_outputs.read(path))
        for path in sorted((root / "notebooks").glob("[0-9]*.ipynb"))
    }
    made[f"{WORKBOOK}.ipynb"] = workbook(root)
    record = target / ".written.json"
    known = artifacts.read_json(record) if record.exists() else {}
    written, kept = [], []
    for name, notebook in made.items():
        path, text = target / name, strip_outputs.to_text(notebook)
        if path.exists() and not force and artifacts.sha256_file(path) != known.get(name):
            kept.append(path)
            continue
        written.append(artifacts.write_text(path, text))
        known[name] = artifacts.sha256_file(path)
    artifacts.write_json(record, known)
    return written, kept


def main(arguments: list[str] | None = None) -> None:
    """Write copies of the notebooks without outputs and solutions, for a class."""
    parser = argparse.ArgumentParser(prog="python -m lib student", description=main.__doc__)
    parser.add_argument(
        "--force", action="store_true", help="overwrite copies that were worked in, too"
    )
    parser.add_argument("--root", type=Path, default=ROOT, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    written, kept = write(options.root, options.root / "student", options.force)
    print(
        f"student: {len(written)} notebooks in {options.root / 'student'}, without outputs and solutions"
    )
    for path in kept:
        print(f"kept, because it was worked in: {path.name}")
    print(
        "they check answers with lib.teaching.exercises_by_lesson, which holds the solutions for whoever looks there"
    )
