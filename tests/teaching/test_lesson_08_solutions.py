"""The methods that a student writes in lesson 08: the solutions pass the tests in the cells, usual mistakes do not."""

from types import SimpleNamespace

import numpy as np
import pytest

from lib.recorded_outcomes import headroom
from lib.routers import logged_policies
from tests.recorded_outcomes.small import made
from tests.teaching.notebook_solutions import LessonSolutions

# By function, a mistake that is easily made.
MISTAKES = {
    "choose_model": (
        "probability - rate",
        "probability + rate",
    ),  # the price counts against a model
    "run_cascade": ("cost_usd[0] + refused", "(1 - refused) * cost_usd[0] + refused"),
    "estimate_doubly_robust": (") / propensity[i]", ") / 1.0"),
}


def make_names() -> dict:
    """What earlier cells have imported, and a small table."""
    table = made()
    return {
        "np": np,
        "headroom": headroom,
        "logged_policies": logged_policies,
        "recorded_settings": SimpleNamespace(prices=None, items=None),
        "tables": SimpleNamespace(load_shipped=lambda name, prices, items: table),
        "example_table": table,
    }


SOLUTIONS = LessonSolutions("08_recorded_outcomes", make_names)


@pytest.mark.parametrize("function", MISTAKES)
def test_a_solution_passes_its_tests_and_neither_a_mistake_nor_the_stub_does(function, capsys):
    SOLUTIONS.require_checked(function, [MISTAKES[function]], capsys)


def test_every_stub_of_the_lesson_has_a_mistake_that_is_tried():
    assert SOLUTIONS.count() == len(MISTAKES)
