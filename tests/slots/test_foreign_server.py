"""A small model behind llama.cpp's server in every kind of slot: it is asked, counted and shown, however poor it is.

SmolLM2 of 135 million weights can do next to nothing that the lessons ask, so what is checked is that every reply is
one: read, or counted as what it is. Skipped where `make test-extras` was not run.
"""

import asyncio
from dataclasses import replace

import pandas as pd
import pytest

from lib.agent_configuration import experiment as configuration
from lib.agent_configuration import prompted_baseline as prompted_policy
from lib.agent_configuration.agent_system import ConfiguredQuestion
from lib.agent_configuration.questions import questions
from lib.agent_configuration.search import BASE
from lib.budgeted_routing import expert_outcomes
from lib.config.load import LAB_ORCHESTRATOR
from lib.llm.open_models import open_models
from lib.orchestration import experiment
from lib.orchestration.llm_judge import judge
from lib.tasks.scorers.judge_scorer import JudgeScorer
from lib.tool_orchestration import prompted_baseline, single_tools, tool_environment
from tests.agent_configuration.test_experiment import lab_models as make_team_models
from tests.agent_configuration.test_experiment import settings as make_team_settings
from tests.budgeted_routing.small_systems import open_endpoint_pool
from tests.llm.server import certificate, key
from tests.orchestration.test_llm_judge import POOR, list_steps, make_steps
from tests.slots import lessons
from tests.slots.foreign_server import explain_absence, run_foreign_server
from tests.slots.models import NAME, draw_arithmetic
from tests.slots.test_arithmetic import offer_hosted_model
from tests.tool_orchestration.common import CLOCK

__all__ = ["certificate", "key"]
MAX_TOKENS = 24  # of a reply: the model seldom stops by itself
pytestmark = pytest.mark.skipif(bool(explain_absence()), reason=explain_absence() or "installed")


@pytest.fixture(scope="module")
def address():
    """The server's address."""
    with run_foreign_server() as url:
        yield url


@pytest.fixture
def pool(address, key):
    """The model as an expert."""
    with open_endpoint_pool(address, max_tokens=MAX_TOKENS, timeout=120.0) as opened:
        yield opened


def change_limits(params):
    """The parameters with the model's replies cut early."""
    model = params.llm.models[NAME].model_copy(update={"max_tokens": MAX_TOKENS})
    llm = params.llm.model_copy(update={"models": params.llm.models | {NAME: model}})
    return params.model_copy(update={"llm": llm})


def test_as_deciding_model_it_chooses_or_falls_back(address, tmp_path):
    params = change_limits(
        lessons.make_decision_settings(
            address, model=LAB_ORCHESTRATOR, prompted=[NAME], episodes=1, summary_interval=0
        )
    )
    params = params.model_copy(
        update={"education": params.education.model_copy(update={"horizon": 2})}
    )
    zoo = lessons.write_zoo(tmp_path / "zoo")
    episodes, steps = experiment.run_prompted(
        params, [lessons.DOMAIN], zoo=zoo, runs=tmp_path / "runs"
    )
    assert len(steps) == 3 * 2 and (steps["calls"] > 0).all()
    assert set(episodes["backend"]) == {"endpoint"} and (episodes["tokens_out"] > 0).all()
    without_choice = steps[steps["failure"] != ""]
    assert without_choice["choice"].eq(params.orchestration.fallback).all()


def test_as_judges_it_scores_or_its_judgement_is_lost(address, tmp_path):
    params = change_limits(lessons.make_decision_settings(address))
    record = make_steps(list_steps(("A", POOR)))
    (item,) = draw_arithmetic("big", 1)

    async def ask():
        async with open_models(params.llm, [NAME], "judges", tmp_path, tmp_path) as models:
            scores = await judge(models[NAME], record, params.education)
            graded = await JudgeScorer(models[NAME])._score_batch([item], [item.reference])
            return scores, graded

    scores, (grade,) = asyncio.run(ask())
    was_read = scores["malformed"].item() < scores["calls"].item()
    assert scores["adaptivity"].notna().item() == was_read
    assert (grade.failure is None) == pd.notna(grade.value)


def test_as_expert_its_replies_are_scored_and_those_cut_off_are_counted(pool):
    outcomes = expert_outcomes.measure_experts(pool, draw_arithmetic("big", 3), "test")
    assert len(outcomes) == 3 and outcomes["correct"].isin([0.0, 1.0]).all()
    assert (outcomes["cost_usd"] > 0).all() and not outcomes["failed"].any()
    counts = pool.counts["lab-nano"]
    assert (counts.calls, counts.truncated) == (3, outcomes["truncated"].sum())


def test_as_tool_and_as_prompted_orchestrator_it_takes_part(pool):
    assignments = [offer_hosted_model(item, "calculator") for item in draw_arithmetic("big", 2)]
    with tool_environment.ToolEnvironment(pool, CLOCK) as desk:
        rows = single_tools.try_single_tools(desk, assignments, ["lab-nano"], "test")
        episodes = prompted_baseline.roll_out_assignments(desk, "mine", assignments, 2, 0, 0.0)
    assert [row["calls"] for row in rows] == [1, 1] and not any(row["failed"] for row in rows)
    assert all(episode.turns for episode in episodes)
    assert not any(episode.lost_own_reply for episode in episodes)


def test_as_agents_and_as_prompted_policy_it_works_on_questions(address, tmp_path):
    base = make_team_settings()
    slots = {"model": NAME, "larger": NAME, "prompted": NAME}
    params = change_limits(lessons.add_endpoint(base, address, configuration=slots))
    context = configuration.make_context(params, make_team_models(tmp_path / "models"), tmp_path)
    context = replace(context, cassettes=str(tmp_path))
    items = questions("chain", "test", 2)
    with configuration.open_workbench(context, params.configuration) as place:
        table = place.play(NAME, [ConfiguredQuestion(item, BASE) for item in items])
        model = place.open_model(NAME)
        choices = place.loop.run(prompted_policy.choose_configurations(model, items[:1], ()))
    assert (table["failures"] == 0).all() and (table["cost_usd"] > 0).all()
    assert len(choices) == 1 and not choices[0].is_lost
