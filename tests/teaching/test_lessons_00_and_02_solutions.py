"""Solutions of lessons 00 and 02 pass the tests beside them, and neither a usual mistake nor the stub does."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from lib import stats
from lib.experiment import seeds
from lib.orchestration.baseline_models import PlanModel
from tests.teaching.notebook_solutions import LessonSolutions


@dataclass(frozen=True)
class ContextOfThree:
    """As much of a context as PlanModel reads."""

    policies: tuple[str, ...] = ("SO-d1", "SO-d2", "SO-d3")
    plan_values: np.ndarray | None = None


def names_of_lesson() -> dict:
    """What cells above have imported and made."""
    return {
        "np": np,
        "stats": stats,
        "seeds": seeds,
        "PlanModel": PlanModel,
        "replace": replace,
        "contexts_by_system": {"TO": [ContextOfThree()]},
    }


MISTAKES = {
    "better somewhere is enough": ("00_tour", "dominates", "(first >= second).all() and ", ""),
    "a point dominates itself": ("00_tour", "dominates", " and (first > second).any()", ""),
    "ties do not count": ("00_tour", "dominates", "first >= second", "first > second"),
    "the luckiest copy": ("02_orchestration", "plan_ahead", "mean(axis=1)", "max(axis=1)"),
    "the last policy of the plan": ("02_orchestration", "plan_ahead", ", 0]", ", -1]"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_solution_passes_and_neither_a_mistake_nor_the_stub_does(mistake, capsys):
    lesson, function, right, wrong = MISTAKES[mistake]
    solutions = LessonSolutions(lesson, names_of_lesson)
    solutions.require_checked(function, [(right, wrong)], capsys)
