"""The experiment: what experts can do, a controller that speaks the protocol, every training under every seed.

First one job tries the experts, and one of every seed teaches a controller the protocol. Then one job per variant and
seed trains and is tested, and one tests that seed's controller as it was before. All are jobs of a sweep that
resumes; a training goes on from its last checkpoint. Working files lie under data/runs/routing.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import transformers

from lib import config as parameters
from lib import tasks
from lib.budgeted_routing import budget_episodes as budgeted_episodes
from lib.budgeted_routing import expert_outcomes, variants
from lib.budgeted_routing.budget_episodes import (
    make_episode_rows,
    make_samples,
    roll,
)
from lib.budgeted_routing.expert_outcomes import CASSETTES, NAME, RUNS
from lib.budgeted_routing.variants import VARIANTS, Budgets, RoutingVariant
from lib.config import (
    LabModelSettings,
    LearnSettings,
    LLMSettings,
    Params,
    RoutingSettings,
)
from lib.experiment import artifacts, seeds, sweep
from lib.experiment.evaluation import TEST_SEED, run_tests
from lib.experiment.harness import JobRun, Stage, run_stages, use_one_thread
from lib.experiment.run_context import RunContext
from lib.experiment.training import TrainingTables, remove_checkpoint
from lib.language_models import cache_key as asked_models
from lib.language_models import chat_template, checkpoints, tokenizer
from lib.language_models.chat_template import encode_special
from lib.language_models.lab_model import open_lab_model
from lib.language_models.local_models import fill_in_lab_prices, open_local
from lib.language_models.tokenizer import PAD
from lib.language_models.training import model_cards, muon, pretraining, training_data
from lib.language_models.training.model_folders import ensure_models
from lib.llm.cost_estimate import (
    PlannedCalls,
    announce_costs,
    asks_endpoint,
    take_most_expensive,
)
from lib.llm.open_models import export_recording, open_models
from lib.rl import budget_reward, call_protocol, expert_pool, losses, sft_warmup
from lib.rl import generators as turn_generators
from lib.rl import rollout as interleaved_episodes
from lib.rl import token_ppo as controller_learning
from lib.rl import transcript as transcripts
from lib.rl.controller_training import UpdateData, train_controller
from lib.rl.expert_pool import NUM_SAMPLES, ExpertPool
from lib.rl.generators import LabGenerator
from lib.rl.token_ppo import TokenPPO
from lib.tasks import Item
from lib.tasks import rules as question_rules

VERSION = 1  # of how controllers are trained and tested
START = "start"  # the controller before it is trained
GROUP = 8  # episodes of one question, for group advantages
MAIN = "corl"  # the variant that has `seeds` seeds; the others have `ablation_seeds`
DRAWN = (MAIN, "hard")  # variants that are tested with draws too

# Kinds of jobs, and the fields of the settings that each is handed.
TRIAL, LESSONS, TRAINING, TESTS_OF_START = (
    "trial of experts",
    "lessons in the protocol",
    "training",
    "tests of a start",
)
_READ_BY_TRIAL = ("questions", "experts", "expert_temperature", "train_items", "test_items")
_READ_BY_LESSONS = ("questions", "rounds", "warm")
_READ_BY_TESTS = (
    "questions", "experts", "expert_temperature", "test_items", "rounds", "turn_tokens", "response_tokens", "quantile",
    "high_budget_usd",
)  # fmt: skip
_READ_BY_TESTS_WITH_NUMBERS = ("budget_unit_usd", "numeric_budgets")
_READ_BY_TRAINING = ("temperature", "train_items", "batch")


@dataclass(frozen=True)
class BudgetedRoutingResults:
    """What a study left.

    Attributes:
        experts: On questions (`expert_outcomes.try_experts`).
        episodes: Of tests (`make_episode_rows`), with method, seed, style and temperature.
        rollouts: The same of training, with step.
        alone: The controller's base, answering by itself what experts were tried on.
        learning: What the trainer says of every update.
        budgets: What the words mean.
        token_price: US dollars per token of the controller itself, which no budget counts.
    """

    experts: pd.DataFrame
    episodes: pd.DataFrame
    rollouts: pd.DataFrame
    alone: pd.DataFrame
    learning: pd.DataFrame
    budgets: Budgets
    token_price: float


def run(
    params: Params,
    compared: Sequence[RoutingVariant] = VARIANTS,
    models: str | Path | None = None,
    runs: str | Path = RUNS,
    label: str = "training controllers",
) -> BudgetedRoutingResults:
    """Do what is not done yet. Raises ModelError for a folder without lab models.

    models: folder of the lab models; None for those of lesson 03, which are made where they are missing.
    """
    settings, runs = params.routing, Path(runs)
    models = ensure_models(params.lab, models)
    checkpoints.load(
        Path(models) / settings.base
    )  # these say what is wrong before any process starts
    fill_in_lab_prices(params.llm, models)
    price = model_cards.read_card(settings.base, models)["dollars_per_1k_tokens"] / 1000

    # The variants build on the trial of the experts and on the controllers that speak the protocol.
    first_jobs = make_first_jobs(params, Path(models))
    stages = [
        Stage("experts and controllers", first_jobs, prepare),
        Stage(label, make_jobs(params, compared, first_jobs), train_and_test),
    ]
    context = RunContext.of(
        params, models, runs, CASSETTES, settings.jobs, save_every=settings.save_every
    )
    keep_replies = partial(export_recording, params.llm, NAME, CASSETTES)
    announcement = ""
    if asks_endpoint(params.llm, settings.experts.values()):
        announcement = f"{label}: {plan(params, compared)}"
    finished = run_stages(stages, context, keep_replies, announcement)

    trial = first_jobs[0].folder(runs)
    experts = artifacts.read_parquet(trial / "experts.parquet")
    return BudgetedRoutingResults(
        experts=experts,
        episodes=finished.read_tables("episodes", START),
        rollouts=finished.read_tables("rollouts", START),
        alone=artifacts.read_parquet(trial / "alone.parquet"),
        learning=finished.read_tables("learning", START),
        budgets=known_budgets(experts, settings),
        token_price=price,
    )


def two(params: Params) -> Params:
    """The same with two experts, the cheapest and the dearest, and with the seeds of other variants (CoRL, 4.3)."""
    names = list(params.routing.experts)
    kept = {name: params.routing.experts[name] for name in (names[0], names[-1])}
    routing = params.routing.model_copy(
        update={"experts": kept, "seeds": params.routing.ablation_seeds}
    )
    return params.model_copy(update={"routing": routing})


def plan(params: Params, compared: Sequence[RoutingVariant] = VARIANTS) -> str:
    """How many calls the study makes at most, and what endpoints among the experts may cost: a sentence."""
    settings = params.routing
    times = {variant.name: _seeds(settings, variant) for variant in compared}
    trained = (
        sum(settings.updates[variant.style] * times[variant.name] for variant in compared)
        * settings.batch
    )
    num_budgets = len(settings.numeric_budgets)
    tested = sum(
        times[variant.name] * (2 * 3 + num_budgets * (variant.style == "number"))
        for variant in compared
    )
    start = settings.seeds * (4 * 3 + num_budgets)
    tries = NUM_SAMPLES * settings.train_items + settings.test_items
    # Any call of a controller may go to the same expert, and be as long as replies may be; all experts are tried.
    controller_calls = trained + (tested + start) * settings.test_items
    controller_calls *= settings.rounds - 1
    names = list(dict.fromkeys(settings.experts.values()))
    alternatives = [_plan_calls(params.llm, name, controller_calls) for name in names]
    planned_calls = [_plan_calls(params.llm, name, tries) for name in names]
    planned_calls.append(take_most_expensive(params.llm, alternatives))
    return announce_costs(params.llm, planned_calls)


def _plan_calls(llm: LLMSettings, name: str, calls: int) -> PlannedCalls:
    """Calls with questions of the lab; replies are as long as they may be."""
    tokens_in = expert_outcomes.QUESTION_TOKENS * calls
    return PlannedCalls(name, calls, tokens_in, llm.models[name].max_tokens * calls)


def _seeds(settings: RoutingSettings, variant: RoutingVariant) -> int:
    return settings.seeds if variant.name == MAIN else min(settings.seeds, settings.ablation_seeds)


# Jobs ---------------------------------------------------------------------------------------------


def versions(kind: str, llm: LLMSettings, names: Sequence[str] = ()) -> dict[str, int]:
    """The VERSIONs of the code that decides the numbers of a kind of job.

    Args:
        kind: TRIAL, LESSONS, TRAINING or TESTS_OF_START.
        llm: The models that there are.
        names: Those of llm.models that the job asks.
    """
    if kind == LESSONS:
        return {
            "random streams": seeds.VERSION,
            "tasks": tasks.VERSION,
            "tokenizer": tokenizer.VERSION,
            "chat template": chat_template.VERSION,
            "initial weights": checkpoints.VERSION,
            "training batches": training_data.VERSION,
            "muon": muon.VERSION,
            "training": pretraining.VERSION,
            "routing protocol": call_protocol.VERSION,
            "lessons in the protocol": sft_warmup.VERSION,
            "routing study": VERSION,
        }
    numbers = asked_models.versions(llm, names) | {
        "calls to experts": expert_pool.VERSION,
        "trials of experts": expert_outcomes.VERSION,
        "routing study": VERSION,
    }
    if any(llm.models[name].backend != "lab" for name in names):
        numbers["rules of questions"] = question_rules.VERSION
    if kind == TRIAL:
        return numbers
    numbers |= {
        "routing protocol": call_protocol.VERSION,
        "turns of controllers": turn_generators.VERSION,
        "episodes": interleaved_episodes.VERSION,
        "episodes under a budget": budgeted_episodes.VERSION,
        "reward within a budget": budget_reward.VERSION,
        "routing variants": variants.VERSION,
        "training logs": transcripts.VERSION,
    }
    if kind == TRAINING:
        numbers["losses"] = losses.VERSION
        numbers["token PPO"] = controller_learning.VERSION
    return numbers


def make_first_jobs(params: Params, models: Path) -> list[sweep.Job]:
    """The trial of the experts, and of every seed the lessons of a controller.

    Args:
        params: All settings; a job is handed those that it reads.
        models: Folder of the lab models.
    """
    settings = params.routing
    trial = {
        "job": TRIAL,
        "routing": settings.to_job_settings(*_READ_BY_TRIAL),
        "order": _order(settings),
        "models": asked_models.describe_models(params.llm, settings.experts, settings.base, models),
        "versions": versions(TRIAL, params.llm, list(settings.experts.values())),
    }
    lessons = {
        "job": LESSONS,
        "routing": settings.to_job_settings(*_READ_BY_LESSONS),
        "order": _order(settings),
        "base": settings.base,
        "weights": artifacts.sha256_file(models / settings.base / "model.safetensors"),
        "shape": params.lab.models[settings.base].to_job_settings(*sft_warmup.BASE_SETTINGS),
        "libraries": {module.__name__: module.__version__ for module in (torch, transformers)},
        "versions": versions(LESSONS, params.llm),
    }
    words = "+".join(settings.experts)
    jobs = [sweep.Job(f"{words}/experts", trial)]
    for seed in range(settings.seeds):
        jobs.append(sweep.Job(f"{words}/controller/seed-{seed}", lessons | {"seed": seed}))
    return jobs


def _order(settings: RoutingSettings) -> dict[str, list[str]]:
    """The order of experts and of families of questions, which decides what is drawn: keys of jobs sort names."""
    return {"experts": list(settings.experts), "questions": list(settings.questions)}


def make_jobs(
    params: Params, compared: Sequence[RoutingVariant], first_jobs: Sequence[sweep.Job]
) -> list[sweep.Job]:
    """One job per variant and seed, and one for the start of every seed: short ones last, which run side by side.

    The experts that they ask are in the key of the trial that they build on.

    Args:
        params: All settings; a job is handed those that it reads.
        compared: The variants.
        first_jobs: Of `make_first_jobs`.

    Raises:
        ParamsError: A variant changes the trainer to something that cannot be.
    """
    settings = params.routing
    trial, *lessons = (job.key for job in first_jobs)
    words = "+".join(settings.experts)
    jobs = []
    for variant in sorted(compared, key=lambda variant: -settings.updates[variant.style]):
        trained = _training_settings(params, variant)
        for seed in range(_seeds(settings, variant)):
            inputs = {"trial": trial, "controller": lessons[seed]}
            jobs.append(
                sweep.Job(
                    f"{words}/{variant.name}/seed-{seed}",
                    trained | {"seed": seed, "inputs": inputs},
                )
            )
    for seed in range(settings.seeds):
        inputs = {"trial": trial, "controller": lessons[seed]}
        tested = _start_settings(params, seed)
        jobs.append(
            sweep.Job(f"{words}/{START}/seed-{seed}", tested | {"seed": seed, "inputs": inputs})
        )
    return jobs


def _training_settings(params: Params, variant: RoutingVariant) -> dict[str, Any]:
    """What a job is handed of a variant and of the parameters."""
    settings = params.routing
    learn = parameters.validate_settings(
        settings.learn.model_dump() | dict(variant.changes),
        LearnSettings,
        f"the variant {variant.name}",
    )
    fields = [*_READ_BY_TESTS, *_READ_BY_TRAINING]
    if variant.style == "number":
        fields += _READ_BY_TESTS_WITH_NUMBERS
    return {
        "job": TRAINING,
        "variant": variant.decided_by,
        "routing": settings.to_job_settings(*fields),
        "order": _order(settings),
        "learn": learn.model_dump(),
        "updates": settings.updates[variant.style],
        "tests": _plan_tests(settings, [variant]),
        "versions": versions(TRAINING, params.llm, list(settings.experts.values())),
    }


def _start_settings(params: Params, seed: int) -> dict[str, Any]:
    """What a job is handed that tests the start of a seed: as the main variant, and beside other variants as those
    are."""
    settings = params.routing
    tested_as = [MAIN, "hard", "number"] if seed < settings.ablation_seeds else [MAIN]
    fields = [*_READ_BY_TESTS]
    if "number" in tested_as:
        fields += _READ_BY_TESTS_WITH_NUMBERS
    return {
        "job": TESTS_OF_START,
        "variant": None,
        "routing": settings.to_job_settings(*fields),
        "order": _order(settings),
        "tests": _plan_tests(settings, [variants.NAMED[name] for name in tested_as]),
        "versions": versions(TESTS_OF_START, params.llm, list(settings.experts.values())),
    }


def _plan_tests(
    settings: RoutingSettings, tested: Sequence[RoutingVariant]
) -> list[dict[str, Any]]:
    """Style and temperature of every test: as in use, and of some variants as in training, beside what that leads
    to."""
    tests = []
    for variant in tested:
        temperatures = [settings.test_temperature]
        if variant.name in DRAWN:
            temperatures.append(settings.temperature)
        tests += [
            {"style": variant.style, "temperature": temperature}
            for temperature in dict.fromkeys(temperatures)
        ]
    return tests


# First jobs ---------------------------------------------------------------------------------------


def open_pool(context: RunContext, settings: RoutingSettings) -> ExpertPool:
    """The experts of the settings. Use it as a context manager."""
    models = open_models(
        context.llm,
        settings.experts.values(),
        NAME,
        context.runs,
        context.cassettes,
        sweep.count_workers(context.workers),
        open_local(context.models),
    )
    return ExpertPool(models, settings.experts, settings.expert_temperature)


def test_items(settings: RoutingSettings) -> list[Item]:
    """The questions that nothing learns from: as many of each family, none twice."""
    return tasks.draw_evenly(settings.questions, "test", settings.test_items, seed=7, unique=True)


@cache
def _train_items(questions: str, n: int) -> list[Item]:
    return tasks.draw_evenly(json.loads(questions), "train", n, seed=13)


def train_items(settings: RoutingSettings) -> list[Item]:
    """The questions that all variants and seeds train on, and routers too; what experts say to them is remembered."""
    return _train_items(json.dumps(settings.questions), settings.train_items)


def prepare(run: JobRun) -> dict[str, Any]:
    """Teaches a controller the protocol, or tries experts and base on the questions, by the kind of the job."""
    use_one_thread()
    settings = run.read_section("routing", RoutingSettings)
    if run.kind == LESSONS:
        return _teach_protocol(run, settings)
    return _try_experts(run, settings)


def _teach_protocol(run: JobRun, settings: RoutingSettings) -> dict[str, Any]:
    base_folder = Path(run.context.models) / run.settings["base"]
    shape = run.read_section("shape", LabModelSettings)
    experts = run.settings["order"]["experts"]
    model_folder = run.folder / "model"
    sft_warmup.train_protocol(
        base_folder, shape, settings, experts, model_folder, run.report_progress, run.seed
    )
    return {"steps": settings.warm.steps}


def _try_experts(run: JobRun, settings: RoutingSettings) -> dict[str, Any]:
    """What experts and the base by itself reply: in every try that a training may hear, and to the test questions."""
    questions = [(train_items(settings), "train", NUM_SAMPLES), (test_items(settings), "test", 1)]
    with open_pool(run.context, settings) as pool:
        expert_tables = [expert_outcomes.try_experts(pool, *split) for split in questions]
    base = open_lab_model(run.settings["models"]["base"], run.context.models)
    base_tables = [expert_outcomes.try_alone(base, *split) for split in questions]
    run.write_table("experts", pd.concat(expert_tables, ignore_index=True))
    run.write_table("alone", pd.concat(base_tables, ignore_index=True))
    return {"questions": settings.train_items + settings.test_items}


def known_budgets(
    experts: pd.DataFrame, settings: RoutingSettings, with_numbers: bool = True
) -> Budgets:
    """What the words mean, from what calls cost.

    experts: the table of the trial; with_numbers: whether a budget may be a number too.
    """
    train = experts[experts["split"] == "train"]
    price = expert_outcomes.prices(train, list(settings.experts), settings)
    unit_usd = settings.budget_unit_usd if with_numbers else None
    return Budgets(expert_outcomes.budgets(price, settings), price, unit_usd)


# Trainings ----------------------------------------------------------------------------------------


def train_and_test(run: JobRun) -> dict[str, float]:
    """Trains and tests one variant under one seed, or tests the start."""
    use_one_thread()
    with open_pool(run.context, run.read_section("routing", RoutingSettings)) as experts:
        ControllerRun(run, experts).train_and_test()
    return {}


class ControllerRun:
    """One controller in training and in tests."""

    def __init__(self, run: JobRun, pool: ExpertPool) -> None:
        """Loads the controller that speaks the protocol, and what the words of a budget mean.

        Args:
            run: The job, which builds on the trial of the experts and on that controller.
            pool: The experts.
        """
        self.run = run
        self.pool = pool
        self.settings = run.read_section("routing", RoutingSettings)
        self.seed = run.seed
        with_numbers = any(test["style"] == "number" for test in run.settings["tests"])
        trial = artifacts.read_parquet(run.input_folder("trial") / "experts.parquet")
        self.budgets = known_budgets(trial, self.settings, with_numbers)
        self.model = checkpoints.load(run.input_folder("controller") / "model")
        self.generator = LabGenerator(
            self.model, self.settings.turn_tokens, self.settings.response_tokens
        )

    def train_and_test(self) -> None:
        """Trains, tests, keeps the numbers and, of one seed, the weights."""
        is_training = self.run.kind == TRAINING
        if is_training:
            self._train(RoutingVariant.from_settings(self.run.settings["variant"]))
        self.run.write_table("episodes", run_tests(self.run.settings["tests"], self._test))
        if is_training and self.seed == 0:
            checkpoints.save(self.model, self.run.folder / "model")
        remove_checkpoint(self.run.folder)

    def _test(self, style: str, temperature: float) -> pd.DataFrame:
        """Every test question in a style of prompts, under every budget of that style."""
        items = test_items(self.settings)
        budget_tasks = variants.examined(style, items, self.budgets, self.settings)
        episodes = roll(
            self.generator,
            self.pool,
            budget_tasks,
            self.settings.rounds,
            TEST_SEED + self.seed,
            temperature,
        )
        return make_episode_rows(episodes, self.generator.decode, len(items))

    def _train(self, variant: RoutingVariant) -> None:
        settings = self.settings
        learn = self.run.read_section("learn", LearnSettings)
        num_updates = self.run.settings["updates"]
        learner = TokenPPO(self.model, learn, encode_special(PAD), num_updates, self.seed)
        tables = TrainingTables(self.run.folder, learner)
        group = self._group(learn)

        def collect_episodes(step: int) -> UpdateData:
            # The number of the update is part of the seed of its episodes.
            update_seed = self.seed * 10**6 + step
            budget_tasks = variants.draw_training_tasks(
                variant, train_items(settings), self.budgets, settings.batch, group, update_seed
            )
            episodes = roll(
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

    @staticmethod
    def _group(learn: LearnSettings) -> int:
        return GROUP if learn.advantages == "group" else 1
