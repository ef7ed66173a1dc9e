"""What the jobs of lesson 05 do: measure the experts, train a controller in the protocol, then by PPO, and test it.

A controller is a small language model that answers questions and may call experts, models that cost money, within a
budget. `lib.budgeted_routing.jobs` says which jobs there are.
"""

from collections.abc import Mapping
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
from lib.budgeted_routing.jobs import MAIN_VARIANT, TRAIN_CONTROLLER, TRAIN_PROTOCOL
from lib.budgeted_routing.variants import VARIANTS_BY_NAME, Budgets, RoutingVariant
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

GROUP_SIZE = 8  # episodes of one question, whose rewards are compared where advantages are group-relative (GRPO)
_TRAIN_SEED = 13  # of the questions to learn from
_TEST_SEED = 7  # of the test questions
SAMPLE_SEED = (
    10**4
)  # between the random numbers of two samples: more than there are seeds of controllers


def draw_train_items(settings: RoutingSettings) -> list[Item]:
    """Draw the training questions, the same for all variants of CoRL, seeds and baselines.

    Args:
        settings: CoRL's settings; families of questions with their difficulties, and `train_items`, are read.

    Returns:
        `train_items` questions of the split train, in equal numbers from each family.
    """
    return tasks.draw_evenly(settings.questions, "train", settings.train_items, seed=_TRAIN_SEED)


def draw_test_items(settings: RoutingSettings) -> list[Item]:
    """Draw the test questions, from which nothing learns; the same for all variants of CoRL, seeds and baselines.

    Args:
        settings: CoRL's settings; families of questions with their difficulties, and `test_items`, are read.

    Returns:
        `test_items` different questions of the split test, in equal numbers from each family.
    """
    return tasks.draw_evenly(
        settings.questions, "test", settings.test_items, seed=_TEST_SEED, unique=True
    )


def open_pool(context: RunContext, settings: RoutingSettings) -> ExpertPool:
    """Open the experts, the language models that a controller may call for money.

    Args:
        context: How the experiment is carried out: folders of models, recorded replies and spending, processes.
        settings: CoRL's settings; names of the experts, their models and their sampling temperature are read.

    Returns:
        The experts; a context manager that closes them.
    """
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
    outcomes: pd.DataFrame,
    settings: RoutingSettings,
    with_numbers: bool = True,
    calls_by_budget: Mapping[str, int] | None = None,
) -> Budgets:
    """Set how many dollars a budget allows the calls of one question to cost, by what calls to the experts cost.

    A prompt names a budget by a word (low, medium, high) or by a number of units.

    Args:
        outcomes: What every expert scored and cost, a row per expert, sample and question, with the columns split,
            method (the expert), correct and cost_usd; only the split train is read.
        settings: CoRL's settings; `quantile` (of an expert's costs, which is its price), `high_budget_usd` and
            `budget_unit_usd` are read.
        with_numbers: Whether budgets may be numbers too.
        calls_by_budget: Calls to the cheapest expert that the budgets low and medium afford; None for one call to the
            cheapest and one to the middle expert.

    Returns:
        Dollars by budget word, the price of a call to each expert, and dollars of a unit (None without numbers).
    """
    train_outcomes = outcomes[outcomes["split"] == "train"]
    prices = expert_outcomes.measure_call_prices(train_outcomes, list(settings.experts), settings)
    return Budgets(
        usd_by_word=expert_outcomes.derive_budgets(prices, settings, calls_by_budget),
        price_by_expert=prices,
        unit_usd=settings.budget_unit_usd if with_numbers else None,
    )


# First jobs ----------------------------------------------------------------------------------------


def run_first_job(run: JobRun) -> dict[str, Any]:
    """Do one of the jobs that the PPO trainings build on: measure the experts, or train a controller in the protocol.

    The protocol is the form in which a controller, a small language model, writes calls to experts and answers.

    Args:
        run: The job, with its kind, its settings and the folder that it writes to.

    Returns:
        The receipt of the job: how many steps were trained, or how many questions were asked.
    """
    use_one_thread()
    settings = run.read_section("routing", RoutingSettings)
    if run.kind == TRAIN_PROTOCOL:
        return _train_protocol(run, settings)
    return _measure_experts(run, settings)


def _train_protocol(run: JobRun, settings: RoutingSettings) -> dict[str, Any]:
    """Train the base model on made-up episodes, so that it writes calls to experts and answers in the right form.

    This is supervised training, after which PPO starts. The model is written to the job's folder.

    Args:
        run: The job, with its seed and the name of the base model.
        settings: CoRL's settings, those of the supervised training among them.

    Returns:
        The number of steps, for the job's receipt.
    """
    base_folder = Path(run.context.models) / run.settings["base"]
    base_settings = run.read_section("shape", LabModelSettings)
    experts = run.settings["order"]["experts"]
    model_folder = run.folder / "model"
    sft_warmup.train_protocol(
        base_folder,
        base_settings,
        settings,
        experts,
        model_folder,
        run.report_progress,
        run.seed,
        run.settings.get("split_share", 0.0),
    )
    return {"steps": settings.warm.steps}


