"""The shape of a lesson: short cells, more prose than code, nothing in the file that running it leaves behind."""

import json
import statistics
from pathlib import Path

import pytest

from lib.reports.execute import strip_outputs

NOTEBOOKS = sorted((Path(__file__).resolve().parents[1] / "notebooks").glob("[0-9]*.ipynb"))
LONGEST, USUAL = 55, 12  # lines of a code cell, as the formatter breaks them


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def path(request) -> Path:
    return request.param


def test_a_notebook_is_its_own_clean_copy(path):
    assert strip_outputs.to_text(strip_outputs.clean(strip_outputs.read(path))) == path.read_text(
        encoding="utf-8"
    )


def test_the_code_that_keeps_the_numbers_of_a_notebook_is_folded(path):
    """The last cell saves the report: readers need its output, the conclusion, and seldom its code."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    saving = [cell for cell in cells if "lesson.save(" in "".join(cell["source"])]
    assert len(saving) == 1
    assert saving[0]["metadata"] == {"jupyter": {"source_hidden": True}, "tags": ["hide"]}


def test_code_cells_are_short_and_prose_is_not_outnumbered(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    code = [
        "".join(cell["source"]).count("\n") + 1 for cell in cells if cell["cell_type"] == "code"
    ]
    assert max(code) <= LONGEST and statistics.median(code) <= USUAL
    assert sum(cell["cell_type"] == "markdown" for cell in cells) >= len(code)
