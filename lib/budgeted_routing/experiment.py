"""The experiment of lesson 05 (CoRL): measure experts, train controllers of every variant and seed, and test them.

A controller is a small language model that answers questions and may call experts, models that cost money, within a
budget. All steps are jobs that resume: what is finished is never done again, and a training goes on from its last
checkpoint. Working files lie under data/runs/routing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pandas as pd

from lib.budgeted_routing import controller_job, expert_outcomes, jobs
from lib.budgeted_routing.expert_outcomes import CASSETTES, RECORDING_NAME, RUNS
from lib.budgeted_routing.jobs import START
from lib.budgeted_routing.variants import VARIANTS, Budgets, RoutingVariant, count_updates
from lib.budgeted_routing.worlds import VARIANTS_BY_WORLD, select_world
from lib.config import LLMSettings, Params
from lib.experiment import artifacts
from lib.experiment.harness import Stage, run_stages
from lib.experiment.run_context import RunContext
from lib.language_models import checkpoints
from lib.language_models.local_models import fill_in_lab_prices
from lib.language_models.training import model_cards
from lib.language_models.training.model_folders import ensure_models
from lib.llm.cost_estimate import (
    PlannedCalls,
    announce_costs,
    asks_endpoint,
    take_most_expensive,
)
from lib.llm.open_models import export_recording
from lib.rl import call_protocol
from lib.rl.expert_pool import NUM_SAMPLES


@dataclass(frozen=True)
class BudgetedRoutingResults:
    """Tables of the experiment on controllers, small language models that may call experts within a budget (CoRL).

    Attributes:
        experts: What every expert scores and costs on every question by itself, on training and test questions
            (`expert_outcomes.measure_experts`).
        episodes: Tests of controllers, a row per episode (`budget_episodes.make_episode_rows`), with the columns method
            (a variant, or "start" for the controller before PPO), seed, style of the prompt (how it states the budget:
            soft, hard or number) and temperature.
        rollouts: Episodes of the trainings, a row each with the same columns, and with method, seed and step (number of
            the update).
        alone: What the controller's base model scores on every question by itself (`measure_controller_alone`).
        learning: What the trainer reports, a row per update with method, seed and step.
        budgets: US dollars a question by budget word, and US dollars a call by expert.
        token_price: US dollars per token of the controller itself, which no budget counts.
    """

    experts: pd.DataFrame
    episodes: pd.DataFrame
    rollouts: pd.DataFrame
    alone: pd.DataFrame
    learning: pd.DataFrame
    budgets: Budgets
    token_price: float


def run_worlds(
    params: Params,
    variants_by_world: Mapping[str, Sequence[RoutingVariant]] = VARIANTS_BY_WORLD,
    models: str | Path | None = None,
    runs: str | Path = RUNS,
) -> dict[str, BudgetedRoutingResults]:
    """Run the experiment in every world of lesson 05; a world is a set of experts and a set of questions.

    Worlds are "complementary" (each expert is right on one kind of questions), "ladder" (larger, more expensive experts
    are better everywhere) and "two experts" (the cheapest and the most expensive of the complementary ones).

    Args:
        params: All settings.
        variants_by_world: What is trained in each world; by default everything.
        models: Folder of the language models; None for the models of lesson 03, which are trained where missing.
        runs: Folder of the jobs, whose finished results are used again.

    Returns:
        Results by world.
    """
    results_by_world = {}
    for world, compared in variants_by_world.items():
        label = f"training controllers, {world}"
        world_params = select_world(params, world)
        results_by_world[world] = run(world_params, compared, models, runs, label)
    return results_by_world


def run(
    params: Params,
    compared: Sequence[RoutingVariant] = VARIANTS,
    models: str | Path | None = None,
    runs: str | Path = RUNS,
    label: str = "training controllers",
) -> BudgetedRoutingResults:
    """Run CoRL's experiment in one world: measure the experts, train controllers, and test them before and after.

    A controller is a small language model that answers questions and may call experts, models that cost money, within
    a budget. Only jobs that are not finished are run.

    Args:
        params: All settings; `worlds.select_world` sets experts and questions.
        compared: Variants of CoRL that are trained, such as one whose prompt states the budget as a number.
        models: Folder of the language models; None for the models of lesson 03, which are trained where missing.
        runs: Folder of the jobs, whose finished results are used again.
        label: What the progress line calls the trainings.

    Returns:
        The tables of all jobs.

    Raises:
        ModelError: A model is missing in the folder.
    """
    settings = params.routing
    models = Path(ensure_models(params.lab, models))
    # A folder without the base model is refused before any process starts.
    checkpoints.load(models / settings.base)
    fill_in_lab_prices(params.llm, models)

    # The trainings build on what the experts score and on controllers that can write calls and answers.
    first_jobs = jobs.make_first_jobs(params, models)
    trainings = jobs.make_jobs(params, compared, first_jobs)
    stages = [
        Stage("experts and controllers", first_jobs, controller_job.run_first_job),
        Stage(label, trainings, controller_job.train_and_test),
    ]
    context = RunContext.of(
        params, models, runs, CASSETTES, settings.jobs, save_every=settings.save_every
    )
    # Replies of endpoints are recorded when the run ends, also by an error, so that they are paid for once.
    save_replies = partial(export_recording, params.llm, RECORDING_NAME, CASSETTES)
    announcement = ""
    if asks_endpoint(params.llm, settings.experts.values()):
        announcement = f"{label}: {announce_calls(params, compared)}"
    finished = run_stages(stages, context, save_replies, announcement)

    expert_job_folder = first_jobs[0].folder(Path(runs))
    experts = artifacts.read_parquet(expert_job_folder / "experts.parquet")
    card = model_cards.read_card(settings.base, models)
    return BudgetedRoutingResults(
        experts=experts,
        alone=artifacts.read_parquet(expert_job_folder / "alone.parquet"),
        episodes=finished.read_tables("episodes", START),
        rollouts=finished.read_tables("rollouts", START),
        learning=finished.read_tables("learning", START),
        budgets=controller_job.measure_budgets(
            experts, settings, calls_by_budget=settings.calls_by_budget
        ),
        token_price=card["dollars_per_1k_tokens"] / 1000,
    )


def announce_calls(params: Params, compared: Sequence[RoutingVariant] = VARIANTS) -> str:
    """Describe how many calls to experts the experiment makes at most, and what paid ones may cost.

    Experts are called by controllers, the models that are trained and tested, and are asked all questions once before.

    Args:
        params: All settings.
        compared: Variants of CoRL that are trained.

    Returns:
        A sentence for the terminal.
    """
    settings = params.routing
    num_words = len(call_protocol.BUDGET_WORDS)
    num_numbers = len(settings.numeric_budgets)

    # Episodes of all trainings, and passes of their controllers over all test questions, one under each budget.
    training_episodes = 0
    test_passes = 0
    for variant in compared:
        num_seeds = jobs.count_seeds(settings, variant)
        training_episodes += num_seeds * count_updates(settings, variant.style) * settings.batch
        # Budgets in words at two temperatures, and numbers where the variant has them.
        test_passes += num_seeds * 2 * num_words
        if variant.style == "number":
            test_passes += num_seeds * num_numbers
    # The controller before PPO is tested with soft and hard prompts, at two temperatures each, and with numbers.
    test_passes += settings.seeds * (4 * num_words + num_numbers)

    episodes = training_episodes + test_passes * settings.test_items
    controller_calls = episodes * (settings.rounds - 1)  # the last turn is the answer
    calls_without_controller = NUM_SAMPLES * settings.train_items + settings.test_items

    # All calls of controllers may go to the expert that costs most; without a controller, every expert is asked.
    names = list(dict.fromkeys(settings.experts.values()))
    alternatives = [_plan_calls(params.llm, name, controller_calls) for name in names]
    planned_calls = [_plan_calls(params.llm, name, calls_without_controller) for name in names]
    planned_calls.append(take_most_expensive(params.llm, alternatives))
    return announce_costs(params.llm, planned_calls)


def _plan_calls(llm: LLMSettings, name: str, num_calls: int) -> PlannedCalls:
    """Bound the tokens of calls to a model by the longest question that there is and the longest reply it may write.

    Args:
        llm: Settings of all language models, with the limit on a reply's tokens.
        name: The model.
        num_calls: Number of calls.
    """
    tokens_in = expert_outcomes.MAX_QUESTION_TOKENS * num_calls
    tokens_out = llm.models[name].max_tokens * num_calls
    return PlannedCalls(name, num_calls, tokens_in, tokens_out)
