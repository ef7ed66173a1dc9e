"""The methods that a student writes in lesson 09: the solutions pass the tests in the cells, usual mistakes do not."""

import nbformat
import numpy as np
import pandas as pd
import pytest
from scipy.stats import t

from lib import stats
from lib.config import ROOT
from lib.experiment import seeds
from lib.teaching.solution_cells import blank_functions, is_solution

CELLS = nbformat.read(ROOT / "notebooks/09_ablations.ipynb", as_version=4).cells
CODE = [cell for cell in CELLS if cell.cell_type == "code"]
# By function, a mistake that is easily made.
MISTAKES = {
    "estimate_gain": (".mean(axis=1)", ".ravel()"),  # counts pairs in place of seeds
    "correct_by_holm": ("break", "continue"),  # goes on after the first failure
}


def run_tests(function: str, solution: str) -> None:
    """Runs a solution and the cell of tests that follows it in the notebook."""
    position = next(i for i, cell in enumerate(CODE) if f"def {function}" in cell.source)
    names = {"np": np, "pd": pd, "stats": stats, "seeds": seeds, "student_t": t}
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
