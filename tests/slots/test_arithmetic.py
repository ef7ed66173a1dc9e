"""A model that can do arithmetic is shown as one: what it is told suffices, wherever the task is arithmetic."""

from dataclasses import replace

import pytest

from lib import tasks
from lib.agent_configuration import experiment as configuration
from lib.agent_configuration import prompted_baseline as prompted_policy
from lib.agent_configuration.action_space import TIERS, WORKFLOWS, Configuration, repair_structure
from lib.agent_configuration.agent_system import ConfiguredQuestion
from lib.agent_configuration.questions import questions
from lib.budgeted_routing import expert_outcomes
from lib.tasks import Item
from lib.tool_orchestration import prompted_baseline, single_tools, tool_environment
from lib.tool_orchestration.episode_specs import Assignment
from tests.agent_configuration.test_experiment import lab_models
from tests.agent_configuration.test_experiment import settings as make_team_settings
from tests.budgeted_routing.small_systems import open_endpoint_pool, serve_answers
from tests.llm.server import certificate, key
from tests.slots.able_model import answer_request, evaluate, reply_to
from tests.slots.models import NAME, draw_arithmetic, make_endpoint
from tests.tool_orchestration.common import CLOCK, given

__all__ = ["certificate", "key"]
LEAST = 0.95  # share of right answers
NUM_ITEMS = 40


@pytest.fixture(scope="module")
def able_server(certificate):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(certificate))
        with serve_answers(answer_request) as server:
            yield server


def ask(question: str, system: str = "") -> str:
    messages = [{"role": "system", "content": system}, {"role": "user", "content": question}]
    return reply_to({"messages": messages})["content"]


def test_the_model_knows_no_rules_but_those_that_it_is_told():
    assert "11" in ask("3 + 4 * 2 = ?") and "1786" in ask("47 * 38 = ?")
    assert "4" in ask("3 + 4 * 2 = ?", tasks.describe_rules("3 + 4 * 2 = ?"))
    assert evaluate("3 - 4 * 2", tasks.describe_rules("3 - 4 * 2 = ?")) == "8"
    assert "<answer>" not in ask("47 * 38 = ?")


# Lesson 05 ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["chain", "big"])
def test_an_expert_of_lesson_05_answers_arithmetic(family, able_server):
    items = draw_arithmetic(family, NUM_ITEMS)
    with open_endpoint_pool(able_server.url, max_tokens=500) as pool:
        outcomes = expert_outcomes.measure_experts(pool, items, "test")
    assert outcomes["correct"].mean() >= LEAST


# Lesson 06 ----------------------------------------------------------------------------------------


def offer_hosted_model(item: Item, *functions: str) -> Assignment:
    """A question with a menu of a model behind a server, of which nothing is known, and functions."""
    assignment = given(item, "lab-nano", *functions)
    model, *others = assignment.menu.offers
    unknown = replace(model, skills={}, measured=False)
    return replace(assignment, menu=replace(assignment.menu, offers=(unknown, *others)))


@pytest.mark.parametrize("family", ["chain", "big"])
def test_a_tool_of_lesson_06_that_is_a_model_answers_arithmetic(family, able_server):
    assignments = [offer_hosted_model(item) for item in draw_arithmetic(family, NUM_ITEMS)]
    with (
        open_endpoint_pool(able_server.url, max_tokens=500) as pool,
        tool_environment.ToolEnvironment(pool, CLOCK) as desk,
    ):
        rows = single_tools.try_single_tools(desk, assignments, ["lab-nano"], "test")
    assert sum(row["correct"] for row in rows) >= LEAST * NUM_ITEMS


@pytest.mark.parametrize("family", ["chain", "big"])
def test_a_prompted_orchestrator_of_lesson_06_answers_arithmetic(family, able_server):
    items = draw_arithmetic(family, NUM_ITEMS)
    assignments = [offer_hosted_model(item, "calculator") for item in items]
    with (
        open_endpoint_pool(able_server.url, max_tokens=500) as pool,
        tool_environment.ToolEnvironment(pool, CLOCK) as desk,
    ):
        episodes = prompted_baseline.roll_out_assignments(desk, "mine", assignments, 6, 0, 0.0)
    assert sum(episode.correct for episode in episodes) >= LEAST * NUM_ITEMS


# Lesson 07 ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def team(able_server, tmp_path_factory):
    """The agents of lesson 07, all of them the able model."""
    models = lab_models(tmp_path_factory.mktemp("models"))
    llm = {"models": {NAME: make_endpoint(able_server.url)}}
    params = make_team_settings(llm=llm, model=NAME, larger=NAME, prompted=NAME)
    context = configuration.make_context(params, models, tmp_path_factory.mktemp("runs"))
    with configuration.open_workbench(context, params.configuration) as place:
        yield place


def configure(workflow: str, tier: int) -> Configuration:
    """A workflow in which every agent may use every tool, and all have one budget."""
    every_tool = 2 ** len(configuration.make_toolbox(None)) - 1
    structure = (WORKFLOWS.index(workflow), every_tool, every_tool, tier, tier, tier)
    return Configuration(repair_structure(structure))


@pytest.mark.parametrize("workflow", WORKFLOWS)
@pytest.mark.parametrize("kind", ["chain", "mixed"])
def test_agents_of_lesson_07_answer_arithmetic_in_every_workflow(kind, workflow, team):
    tiers = range(len(TIERS))
    items = questions(kind, "test", 10)
    jobs = [ConfiguredQuestion(item, configure(workflow, tier)) for tier in tiers for item in items]
    table = team.play(NAME, jobs)
    assert (table["failures"] == 0).all() and table["correct"].mean() >= LEAST


@pytest.mark.parametrize("workflow", ["direct", "reason", "voting"])
def test_agents_of_lesson_07_answer_big_sums(workflow, team):
    items = draw_arithmetic("big", 20)
    jobs = [ConfiguredQuestion(item, configure(workflow, tier=0)) for item in items]
    answers = team.make_system(NAME).run(jobs)
    right = [
        tasks.is_correct(item, answer.text) for item, answer in zip(items, answers, strict=True)
    ]
    assert sum(right) >= LEAST * len(items)


def test_a_prompted_policy_of_lesson_07_is_read_as_it_chose(team):
    items = questions("chain", "test", 4)
    model = team.open_model(NAME)
    choices = team.loop.run(prompted_policy.choose_configurations(model, items, ()))
    assert not any(choice.is_fallback for choice in choices)
    assert {choice.configuration.workflow for choice in choices} == {"reason"}
