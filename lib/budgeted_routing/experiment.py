"""The experiment of lesson 05: experts, controllers that write the protocol, and trainings of every variant and seed.

All are jobs that resume: what is finished is never done again, and a training goes on from its last checkpoint.
Working files lie under data/runs/routing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pandas as pd

from lib.budgeted_routing import controller_job, expert_outcomes, jobs
from lib.budgeted_routing.expert_outcomes import CASSETTES, RECORDING_NAME, RUNS
from lib.budgeted_routing.jobs import START
from lib.budgeted_routing.variants import VARIANTS, Budgets, RoutingVariant
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
    """Tables of an experiment.

    Attributes:
        experts: Outcomes of the experts on training and test questions (`expert_outcomes.measure_experts`).
        episodes: Tests of controllers (`budget_episodes.make_episode_rows`), with method, seed, style and temperature.
        rollouts: Episodes of trainings, with method, seed and step.
        alone: Outcomes of the controller's base model, which answers by itself.
        learning: What the trainer reports of every update.
        budgets: What budgets are worth.
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
    params: Params, models: str | Path | None = None, runs: str | Path = RUNS
) -> dict[str, BudgetedRoutingResults]:
    """Run the experiment in every world of lesson 05, a set of experts and questions each.

    Args:
        params: All settings.
        models: As in `run`.
        runs: As in `run`.

    Returns:
        Results by world.
    """
    results_by_world = {}
    for world, compared in VARIANTS_BY_WORLD.items():
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
    """Train and test controllers, and try the experts, as far as that is not done yet.

    Args:
        params: All settings; `worlds.select_world` chooses the experts and questions.
        compared: The variants.
        models: Folder of the lab models; None for those of lesson 03, which are made where they are missing.
        runs: Folder of the jobs.
        label: Of the progress line.

    Returns:
        Tables of all jobs.

    Raises:
        ModelError: The folder has no lab models.
    """
    settings = params.routing
    models = Path(ensure_models(params.lab, models))
    # Says what is wrong with a folder before any process starts.
    checkpoints.load(models / settings.base)
    fill_in_lab_prices(params.llm, models)

    # The trainings build on the trial of the experts and on the controllers that write the protocol.
    first_jobs = jobs.make_first_jobs(params, models)
    trainings = jobs.make_jobs(params, compared, first_jobs)
    stages = [
        Stage("experts and controllers", first_jobs, controller_job.run_first_job),
        Stage(label, trainings, controller_job.train_and_test),
    ]
    context = RunContext.of(
        params, models, runs, CASSETTES, settings.jobs, save_every=settings.save_every
    )
    keep_replies = partial(export_recording, params.llm, RECORDING_NAME, CASSETTES)
    announcement = ""
    if asks_endpoint(params.llm, settings.experts.values()):
        announcement = f"{label}: {announce_calls(params, compared)}"
    finished = run_stages(stages, context, keep_replies, announcement)

    trial_folder = first_jobs[0].folder(Path(runs))
    experts = artifacts.read_parquet(trial_folder / "experts.parquet")
    card = model_cards.read_card(settings.base, models)
    return BudgetedRoutingResults(
        experts=experts,
        alone=artifacts.read_parquet(trial_folder / "alone.parquet"),
        episodes=finished.read_tables("episodes", START),
        rollouts=finished.read_tables("rollouts", START),
        learning=finished.read_tables("learning", START),
        budgets=controller_job.measure_budgets(experts, settings),
        token_price=card["dollars_per_1k_tokens"] / 1000,
    )


def announce_calls(params: Params, compared: Sequence[RoutingVariant] = VARIANTS) -> str:
    """Say how many calls the experiment makes at most, and what endpoints among the experts may cost.

    Args:
        params: All settings.
        compared: The variants.
    """
    settings = params.routing
    num_words = len(call_protocol.BUDGET_WORDS)
    num_numbers = len(settings.numeric_budgets)

    # Episodes of every training, and budgets under which its controller is asked every test question.
    training_episodes = 0
    tested_budgets = 0
    for variant in compared:
        num_seeds = jobs.count_seeds(settings, variant)
        training_episodes += num_seeds * settings.updates[variant.style] * settings.batch
        # Words at two temperatures, and numbers where the variant has them.
        tested_budgets += num_seeds * 2 * num_words
        if variant.style == "number":
            tested_budgets += num_seeds * num_numbers
    # The start of every seed is asked in soft and hard prompts, at two temperatures each, and with numbers.
    tested_budgets += settings.seeds * (4 * num_words + num_numbers)

    episodes = training_episodes + tested_budgets * settings.test_items
    controller_calls = episodes * (settings.rounds - 1)
    trial_calls = NUM_SAMPLES * settings.train_items + settings.test_items

    # Any call of a controller may go to the same expert, and be as long as replies may be; all experts are tried.
    names = list(dict.fromkeys(settings.experts.values()))
    alternatives = [_plan_calls(params.llm, name, controller_calls) for name in names]
    planned_calls = [_plan_calls(params.llm, name, trial_calls) for name in names]
    planned_calls.append(take_most_expensive(params.llm, alternatives))
    return announce_costs(params.llm, planned_calls)


def _plan_calls(llm: LLMSettings, name: str, num_calls: int) -> PlannedCalls:
    """Calls with questions of the lab, whose replies are as long as they may be."""
    tokens_in = expert_outcomes.MAX_QUESTION_TOKENS * num_calls
    return PlannedCalls(name, num_calls, tokens_in, llm.models[name].max_tokens * num_calls)
