"""ARC in a world whose every configuration is known: all 41,904 structures with what they bring by kind of question.

Every variant is trained in several worlds and compared with the best constant and the optimum, both exact. A map of
worlds says where choosing for each question pays, and after how many episodes a policy has found it.

`synthetic_environment` has the worlds, `synthetic_training` the variants and how they learn, `synthetic_evaluation`
what their choices are worth; here are the jobs.

    world    an environment drawn from one seed, whose rewards are a formula; `glass` in the settings is about worlds
    variant  one way to train: ARC, ARC with one part changed, or a flat policy
    atlas    the split of the rows that belong to the map of worlds; `test` has all other rows
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from lib.agent_configuration import (
    action_space,
    batched_policies,
    policies,
    policy_updates,
    questions,
    rewards,
)
from lib.agent_configuration.synthetic_environment import (
    ConfigurationWorlds,
    compute_bounds,
    make_world,
    stack_worlds,
)
from lib.agent_configuration.synthetic_evaluation import ConfigurationEvaluation, make_bound_rows
from lib.agent_configuration.synthetic_training import (
    ARC,
    UNDISCOUNTED,
    VARIANTS,
    StackedTrainings,
    SyntheticConfigurationVariant,
    imitate_elites,
    select_elites,
    train,
)
from lib.config import ROOT, ConfigurationGlassSettings, ConfigurationSettings
from lib.experiment import artifacts, results_table, seeds, sweep
from lib.rl import losses

VERSION = 2  # of the worlds, and how policies do in them
SYSTEM = "configuration_glass"  # of the results table
RUNS = ROOT / "data/runs/configuration_glass"
# Imitation by whether each kind of question has a threshold of its own.
IMITATIONS = {"SFT, one tau": False, "SFT, tau per kind": True}

VARIANTS_BY_LABEL = {
    variant.name.replace(",", "").replace(" ", "-").lower(): variant for variant in VARIANTS
}  # label of the job

# Kinds of jobs, and the fields of the settings `glass` that each reads.
MAP = "map of worlds"
ENUMERATION = "best constant and optimum"
TRAINING = "training and evaluation"
_CENTRAL_WORLDS = ("seeds", "interaction", "noise", "eval_points")
_POLICIES = (
    "seeds", "batch", "hidden", "observation_noise", "structure_rate", "prompt_rate", "states",
)  # fmt: skip
_IMITATION = ("sft_after", "sft_rate", "sft_prompt_rate", "sft_batch")
_FIELDS = {
    MAP: (*_POLICIES, "interactions", "noises", "map_seeds", "map_episodes", "map_every"),
    ENUMERATION: _CENTRAL_WORLDS,
    TRAINING: (*_CENTRAL_WORLDS, *_POLICIES, "num_samples"),
}


def run(settings: ConfigurationSettings, runs: str | Path = RUNS) -> pd.DataFrame:
    """Train and evaluate all variants of ARC in synthetic environments (worlds), whose optimum is known.

    Jobs that were finished before are read from their folders.

    Args:
        settings: Settings of lesson 07; their section `glass` is about the worlds.
        runs: Folder with a folder for each job.

    Returns:
        The results table, with two splits. `test` has the reward and the regret (see `add_regret`) of each variant and
        of ARC after imitation, by step (the number of training episodes), and of the best constant and the optimum.
        `atlas` has the map of worlds, see `map_worlds`.
    """
    jobs = make_jobs(settings)
    sweep.run(run_job, jobs, runs, settings.jobs, "a world of configurations")
    tables = [artifacts.read_parquet(job.folder(runs) / "rows.parquet") for job in jobs]
    rows = add_regret(pd.concat(tables, ignore_index=True))
    return results_table.make_results(SYSTEM, rows.assign(backend="policy"))


def add_regret(rows: pd.DataFrame) -> pd.DataFrame:
    """Add the regret: the reward of the optimum minus that of the row, in the same world on the same kind of question.

    Args:
        rows: Rows with split, method, seed (of the world), item (a kind of question in that world) and reward.

    Returns:
        The rows with a column regret, which is NaN outside the split `test`.
    """
    is_test = rows["split"] == "test"
    tests = rows[is_test]
    world_and_kind = ["seed", "item"]
    optimum = tests[tests["method"] == "optimum"].set_index(world_and_kind)["reward"]
    optimum_of_row = optimum.reindex(pd.MultiIndex.from_frame(tests[world_and_kind]))
    regret = rows["reward"].where(is_test)  # NaN outside the tests
    regret[is_test] = optimum_of_row.to_numpy() - tests["reward"].to_numpy()
    return rows.assign(regret=regret)


def make_jobs(settings: ConfigurationSettings) -> list[sweep.Job]:
    """Make the jobs of the synthetic benchmark.

    One job maps how the difficulty of an environment decides how many episodes a policy needs (atlas). One computes
    the best constant and the optimum by enumeration. The others train one variant each; ARC's own also imitates its
    best episodes by supervised fine-tuning (SFT).

    Args:
        settings: Settings of lesson 07; the section `glass` is about the synthetic environments.

    Returns:
        The jobs.
    """
    jobs = [
        sweep.Job("atlas", _make_settings(settings, MAP, _FIELDS[MAP], ("ppo",))),
        sweep.Job("enumerated", _make_settings(settings, ENUMERATION, _FIELDS[ENUMERATION])),
    ]
    for label, variant in VARIANTS_BY_LABEL.items():
        environment_fields = _FIELDS[TRAINING]
        training_sections = ("ppo",)
        if variant == ARC:  # the only one with supervised fine-tuning
            environment_fields = (*environment_fields, *_IMITATION)
            training_sections = ("ppo", "sft")
        decided_by = _make_settings(settings, TRAINING, environment_fields, training_sections)
        jobs.append(sweep.Job(label, decided_by | {"variant": asdict(variant)}))
    return jobs


def _make_settings(
    settings: ConfigurationSettings,
    kind: str,
    environment_fields: Sequence[str],
    sections: Sequence[str] = (),
) -> dict[str, Any]:
    """Make the settings of a job: everything that decides its result, and therefore its key.

    Args:
        settings: Settings of lesson 07.
        kind: Kind of the job: MAP, ENUMERATION or TRAINING.
        environment_fields: Fields of the section `glass` (the synthetic environments) that the job reads.
        sections: Further sections of the settings that the job reads.

    Returns:
        The kind, the settings that are read, and the VERSIONs of the code.
    """
    return {
        "job": kind,
        "configuration": settings.to_job_settings("tiers", "reward", *sections),
        "glass": settings.glass.to_job_settings(*environment_fields),
        "versions": list_versions(kind),
    }


def list_versions(kind: str) -> dict[str, int]:
    """List the VERSION constants of the code that decides the result of a kind of job.

    Args:
        kind: MAP, ENUMERATION or TRAINING.

    Returns:
        Version numbers by the name of the code.
    """
    decided_by = {
        "random streams": seeds.VERSION,
        "configuration space": action_space.VERSION,
        "kinds of questions": questions.VERSION,
        "configuration rewards": rewards.VERSION,
        "worlds of configurations": VERSION,
    }
    if kind != ENUMERATION:
        decided_by |= {
            "losses": losses.VERSION,
            "configuration policies": policies.VERSION,
            "configuration learning": policy_updates.VERSION,
            "stacked policies": batched_policies.VERSION,
        }
    return decided_by


def run_job(job: sweep.Job, folder: Path, progress: sweep.JobProgress) -> None:
    """Run one job, and write its rows to rows.parquet.

    Args:
        job: A job of any kind.
        folder: Folder of the job.
        progress: Called with the share of the job that is finished.
    """
    torch.set_num_threads(1)
    kind = job.settings["job"]
    glass = ConfigurationGlassSettings.from_job_settings(job.settings["glass"])
    settings = ConfigurationSettings.from_job_settings(job.settings["configuration"])
    settings = settings.model_copy(update={"glass": glass})
    if kind == MAP:
        rows = map_worlds(settings, progress).assign(split="atlas")
    elif kind == ENUMERATION:
        worlds = _make_central_worlds(settings)
        rows = make_bound_rows(worlds, glass.eval_points[-1]).assign(split="test")
    else:
        variant = SyntheticConfigurationVariant(**job.settings["variant"])
        worlds = _make_central_worlds(settings)
        rows = train_and_evaluate(variant, worlds, progress).assign(split="test")
    artifacts.write_parquet(folder / "rows.parquet", rows)


def _make_central_worlds(settings: ConfigurationSettings) -> ConfigurationWorlds:
    """Make one world for each seed, all with the interaction and the noise of the settings."""
    glass = settings.glass
    worlds = [
        make_world(settings, seed, glass.interaction, glass.noise) for seed in range(glass.seeds)
    ]
    return stack_worlds(worlds)


def train_and_evaluate(
    variant: SyntheticConfigurationVariant,
    worlds: ConfigurationWorlds,
    report_progress: Callable[[float], None] = lambda share: None,
) -> pd.DataFrame:
    """Train one variant in every synthetic environment, and evaluate it at several numbers of episodes.

    ARC is also evaluated after supervised fine-tuning on its best episodes (the elite).

    Args:
        variant: What is trained.
        worlds: One for each training; `glass.eval_points` of their settings says after how many episodes policies are
            evaluated, `glass.sft_after` after how many ARC imitates its elite.
        report_progress: Called with the share of the episodes that are finished.

    Returns:
        Rows of `ConfigurationEvaluation.make_rows`.
    """
    settings = worlds.settings
    eval_points = settings.glass.eval_points
    evaluation = ConfigurationEvaluation(worlds)
    tables = []

    def evaluate(num_episodes: int, trainings: StackedTrainings) -> None:
        """Evaluate the policies where this number of episodes is one of those in the settings.

        Args:
            num_episodes: Training episodes so far.
            trainings: The policies, and all of their episodes.
        """
        report_progress(num_episodes / eval_points[-1])
        if num_episodes in eval_points:
            tables.append(evaluation.make_rows(variant.name, trainings, num_episodes))

        # Imitate the elite of all episodes so far
        if variant != ARC or num_episodes not in settings.glass.sft_after:
            return
        episodes = policy_updates.concatenate_batches(trainings.batches)
        correct = np.concatenate(trainings.correct_by_batch)
        for name, is_by_kind in IMITATIONS.items():
            elites = select_elites(episodes, correct, settings.sft.share, is_by_kind)
            imitating = imitate_elites(trainings, elites, settings)
            tables.append(evaluation.make_rows(name, imitating, num_episodes, elites))

    train(variant, worlds, eval_points[-1], evaluate)
    return pd.concat(tables, ignore_index=True)


def map_worlds(
    settings: ConfigurationSettings, report_progress: Callable[[float], None] = lambda share: None
) -> pd.DataFrame:
    """Measure in each world how many episodes ARC without a discount needs to be better than the best constant.

    Args:
        settings: Settings of lesson 07; `glass` has the interactions, noises and seeds of the worlds.
        report_progress: Called with the share of the episodes that are finished.

    Returns:
        A row for each world, with its interaction, noise and seed, and
        gap: reward of the optimum minus the best constant.
        passed: 1 where the policy is above the constant at the last evaluation, otherwise 0.
        episodes: those of the first evaluation from which on it stays above; those of the last where it has not passed.
    """
    # A world for each combination of interaction, noise and seed
    glass = settings.glass
    combinations = []
    worlds = []
    for interaction in glass.interactions:
        for noise in glass.noises:
            for seed in range(glass.map_seeds):
                combinations.append((interaction, noise, seed))
                worlds.append(make_world(settings, seed, interaction, noise))
    stacked_worlds = stack_worlds(worlds)

    # Train in all worlds side by side
    evaluation = ConfigurationEvaluation(stacked_worlds)
    bounds = compute_bounds(stacked_worlds)
    eval_points = []
    is_above = []

    def compare_with_constant(num_episodes: int, trainings: StackedTrainings) -> None:
        """Compare the policies with the best constant of their world, every `map_every` episodes."""
        report_progress(num_episodes / glass.map_episodes)
        if num_episodes and num_episodes % glass.map_every == 0:
            rewards_by_world = evaluation.compute_greedy_rewards(trainings).mean(1)
            eval_points.append(num_episodes)
            is_above.append(rewards_by_world > bounds.constant.mean(1))

    train(UNDISCOUNTED, stacked_worlds, glass.map_episodes, compare_with_constant)

    # Whether a policy is above at an evaluation and at all later ones, (evaluations, worlds)
    stays_above = np.logical_and.accumulate(np.stack(is_above)[::-1])[::-1]
    passed = stays_above.any(0)
    first_above = np.where(passed, stays_above.argmax(0), -1)
    rows = pd.DataFrame(combinations, columns=["interaction", "noise", "seed"])
    return rows.assign(
        episodes=np.array(eval_points)[first_above].astype(float),
        passed=passed.astype(float),
        gap=(bounds.optimum - bounds.constant).mean(1),
        method=UNDISCOUNTED.name,
        role="paper",
        item="world " + rows["seed"].astype(str),
        condition="",
        step=results_table.AFTER,
    )
