"""Solutions of lessons 00 and 02 pass the tests beside them, and neither a usual mistake nor the stub does."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from lib import stats
from lib.experiment import seeds
from lib.orchestration.baseline_models import PlanModel
from lib.reports.execute import strip_outputs
from lib.teaching.solution_cells import blank_functions, is_solution

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"


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


def read_solution_and_test(notebook: str, function: str) -> tuple[str, str]:
    cells = strip_outputs.read(NOTEBOOKS / notebook).cells
    code = [cell for cell in cells if cell.cell_type == "code"]
    (index,) = (
        i for i, cell in enumerate(code) if is_solution(cell) and f"def {function}(" in cell.source
    )
    return code[index].source, code[index + 1].source


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
    solution, test = read_solution_and_test(f"{lesson}.ipynb", function)
    exec(f"{solution}\n{test}", names_of_lesson())
    assert f"{function} agrees" in capsys.readouterr().out
    assert solution.count(right) == 1
    with pytest.raises(AssertionError):
        exec(f"{solution.replace(right, wrong)}\n{test}", names_of_lesson())
    with pytest.raises(NotImplementedError, match=function):
        exec(f"{blank_functions(solution)}\n{test}", names_of_lesson())
