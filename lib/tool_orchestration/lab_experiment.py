"""The experiment in the lab world: outcomes of every tool, a start for every seed, and every training from it.

Jobs of a sweep that resumes: one asks every tool on every menu of dev and test; one teaches a model to read menus; one
for each seed teaches that model the form of turns and tests this start; one for each variant and seed trains a start by
GRPO and tests it. All seeds and methods meet the same menus. Working files lie under data/runs/toolorchestra_lab.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from transformers import PreTrainedModel

from lib.config import ROOT, LabModelSettings, Params
from lib.config.budgeted_routing import LabWorldSettings
from lib.experiment import artifacts, sweep
from lib.experiment.evaluation import TEST_SEED
from lib.experiment.harness import JobRun, Stage, run_stages, use_one_thread
from lib.experiment.run_context import RunContext
from lib.experiment.training import TrainingTables, remove_checkpoint
from lib.language_models import cache_key, checkpoints
from lib.language_models.chat_template import encode_special
from lib.language_models.tokenizer import PAD
from lib.language_models.training import model_cards, muon, pretraining, training_data
from lib.language_models.training.model_folders import ensure_models
from lib.rl import (
    call_protocol,
    expert_pool,
    generators,
    losses,
    rollout,
    sft_warmup,
    token_ppo,
)
from lib.rl.controller_training import UpdateData, train_controller
from lib.rl.generators import LabGenerator
from lib.rl.token_ppo import TokenPPO
from lib.tool_orchestration import (
    format_warmup,
    lab_episodes,
    lab_menus,
    lab_tests,
    lab_training,
    lab_world,
    rewards,
    steering,
)
from lib.tool_orchestration.lab_menus import LabAssignment
from lib.tool_orchestration.lab_training import (
    ALL_LAB_VARIANTS,
    LAB_VARIANTS,
    GroupedEpisodes,
    LabVariant,
)
from lib.tool_orchestration.lab_world import LabWorld, open_lab_world
from lib.tool_orchestration.menu_baselines import MenuOutcomes

VERSION = 3  # of how orchestrators of the lab world are trained and tested
RUNS = ROOT / "data/runs/toolorchestra_lab"
CASSETTES = ROOT / "data/cassettes/06_tool_orchestration"
START = "start"  # the method: an orchestrator that knows the form of turns, before any reward
SAMPLES = 2  # of the outcomes of every tool; a choice on one is scored on the other

NUM_READING_MENUS = 96  # dev menus on which reading is measured
READING_ROUND_SEED = 1_000  # between the seeds of two rounds of teaching to read

# Kinds of jobs.
MEASURE_TOOLS = "outcomes of tools"
TEACH_READING = "reading"
TEACH_FORM = "start"
TRAIN = "training"

# Fields of the settings that a kind of job reads.
_READ_BY_TESTS = (
    "models",
    "held_out",
    "turn_tokens",
    "response_tokens",
    "temperature",
    "menus",
    "steering_menus",
)
_READ_BY_TRAINING = ("groups", "rollouts", "draws", "updates", "learn")


@dataclass(frozen=True)
class LabWorldResults:
    """The tables of the experiment; those about orchestrators have the columns method and seed.

    Attributes:
        outcomes: What every tool replies on every menu, by set of menus (dev, test); one entry for each sample.
        episodes: One episode for each test menu (`lab_tests.measure_episodes`).
        spending: Expected spending for users who care for one objective only (`steering.compute_expected_spending`).
        held_out: `lab_tests.measure_held_out_tools`.
        prices: `lab_tests.measure_unseen_prices`.
        learning: A row for each update of each training.
    """

    outcomes: dict[str, list[MenuOutcomes]]
    episodes: pd.DataFrame
    spending: pd.DataFrame
    held_out: pd.DataFrame
    prices: pd.DataFrame
    learning: pd.DataFrame


def run(
    params: Params,
    variants: Sequence[LabVariant] = LAB_VARIANTS,
    models: str | Path | None = None,
    runs: str | Path = RUNS,
    num_seeds: int | None = None,
) -> LabWorldResults:
    """Run the jobs of the experiment that are not finished, and read the tables of all.

    Args:
        params: `tools.lab_world` has the sizes of the experiment.
        variants: The kinds of training.
        models: Folder of the lab models; None for those of lesson 03, which are made where they are missing.
        runs: Folder of the jobs.
        num_seeds: Seeds of every variant and of the start; None for `tools.lab_world.seeds`.

    Returns:
        The tables of all jobs.

    Raises:
        ModelError: A model is missing in the folder.
    """
    settings = params.tools.lab_world
    models = Path(ensure_models(params.lab, models))
    checkpoints.load(models / settings.base)  # says what is wrong before any process starts
    context = RunContext.of(
        params, models, runs, CASSETTES, params.tools.jobs, save_every=settings.save_every
    )
    first_jobs = make_first_jobs(params, models)
    starts = make_starts(params, models, first_jobs, num_seeds)
    trainings = make_jobs(params, variants, starts)
    stages = [
        Stage("outcomes of tools, and reading menus", first_jobs, run_first_job),
        Stage("the form of turns", starts, teach_form),
        Stage("training in the lab world", trainings, run_training),
    ]
    finished = run_stages(stages, context)

    folder = first_jobs[0].folder(runs)
    tools = lab_world.read_tools(params.llm, settings.models, str(models))
    outcomes = {}
    for name in (lab_world.DEV_MENUS, lab_world.TEST_MENUS):
        assignments = lab_world.draw_menus(name, settings.menus, tools, settings.held_out)
        rows = artifacts.read_parquet(folder / f"{name}.parquet")
        outcomes[name] = [read_outcomes(rows, assignments, sample) for sample in range(SAMPLES)]
    return LabWorldResults(
        outcomes,
        episodes=finished.read_tables("episodes", START),
        spending=finished.read_tables("spending", START),
        held_out=finished.read_tables("held_out", START),
        prices=finished.read_tables("prices", START),
        learning=finished.read_tables("learning", START),
    )


# Jobs ----------------------------------------------------------------------------------------------


def list_versions(kind: str, params: Params) -> dict[str, int]:
    """List the VERSIONs of the code that decides the numbers of a kind of job.

    Args:
        kind: MEASURE_TOOLS, TEACH_READING, TEACH_FORM or TRAIN.
        params: Says which models are asked.

    Returns:
        The VERSION constants, each under a name that says what it is a version of.
    """
    versions = cache_key.versions(params.llm, params.tools.lab_world.models) | {
        "calls to experts": expert_pool.VERSION,
        "routing protocol": call_protocol.VERSION,
        "episodes": rollout.VERSION,
        "menus of the lab world": lab_menus.VERSION,
        "episodes of the lab world": lab_episodes.VERSION,
        "test menus": lab_world.VERSION,
        "groups": lab_training.VERSION,
        "model cards": model_cards.VERSION,
        "lab experiment": VERSION,
    }
    if kind == MEASURE_TOOLS:
        return versions
    if kind in (TEACH_READING, TEACH_FORM):
        versions |= {
            "training batches": training_data.VERSION,
            "muon": muon.VERSION,
            "training": pretraining.VERSION,
            "supervised training": sft_warmup.VERSION,
            "traces of form": format_warmup.VERSION,
        }
    if kind in (TEACH_FORM, TRAIN):
        versions |= {
            "facts in traces": format_warmup.TRACE_VERSION,
            "turns": generators.VERSION,
            "tests": lab_tests.VERSION,
            "steering": steering.VERSION,
        }
    if kind == TRAIN:
        versions |= {
            "rewards": rewards.VERSION,
            "losses": losses.VERSION,
            "token PPO": token_ppo.VERSION,
        }
    return versions


def make_first_jobs(params: Params, models: Path) -> list[sweep.Job]:
    """Make the job that asks every tool, and the one that teaches a model to read menus.

    Args:
        params: A job is handed what it reads.
        models: Folder of the lab models.

    Returns:
        The two jobs.
    """
    settings = params.tools.lab_world
    names = {name: name for name in settings.models}
    measured = {
        "job": MEASURE_TOOLS,
        "variant": None,
        "seed": 0,
        "lab_world": settings.to_job_settings("models", "held_out", "menus"),
        "order": list(settings.models),
        "models": cache_key.describe_models(params.llm, names, None, models),
        "versions": list_versions(MEASURE_TOOLS, params),
    }
    taught = {
        "job": TEACH_READING,
        "variant": None,
        "seed": 0,
        "lab_world": settings.to_job_settings("models", "held_out", "base", "reading"),
        "order": list(settings.models),
        "shape": params.lab.models[settings.base].to_job_settings(*sft_warmup.BASE_SETTINGS),
        "models": cache_key.describe_models(params.llm, names, settings.base, models),
        "versions": list_versions(TEACH_READING, params),
    }
    return [sweep.Job("tools", measured), sweep.Job("reading", taught)]


def make_starts(
    params: Params, models: Path, first_jobs: Sequence[sweep.Job], num_seeds: int | None = None
) -> list[sweep.Job]:
    """Make for each seed the job that teaches an orchestrator the form of turns, before training by rewards.

    It builds on the model that was taught to read menus.

    Args:
        params: A job is handed what it reads.
        models: Folder of the lab models.
        first_jobs: The jobs that `make_first_jobs` returns.
        num_seeds: Number of seeds; None for `tools.lab_world.seeds`.

    Returns:
        The jobs.
    """
    settings = params.tools.lab_world
    names = {name: name for name in settings.models}
    taught = {
        "job": TEACH_FORM,
        "variant": None,
        "lab_world": settings.to_job_settings(*_READ_BY_TESTS, "base", "warm"),
        "order": list(settings.models),
        "shape": params.lab.models[settings.base].to_job_settings(*sft_warmup.BASE_SETTINGS),
        "models": cache_key.describe_models(params.llm, names, settings.base, models),
        "inputs": {"reading": first_jobs[1].key},
        "versions": list_versions(TEACH_FORM, params),
    }
    num_seeds = settings.seeds if num_seeds is None else num_seeds
    return [sweep.Job(f"{START}/seed-{seed}", taught | {"seed": seed}) for seed in range(num_seeds)]


def make_jobs(
    params: Params,
    variants: Sequence[LabVariant],
    starts: Sequence[sweep.Job],
    num_seeds: int | None = None,
) -> list[sweep.Job]:
    """Make a job for each variant and seed, which builds on the start of its seed.

    Args:
        params: A job is handed what it reads.
        variants: The kinds of training.
        starts: The jobs that `make_starts` returns; their keys become part of the settings.
        num_seeds: How many trainings of each variant; None for one from each start.

    Returns:
        The jobs.
    """
    settings = params.tools.lab_world
    start_keys = [job.key for job in starts][:num_seeds]
    jobs = []
    for variant in variants:
        for seed, start_key in enumerate(start_keys):
            job_settings: dict[str, Any] = {
                "job": TRAIN,
                "variant": {"name": variant.name},
                "seed": seed,
                "lab_world": settings.to_job_settings(*_READ_BY_TESTS, *_READ_BY_TRAINING),
                "inputs": {"start": start_key},
                "versions": list_versions(TRAIN, params),
            }
            jobs.append(sweep.Job(f"{variant.name}/seed-{seed}", job_settings))
    return jobs


# Work ----------------------------------------------------------------------------------------------


def run_first_job(run: JobRun) -> None:
    """Run a job that comes before the trainings.

    The kind of the job says which: MEASURE_TOOLS calls every tool on every menu of dev and test; TEACH_READING trains
    the base model to read menus.

    Args:
        run: The job in progress.
    """
    use_one_thread()
    settings = run.read_section("lab_world", LabWorldSettings)
    with open_lab_world(run.context, settings) as world:
        if run.kind == TEACH_READING:
            _teach_reading(run, world, settings)
            return
        for name in (lab_world.DEV_MENUS, lab_world.TEST_MENUS):
            assignments = world.draw_menus(name, settings.menus)
            run.write_table(name, measure_outcomes(world, assignments))


def _teach_reading(run: JobRun, world: LabWorld, settings: LabWorldSettings) -> None:
    """Train the base model to find names on menus, in rounds, until it finds nearly all of those on dev menus.

    How fast a model of this size learns this differs by a factor of three between seeds, and a menu that is not read
    cannot be chosen from. So it is trained once, and every orchestrator starts from this model.

    Args:
        run: The job in progress.
        world: The tools, which are small language models.
        settings: Rounds, exercises and target share.
    """
    shape = run.read_section("shape", LabModelSettings)
    reading = settings.reading
    tools = world.training_tools
    dev_listings = format_warmup.make_listings(NUM_READING_MENUS, tools, reading.seed, split="dev")
    folder = Path(run.context.models) / settings.base
    for round_index in range(reading.rounds):
        seed = reading.seed + READING_ROUND_SEED * round_index
        # Short menus first, which have fewer names to confuse.
        menu_size = format_warmup.SHORT_MENU_SIZE if round_index == 0 else lab_menus.MENU_SIZE
        listings = format_warmup.make_listings(reading.items, tools, seed, menu_size)

        # round_index is bound here, as a closure would see its last value.
        def report_round(fraction: float, round_index: int = round_index) -> None:
            run.report_progress((round_index + fraction) / reading.rounds)

        folder = sft_warmup.train_on_dialogues(
            folder, shape, reading, listings, run.folder / "model", report_round, seed
        )
        share_found = format_warmup.measure_reading(checkpoints.load(folder), dev_listings)
        run.write_table("reading", pd.DataFrame([{"words_found": share_found}]))
        if share_found >= reading.target:
            return


def teach_form(run: JobRun) -> None:
    """Train the orchestrator to write well-formed turns, and test it before any training by reward.

    Args:
        run: The job in progress.
    """
    use_one_thread()
    settings = run.read_section("lab_world", LabWorldSettings)
    shape = run.read_section("shape", LabModelSettings)
    with open_lab_world(run.context, settings) as world:
        seed = settings.warm.seed + run.seed
        course = format_warmup.make_course(settings.warm, world.training_tools, seed)
        reader = run.input_folder("reading") / "model"
        sft_warmup.train_on_dialogues(
            reader,
            shape,
            settings.warm,
            course,
            run.folder / "model",
            lambda fraction: run.report_progress(0.8 * fraction),
            seed,
        )
        _test_orchestrator(run, world, settings, checkpoints.load(run.folder / "model"))


def run_training(run: JobRun) -> None:
    """Train the orchestrator that a start job left in `model`, by GRPO with a variant's reward; test and save it.

    Args:
        run: A job of `make_jobs`; its settings name the variant and the start.
    """
    use_one_thread()
    settings = run.read_section("lab_world", LabWorldSettings)
    variant = next(v for v in ALL_LAB_VARIANTS if v.name == run.settings["variant"]["name"])
    model = checkpoints.load(run.input_folder("start") / "model")
    with open_lab_world(run.context, settings) as world:
        _train(run, world, settings, variant, model)
        _test_orchestrator(run, world, settings, model)
    checkpoints.save(model, run.folder / "model")
    remove_checkpoint(run.folder)


def _train(
    run: JobRun,
    world: LabWorld,
    settings: LabWorldSettings,
    variant: LabVariant,
    model: PreTrainedModel,
) -> None:
    """Collect groups of rollouts and update the model, `settings.updates` times.

    A training that was killed continues from its checkpoint.

    Args:
        run: The job in progress.
        world: The tools, which are small language models.
        settings: Numbers of groups, rollouts and updates.
        variant: What the reward is made of.
        model: The orchestrator, which is trained.
    """
    generator = LabGenerator(model, settings.turn_tokens, settings.response_tokens)
    learner = TokenPPO(model, settings.learn, encode_special(PAD), settings.updates, run.seed)

    def collect_episodes(step: int) -> UpdateData:
        """Collect the episodes of one update.

        Args:
            step: Number of the update, which is part of the seed of its groups.

        Returns:
            Samples for the trainer, and a summary.
        """
        grouped = lab_training.collect_groups(
            generator,
            world.environment,
            world.training_tools,
            settings.groups,
            settings.rollouts,
            run.seed * 10**5 + step,
            settings.temperature,
            settings.draws,
            variant,
        )
        summary = summarize_update(grouped)
        rows = pd.DataFrame([summary | {"step": step}])
        return UpdateData(grouped.make_samples(), rows, summary)

    train_controller(
        learner,
        generator,
        settings.updates,
        collect_episodes,
        TrainingTables(run.folder, learner),
        run.context.save_every,
        run.report_progress,
    )


def summarize_update(grouped: GroupedEpisodes) -> dict[str, float]:
    """Summarize the episodes of an update.

    Args:
        grouped: All episodes that were rolled out for the update.

    Returns:
        By name: means over episodes of correct, reward, cost_usd, seconds and malformed (whether there is a malformed
        turn); groups, the number that was drawn, and differing, the number of those whose rewards differ.
    """
    episodes = grouped.episodes
    return {
        "correct": float(np.nanmean([episode.correct for episode in episodes])),
        "reward": float(np.nanmean(grouped.rewards)),
        "cost_usd": float(np.mean([episode.total_cost_usd for episode in episodes])),
        "seconds": float(np.mean([episode.total_seconds for episode in episodes])),
        "malformed": float(np.mean([episode.num_malformed > 0 for episode in episodes])),
        "groups": float(grouped.num_groups),
        "differing": float(grouped.num_differing),
    }


def _test_orchestrator(
    run: JobRun, world: LabWorld, settings: LabWorldSettings, model: PreTrainedModel
) -> None:
    """Test an orchestrator on all sets of menus, and write the tables episodes, spending, held_out and prices.

    Args:
        run: The job in progress.
        world: The tools, which are small language models.
        settings: Numbers of menus, and the temperature.
        model: The orchestrator.
    """
    generator = LabGenerator(model, settings.turn_tokens, settings.response_tokens)
    test_menus = world.draw_menus(lab_world.TEST_MENUS, settings.menus)
    steering_menus = world.draw_menus(lab_world.STEERING_MENUS, settings.steering_menus)
    episodes = lab_tests.measure_episodes(
        generator, world, test_menus, TEST_SEED + run.seed, settings.temperature
    )
    run.write_table("episodes", episodes)
    run.write_table("spending", steering.compute_expected_spending(model, steering_menus))
    run.write_table("held_out", lab_tests.measure_held_out_tools(model, world, settings.menus))
    run.write_table("prices", lab_tests.measure_unseen_prices(model, test_menus))


def measure_outcomes(world: LabWorld, assignments: Sequence[LabAssignment]) -> pd.DataFrame:
    """Call every tool on every menu, in SAMPLES independent samples of replies.

    Args:
        world: Its environment answers the calls.
        assignments: Questions with menus.

    Returns:
        A row for each sample, menu and tool: sample, item, tool (position on the menu), correct, cost_usd, seconds.
    """
    tables = []
    for sample in range(SAMPLES):
        outcomes = lab_episodes.measure_tool_outcomes(world.environment, assignments, sample)
        num_menus, num_tools = outcomes["correct"].shape
        columns = {name: values.ravel() for name, values in outcomes.items()}
        columns["item"] = np.repeat(np.arange(num_menus), num_tools)
        columns["tool"] = np.tile(np.arange(num_tools), num_menus)
        tables.append(pd.DataFrame(columns).assign(sample=sample))
    return pd.concat(tables, ignore_index=True)


def read_outcomes(
    rows: pd.DataFrame, assignments: Sequence[LabAssignment], sample: int
) -> MenuOutcomes:
    """Read one sample of tool outcomes.

    Args:
        rows: What `measure_outcomes` returned.
        assignments: n questions with menus of M tools, of which the outcomes are.
        sample: Number of the sample.

    Returns:
        The menus, with correct, cost_usd and seconds of every tool, (n, M) each.
    """
    of_sample = rows[rows["sample"] == sample]  # "sample" is a method of frames too
    arrays = [
        of_sample.pivot(index="item", columns="tool", values=name).to_numpy()
        for name in ("correct", "cost_usd", "seconds")
    ]
    return MenuOutcomes(assignments, *arrays)
