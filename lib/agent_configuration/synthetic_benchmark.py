"""ARC in a world whose every configuration is known: all 41,904 structures with what they bring by kind of question.

Every variant is trained in several worlds and compared with the best constant and the optimum, both exact. A map of
worlds says where choosing for each question pays, and after how many episodes a policy has found it.

`synthetic_environment` has the worlds, `synthetic_training` the variants and how they learn, `synthetic_evaluation`
what their choices are worth; here are the jobs.
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
    """Do the jobs that are not done yet.

    Args:
        settings: Settings of the lesson; `glass` has those of the worlds.
        runs: Folder of the jobs.

    Returns:
        Rows of the results table. Split `test`: the variants and ARC's imitations by step (episodes), the best constant
        and the optimum, each with its regret, the optimum's reward minus its own. Split `atlas`: see `map_worlds`.
    """
    jobs = make_jobs(settings)
    sweep.run(run_job, jobs, runs, settings.jobs, "a world of configurations")
    tables = [artifacts.read_parquet(job.folder(runs) / "rows.parquet") for job in jobs]
    rows = pd.concat(tables, ignore_index=True)

    key = ["seed", "item"]
    is_test = rows["split"] == "test"
    optimum = rows[rows["method"] == "optimum"].set_index(key)["reward"]
    keys = pd.MultiIndex.from_frame(rows.loc[is_test, key])
    optimum_of_row = optimum.reindex(keys).to_numpy()
    rows.loc[is_test, "regret"] = optimum_of_row - rows.loc[is_test, "reward"].to_numpy()
    return results_table.make_results(SYSTEM, rows.assign(backend="policy"))


def make_jobs(settings: ConfigurationSettings) -> list[sweep.Job]:
    """Make the jobs: the map, the enumeration, and one for each variant."""
    jobs = [
        sweep.Job("atlas", _make_settings(settings, MAP, _FIELDS[MAP], ("ppo",))),
        sweep.Job("enumerated", _make_settings(settings, ENUMERATION, _FIELDS[ENUMERATION])),
    ]
    for label, variant in VARIANTS_BY_LABEL.items():
        glass_fields = _FIELDS[TRAINING]
        sections = ("ppo",)
        if variant == ARC:  # the only one that imitates its elite
            glass_fields = (*glass_fields, *_IMITATION)
            sections = ("ppo", "sft")
        decided_by = _make_settings(settings, TRAINING, glass_fields, sections)
        jobs.append(sweep.Job(label, decided_by | {"variant": asdict(variant)}))
    return jobs


def _make_settings(
    settings: ConfigurationSettings,
    kind: str,
    glass_fields: Sequence[str],
    sections: Sequence[str] = (),
) -> dict[str, Any]:
    """Make the settings of a job, which decide its result.

    Args:
        settings: Settings of the lesson.
        kind: Kind of the job.
        glass_fields: Fields of `glass` that it reads.
        sections: Further sections of the settings that it reads.
    """
    return {
        "job": kind,
        "configuration": settings.to_job_settings("tiers", "reward", *sections),
        "glass": settings.glass.to_job_settings(*glass_fields),
        "versions": versions(kind),
    }


def versions(kind: str) -> dict[str, int]:
    """List the VERSIONs of the code that decides the result of a kind of job."""
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
    """Do one job and write its rows.

    Args:
        job: A job of any kind.
        folder: Folder of the job.
        progress: Is told the share that is done.
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
    """A world for each seed, all with the interaction and the noise of the settings."""
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
    """Train one variant in every world, and evaluate it on its way; ARC also after imitating its elite.

    Args:
        variant: What is trained.
        worlds: One for each training; the settings say after how many episodes there is an evaluation.
        report_progress: Is told the share of the episodes that is done.

    Returns:
        Rows of `ConfigurationEvaluation.make_rows`.
    """
    settings = worlds.settings
    eval_points = settings.glass.eval_points
    evaluation = ConfigurationEvaluation(worlds)
    tables = []

    def evaluate(num_episodes: int, trainings: StackedTrainings) -> None:
        """Add the rows of the policies after so many episodes, where an evaluation is due."""
        report_progress(num_episodes / eval_points[-1])
        if num_episodes in eval_points:
            tables.append(evaluation.make_rows(variant.name, trainings, num_episodes))
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
    """Measure after how many episodes ARC without a discount is better than the best constant, by kind of world.

    Args:
        settings: `glass` has the interactions, noises and seeds of the worlds.
        report_progress: Is told the share of the episodes that is done.

    Returns:
        A row for each interaction, noise and seed, with gap (optimum minus constant), episodes (the first evaluation
        from which on the policy is above the constant; the last one where it never is), and passed (1 where it is).
    """
    glass = settings.glass
    knobs = []
    worlds = []
    for interaction in glass.interactions:
        for noise in glass.noises:
            for seed in range(glass.map_seeds):
                knobs.append((interaction, noise, seed))
                worlds.append(make_world(settings, seed, interaction, noise))
    stacked_worlds = stack_worlds(worlds)
    evaluation = ConfigurationEvaluation(stacked_worlds)
    bounds = compute_bounds(stacked_worlds)
    eval_points = []
    is_above = []

    def compare_with_constant(num_episodes: int, trainings: StackedTrainings) -> None:
        """Note which policies are better than the constant of their world after so many episodes."""
        report_progress(num_episodes / glass.map_episodes)
        if num_episodes and num_episodes % glass.map_every == 0:
            rewards_by_world = evaluation.compute_greedy_rewards(trainings).mean(1)
            eval_points.append(num_episodes)
            is_above.append(rewards_by_world > bounds.constant.mean(1))

    train(UNDISCOUNTED, stacked_worlds, glass.map_episodes, compare_with_constant)

    # Whether a policy is above at an evaluation and at all later ones, (evaluations, R)
    stays_above = np.logical_and.accumulate(np.stack(is_above)[::-1])[::-1]
    passed = stays_above.any(0)
    first_above = np.where(passed, stays_above.argmax(0), -1)
    rows = pd.DataFrame(knobs, columns=["interaction", "noise", "seed"])
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
