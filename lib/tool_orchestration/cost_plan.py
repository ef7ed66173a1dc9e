"""What the experiment may cost, where endpoints are among the tools or are prompted as orchestrators."""

from __future__ import annotations

from collections.abc import Sequence

from lib.config import LLMSettings, Params
from lib.llm.cost_estimate import PlannedCalls, announce_costs, asks_endpoint, take_most_expensive
from lib.rl.expert_pool import NUM_SAMPLES
from lib.tool_orchestration import test_sets
from lib.tool_orchestration.variants import VARIANTS, ToolVariant

QUESTION_TOKENS = 64  # of a question to a tool, more than any has
MENU_TOKENS = 1_000  # of function schemas and instructions that a prompted orchestrator reads
BUDGET_EPISODES = 96  # of the start, which the variant with a budget takes its budget from


def plan(params: Params, compared: Sequence[ToolVariant] = VARIANTS) -> str:
    """Say how many calls the experiment makes at the most, and what endpoints may cost.

    Args:
        params: All settings.
        compared: The variants.

    Returns:
        One line.
    """
    settings, llm = params.tools, params.llm
    num_trainings = len(compared) * settings.seeds
    trained = num_trainings * settings.updates * settings.groups * settings.rollouts
    tested = test_sets.count_episodes(settings) * (1 + num_trainings)
    office_tries = settings.tries * settings.offices
    pilot = settings.test_items
    episodes = trained + tested + office_tries + pilot + BUDGET_EPISODES

    # Every tool is tried by itself; any call of an orchestrator may go to the same model.
    names = list(dict.fromkeys(settings.models.values()))
    num_tried = settings.outcome_items + settings.test_items
    planned_calls = [_plan_tool_calls(llm, name, num_tried) for name in names]
    orchestrator_calls = episodes * (settings.rounds - 1)
    alternatives = [_plan_tool_calls(llm, name, orchestrator_calls) for name in names]
    planned_calls.append(take_most_expensive(llm, alternatives))

    # The prompted orchestrator reads its menu and all earlier turns again in every turn.
    max_tokens = llm.models[settings.agent].max_tokens
    turns = pilot * settings.rounds
    tokens_in = turns * (MENU_TOKENS + settings.rounds * max_tokens)
    planned_calls.append(PlannedCalls(settings.agent, turns, tokens_in, turns * max_tokens))
    return announce_costs(llm, planned_calls)


def announce_experiment(params: Params, compared: Sequence[ToolVariant]) -> str:
    """The same for the terminal: "" where no endpoint is among the models."""
    settings = params.tools
    if not asks_endpoint(params.llm, [*settings.models.values(), settings.agent]):
        return ""
    return plan(params, compared)


def announce_choices(params: Params, n: int) -> str:
    """What it costs to try every tool on n dev and n test questions, in independent samples; "" without endpoints."""
    llm = params.llm
    names = list(dict.fromkeys(params.tools.models.values()))
    if not asks_endpoint(llm, names):
        return ""
    num_calls = 2 * NUM_SAMPLES * n
    planned_calls = [_plan_tool_calls(llm, name, num_calls) for name in names]
    return f"trying every tool: {announce_costs(llm, planned_calls)}"


def _plan_tool_calls(llm: LLMSettings, name: str, calls: int) -> PlannedCalls:
    """Replies are as long as they may be."""
    return PlannedCalls(name, calls, QUESTION_TOKENS * calls, llm.models[name].max_tokens * calls)