def _measure_experts(run: JobRun, settings: RoutingSettings) -> dict[str, Any]:
    """Let every expert, and the controller's base model, answer all questions by itself, and record scores and costs.

    Writes two tables with a row per question, sample and method: "experts", and "alone" for the base model
    (`expert_outcomes.measure_experts`, `measure_controller_alone`).

    Args:
        run: The job, whose folder the tables are written to.
        settings: CoRL's settings: experts and questions.

    Returns:
        The number of questions, for the job's receipt.
    """
    train_items = draw_train_items(settings)
    test_items = draw_test_items(settings)
    # Training episodes meet one of NUM_SAMPLES independent replies, tests always the first.
    question_sets = [(train_items, "train", NUM_SAMPLES), (test_items, "test", 1)]

    expert_tables = []
    with open_pool(run.context, settings) as pool:
        for items, split, num_samples in question_sets:
            expert_tables.append(expert_outcomes.measure_experts(pool, items, split, num_samples))

    base_model = open_lab_model(run.settings["models"]["base"], run.context.models)
    base_tables = []
    for items, split, num_samples in question_sets:
        base_tables.append(
            expert_outcomes.measure_controller_alone(base_model, items, split, num_samples)
        )

    run.write_table("experts", pd.concat(expert_tables, ignore_index=True))
    run.write_table("alone", pd.concat(base_tables, ignore_index=True))
    return {"questions": settings.train_items + settings.test_items}


# Trainings -----------------------------------------------------------------------------------------


def train_and_test(run: JobRun) -> dict[str, float]:
    """Train a controller by PPO and test it, or only test one before its training, as the job's kind says.

    Args:
        run: The job, with its settings, its seed and the folder that it writes to.

    Returns:
        An empty receipt: the results are the tables that the job writes.
    """
    use_one_thread()
    with open_pool(run.context, run.read_section("routing", RoutingSettings)) as pool:
        ControllerJob(run, pool).train_and_test()
    return {}


class ControllerJob:
    """Training and tests of one controller, a small language model that may call experts within a budget."""

    def __init__(self, run: JobRun, pool: ExpertPool) -> None:
        """Load the controller, which can write calls and answers already, and what budgets and calls cost.

        Args:
            run: The job. Its input "controller" is the job of the supervised training, its input "trial" the one that
                measured the experts.
            pool: The experts that the controller may call.
        """
        self.run = run
        self.pool = pool
        self.settings = run.read_section("routing", RoutingSettings)
        self.seed = run.seed

        with_numbers = any(test["style"] == "number" for test in run.settings["tests"])
        outcomes = artifacts.read_parquet(run.input_folder("trial") / "experts.parquet")
        calls_by_budget = run.settings.get("calls_by_budget")
        self.budgets = measure_budgets(outcomes, self.settings, with_numbers, calls_by_budget)
        # The start (`variant` is None) is tested as CoRL.
        variant = run.settings["variant"] or VARIANTS_BY_NAME[MAIN_VARIANT].to_job_settings()
        self.variant = RoutingVariant.from_job_settings(variant)

        self.model = checkpoints.load(run.input_folder("controller") / "model")
        self.generator = LabGenerator(
            self.model, self.settings.turn_tokens, self.settings.response_tokens
        )

    def train_and_test(self) -> None:
        """Train the controller, unless the job only tests it, then test it and write the tables.

        The weights are kept for the first seed only.
        """
        is_training = self.run.kind == TRAIN_CONTROLLER
        if is_training:
            self._train()
        self.run.write_table("episodes", run_tests(self.run.settings["tests"], self._run_test))
        if is_training and self.seed == 0:
            checkpoints.save(self.model, self.run.folder / "model")
        remove_checkpoint(self.run.folder)

    def _run_test(self, style: str, temperature: float, sample: int = 0) -> pd.DataFrame:
        """Let the controller answer every test question under every budget.

        Args:
            style: How prompts state the budget: soft (a word), hard (a word, with a rule for what to do) or number.
            temperature: Temperature of the controller's sampling; 0 is greedy.
            sample: Number of the sample, where every question is answered several times.

        Returns:
            A row per question and budget, with the columns of `make_episode_rows`, among them condition (the budget),
            item (number of the question), correct, reward and cost_usd.
        """
        items = draw_test_items(self.settings)
        budget_tasks = variants.make_test_tasks(
            style, items, self.budgets, self.settings, self.variant.passes_question
        )
        episodes = roll_out_episodes(
            self.generator,
            self.pool,
            budget_tasks,
            self.settings.rounds,
            TEST_SEED + self.seed + SAMPLE_SEED * sample,
            temperature,
        )
        return make_episode_rows(episodes, self.generator.decode, len(items))

    def _train(self) -> None:
        """Train the controller by PPO on random questions under random budgets.

        The training goes on from the last checkpoint in the job's folder, where there is one.
        """
        variant = self.variant
        settings = self.settings
        learn = self.run.read_section("learn", LearnSettings)
        num_updates = self.run.settings["updates"]
        items = draw_train_items(settings)
        group_size = GROUP_SIZE if learn.advantages == "group" else 1
        learner = TokenPPO(self.model, learn, encode_special(PAD), num_updates, self.seed)
        tables = TrainingTables(self.run.folder, learner)

        def collect_episodes(step: int) -> UpdateData:
            """Roll out the episodes of one update.

            Args:
                step: Number of the update, a part of the seed of everything random in it.

            Returns:
                Samples for the trainer, and a row per episode.
            """
            update_seed = self.seed * 10**6 + step
            budget_tasks = variants.draw_training_tasks(
                variant, items, self.budgets, settings, settings.batch, group_size, update_seed
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
            return UpdateData(make_samples(episodes, group_size), rollouts)

        train_controller(
            learner,
            self.generator,
            num_updates,
            collect_episodes,
            tables,
            self.run.context.save_every,
            self.run.report_progress,
        )
