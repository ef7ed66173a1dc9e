"""A student's copy has everything but outputs and solutions, and is never taken from who worked in it."""

import shutil
from pathlib import Path

import nbformat
import pytest

from lib.reports.execute import strip_outputs
from lib.teaching import exercises, student_copies
from lib.teaching.exercises_by_lesson import UNANSWERED, UNWRITTEN

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))


@pytest.fixture
def root(tmp_path) -> Path:
    """A checkout with two lessons of a few cells."""
    new = nbformat.v4
    lesson = new.new_notebook()
    lesson.cells = [
        new.new_markdown_cell("# A lesson"),
        new.new_code_cell("x = 1", metadata={"tags": ["parameters"]}),
        new.new_markdown_cell("## One"),
        new.new_code_cell(
            "print(41)", outputs=[new.new_output("stream", text="41\n")], execution_count=1
        ),
        new.new_code_cell("x = 42", metadata={"tags": ["solution"]}),
        new.new_markdown_cell("It is 42.", metadata={"tags": ["solution"]}),
        new.new_markdown_cell("## Two\n\nand more"),
    ]
    (tmp_path / "notebooks").mkdir()
    for name in ("05_one", "06_two"):
        nbformat.write(lesson, tmp_path / "notebooks" / f"{name}.ipynb")
    return tmp_path


def test_a_copy_has_no_outputs_and_stubs_for_solutions_and_a_place_for_notes_after_every_section(
    root,
):
    copy = student_copies.make_copy(strip_outputs.read(root / "notebooks/05_one.ipynb"))
    kept = [
        "# A lesson",
        "x = 1",
        student_copies.NOTES,
        "## One",
        "print(41)",
        "# Your code here",
        student_copies.NOTES,
        "## Two\n\nand more",
    ]
    assert [cell.source for cell in copy.cells] == kept
    assert all(
        cell.outputs == [] and cell.execution_count is None
        for cell in copy.cells
        if cell.cell_type == "code"
    )
    assert copy.cells[1].metadata["tags"] == ["parameters"]


def test_the_workbook_asks_every_exercise_of_every_lesson_and_runs_from_top_to_bottom(capsys):
    book = student_copies.make_workbook(ROOT)
    code = "\n".join(cell.source for cell in book.cells if cell.cell_type == "code")
    present = {path.stem[:2] for path in NOTEBOOKS}
    asked = [
        each.id for number, known in exercises.load().items() if number in present for each in known
    ]
    assert [id for id in asked if f'check("{id}", answer' in code] == asked
    exec(compile(code, "workbook", "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(asked) and set(lines) == {UNANSWERED, UNWRITTEN}


def test_a_copy_that_was_worked_in_is_kept_and_another_follows_its_lesson(root):
    target = root / "student"
    student_copies.write(root, target)
    (target / "05_one.ipynb").write_text("mine", encoding="utf-8")
    shutil.copy(ROOT / "notebooks/00_tour.ipynb", root / "notebooks/06_two.ipynb")
    _, kept = student_copies.write(root, target)
    assert kept == [target / "05_one.ipynb"] and (target / "05_one.ipynb").read_text() == "mine"
    assert "The tour" in (target / "06_two.ipynb").read_text(encoding="utf-8")
    assert student_copies.write(root, target, force=True)[1] == []
    assert "# A lesson" in (target / "05_one.ipynb").read_text(encoding="utf-8")


def test_whoever_makes_copies_is_told_what_they_do_not_hide(root, capsys):
    student_copies.main(["--root", str(root)])
    said = capsys.readouterr().out
    assert (
        "3 notebooks" in said
        and "lib.teaching.exercises_by_lesson, which holds the solutions" in said
    )


def test_git_ignores_the_copies_and_the_slides():
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert {"/student", "/reports/slides"} <= set(ignored)
