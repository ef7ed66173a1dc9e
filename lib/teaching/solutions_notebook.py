"""All exercises with worked solutions as a notebook for whoever teaches: `solutions/exercises.ipynb`, not in git."""

from pathlib import Path

import nbformat

from lib.config import ROOT
from lib.experiment import artifacts
from lib.reports.execute import strip_outputs
from lib.teaching import exercises, solution_cells
from lib.teaching.exercises_by_lesson import Exercise

_SETTINGS = "from lib import config as params\n\nsettings = params.settings()"


def make_notebook(root: Path = ROOT) -> nbformat.NotebookNode:
    """Makes the notebook: the methods that a lesson asks for, then each exercise with a cell that checks its solution.

    Args:
        root: The project.
    """
    v4 = nbformat.v4
    cells = [
        v4.new_markdown_cell("# Worked solutions of all exercises"),
        v4.new_code_cell(_SETTINGS),
    ]
    for number, lesson_exercises in exercises.load().items():
        import_line = (
            f"from lib.teaching.exercises_by_lesson.lesson_{number} import EXERCISES, check"
        )
        cells += [v4.new_markdown_cell(f"## Lesson {number}"), v4.new_code_cell(import_line)]
        for source in _list_methods(root, number):
            cells.append(
                v4.new_markdown_cell(f"To write in the lesson:\n\n```python\n{source}\n```")
            )
        for exercise in lesson_exercises:
            cells += _make_exercise_cells(exercise)
    return strip_outputs.clean(v4.new_notebook(cells=cells))


def _list_methods(root: Path, number: str) -> list[str]:
    """Reads the code cells of a lesson that students must write themselves.

    Args:
        root: The project's folder.
        number: Number of the lesson.

    Returns:
        Source code of each cell.
    """
    sources = []
    for path in sorted((root / "notebooks").glob(f"{number}_*.ipynb")):
        for cell in strip_outputs.read(path).cells:
            if solution_cells.is_solution(cell) and cell.cell_type == "code":
                sources.append(cell.source)
    return sources


def _make_exercise_cells(exercise: Exercise) -> list[nbformat.NotebookNode]:
    """Makes two cells for an exercise: the question with its worked solution, and the check of the solution.

    Args:
        exercise: The exercise.
    """
    text = f"{exercise.markdown()}\n\n{exercise.worked}"
    answer = f'EXERCISES["{exercise.id}"].answer'
    if callable(exercise.answer):
        source = exercise.solution().removeprefix(exercise.worked).strip()
        text += f"\n\n```python\n{source}\n```"
    else:
        answer += f"  # {exercise.answer}"
    lesson_variables = "".join(f", {name}={name}" for name in exercise.needs)
    code = f'answer = {answer}\ncheck("{exercise.id}", answer{lesson_variables})'
    return [nbformat.v4.new_markdown_cell(text), nbformat.v4.new_code_cell(code)]


def write(folder: Path) -> Path:
    """Writes the notebook into a folder and returns its path."""
    return artifacts.write_text(folder / "exercises.ipynb", strip_outputs.to_text(make_notebook()))
