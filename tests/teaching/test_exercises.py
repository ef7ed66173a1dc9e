"""The exercises in the notebooks are those of lib.teaching.exercises_by_lesson, in one form, at the end."""

import ast
import builtins
import shutil
from pathlib import Path

import nbformat
import pytest

from lib.reports.execute import strip_outputs
from lib.teaching import exercises, quizzes

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))  # an appendix has none


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_holds_the_exercises_of_lib_checks_and_writing_them_again_changes_nothing(
    path, tmp_path
):
    number = path.stem[:2]
    known = exercises.load(number)[number]
    shutil.copy(path, tmp_path)
    assert exercises.write(tmp_path) == [], "run `python -m lib exercises`"
    cells = strip_outputs.read(path).cells
    tail = [cell for cell in cells if exercises.is_exercise(cell)]
    assert cells[-len(tail) :] == tail and len(tail) == 2 + 2 * len(list(known))
    assert sum("## Exercises" in cell.source for cell in cells) == 1, (
        "exercises that are not in lib.teaching.exercises_by_lesson"
    )


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_reader_needs_nothing_but_the_exercise_cells_and_what_they_name(path):
    cells = [
        cell
        for cell in strip_outputs.read(path).cells
        if exercises.is_exercise(cell) and cell.cell_type == "code"
    ]
    handed = {name for each in exercises.load(path.stem[:2])[path.stem[:2]] for name in each.needs}
    for cell in cells:
        tree = ast.parse(cell.source)
        used = {
            node.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
        }
        assert used <= {"check"} | handed | set(dir(builtins)) | list_bound_names(tree)


def list_bound_names(tree: ast.AST) -> set[str]:
    """Names that a cell assigns, imports or defines, parameters included."""
    bound = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            bound.add(node.name)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.alias):
            bound.add(node.asname or node.name)
    return bound


def test_exercises_replace_older_ones_and_touch_nothing_else(tmp_path):
    old = nbformat.v4.new_notebook()
    old.cells = [
        nbformat.v4.new_markdown_cell("# Mine"),
        nbformat.v4.new_markdown_cell(quizzes.load()["05"].before),
        nbformat.v4.new_markdown_cell("an older question", metadata={"tags": [exercises.TAG]}),
        nbformat.v4.new_code_cell("lesson.save()"),
    ]
    path = tmp_path / "05_mine.ipynb"
    path.write_text(strip_outputs.to_text(old), encoding="utf-8")
    assert exercises.write(tmp_path) == [path]
    cells = strip_outputs.read(path).cells
    mine = [cell.source for cell in cells if not cell.metadata.get("tags")]
    assert mine == ["# Mine", quizzes.load()["05"].before, "lesson.save()"]
    sources = [cell.source for cell in cells if exercises.is_exercise(cell)]
    assert "an older question" not in sources and sources[0] == exercises.INTRO
    assert 'check("05.1", answer)' in sources[3]


def test_solutions_of_one_lesson_are_printed_and_of_no_other(capsys):
    exercises.main(["--solutions", "05_budgeted_routing"])
    said = capsys.readouterr().out
    assert "05.4" in said and "def thrifty" in said and "06.1" not in said


def test_a_lesson_without_exercises_is_named(capsys):
    with pytest.raises(SystemExit, match="'77' has no exercises; there are 00, 01"):
        exercises.main(["--solutions", "77_none"])
