"""Notebooks that somebody opens alone in a fresh clone, and the pipeline after them.

Two lessons stand for all: one that needs the policies of lesson 01, one that needs the lab models of lesson 03. Which
lesson needs what is checked without executing anything in `tests/test_alone.py`.
"""

from collections.abc import Mapping
from pathlib import Path

import nbformat
import pytest

from .checkout import Checkout

# What a lesson needs: the folder, and what the reader is told while it is made.
NEEDS = {
    "02_orchestration": ("data/zoo", "the education policies of lesson 01"),
    "05_budgeted_routing": ("data/models", "the lab models of lesson 03"),
}
SCOREBOARD = "10_scoreboard"
# As JupyterLab executes a notebook that `make lab` opened: from its own folder, with the project on the path.
EXECUTE = "PYTHONPATH=$PWD papermill --no-progress-bar --cwd notebooks notebooks/{0}.ipynb {0}.ipynb -p profile smoke"


def execute(checkout: Checkout, lesson: str) -> str:
    """Executes a notebook as a reader would.

    Returns:
        What its cells printed.
    """
    checkout.run("bash", "-c", EXECUTE.format(lesson))
    cells = nbformat.read(checkout.folder / f"{lesson}.ipynb", 4).cells
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    return "".join(output.text for output in outputs if output.output_type == "stream")


def list_receipts(folder: Path) -> Mapping[Path, int]:
    """When every job was finished."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob("done.json")}


@pytest.fixture(scope="module")
def alone(copy, say) -> tuple[Checkout, Mapping[str, str]]:
    """A copy in which nothing was run before, and what the notebooks printed."""
    checkout, printed = copy("alone"), {}
    for lesson in (SCOREBOARD, *NEEDS):
        say(f"{lesson} alone")
        printed[lesson] = execute(checkout, lesson)
    return checkout, printed


@pytest.mark.parametrize("lesson", NEEDS)
def test_a_lesson_that_is_opened_first_makes_what_it_needs_and_says_so(alone, lesson):
    _, printed = alone
    _, notice = NEEDS[lesson]
    assert f"First, {notice}:" in printed[lesson]
    assert " 0 s" in printed[lesson].partition(notice)[2]  # the line that says how far it is


@pytest.mark.parametrize("lesson", NEEDS)
def test_a_lesson_measures_alone_what_it_measures_in_the_pipeline(alone, first, lesson):
    checkout, _ = alone
    name = f"reports/metrics/{lesson}.json"
    assert checkout.hashes(name) == {name: first.hashes[name]}


def test_the_scoreboard_alone_says_that_its_metrics_come_with_the_project(alone):
    _, printed = alone
    assert "Metrics that come with the project" in printed[SCOREBOARD]


def test_the_pipeline_finds_the_work_of_lessons_that_were_opened_first(alone, first, say):
    """Lesson 01 is run, which costs least of those that make something for others."""
    checkout, _ = alone
    receipts = list_receipts(checkout.folder / "data/runs")
    say("make repro of 01_policy_zoo, after others")
    checkout.repro("01_policy_zoo")
    receipts_after = list_receipts(checkout.folder / "data/runs")
    assert receipts and {path: receipts_after.get(path) for path in receipts} == receipts
    for folder, _ in NEEDS.values():
        expected = {n: digest for n, digest in first.hashes.items() if n.startswith(f"{folder}/")}
        assert expected and checkout.hashes(folder) == expected
