"""What the experiment may cost: bounds of what is really asked, and silence where nobody is paid."""

import pytest

from lib.agent_configuration import cost_plan
from lib.agent_configuration.variants import NAMED
from tests.agent_configuration.test_experiment import settings

HOSTED = {
    "backend": "endpoint",
    "base_url": "http://localhost:1/v1",
    "model": "m",
    "price_in": 1e-6,
    "price_out": 1e-6,
}
COMPARED = [NAMED["arc"]]


def hosted(field: str):
    """Settings in which one of the models is an endpoint."""
    name = getattr(settings().configuration, field)
    return settings(llm={"models": {name: HOSTED}})


def count_calls(line: str) -> int:
    return int(line.split("At most ")[1].split(" calls")[0].replace(",", ""))


def test_without_endpoints_nothing_is_announced():
    assert cost_plan.announce_experiment(settings(), COMPARED, 10) == ""
    assert cost_plan.announce_questions(settings(), 10, "asking") == ""


@pytest.mark.parametrize("field", ["model", "larger", "prompted"])
def test_an_endpoint_in_any_place_is_announced(field):
    assert count_calls(cost_plan.announce_experiment(hosted(field), COMPARED, 10)) > 0


def test_a_prompted_policy_is_asked_about_every_test_question_twice():
    params = hosted("prompted")
    num_tests = 5 * params.configuration.test_items
    assert count_calls(cost_plan.announce_experiment(params, COMPARED, 10)) == 2 * num_tests


def test_trainings_alone_are_cheaper_than_the_whole():
    params = hosted("model")
    whole = count_calls(cost_plan.announce_experiment(params, COMPARED, 10))
    trainings = count_calls(
        cost_plan.announce_experiment(params, COMPARED, 10, trainings_only=True)
    )
    assert 0 < trainings < whole


def test_a_question_takes_as_many_calls_as_the_longest_workflow_and_its_tools():
    line = cost_plan.announce_questions(hosted("model"), 3, "asking")
    assert line.startswith(
        "asking: At most 147 calls"
    )  # 3 questions, 7 agents, 6 tools and an answer
