"""What the experiment may cost, where the agents or the prompted policy are endpoints."""

from __future__ import annotations

from collections.abc import Sequence

from lib.agent_configuration import action_space
from lib.agent_configuration.action_space import AGENTS
from lib.agent_configuration.agent_team import MOST_TOOLS
from lib.agent_configuration.questions import KINDS
from lib.agent_configuration.variants import ConfigurationVariant, count_seeds
from lib.agent_configuration.workflows import CALLS
from lib.config import ConfigurationSettings, Params
from lib.llm.cost_estimate import PlannedCalls, announce_costs, asks_endpoint

PROMPT_TOKENS = 400  # of an agent's role, tools and question, more than any has
CHOICE_TOKENS = 2_000  # of what the prompted policy reads, examples included
GREEDY_ROUNDS = 2  # through all dimensions
NUM_PROMPTED = 2  # prompted policies: with examples and without
NUM_PROMPT_BASELINES = 3  # GEPA, bootstrapping, the conversation
NUM_CONSTANTS = 5  # that are tested once more: base, grid, greedy, and the best constants


def plan_agent_calls(
    params: Params, model: str, num_questions: int, largest_tier: int | None = None
) -> PlannedCalls:
    """Estimate the calls and tokens that agents of one model need at the most.

    Args:
        params: All settings.
        model: Name in llm.models of the agents' model.
        num_questions: How many questions they work on.
        largest_tier: Tokens of the largest budget of any agent; None for that of the settings.

    Returns:
        The calls. Each call of an agent is several of its model: one more after every use of a tool, and together
        they write no more than the largest tier.
    """
    calls_per_question = max(most for _, most in CALLS.values())
    if largest_tier is None:
        backend = params.llm.models[model].backend
        largest_tier = max(params.configuration.select_tiers(backend))
    agent_calls = num_questions * calls_per_question
    turns = agent_calls * (MOST_TOOLS + 1)
    # An agent reads what the others left, and in every turn what it wrote before.
    tokens_in = turns * (PROMPT_TOKENS + calls_per_question * largest_tier)
    return PlannedCalls(model, turns, tokens_in, agent_calls * largest_tier)


def announce_experiment(
    params: Params,
    compared: Sequence[ConfigurationVariant],
    num_atoms: int,
    trainings_only: bool = False,
) -> str:
    """Say what the experiment may cost.

    Args:
        params: All settings.
        compared: The variants that are trained.
        num_atoms: Number of atoms in the library.
        trainings_only: Whether searches and prompted policies are left out.

    Returns:
        One line; "" where no endpoint is among the models.
    """
    settings = params.configuration
    if not asks_endpoint(params.llm, (settings.model, settings.larger, settings.prompted)):
        return ""
    questions, larger_questions = count_training_questions(params, compared)
    planned_calls = [plan_agent_calls(params, settings.larger, larger_questions)]
    if not trainings_only:
        questions += count_searched_questions(settings, num_atoms)
        choices = NUM_PROMPTED * len(KINDS) * settings.test_items
        max_tokens = params.llm.models[settings.prompted].max_tokens
        planned_calls.append(
            PlannedCalls(settings.prompted, choices, choices * CHOICE_TOKENS, choices * max_tokens)
        )
    planned_calls.append(plan_agent_calls(params, settings.model, questions))
    return announce_costs(params.llm, planned_calls)


def count_training_questions(
    params: Params, compared: Sequence[ConfigurationVariant]
) -> tuple[int, int]:
    """Count the questions that agents work on in trainings and their tests.

    Args:
        params: All settings.
        compared: The variants that are trained.

    Returns:
        The questions of the agents' usual model, and those of the larger one.
    """
    settings = params.configuration
    num_kinds = len(KINDS)
    num_test_questions = num_kinds * settings.test_items
    total = 0
    total_of_larger_model = 0
    for variant in compared:
        num_policies = 2 + variant.refined_by_dpo  # as trained, after SFT, after DPO
        num_tests = num_policies * num_test_questions
        if variant.tested_everywhere:
            num_tests += (num_kinds - 1) * num_test_questions  # each policy on the other kinds
            total_of_larger_model += settings.seeds * num_test_questions
        # Every choice may differ, and each is tried on all questions of its kind in two samples for the oracle.
        num_tries = 2 * num_policies * num_test_questions * settings.test_items
        num_episodes = num_kinds * settings.episodes
        total += count_seeds(params, variant) * (num_episodes + num_tests + num_tries)
    return total, total_of_larger_model


def announce_questions(params: Params, num_questions: int, task: str) -> str:
    """Say what the agents of `configuration.model` may cost on some questions.

    Args:
        params: All settings.
        num_questions: Number of questions, each under one configuration.
        task: What they are asked for, in a few words.

    Returns:
        One line; "" where the agents are no endpoint.
    """
    model = params.configuration.model
    if not asks_endpoint(params.llm, [model]):
        return ""
    planned = plan_agent_calls(params, model, num_questions)
    return f"{task}: {announce_costs(params.llm, [planned])}"


def count_searched_questions(settings: ConfigurationSettings, num_atoms: int) -> int:
    """Count the questions that agents answer beside the trainings, at the most.

    Args:
        settings: Settings of the lesson.
        num_atoms: Number of atoms (instructions that a prompt may contain) in the library.

    Returns:
        The sum over searches, prompted policies, prompt optimizers, effects of atoms, and last tests.
    """
    num_kinds = len(KINDS)
    num_train = num_kinds * settings.search_items
    num_dev = num_kinds * settings.dev_items
    num_test = num_kinds * settings.test_items
    # One configuration on every question; those of dev and test are answered twice.
    num_everywhere = num_train + 2 * num_dev + 2 * num_test

    # A greedy search changes a choice, adds an atom or removes one of an agent's.
    num_changes = sum(action_space.SIZES) + num_atoms + action_space.MAX_ATOMS * len(AGENTS)
    num_greedy_trials = 1 + GREEDY_ROUNDS * num_changes  # 1 is the start

    # A prompt optimizer may exceed its episodes by one round of questions.
    num_episodes = num_kinds * (settings.episodes + 2 * settings.search_items)

    questions_by_step = {
        "base configuration": num_everywhere,
        "grid of configurations": settings.grid * num_everywhere,
        "random configurations": settings.sampled * num_everywhere,
        "greedy search": num_greedy_trials * num_train,
        "results of the greedy search": num_kinds * num_everywhere,
        "prompted policies": NUM_PROMPTED * num_test,
        "examples of prompted policies": num_kinds * settings.grid,
        "workflows for prompt optimizers": len(action_space.WORKFLOWS) * num_train,
        "prompt optimizers": (NUM_PROMPT_BASELINES - 1) * num_episodes,
        "test of prompt optimizers": NUM_PROMPT_BASELINES * num_test,
        "effects of atoms, and without any": 2 * (num_atoms + 1) * num_dev,
        "test of random choices": settings.seeds * num_test,
        "test of constants": NUM_CONSTANTS * num_test,
    }
    return sum(questions_by_step.values())
