"""What a job of lesson 05 does: try the experts, teach a controller the protocol, train it, test it."""

from pathlib import Path
from typing import Any

import pandas as pd

from lib import tasks
from lib.budgeted_routing import expert_outcomes, variants
from lib.budgeted_routing.budget_episodes import (
    make_episode_rows,
    make_samples,
    roll_out_episodes,
)
from lib.budgeted_routing.expert_outcomes import RECORDING_NAME
from lib.budgeted_routing.jobs import LESSONS, TRAINING
from lib.budgeted_routing.variants import Budgets, RoutingVariant
from lib.config import LabModelSettings, LearnSettings, RoutingSettings
from lib.experiment import artifacts, sweep
from lib.experiment.evaluation import TEST_SEED, run_tests
from lib.experiment.harness import JobRun, use_one_thread
from lib.experiment.run_context import RunContext
from lib.experiment.training import TrainingTables, remove_checkpoint
from lib.language_models import checkpoints
from lib.language_models.chat_template import encode_special
from lib.language_models.lab_model import open_lab_model
from lib.language_models.local_models import open_local
from lib.language_models.tokenizer import PAD
from lib.llm.open_models import open_models
from lib.rl import sft_warmup
from lib.rl.controller_training import UpdateData, train_controller
from lib.rl.expert_pool import NUM_SAMPLES, ExpertPool
from lib.rl.generators import LabGenerator
from lib.rl.token_ppo import TokenPPO
from lib.tasks import Item

GROUP_SIZE = 8  # episodes of one question, for group advantages
_TRAIN_SEED = 13  # of the questions to learn from
_TEST_SEED = 7  # of the test questions


def draw_train_items(settings: RoutingSettings) -> list[Item]:
    """Draw the questions that all variants, seeds and baselines learn from."""
    return tasks.draw_evenly(settings.questions, "train", settings.train_items, seed=_TRAIN_SEED)


def draw_test_items(settings: RoutingSettings) -> list[Item]:
    """Draw the questions that nothing learns from: as many of each family, none twice."""
    return tasks.draw_evenly(
        settings.questions, "test", settings.test_items, seed=_TEST_SEED, unique=True
    )


def open_pool(context: RunContext, settings: RoutingSettings) -> ExpertPool:
    """Open the experts of the settings. Use it as a context manager."""
    models = open_models(
        context.llm,
        settings.experts.values(),
        RECORDING_NAME,
        context.runs,
        context.cassettes,
        sweep.count_workers(context.workers),
        open_local(context.models),
    )
    return ExpertPool(models, settings.experts, settings.expert_temperature)


def measure_budgets(
    outcomes: pd.DataFrame, settings: RoutingSettings, with_numbers: bool = True
) -> Budgets:
    """Derive what budgets are worth from what calls to the experts cost.

    Args:
        outcomes: Table of the trial of the experts.
        settings: Of the words and units.
        with_numbers: Whether a budget may be a number too.
    """
    train = outcomes[outcomes["split"] == "train"]
    call_prices = expert_outcomes.measure_call_prices(train, list(settings.experts), settings)
    unit_usd = settings.budget_unit_usd if with_numbers else None
    return Budgets(expert_outcomes.derive_budgets(call_prices, settings), call_prices, unit_usd)


# First jobs ----------------------------------------------------------------------------------------


def run_first_job(run: JobRun) -> dict[str, Any]:
    """Teach a controller the protocol, or try experts and base on the questions, by the kind of the job."""
    use_one_thread()
    settings = run.read_section("routing", RoutingSettings)
    if run.kind == LESSONS:
        return _teach_protocol(run, settings)
    return _try_experts(run, settings)


def _teach_protocol(run: JobRun, settings: RoutingSettings) -> dict[str, Any]:
    """Train the base model on made-up traces, so that it writes calls and answers in the right form."""
    base_folder = Path(run.context.models) / run.settings["base"]
    shape = run.read_section("shape", LabModelSettings)
    experts = run.settings["order"]["experts"]
    model_folder = run.folder / "model"
    sft_warmup.train_protocol(
        base_folder, shape, settings, experts, model_folder, run.report_progress, run.seed
    )
    return {"steps": settings.warm.steps}


