"""Copies of the notebooks for a class: `student/`, which git ignores.

A copy has no outputs, a cell for notes at the end of every section, and the exercises without answers. Code
cells tagged `solution` become stubs (`lib.teaching.solution_cells`), Markdown cells with that tag are left out.
`student/exercises.ipynb` gathers the exercises of all lessons. Findings
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
from lib.teaching import exercises, solution_cells

NOTES = "*Notes:*"
NOTES_TAG = "notes"
# JupyterLab and nbclient run on behind a cell with this tag that fails, here the tests of a stub.
MAY_FAIL_TAG = "raises-exception"
WORKBOOK = "exercises"
_SECTION = re.compile(r"^## ", re.MULTILINE)
_OPENING = """# Exercises of all lessons

Answer in place of `None` and run the cell. Cells stand on their own; what a check needs of its lesson is made \
beside it. `make student` wrote this file, and never overwrites one that you have changed."""


def make_copy(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Makes the student's copy of a lesson: solutions become stubs, and there are cells for notes.

    Args:
        notebook: Notebook of the lesson.

    Returns:
        A notebook; cells that call a stub are marked as allowed to fail.
    """
    cells = []
    awaits_tests = False  # since the last stub no code came
    stub_names = set()
    for cell in strip_outputs.clean(notebook).cells:
        if solution_cells.is_solution(cell):
            if cell.cell_type == "code":
                cells.append(solution_cells.make_stub_cell(cell))
                stub_names |= set(solution_cells.list_function_names(cell.source))
                awaits_tests = True
            continue
        if cell.cell_type == "code":
            # Tests may stand behind a paragraph, and a later cell may call the function once more.
            if awaits_tests or _calls_one_of(cell.source, stub_names):
                cell.metadata["tags"] = [*cell.metadata.get("tags", []), MAY_FAIL_TAG]
            awaits_tests = False
        begins_section = cell.cell_type == "markdown" and _SECTION.search(cell.source)
        # Notes end the section before; not above the first one, nor between exercises.
        if begins_section and len(cells) > 1 and not exercises.is_exercise(cells[-1]):
            cells.append(_notes_cell())
        cells.append(cell)
    return _make_notebook(cells)


def make_workbook(root: Path) -> nbformat.NotebookNode:
    """Makes a notebook with the exercises of all lessons, one section each.

    Args:
        root: The project's folder.
    """
    cells = [nbformat.v4.new_markdown_cell(_OPENING)]
    for number, lesson_exercises in exercises.load().items():
        for path in sorted((root / "notebooks").glob(f"{number}_*.ipynb")):
            title = strip_outputs.read(path).cells[0].source.split("\n", 1)[0].lstrip("# ")
            cells.append(nbformat.v4.new_markdown_cell(f"## {number} {title}"))
            # The workbook has one introduction for all lessons.
            _, import_cell, *exercise_cells = exercises.make_cells(number, lesson_exercises)
            cells.append(import_cell)
            if any(exercise.needs for exercise in lesson_exercises):
                settings_code = "from lib import config as params\n\nsettings = params.settings()"
                cells.append(nbformat.v4.new_code_cell(settings_code))
            cells += [*exercise_cells, _notes_cell()]
    return _make_notebook(cells)


def _calls_one_of(source: str, names: set[str]) -> bool:
    """Whether a cell calls a function by its name alone, not as one of a module."""
    calls = set(re.findall(r"(?<![\w.])(\w+)\(", source))
    return bool(calls & names)


def _notes_cell() -> nbformat.NotebookNode:
    return nbformat.v4.new_markdown_cell(NOTES, metadata={"tags": [NOTES_TAG]})


def _make_notebook(cells: list[nbformat.NotebookNode]) -> nbformat.NotebookNode:
    notebook = nbformat.v4.new_notebook()
    notebook.cells = cells
    return strip_outputs.clean(notebook)


def write(root: Path, target: Path, force: bool = False) -> tuple[list[Path], list[Path]]:
    """Writes the copies of all lessons, and the workbook.

    What was written is recorded by its hash, so that a copy that nobody changed follows its lesson.

    Args:
        root: The project.
        target: Folder of the copies.
        force: Whether to overwrite files that somebody has worked in.

    Returns:
        Paths that were written, and paths that were left because somebody has worked in them.
    """
    notebooks = {
        path.name: make_copy(strip_outputs.read(path))
        for path in sorted((root / "notebooks").glob("[0-9]*.ipynb"))
    }
    notebooks[f"{WORKBOOK}.ipynb"] = make_workbook(root)
    record = target / ".written.json"
    hashes = artifacts.read_json(record) if record.exists() else {}  # by file name
    written, changed_by_student = [], []
    for name, notebook in notebooks.items():
        path = target / name
        if path.exists() and not force and artifacts.sha256_file(path) != hashes.get(name):
            changed_by_student.append(path)
            continue
        written.append(artifacts.write_text(path, strip_outputs.to_text(notebook)))
        hashes[name] = artifacts.sha256_file(path)
    artifacts.write_json(record, hashes)
    return written, changed_by_student


def main(arguments: list[str] | None = None) -> None:
    """Write copies of the notebooks without outputs and solutions, for a class."""
    parser = argparse.ArgumentParser(prog="python -m lib student", description=main.__doc__)
    parser.add_argument(
        "--force", action="store_true", help="overwrite copies that were worked in, too"
    )
    parser.add_argument("--root", type=Path, default=ROOT, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    written, changed_by_student = write(options.root, options.root / "student", options.force)
    print(
        f"student: {len(written)} notebooks in {options.root / 'student'}, without outputs and solutions"
    )
    for path in changed_by_student:
        print(f"kept, because it was worked in: {path.name}")
    print(
        "they check answers with lib.teaching.exercises_by_lesson, which holds the solutions for whoever looks there"
    )
