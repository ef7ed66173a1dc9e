"""A stub keeps what tells a student what to write, and nothing of how it is written."""

import ast
from pathlib import Path
from unittest.mock import Mock

import nbformat
import pytest

from lib.teaching import exercises, solution_cells, student_copies
from lib.teaching.solution_cells import BLANK_CELL, blank_functions

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))

CLIPPED_LOSS = '''import torch


@torch.no_grad()
def clip(
    ratio: torch.Tensor,  # (batch,)
    range: float = 0.2,
) -> torch.Tensor:
    """Clips a ratio.

    Returns:
        It within 1 ± range.
    """
    # The secret: clamp.
    return ratio.clamp(1 - range, 1 + range)  # secret
    # secret, too


class Loss:
    """A loss."""

    weight: float = 1.0

    def __call__(self, ratio: torch.Tensor) -> torch.Tensor:
        def secret(x): return x
        return self.weight * secret(clip(ratio))

    @property
    def name(self) -> str:
        "Its name."; return "secret"


def identity(x): return x  # secret
'''
CLIPPED_LOSS_STUB = '''import torch


@torch.no_grad()
def clip(
    ratio: torch.Tensor,  # (batch,)
    range: float = 0.2,
) -> torch.Tensor:
    """Clips a ratio.

    Returns:
        It within 1 ± range.
    """
    raise NotImplementedError("Exercise: write clip")


class Loss:
    """A loss."""

    weight: float = 1.0

    def __call__(self, ratio: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError("Exercise: write Loss.__call__")

    @property
    def name(self) -> str:
        "Its name."
        raise NotImplementedError("Exercise: write Loss.name")


def identity(x):
    raise NotImplementedError("Exercise: write identity")'''


def test_signatures_decorators_docstrings_and_classes_stay_and_every_body_goes():
    assert blank_functions(CLIPPED_LOSS) == CLIPPED_LOSS_STUB


def test_a_stub_is_its_own_stub():
    assert blank_functions(CLIPPED_LOSS_STUB) == CLIPPED_LOSS_STUB


def test_a_body_that_begins_with_a_decorated_function_goes_with_its_decorator():
    source = "def outer():\n\n    @cache\n    def inner(): return 1\n    return inner\nx = 1"
    stub = 'def outer():\n    raise NotImplementedError("Exercise: write outer")\nx = 1'
    assert blank_functions(source) == stub


@pytest.mark.parametrize(
    "source", ["x = 42", "%time f()", "f = lambda x: 42", "class A:\n    x = 42"]
)
def test_a_cell_without_a_function_is_blanked_whole(source):
    assert blank_functions(source) == BLANK_CELL


def test_every_function_of_the_library_has_a_stub_that_is_python_and_returns_nothing():
    for path in sorted((ROOT / "lib").rglob("*.py")):
        stub = blank_functions(path.read_text(encoding="utf-8"))
        assert not any(isinstance(node, ast.Return) for node in ast.walk(ast.parse(stub))), path


def list_solutions(path: Path) -> list[nbformat.NotebookNode]:
    cells = nbformat.read(path, as_version=4).cells
    return [cell for cell in cells if solution_cells.is_solution(cell)]


# Of lesson 05: the function, and a mistake that is easily made.
MISTAKES = {
    "compute_reward": ("<=", "<"),  # the limit itself belongs to the budget
    "compute_advantages": ("continue", "pass"),  # tokens of an expert are skipped
    # a loss is not clipped
    "compute_token_objective": ("min(ratio * advantage, clipped_ratio", "(clipped_ratio"),
}


@pytest.mark.parametrize("function", MISTAKES)
def test_a_solution_of_lesson_05_passes_its_tests_and_neither_a_mistake_nor_the_stub_does(function):
    (path,) = (path for path in NOTEBOOKS if path.stem.startswith("05_"))
    cells = nbformat.read(path, as_version=4).cells
    (solution,) = (cell.source for cell in list_solutions(path) if f"def {function}" in cell.source)
    sources = [cell.source for cell in cells if cell.cell_type == "code"]
    tests = sources[sources.index(solution) + 1]
    names = "import torch\n\nfrom lib.rl import budget_reward, losses\n"
    page = {"lesson": Mock()}  # the last check also prints source code
    exec(f"{names}{solution}\n{tests}", page)
    wrong = solution.replace(*MISTAKES[function])
    with pytest.raises(AssertionError):
        exec(f"{names}{wrong}\n{tests}", page)
    with pytest.raises(NotImplementedError, match=function):
        exec(f"{names}{blank_functions(solution)}\n{tests}", page)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_no_student_copy_holds_a_solution(path):
    copy = student_copies.make_copy(nbformat.read(path, as_version=4))
    copied_sources = {cell.source for cell in copy.cells}
    assert not copied_sources & {cell.source for cell in list_solutions(path)}


def test_running_all_cells_of_a_copy_goes_on_behind_the_tests_of_a_stub():
    new = nbformat.v4
    cells = [
        new.new_code_cell("def f():\n    return 1", metadata={"tags": ["solution"]}),
        new.new_markdown_cell("The next cell tests it."),
        new.new_code_cell("assert f() == 1"),
        new.new_code_cell("x = 1"),
        new.new_code_cell("x = f()"),
        new.new_code_cell("x = module.f()"),
    ]
    copy = student_copies.make_copy(new.new_notebook(cells=cells))
    tags = [cell.metadata.get("tags", []) for cell in copy.cells if cell.cell_type == "code"]
    assert tags == [["stub"], ["raises-exception"], [], ["raises-exception"], []]


def test_worked_solutions_of_a_notebooks_cells_are_printed(capsys):
    exercises.main(["--solutions", "05_budgeted_routing"])
    assert "cost_usd <= budget" in capsys.readouterr().out