def _try_experts(run: JobRun, settings: RoutingSettings) -> dict[str, Any]:
    """Ask experts and base every question: those to learn from as often as a training may meet them."""
    splits = [
        (draw_train_items(settings), "train", NUM_SAMPLES),
        (draw_test_items(settings), "test", 1),
    ]
    with open_pool(run.context, settings) as pool:
        expert_tables = [expert_outcomes.measure_experts(pool, *split) for split in splits]
    base = open_lab_model(run.settings["models"]["base"], run.context.models)
    base_tables = [expert_outcomes.measure_controller_alone(base, *split) for split in splits]
    run.write_table("experts", pd.concat(expert_tables, ignore_index=True))
    run.write_table("alone", pd.concat(base_tables, ignore_index=True))
    return {"questions": settings.train_items + settings.test_items}


# Trainings -----------------------------------------------------------------------------------------


def train_and_test(run: JobRun) -> dict[str, float]:
    """Train and test one variant under one seed, or test the start of a seed."""
    use_one_thread()
    with open_pool(run.context, run.read_section("routing", RoutingSettings)) as experts:
        ControllerJob(run, experts).train_and_test()
    return {}


class ControllerJob:
    """One controller in training and in tests."""

    def __init__(self, run: JobRun, pool: ExpertPool) -> None:
        """Load the controller that writes the protocol, and what budgets are worth.

        Args:
            run: The job, which builds on the trial of the experts and on that controller.
            pool: The experts.
        """
        self.run = run
        self.pool = pool
        self.settings = run.read_section("routing", RoutingSettings)
        self.seed = run.seed
        with_numbers = any(test["style"] == "number" for test in run.settings["tests"])
        outcomes = artifacts.read_parquet(run.input_folder("trial") / "experts.parquet")
        self.budgets = measure_budgets(outcomes, self.settings, with_numbers)
        self.model = checkpoints.load(run.input_folder("controller") / "model")
        self.generator = LabGenerator(
            self.model, self.settings.turn_tokens, self.settings.response_tokens
        )

    def train_and_test(self) -> None:
        """Train, test, and keep the tables; of the first seed the weights too."""
        is_training = self.run.kind == TRAINING
        if is_training:
            self._train(RoutingVariant.from_job_settings(self.run.settings["variant"]))
        self.run.write_table("episodes", run_tests(self.run.settings["tests"], self._test))
        if is_training and self.seed == 0:
            checkpoints.save(self.model, self.run.folder / "model")
        remove_checkpoint(self.run.folder)

    def _test(self, style: str, temperature: float) -> pd.DataFrame:
        """Ask every test question in a style of prompts, under every budget of that style."""
        items = draw_test_items(self.settings)
        budget_tasks = variants.make_test_tasks(style, items, self.budgets, self.settings)
        episodes = roll_out_episodes(
            self.generator,
            self.pool,
            budget_tasks,
            self.settings.rounds,
            TEST_SEED + self.seed,
            temperature,
        )
        return make_episode_rows(episodes, self.generator.decode, len(items))

    def _train(self, variant: RoutingVariant) -> None:
        """Train by PPO, from the last checkpoint where there is one."""
        settings = self.settings
        learn = self.run.read_section("learn", LearnSettings)
        num_updates = self.run.settings["updates"]
        items = draw_train_items(settings)
        group = GROUP_SIZE if learn.advantages == "group" else 1
        learner = TokenPPO(self.model, learn, encode_special(PAD), num_updates, self.seed)
        tables = TrainingTables(self.run.folder, learner)

        def collect_episodes(step: int) -> UpdateData:
            """Episodes of one update, whose number is part of the seed of all that is random in them."""
            update_seed = self.seed * 10**6 + step
            budget_tasks = variants.draw_training_tasks(
                variant, items, self.budgets, settings, settings.batch, group, update_seed
            )
            episodes = roll_out_episodes(
                self.generator,
                self.pool,
                budget_tasks,
                settings.rounds,
                update_seed,
                settings.temperature,
            )
            rollouts = make_episode_rows(episodes).assign(step=step)
            return UpdateData(make_samples(episodes, group), rollouts)

        train_controller(
            learner,
            self.generator,
            num_updates,
            collect_episodes,
            tables,
            self.run.context.save_every,
            self.run.report_progress,
        )
