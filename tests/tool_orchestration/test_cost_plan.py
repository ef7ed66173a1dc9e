"""What the experiment may cost: every call is counted once, and only endpoints are paid."""

import pytest

from lib.tool_orchestration import cost_plan, experiment, task_solvers
from lib.tool_orchestration.episode_specs import PER_DATABASE, count_office_databases
from lib.tool_orchestration.variants import LIST_PRICES
from tests.budgeted_routing.job_helpers import ENDPOINT_MODEL
from tests.tool_orchestration.test_experiment import COMPARED, settings


def test_without_endpoints_nothing_is_announced():
    assert cost_plan.plan(settings(), COMPARED) == "No endpoint is asked; nothing is paid."
    assert cost_plan.announce_experiment(settings(), COMPARED) == ""
    assert cost_plan.announce_choices(settings(), 10) == ""


def test_an_endpoint_among_the_tools_is_announced():
    hosted = settings(llm={"models": {"nano": ENDPOINT_MODEL}})
    line = cost_plan.announce_experiment(hosted, COMPARED)
    assert line == cost_plan.plan(hosted, COMPARED) and "At most" in line and "$" in line
    assert "trying every tool: At most 40 calls" in cost_plan.announce_choices(hosted, 10)


def count_calls(line: str) -> int:
    return int(line.split("At most ")[1].split(" calls")[0].replace(",", ""))


def test_calls_that_may_go_to_one_of_two_endpoints_are_counted_once():
    """A second endpoint adds what every tool is tried on by itself, and no call of an orchestrator."""
    one = count_calls(cost_plan.plan(settings(llm={"models": {"nano": ENDPOINT_MODEL}}), COMPARED))
    both = {"nano": ENDPOINT_MODEL, "mini": ENDPOINT_MODEL}
    two = count_calls(cost_plan.plan(settings(llm={"models": both}), COMPARED))
    tools = settings().tools
    assert two - one == tools.outcome_items + tools.test_items


def test_a_prompted_orchestrator_alone_is_announced_too():
    tools = settings().tools
    line = cost_plan.announce_experiment(
        settings(llm={"models": {tools.agent: ENDPOINT_MODEL}}, solvers=[]), COMPARED
    )
    assert count_calls(line) == tools.test_items * tools.rounds


def test_an_endpoint_that_filters_office_tasks_is_announced():
    tools = settings().tools
    hosted = settings(llm={"models": {"big": ENDPOINT_MODEL}}, solvers=["big"])
    line = cost_plan.announce_experiment(hosted, COMPARED)
    num_tasks = PER_DATABASE * count_office_databases(tools.offices)
    num_episodes = task_solvers.PROBE_TASKS + tools.tries * num_tasks
    assert count_calls(line) == num_episodes * tools.rounds


def test_more_variants_cost_more():
    hosted = settings(llm={"models": {"nano": ENDPOINT_MODEL}})
    few, more = (
        count_calls(cost_plan.plan(hosted, compared))
        for compared in (COMPARED, [*COMPARED, LIST_PRICES])
    )
    assert more > few


def test_costs_stand_on_the_terminal_before_any_tool_is_tried(monkeypatch, capsys):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(experiment, "ensure_models", stop)
    with pytest.raises(KeyboardInterrupt):
        experiment.try_all_tools(settings(llm={"models": {"nano": ENDPOINT_MODEL}}), 10)
    assert "trying every tool: At most 40 calls" in capsys.readouterr().err
