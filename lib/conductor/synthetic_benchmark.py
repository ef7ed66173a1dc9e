"""The jobs of the synthetic environment: all methods at the central setting, some at every grid point of the map.

    rows = synthetic_benchmark.run(settings.conductor)

Left out: the environment (`synthetic_environment`), the methods (`synthetic_methods`) and the training
(`synthetic_training`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from lib.conductor import meta_policy, meta_policy_training, rewards, variants, weighting
from lib.conductor.synthetic_environment import BatchedEnvironments, RewardSetting
from lib.conductor.synthetic_methods import (
    BEST_STATIC,
    MAPPED,
    MEAN_WEIGHTS,
    SyntheticMethod,
    fix_mean_weights,
    list_constants,
    list_direct,
    list_heads,
    list_methods,
)
from lib.conductor.synthetic_training import choose_best_static, train_and_evaluate
from lib.config import ROOT, ConductorSettings, ConductorSyntheticSettings, HeadSettings
from lib.experiment import artifacts, seeds, sweep
from lib.rl import losses

VERSION = 1  # of the environments, their policies and their methods
RUNS = ROOT / "data/runs/conductor_synthetic"
_ROWS = "rows.parquet"  # in the folder of a job

# Fields of the settings that jobs are handed: of every method; of methods with a head; of the best static mix, which
# is chosen with a quarter of the seeds.
_READ_BY_ALL = (
    "steps",
    "categories",
    "candidates",
    "features",
    "prompts",
    "group",
    "learning_rate",
)
_READ_WITH_A_HEAD = ("head_learning_rate", "kappas", "pairwise")
_READ_BY_BEST_STATIC = ("seeds",)
# Of the head all but its learning rate, which is `head_learning_rate` here, and what methods differ in.
_READ_OF_THE_HEAD = (
    "kappa",
    "floor",
    "temperature",
    "update_interval",
    "entropy",
    "pairwise",
    "joint",
    "homogeneous",
    "centred",
)


def run(
    settings: ConductorSettings, workers: int | None = None, runs: str | Path = RUNS
) -> pd.DataFrame:
    """Train and evaluate every method in the synthetic environment, except where that is finished.

    Args:
        settings: Settings of lesson 04; its sections `synthetic` and `head` are read.
        workers: Number of processes; None for one per core.
        runs: Folder of the jobs.

    Returns:
        Rows of the results table `conductor_synthetic`: all methods at the central setting (style `centre`), some on
        the map (style `map`).
    """
    jobs = make_jobs(settings.synthetic, settings.head)
    sweep.run(run_job, jobs, runs, workers, "training in the synthetic environment")
    tables = [artifacts.read_parquet(job.folder(runs) / _ROWS) for job in jobs]
    return pd.concat(tables, ignore_index=True).assign(backend="synthetic")


def make_central_setting(settings: ConductorSyntheticSettings) -> RewardSetting:
    """The setting at which all methods are trained."""
    return RewardSetting(settings.matching_agreement, settings.other_agreement)


def list_map_settings(settings: ConductorSyntheticSettings) -> list[RewardSetting]:
    """List the settings of rewards on two grids.

    The agreement of the other proxies with quality varies in both, with noise in one and with the fraction of easy
    rewards in the other.

    Args:
        settings: Has the values on each axis.

    Returns:
        The grid points, each once.
    """
    matching_agreement = settings.matching_agreement
    axes = settings.map
    points = []
    for agreement in axes.other_agreement:
        for noise in axes.noise:
            points.append(RewardSetting(matching_agreement, agreement, noise))
    for agreement in axes.other_agreement:
        for easy_fraction in axes.easy_fraction:
            points.append(RewardSetting(matching_agreement, agreement, 0.0, easy_fraction))
    return list(dict.fromkeys(points))  # each once, in order


def list_versions() -> dict[str, int]:
    """The VERSIONs of the code that decides what a method reaches."""
    return {
        "random streams": seeds.VERSION,
        "losses": losses.VERSION,
        "variants": variants.VERSION,
        "rewards": rewards.VERSION,
        "weightings": weighting.VERSION,
        "head": meta_policy.VERSION,
        "learning of the head": meta_policy_training.VERSION,
        "synthetic benchmark": VERSION,
    }


def make_jobs(settings: ConductorSyntheticSettings, head: HeadSettings) -> list[sweep.Job]:
    """Make the jobs: some methods on the grids of reward settings, and all methods at the central setting.

    Args:
        settings: Settings of the environment.
        head: Settings of the Conductor.

    Returns:
        The jobs.
    """
    map_settings = list_map_settings(settings)
    central_setting = make_central_setting(settings)
    jobs = []
    for method in MAPPED:
        jobs.append(_make_job("map", method, map_settings, settings.map_seeds, settings, head))
    for method in (BEST_STATIC, MEAN_WEIGHTS, *list_methods(settings, head)):
        jobs.append(_make_job("centre", method, [central_setting], settings.seeds, settings, head))
    return jobs


def _make_job(
    style: str,
    method: str,
    reward_settings: Sequence[RewardSetting],
    num_seeds: int,
    settings: ConductorSyntheticSettings,
    head: HeadSettings,
) -> sweep.Job:
    """Describe the job that trains one method in all its environments; `run_job` does it.

    Args:
        style: `map` or `centre`, for the column of this name.
        method: Name of the method.
        reward_settings: How far the rewards agree with quality, one per environment.
        num_seeds: Seeds of each of them.
        settings: Settings of the environment.
        head: Settings of the published Conductor.

    Returns:
        The job. It is handed only the settings that its method reads, so that other changes do not repeat it.
    """
    heads = {candidate.name for candidate in list_heads(settings, head)}
    has_head = method == MEAN_WEIGHTS or method in heads
    fields = [*_READ_BY_ALL]
    if has_head:
        fields += _READ_WITH_A_HEAD
    if method == BEST_STATIC:
        fields += _READ_BY_BEST_STATIC
    decided_by = {
        "job": "synthetic benchmark",
        "style": style,
        "variant": method,
        "seeds": num_seeds,
        "reward_settings": [asdict(setting) for setting in reward_settings],
        "synthetic": settings.to_job_settings(*fields),
        "versions": list_versions(),
        "libraries": {"torch": torch.__version__},
    }
    if has_head:
        decided_by["head"] = head.to_job_settings(*_READ_OF_THE_HEAD)
    return sweep.Job(f"{style}/{method}", decided_by)


def run_job(job: sweep.Job, folder: Path, progress: sweep.JobProgress) -> int:
    """Train one method, and write its rows.

    Args:
        job: A job of `make_jobs`.
        folder: Folder of the job.
        progress: Not called; a job takes seconds.

    Returns:
        Number of rows.
    """
    torch.set_num_threads(1)
    settings = ConductorSyntheticSettings.from_job_settings(job.settings["synthetic"])
    reward_settings = [RewardSetting(**values) for values in job.settings["reward_settings"]]
    environments = BatchedEnvironments(settings, reward_settings, job.settings["seeds"])
    method = _make_method(job.settings, environments)
    rows = train_and_evaluate(environments, method).assign(style=job.settings["style"])
    artifacts.write_parquet(folder / _ROWS, rows)
    return len(rows)


def _make_method(
    job_settings: Mapping[str, Any], environments: BatchedEnvironments
) -> SyntheticMethod:
    """Make the method of a job from the job's settings alone.

    Args:
        job_settings: Settings of a job of `make_jobs`.
        environments: Environments of the job; two methods are found by training in them.

    Returns:
        The method.
    """
    name = job_settings["variant"]
    if name == BEST_STATIC:
        return choose_best_static(environments.settings, environments.reward_settings)
    if "head" not in job_settings:
        methods = [*list_constants(), *list_direct()]
        return {method.name: method for method in methods}[name]
    head = HeadSettings.from_job_settings(job_settings["head"])
    heads = {method.name: method for method in list_heads(environments.settings, head)}
    if name == MEAN_WEIGHTS:
        return fix_mean_weights(train_and_evaluate(environments, heads["Conductor"]))
    return heads[name]
