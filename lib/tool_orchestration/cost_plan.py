"""What the experiment may cost, where endpoints are among the tools or are prompted as orchestrators."""

from __future__ import annotations

from collections.abc import Sequence

from lib.config import LLMSettings, Params
from lib.llm.cost_estimate import PlannedCalls, announce_costs, asks_endpoint, take_most_expensive
from lib.rl.expert_pool import NUM_SAMPLES
from lib.tool_orchestration import task_solvers, test_sets
from lib.tool_orchestration.episode_specs import PER_DATABASE, count_office_databases
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
    # Whoever filters the office tasks may call any tool, too.
    num_tasks = PER_DATABASE * count_office_databases(settings.offices)
    num_solvers = max(1, len(settings.solvers))
    office_tries = settings.tries * num_tasks + num_solvers * task_solvers.PROBE_TASKS
    pilot = settings.test_items
    episodes = trained + tested + office_tries + pilot + BUDGET_EPISODES

    # Every tool is tried by itself; any call of an orchestrator may go to the same model.
    names = list(dict.fromkeys(settings.models.values()))
    num_tried = settings.outcome_items + settings.test_items
    planned_calls = [_plan_tool_calls(llm, name, num_tried) for name in names]
    orchestrator_calls = episodes * (settings.rounds - 1)
    alternatives = [_plan_tool_calls(llm, name, orchestrator_calls) for name in names]
    planned_calls.append(take_most_expensive(llm, alternatives))

    planned_calls.append(plan_prompted_episodes(llm, settings.agent, pilot, settings.rounds))
    # Each solver tries a few office tasks; the strongest of them may try all.
    for name in settings.solvers:
        num_probes = task_solvers.PROBE_TASKS
        planned_calls.append(plan_prompted_episodes(llm, name, num_probes, settings.rounds))
    num_tries = settings.tries * num_tasks
    alternatives = [
        plan_prompted_episodes(llm, name, num_tries, settings.rounds) for name in settings.solvers
    ]
    if alternatives:
        planned_calls.append(take_most_expensive(llm, alternatives))
    return announce_costs(llm, planned_calls)


def plan_prompted_episodes(
    llm: LLMSettings, name: str, num_episodes: int, max_turns: int
) -> PlannedCalls:
    """The calls of an orchestrator that is prompted: it reads its menu and all earlier turns again in every turn.

    Args:
        llm: The models.
        name: Of the orchestrator in llm.models.
        num_episodes: Questions and office tasks.
        max_turns: Of an episode.

    Returns:
        The calls; replies are as long as they may be.
    """
    max_tokens = llm.models[name].max_tokens
    num_turns = num_episodes * max_turns
    tokens_in = num_turns * (MENU_TOKENS + max_turns * max_tokens)
    return PlannedCalls(name, num_turns, tokens_in, num_turns * max_tokens)


def announce_experiment(params: Params, compared: Sequence[ToolVariant]) -> str:
    """The same for the terminal: "" where no endpoint is among the models."""
    settings = params.tools
    names = [*settings.models.values(), settings.agent, *settings.solvers]
    if not asks_endpoint(params.llm, names):
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
