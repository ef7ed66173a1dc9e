"""The experiment: tools tried one by one, an orchestrator that speaks the protocol, every training under every seed.

First, side by side, one job tries every tool and one teaches the protocol and lets the start try the office tasks.
Then one job per variant and seed trains and is tested, and one tests the start. All are jobs of a sweep that resumes;
a training goes on from its last checkpoint. Working files lie under data/runs/toolorchestra.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lib import config as parameters
from lib import tools as local_tools
from lib.config import ROOT, LabModelSettings, LearnSettings, LLMSettings, Params, ToolSettings
from lib.experiment import artifacts, seeds, sweep
from lib.experiment.evaluation import TEST_SEED, run_tests
from lib.experiment.harness import JobRun, Stage, run_stages, use_one_thread
from lib.experiment.run_context import RunContext
from lib.experiment.training import TrainingTables, remove_checkpoint
from lib.language_models import cache_key as asked_models
from lib.language_models import checkpoints
from lib.language_models.chat_template import encode_special
from lib.language_models.tokenizer import PAD
from lib.language_models.training import model_cards as cards
from lib.language_models.training import muon, pretraining
from lib.language_models.training import training_data as training_batches
from lib.language_models.training.model_folders import ensure_models
from lib.llm.open_models import export_recording
from lib.rl import budget_reward, call_protocol, expert_pool, losses
from lib.rl import generators as turn_generators
from lib.rl import rollout as interleaved_episodes
from lib.rl import sft_warmup as corl_warm
from lib.rl import token_ppo as controller_learning
from lib.rl import transcript as transcripts
from lib.rl.controller_training import UpdateData, train_controller
from lib.rl.expert_pool import NUM_SAMPLES
from lib.rl.generators import LabGenerator
from lib.rl.token_ppo import TokenPPO
from lib.tasks import rules as question_rules
from lib.tasks import synthesis
from lib.tasks.synthesis import Corpus, Task, filter_tasks, load_corpus
from lib.tool_orchestration import (
    episode_specs,
    price_configurations,
    prompted_baseline,
    rewards,
    single_tool_baselines,
    task_solvers,
    test_sets,
    tool_environment,
    tool_menu,
    variants,
)
from lib.tool_orchestration import sft_warmup as warm
from lib.tool_orchestration.cost_plan import BUDGET_EPISODES, announce_choices, announce_experiment
from lib.tool_orchestration.episode_specs import Assignment
from lib.tool_orchestration.tool_environment import (
    NAME,
    OwnTokenPrice,
    ToolWorkbench,
    open_workbench,
    select_training_offers,
)
from lib.tool_orchestration.tool_menu import (
    Offer,
    PriceList,
    ToolMenu,
    UserPreference,
    list_tools,
    list_training_tools,
)
from lib.tool_orchestration.variants import VARIANTS, ToolVariant

VERSION = 1  # of how orchestrators are trained and tested
RUNS = ROOT / "data/runs/toolorchestra"
CASSETTES = ROOT / "data/cassettes/06_tool_orchestration"
AGENT = "agent"  # a model of llm.models that is prompted with function schemas
START = "start"  # the orchestrator before it is trained: prompted, and no more

# Kinds of jobs, and the fields of the settings that each is handed.
LESSONS, TRIAL, TRAINING, TESTS_OF_START = (
    "lessons and office tasks",
    "trial of tools",
    "training",
    "tests of the start",
)
_READ_BY_LESSONS = (
    "models", "unseen", "base", "spread", "rounds", "turn_tokens", "response_tokens", "temperature",
    "model_temperature", "warm", "offices", "tries", "solvers", "budget",
)  # fmt: skip
_READ_BY_TRIAL = (
    "models", "unseen", "agent", "spread", "rounds", "test_temperature", "model_temperature", "outcome_items",
    "test_items",
)  # fmt: skip
_READ_BY_EXAMS = (
    "models", "unseen", "base", "spread", "rounds", "turn_tokens", "response_tokens", "test_temperature",
    "model_temperature", "test_items",
)  # fmt: skip
_READ_BY_TRAINING = ("temperature", "groups", "rollouts", "updates", "outages", "least_deviation")


@dataclass(frozen=True)
class ToolOrchestrationResults:
    """What a study left.

    Attributes:
        tools: The names in the order of preference vectors.
        tried: Every tool on its own (`tool_environment.tried`), with split.
        episodes: Of tests (`variants.make_episode_rows`), with method, seed and style (which test set).
        rollouts: The same of training, with step and rollout_group.
        learning: What trainer and filters say of every update.
        corpus: Statistics of the office tasks.
        budget: Of the variant with CoRL's reward, in US dollars.
        own: What the orchestrator's tokens cost.
        offers: The menu at list prices.
    """

    tools: tuple[str, ...]
    tried: pd.DataFrame
    episodes: pd.DataFrame
    rollouts: pd.DataFrame
    learning: pd.DataFrame
    corpus: pd.DataFrame
    budget: float
    own: OwnTokenPrice
    offers: Mapping[str, Offer]


def _open_workbench_of(job: sweep.Job, context: RunContext):
    """The workbench that a job works in, from no more settings than it was handed."""
    settings = ToolSettings.from_job_settings(job.settings["tools"])
    lists = [
        PriceList.model_validate(job.settings[name])
        for name in ("prices", "unseen_prices")
        if name in job.settings
    ]
    # A job may read no setting that it was not handed.
    prompted: list[str] = []
    if job.settings["job"] == TRIAL:
        prompted = [settings.agent]
    elif job.settings["job"] == LESSONS:
        prompted = settings.solvers
    return open_workbench(context, settings, *lists, prompted=prompted)


def _read_price_lists(settings: ToolSettings) -> tuple[PriceList, PriceList]:
    """That of training, and that of the exam at unseen prices."""
    return tool_menu.read_price_list(ROOT / settings.prices), tool_menu.read_price_list(
        ROOT / settings.unseen_prices
    )


def run(
    params: Params,
    compared: Sequence[ToolVariant] = VARIANTS,
    models: str | Path | None = None,
    runs: str | Path = RUNS,
    label: str = "training orchestrators",
) -> ToolOrchestrationResults:
    """Do what is not done yet. Raises ModelError for a folder without lab models, ParamsError for a price list that is
    none, SandboxUnavailable where no sandbox works.

    models: folder of the lab models; None for those of lesson 03, which are made where they are missing.
    """
    settings, runs = params.tools, Path(runs)
    models = ensure_models(params.lab, models)
    checkpoints.load(
        Path(models) / settings.base
    )  # these say what is wrong before any process starts
    context = make_context(params, models, runs)
    with open_workbench(context, settings, *_read_price_lists(settings)) as workbench:
        offers, own = workbench.offers, workbench.own

    # The variants build on a start that speaks the protocol.
    first_jobs = make_first_jobs(params, Path(models))
    stages = [
        Stage("protocol and tools", first_jobs, prepare),
        Stage(label, make_jobs(params, compared, first_jobs), train_and_test),
    ]
    keep_replies = partial(export_recording, params.llm, NAME, CASSETTES)
    finished = run_stages(stages, context, keep_replies, announce_experiment(params, compared))

    start, trial = (job.folder(runs) for job in first_jobs)
    episodes = finished.read_tables("episodes", START)
    pilot = artifacts.read_parquet(trial / "pilot.parquet")
    return ToolOrchestrationResults(
        tools=list_tools(settings),
        tried=artifacts.read_parquet(trial / "tried.parquet"),
        episodes=pd.concat([episodes, pilot], ignore_index=True),
        rollouts=finished.read_tables("rollouts", START),
        learning=finished.read_tables("learning", START),
        corpus=artifacts.read_parquet(start / "statistics.parquet"),
        budget=artifacts.read_json(start / "begun.json")["budget"],
        own=own,
        offers=offers,
    )


def make_context(
    params: Params, models: str | Path = checkpoints.MODELS, runs: str | Path = RUNS
) -> RunContext:
    """How a study with these parameters is carried out."""
    settings = params.tools
    return RunContext.of(
        params, models, runs, CASSETTES, settings.jobs, save_every=settings.save_every
    )


def try_all_tools(
    params: Params, n: int, models: str | Path | None = None, runs: str | Path = RUNS
) -> pd.DataFrame:
    """Every tool by itself on about n dev and n test questions in independent tries, columns split, method (the tool),
    item, sample, correct: what `stats.headroom` asks for. A tool that cannot be asked a question is wrong. Nothing
    learns from these.

    models: see `run`.
    """
    sweep.print_to_terminal(announce_choices(params, n))
    parts = []
    context = make_context(params, ensure_models(params.lab, models), runs)
    with open_workbench(context, params.tools, *_read_price_lists(params.tools)) as workbench:
        tools = list_tools(params.tools)
        for split, attempt in product(("dev", "test"), range(NUM_SAMPLES)):
            whole = ToolMenu(tuple(workbench.offers[name] for name in tools))
            asked = [
                Assignment(work, whole, UserPreference(1.0, 0.0, 0.0))
                for work in episode_specs.draw_tasks_evenly(n, split, 29, ())
            ]
            rows = pd.DataFrame(
                tool_environment.try_single_tools(
                    workbench.environment, asked, tools, f"{split} {attempt}"
                )
            )
            correct = (
                rows.pivot(index="item", columns="tool", values="correct")
                .reindex(columns=tools)
                .fillna(0.0)
            )
            told = correct.rename_axis(columns="method").stack().rename("correct").reset_index()
            parts.append(told.assign(split=split, **{"sample": attempt}))
    return pd.concat(parts, ignore_index=True)


# Jobs ---------------------------------------------------------------------------------------------


def versions(kind: str, llm: LLMSettings, asked: Sequence[str], reward: str = "") -> dict[str, int]:
    """The VERSIONs of the code that decides the numbers of a kind of job.

    Args:
        kind: LESSONS, TRIAL, TRAINING or TESTS_OF_START.
        llm: The models that there are.
        asked: The names in llm.models of those that the job asks.
        reward: Of the variant that is trained.
    """
    numbers = asked_models.versions(llm, asked) | {
        "office tasks": synthesis.VERSION,
        "tools": local_tools.VERSION,
        "routing protocol": call_protocol.VERSION,
        "calls to experts": expert_pool.VERSION,
        "episodes": interleaved_episodes.VERSION,
        "model cards": cards.VERSION,  # which say what a tool is good at
        "tool menus": tool_menu.VERSION,
        "assignments": episode_specs.VERSION,
        "tools at work": tool_environment.VERSION,
        "tool study": VERSION,
    }
    if any(llm.models[name].backend != "lab" for name in asked):
        numbers["rules of questions"] = question_rules.VERSION
        numbers["hosted tools"] = episode_specs.HOSTED_VERSION
    if kind != TRIAL:
        numbers["turns of controllers"] = turn_generators.VERSION
    if kind != LESSONS:
        numbers["exams"] = test_sets.VERSION
        numbers["preference rewards"] = rewards.VERSION
        numbers["variants of tool orchestration"] = variants.VERSION
    if kind in (LESSONS, TRIAL):
        numbers["tool strategies"] = single_tool_baselines.VERSION
    if kind == LESSONS:
        numbers["training batches"] = training_batches.VERSION
        numbers["muon"] = muon.VERSION
        numbers["training"] = pretraining.VERSION
        numbers["lessons in the protocol"] = corl_warm.VERSION
        numbers["lessons of orchestrators"] = warm.VERSION
    if kind in (LESSONS, TRIAL):
        numbers["prompted orchestrator"] = prompted_baseline.VERSION
    if kind == LESSONS:
        numbers["solvers of office tasks"] = task_solvers.VERSION
    if kind in (TRAINING, TESTS_OF_START):
        numbers["training logs"] = transcripts.VERSION
        numbers["price configurations"] = price_configurations.VERSION  # whose rule prices an exam
    if kind == TRAINING:
        numbers["losses"] = losses.VERSION
        numbers["token PPO"] = controller_learning.VERSION
    if reward == "corl":
        numbers["reward within a budget"] = budget_reward.VERSION
    return numbers


def make_first_jobs(params: Params, models: Path) -> list[sweep.Job]:
    """The lessons of the orchestrator, with its tries at office tasks, and the trial of the tools.

    Args:
        params: All settings; a job is handed those that it reads.
        models: Folder of the lab models.

    Raises:
        ParamsError: A price list is none.
    """
    settings = params.tools
    solvers = {f"solver {name}": name for name in settings.solvers}
    lessons = _shared_settings(params, LESSONS) | {
        "tools": settings.to_job_settings(*_READ_BY_LESSONS),
        "shape": params.lab.models[settings.base].to_job_settings(*corl_warm.BASE_SETTINGS),
        "models": asked_models.describe_models(
            params.llm, settings.models | solvers, settings.base, models
        ),
    }
    asked = {**settings.models, AGENT: settings.agent}
    trial = _shared_settings(params, TRIAL) | {
        "tools": settings.to_job_settings(*_READ_BY_TRIAL),
        "models": asked_models.describe_models(params.llm, asked, None, models),
    }
    return [sweep.Job(START, lessons), sweep.Job("tools", trial)]


def make_jobs(
    params: Params, compared: Sequence[ToolVariant], first_jobs: Sequence[sweep.Job]
) -> list[sweep.Job]:
    """One job per variant and seed, and one for the start.

    The models that they ask are in the key of the lessons that they build on.

    Args:
        params: All settings; a job is handed those that it reads.
        compared: The variants.
        first_jobs: Of `make_first_jobs`.

    Raises:
        ParamsError: A price list is none, or a variant changes the trainer to something that cannot be.
    """
    settings = params.tools
    inputs = {"start": first_jobs[0].key}
    trained = []
    for variant in compared:
        changed = settings.learn.model_dump() | dict(variant.changes)
        learn = parameters.validate_settings(changed, LearnSettings, f"the variant {variant.name}")
        of_arm = _shared_settings(params, TRAINING, variant.reward) | {
            "variant": variant.decided_by,
            "learn": learn.model_dump(),
            **_exam_settings(settings, variant.exams, _READ_BY_TRAINING),
            "inputs": inputs,
        }
        for seed in range(settings.seeds):
            trained.append(sweep.Job(f"{variant.name}/seed-{seed}", of_arm | {"seed": seed}))
    of_start = _shared_settings(params, TESTS_OF_START) | {
        "variant": None,
        **_exam_settings(settings, test_sets.ALL),
        "inputs": inputs,
        "seed": 0,
    }
    return [*trained[:1], sweep.Job("tests", of_start), *trained[1:]]


def _shared_settings(params: Params, kind: str, reward: str = "") -> dict[str, Any]:
    """What every kind of job is handed: the order of tools, list prices, and the VERSIONs of its code."""
    settings = params.tools
    asked = list(settings.models.values())
    if kind == TRIAL:
        asked.append(settings.agent)
    if kind == LESSONS:
        asked += settings.solvers
    prices, _ = _read_price_lists(settings)
    return {
        "job": kind,
        "order": {
            "models": list(settings.models)
        },  # of preference vectors; keys of jobs sort names
        "prices": prices.model_dump(),
        "versions": versions(kind, params.llm, asked, reward),
    }


def _exam_settings(
    settings: ToolSettings, names: Sequence[str], also_read: Sequence[str] = ()
) -> dict[str, Any]:
    """What a job is handed that sits exams; also_read: fields that it reads beside those."""
    fields = [*_READ_BY_EXAMS, *also_read]
    if test_sets.ON_GRID in names:
        fields.append("side")
    handed = {"tools": settings.to_job_settings(*fields), "exams": list(names)}
    if test_sets.AT_UNSEEN_PRICES in names:
        _, unseen_prices = _read_price_lists(settings)
        handed["unseen_prices"] = unseen_prices.model_dump()
    return handed


# First jobs ---------------------------------------------------------------------------------------


def prepare(run: JobRun) -> None:
    """Teaches the protocol and tries the office tasks, or tries the tools, by the kind of the job."""
    use_one_thread()
    with _open_workbench_of(run.job, run.context) as workbench:
        if run.kind == LESSONS:
            shape = run.read_section("shape", LabModelSettings)
            _begin(workbench, shape, run.folder, run.report_progress)
        else:
            _try_tools(workbench, run.folder)
            _prompt(workbench, run.folder)


def _begin(workbench: ToolWorkbench, shape: LabModelSettings, folder: Path, progress) -> None:
    """Teach the orchestrator, and keep the office tasks that the strongest model solves now and then.

    Which model that is was measured (`task_solvers`) and stands in solvers.json and in the statistics: one of
    `tools.solvers`, at laptop the lab model lab-agent, else an endpoint that is named there; the start where none is.

    shape: settings of the base, for its optimisers.
    """
    settings = workbench.settings
    corpus = episode_specs.write_office_corpus("train", settings.offices, 0)
    base = Path(workbench.context.models) / settings.base
    lessons, offers = settings.warm, select_training_offers(workbench.offers, settings)
    traces = warm.make_traces(
        lessons.items,
        offers,
        settings.spread,
        lessons.preference_bias,
        corpus.tasks,
        lessons.seed,
    )
    corl_warm.train_on_dialogues(
        base, shape, lessons, traces, folder / "model", lambda x: progress(0.9 * x)
    )
    generator = workbench.make_generator(checkpoints.load(folder / "model"))
    solvers = task_solvers.make_prompted_solvers(workbench)
    if not solvers:
        solvers[START] = partial(_solves, workbench, generator)
    rates = task_solvers.measure_solvers(solvers, corpus.tasks)
    strongest = task_solvers.choose_strongest(rates)
    kept, dropped = filter_tasks(corpus.tasks, solvers[strongest], attempts=settings.tries)
    left = Corpus(corpus.sources, tuple(kept), (*corpus.dropped, *dropped))
    left.save(folder / "offices.json")
    artifacts.write_json(folder / "solvers.json", {"used": strongest, "solved": rates})
    statistics = left.statistics().assign(solver=strongest)
    artifacts.write_parquet(folder / "statistics.parquet", statistics)
    artifacts.write_json(folder / "begun.json", {"budget": _budget(workbench, generator, kept)})


def _solves(
    workbench: ToolWorkbench, generator: LabGenerator, tasks: Sequence[Task], attempt: int
) -> list[bool]:
    """One sampled try of the start at office tasks."""
    rng = seeds.rng("toolorchestra", "tries", seed=attempt)
    asked = episode_specs.draw_assignments(
        tasks,
        workbench.offers,
        list_training_tools(workbench.settings),
        workbench.settings.spread,
        rng,
    )
    episodes = workbench.roll(
        generator, asked, TEST_SEED - 1 - attempt, workbench.settings.temperature
    )
    # A try that the infrastructure lost says nothing, so it drops no task.
    return [episode.failed or episode.correct == 1.0 for episode in episodes]


def _budget(workbench: ToolWorkbench, generator: LabGenerator, offices: Sequence[Task]) -> float:
    """Dollars that the start does not exceed in `settings.budget` of the training questions."""
    works = episode_specs.draw_mixed_tasks(BUDGET_EPISODES, "train", 10**6, offices)
    rng = seeds.rng("toolorchestra", "budget")
    asked = episode_specs.draw_assignments(
        works,
        workbench.offers,
        list_training_tools(workbench.settings),
        workbench.settings.spread,
        rng,
    )
    episodes = workbench.roll(generator, asked, TEST_SEED - 100, workbench.settings.temperature)
    costs = [
        tool_environment.compute_total_cost(episode, workbench.own)
        for episode in episodes
        if not episode.failed
    ]
    return float(np.quantile(costs, workbench.settings.budget))


def _try_tools(workbench: ToolWorkbench, folder: Path) -> None:
    """Every tool on its own on training questions, and on those of the exam."""
    settings, parts = workbench.settings, []
    rng = seeds.rng("toolorchestra", "outcomes")
    works = episode_specs.draw_tasks_evenly(settings.outcome_items, "train", 11, ())
    training = episode_specs.draw_assignments(
        works, workbench.offers, list_training_tools(settings), settings.spread, rng
    )
    for split, asked in (
        ("train", training),
        (
            "test",
            test_sets.make_test_set("test", workbench.offers, workbench.unseen_offers, settings),
        ),
    ):
        rows = tool_environment.try_single_tools(
            workbench.environment, asked, list_training_tools(settings), split
        )
        about = [
            {"group": a.kind, "difficulty": a.difficulty, "offered": " ".join(a.menu.names)}
            for a in asked
        ]
        parts.append(pd.DataFrame([{"split": split} | about[row["item"]] | row for row in rows]))
    artifacts.write_parquet(folder / "tried.parquet", pd.concat(parts, ignore_index=True))


def _prompt(workbench: ToolWorkbench, folder: Path) -> None:
    """The pilot study: an orchestrator that is only prompted, by function schemas."""
    settings = workbench.settings
    asked = test_sets.make_test_set("pilot", workbench.offers, workbench.unseen_offers, settings)
    temperature = settings.test_temperature
    episodes = prompted_baseline.roll_out_assignments(
        workbench.environment, settings.agent, asked, settings.rounds, TEST_SEED - 50, temperature
    )
    pilot = variants.make_episode_rows(episodes, list_tools(settings), OwnTokenPrice(0.0, 0.0))
    pilot = pilot.assign(style="pilot", method=AGENT, seed=0)
    artifacts.write_parquet(folder / "pilot.parquet", pilot)


# Trainings -----------------------------------------------------------------------------------------


def train_and_test(run: JobRun) -> None:
    """Trains and tests one variant under one seed, or tests the start."""
    use_one_thread()
    with _open_workbench_of(run.job, run.context) as workbench:
        OrchestratorRun(run, workbench).train_and_test()


class OrchestratorRun:
    """One orchestrator in training and in tests."""

    def __init__(self, run: JobRun, workbench: ToolWorkbench) -> None:
        """Loads the orchestrator that speaks the protocol.

        Args:
            run: The job, which builds on that of the start.
            workbench: The tools at work, with their prices.
        """
        self.run = run
        self.workbench = workbench
        self.settings = workbench.settings
        self.seed = run.seed
        self.start = run.input_folder("start")
        self.model = checkpoints.load(self.start / "model")
        self.generator = workbench.make_generator(self.model)

    def train_and_test(self) -> None:
        """Trains, runs the tests, keeps the numbers and the weights."""
        is_training = self.run.kind == TRAINING
        if is_training:
            self._train(ToolVariant.from_settings(self.run.settings["variant"]))
        tests = [{"style": name} for name in self.run.settings["exams"]]
        self.run.write_table("episodes", run_tests(tests, self._test))
        if is_training:
            checkpoints.save(self.model, self.run.folder / "model")
        remove_checkpoint(self.run.folder)

    def _test(self, style: str) -> pd.DataFrame:
        """Every assignment of a test set."""
        assignments = test_sets.make_test_set(
            style, self.workbench.offers, self.workbench.unseen_offers, self.settings
        )
        episodes = self.workbench.roll(
            self.generator, assignments, TEST_SEED + self.seed, self.settings.test_temperature
        )
        decode = self.generator.decode if style == "test" else None
        return variants.make_episode_rows(
            episodes, list_tools(self.settings), self.workbench.own, decode
        )

    def _train(self, variant: ToolVariant) -> None:
        settings = self.settings
        office_tasks = load_corpus(self.start / "offices.json").tasks
        budget = artifacts.read_json(self.start / "begun.json")["budget"]
        learn = self.run.read_section("learn", LearnSettings)
        learner = TokenPPO(self.model, learn, encode_special(PAD), settings.updates, self.seed)
        tables = TrainingTables(self.run.folder, learner)
        tools = list_tools(settings)
        groups = np.repeat(np.arange(settings.groups), settings.rollouts)  # (episodes,)

        def collect_episodes(step: int) -> UpdateData:
            # The number of the update is part of the seed of its episodes.
            update_seed = self.seed * 10**6 + step
            assignments = self._draw_assignments(variant, office_tasks, update_seed)
            episodes = self.workbench.roll(
                self.generator, assignments, update_seed, settings.temperature
            )
            return variants.make_update_data(
                variant,
                episodes,
                groups,
                tools,
                self.workbench.own,
                budget,
                settings.least_deviation,
                step,
            )

        train_controller(
            learner,
            self.generator,
            settings.updates,
            collect_episodes,
            tables,
            self.run.context.save_every,
            self.run.report_progress,
        )

    def _draw_assignments(
        self, variant: ToolVariant, offices: Sequence[Task], key: int
    ) -> list[Assignment]:
        """The assignments of one update, each as often as a group has rollouts."""
        settings = self.settings
        works = episode_specs.draw_mixed_tasks(settings.groups, "train", key + 10**5, offices)
        rng = seeds.rng("toolorchestra", "assignments", seed=key)
        spread = variant.spread or settings.spread
        drawn = episode_specs.draw_assignments(
            works, self.workbench.offers, list_training_tools(settings), spread, rng
        )
        struck = episode_specs.add_outages(drawn, settings.outages, rng)
        return [assignment for assignment in struck for _ in range(settings.rollouts)]
