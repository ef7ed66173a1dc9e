"""The methods that a student writes in lesson 08: the solutions pass the tests in the cells, usual mistakes do not."""

import nbformat
import numpy as np
import pytest

from lib.config import ROOT
from lib.recorded_outcomes import headroom
from lib.routers import logged_policies
from lib.teaching.solution_cells import blank_functions, is_solution
from tests.recorded_outcomes.small import made

CELLS = nbformat.read(ROOT / "notebooks/08_recorded_outcomes.ipynb", as_version=4).cells
CODE = [cell for cell in CELLS if cell.cell_type == "code"]
# By function, a mistake that is easily made.
MISTAKES = {
    "choose_model": (
        "probability - rate",
        "probability + rate",
    ),  # the price counts against a model
    "run_cascade": ("cost_usd[0] + refused", "(1 - refused) * cost_usd[0] + refused"),
    "estimate_doubly_robust": (") / propensity[i]", ") / 1.0"),
}


def run_tests(function: str, solution: str) -> None:
    """Runs a solution and the cell of tests that follows it in the notebook, on a small table."""
    position = next(i for i, cell in enumerate(CODE) if f"def {function}" in cell.source)
    names = {
        "np": np,
        "headroom": headroom,
        "logged_policies": logged_policies,
        "example_table": made(),
    }
    exec(f"{solution}\n{CODE[position + 1].source}", names)


@pytest.mark.parametrize("function", MISTAKES)
def test_a_solution_passes_its_tests_and_neither_a_mistake_nor_the_stub_does(function, capsys):
    (solution,) = (cell.source for cell in CODE if f"def {function}" in cell.source)
    run_tests(function, solution)
    assert f"{function} agrees" in capsys.readouterr().out
    wrong = solution.replace(*MISTAKES[function])
    assert wrong != solution
    with pytest.raises(AssertionError):
        run_tests(function, wrong)
    with pytest.raises(NotImplementedError, match=function):
        run_tests(function, blank_functions(solution))


def test_every_stub_of_the_lesson_has_a_mistake_that_is_tried():
    solutions = [cell.source for cell in CODE if is_solution(cell)]
    assert len(solutions) == len(MISTAKES)
