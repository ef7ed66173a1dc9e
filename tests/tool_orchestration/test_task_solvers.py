"""Who filters office tasks: the strongest model, by measurement."""

import pytest

from lib.tasks.synthesis import filter_tasks
from lib.tool_orchestration import task_solvers
from tests.tool_orchestration import common


def solve_easy(tasks, attempt):
    return [task.difficulty == 1 for task in tasks]


def solve_all(tasks, attempt):
    return [True] * len(tasks)


def solve_nothing(tasks, attempt):
    return [False] * len(tasks)


def test_the_strongest_solver_is_the_one_that_solves_most_whoever_stands_first():
    tasks = common.offices()
    rates = task_solvers.measure_solvers(
        {"weak": solve_nothing, "endpoint": solve_all, "start": solve_easy}, tasks
    )
    assert rates["weak"] == 0.0 and rates["endpoint"] == 1.0 and 0 < rates["start"] < 1
    assert task_solvers.choose_strongest(rates) == "endpoint"
    assert task_solvers.choose_strongest(rates | {"endpoint": 0.0}) == "start"
    assert task_solvers.choose_strongest({"agent": 0.5, "start": 0.5}) == "agent"


def test_a_weaker_solver_would_drop_tasks_that_the_strongest_keeps():
    tasks = common.offices()
    kept_by_start, _ = filter_tasks(tasks, solve_easy)
    kept_by_strongest, dropped = filter_tasks(tasks, solve_all)
    assert len(kept_by_start) < len(kept_by_strongest) and dropped == []


def test_a_probe_is_no_larger_than_it_may_be_and_uses_seeds_of_its_own():
    seen = []

    def solve(tasks, attempt):
        seen.append((len(tasks), attempt))
        return [True] * len(tasks)

    tasks = [*common.offices()] * 9
    task_solvers.measure_solvers({"start": solve}, tasks)
    assert seen == [(task_solvers.PROBE_TASKS, task_solvers.PROBE_ATTEMPT)]
    assert task_solvers.measure_solvers({"start": solve}, [])["start"] == 0.0


def test_without_a_solver_the_error_says_what_to_do():
    with pytest.raises(ValueError, match="name one of llm.models"):
        task_solvers.choose_strongest({})
