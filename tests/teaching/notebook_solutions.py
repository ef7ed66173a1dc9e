"""What the tests of a lesson's solutions share: a solution, and the cell of the notebook that checks it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from lib.config import ROOT
from lib.reports.execute import strip_outputs
from lib.teaching.solution_cells import blank_functions, is_solution


class LessonSolutions:
    """The functions that a student writes in a lesson.

    Args:
        lesson: Name of its notebook.
        make_names: Makes what earlier cells have imported and computed, anew for each run.
    """

    def __init__(self, lesson: str, make_names: Callable[[], Mapping[str, Any]]) -> None:
        cells = strip_outputs.read(ROOT / f"notebooks/{lesson}.ipynb").cells
        self.code = [cell for cell in cells if cell.cell_type == "code"]
        self.make_names = make_names

    def count(self) -> int:
        """The number of functions to write."""
        return sum(is_solution(cell) for cell in self.code)

    def require_checked(
        self, function: str, mistakes: Sequence[tuple[str, str]], capsys: pytest.CaptureFixture
    ) -> None:
        """Asserts that the check in the notebook passes the solution, and neither mistakes nor the stub.

        Args:
            function: Its name.
            mistakes: Each a text of the solution, which stands there once, and what a student may write in its place.
            capsys: Reads what the check prints.
        """
        solution, check = self._find(function)
        self._run(solution, check)
        assert f"{function} agrees" in capsys.readouterr().out
        for right, wrong in mistakes:
            assert solution.count(right) == 1
            with pytest.raises(AssertionError):
                self._run(solution.replace(right, wrong), check)
        with pytest.raises(NotImplementedError, match=function):
            self._run(blank_functions(solution), check)

    def _find(self, function: str) -> tuple[str, str]:
        """The source of a solution, and of the first cell after it that calls the function."""
        sources = [cell.source for cell in self.code]
        (position,) = (
            index
            for index, cell in enumerate(self.code)
            if is_solution(cell) and f"def {function}(" in cell.source
        )
        check = next(source for source in sources[position + 1 :] if f"{function}(" in source)
        return sources[position], check

    def _run(self, solution: str, check: str) -> None:
        exec(f"{solution}\n{check}", dict(self.make_names()))
