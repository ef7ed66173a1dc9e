"""The methods that a student writes in lesson 09: the solutions pass the tests in the cells, usual mistakes do not."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import t

from lib import stats
from lib.experiment import seeds
from tests.teaching.notebook_solutions import LessonSolutions

# By function, a mistake that is easily made.
MISTAKES = {
    "estimate_gain": (".mean(axis=1)", ".ravel()"),  # counts pairs in place of seeds
    "correct_by_holm": ("break", "continue"),  # goes on after the first failure
}


def make_names() -> dict:
    """What earlier cells have imported."""
    return {"np": np, "pd": pd, "stats": stats, "seeds": seeds, "student_t": t}


SOLUTIONS = LessonSolutions("09_ablations", make_names)


@pytest.mark.parametrize("function", MISTAKES)
def test_a_solution_passes_its_tests_and_neither_a_mistake_nor_the_stub_does(function, capsys):
    SOLUTIONS.require_checked(function, [MISTAKES[function]], capsys)


def test_every_stub_of_the_lesson_has_a_mistake_that_is_tried():
    assert SOLUTIONS.count() == len(MISTAKES)
