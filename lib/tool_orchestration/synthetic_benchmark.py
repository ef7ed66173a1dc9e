"""ToolOrchestra in the synthetic environment, as rows of the results table.

    rows = synthetic_benchmark.run(settings.tools)

Two jobs: in one every variant is trained and evaluated, in the other ToolOrchestra alone, for a map of how steering
grows with updates and with the ratio of prices. The environment is in `synthetic_environment`, training and evaluation
are in `synthetic_training` and `synthetic_evaluation`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import torch

from lib.config import ROOT, ToolSettings, ToolSyntheticSettings
from lib.experiment import artifacts, results_table, seeds, sweep
from lib.rl import losses
from lib.tool_orchestration import rewards, tool_menu
from lib.tool_orchestration.synthetic_environment import CONDITIONS, USUAL, make_environments
from lib.tool_orchestration.synthetic_evaluation import OPTIMUM, ToolChoiceEvaluation
from lib.tool_orchestration.synthetic_training import (
    MALFORMED_VARIANTS,
    TOOLORCHESTRA,
    VARIANTS,
    train_policies,
)

VERSION = 1  # of the synthetic benchmark of tool orchestration
SYSTEM = "toolorchestra_synthetic"  # of the results table
RUNS = ROOT / "data/runs/toolorchestra_synthetic"

# Splits of the results table, each a job, and the fields of the settings that it reads.
TEST, MAP = "test", "map"
_READ_BY_BOTH = (
    "seeds", "updates", "groups", "rollouts", "epochs", "clip", "learning_rate", "menu", "spread", "observation_noise",
    "malformed_probability", "users", "menus", "least_deviation",
)  # fmt: skip
_READ = {
    TEST: (*_READ_BY_BOTH, "malformed_updates", "prices", "test_users"),
    MAP: (*_READ_BY_BOTH, "spreads"),
}


def versions() -> dict[str, int]:
    """List the VERSIONs of the code that decides the numbers of the benchmark."""
    return {
        "random streams": seeds.VERSION,
        "losses": losses.VERSION,
        "tool menus": tool_menu.VERSION,
        "preference rewards": rewards.VERSION,
        "synthetic benchmark of tools": VERSION,
    }


def make_jobs(settings: ToolSyntheticSettings) -> list[sweep.Job]:
    """Makes one job for each split of the results table."""
    return [sweep.Job(split, _make_job_settings(split, settings)) for split in (TEST, MAP)]


def _make_job_settings(split: str, settings: ToolSyntheticSettings) -> dict[str, Any]:
    """Make the settings that identify the job of a split; a finished job with equal settings is not run again."""
    return {
        "job": "synthetic benchmark",
        "split": split,
        "synthetic": settings.to_job_settings(*_READ[split]),
        "libraries": {"torch": torch.__version__},
        "versions": versions(),
    }


def run(settings: ToolSettings, runs: str | Path = RUNS) -> pd.DataFrame:
    """Runs the jobs of the benchmark that are not finished, and reads the rows of all.

    Args:
        settings: `synthetic` has the settings of the environment; `jobs` is the number of jobs that run in parallel.
        runs: Folder of finished jobs.

    Returns:
        The results table. Split "test" has the rows of `compare_variants`, "map" those of `map_steering`. For users of
        the grid, group is the objective that they weigh beside accuracy ("cost" or "latency") and weight its weight;
        randomly drawn users have the group "user".
    """
    jobs = make_jobs(settings.synthetic)
    sweep.run(work, jobs, runs, settings.jobs, "a synthetic environment of tools")
    tables = [artifacts.read_parquet(job.folder(runs) / "rows.parquet") for job in jobs]
    rows = pd.concat(tables)
    words_of_user = rows["item"].str.split()  # "cost 0.25", or "user 3"
    rows = rows.assign(
        backend="policy", group=words_of_user.str[0], weight=words_of_user.str[1].astype(float)
    )
    return results_table.make_results(SYSTEM, rows)


def work(job: sweep.Job, folder: Path, progress: sweep.JobProgress) -> None:
    """Computes one split of the results table, and writes its rows to `rows.parquet` in the job's folder.

    Args:
        job: Its settings name the split.
        folder: Folder of the job.
        progress: Called with the share that is finished.
    """
    torch.set_num_threads(1)
    settings = ToolSyntheticSettings.from_job_settings(job.settings["synthetic"])
    split = job.settings["split"]
    compute_rows = {TEST: compare_variants, MAP: map_steering}[split]
    rows = compute_rows(settings, progress)
    artifacts.write_parquet(folder / "rows.parquet", rows.assign(split=split))


def compare_variants(settings: ToolSyntheticSettings, progress: sweep.JobProgress) -> pd.DataFrame:
    """Trains and evaluates every variant in every environment.

    ToolOrchestra is evaluated on the way as well, on usual menus; it and all others at their end in all conditions,
    but those with malformed calls on usual menus alone.

    Args:
        settings: Settings of the synthetic environment.
        progress: Called with the fraction that is done.

    Returns:
        Rows as of `ToolChoiceEvaluation.evaluate_policies`; step is the number of updates, 0 before training.
    """
    environments = make_environments(settings)
    evaluation = ToolChoiceEvaluation(environments, settings)
    variants = (*VARIANTS, *MALFORMED_VARIANTS)
    tables = []
    for index, variant in enumerate(variants):
        progress(index / len(variants))

        # After which updates there is an evaluation, and in which conditions.
        if variant.writes_malformed:
            last_step = settings.malformed_updates
            conditions_by_step = {0: (USUAL,), last_step: (USUAL,)}
        elif variant == TOOLORCHESTRA:
            last_step = settings.updates[-1]
            conditions_by_step = dict.fromkeys(settings.updates, (USUAL,))
            conditions_by_step |= {0: CONDITIONS, last_step: CONDITIONS}
        else:
            last_step = settings.updates[-1]
            conditions_by_step = {last_step: CONDITIONS}

        for step, policies in train_policies(variant, environments, settings, last_step):
            if step in conditions_by_step:
                conditions = conditions_by_step[step]
                tables.append(
                    evaluation.evaluate_policies(variant.name, policies, step, conditions)
                )
    tables.append(evaluation.evaluate_references().assign(step=settings.updates[-1]))
    return pd.concat(tables, ignore_index=True)


def map_steering(settings: ToolSyntheticSettings, progress: sweep.JobProgress) -> pd.DataFrame:
    """Trains ToolOrchestra at several ratios of prices, for how steering grows with headroom and with updates.

    Args:
        settings: Settings of the synthetic environment; `spreads` are the ratios between the highest and the lowest
            list price.
        progress: Called with the fraction that is done.

    Returns:
        Rows on usual menus by step and by `prices`, the ratio; the optimum beside them, at step 0.
    """
    tables = []
    for index, price_ratio in enumerate(settings.spreads):
        progress(index / len(settings.spreads))
        changes = {"prices": price_ratio, "test_users": 1}
        settings_at_ratio = settings.model_copy(update=changes)
        environments = make_environments(settings_at_ratio)
        evaluation = ToolChoiceEvaluation(environments, settings_at_ratio)
        training = train_policies(
            TOOLORCHESTRA, environments, settings_at_ratio, settings.updates[-1]
        )
        for step, policies in training:
            if step in settings.updates:
                rows = evaluation.evaluate_policies(TOOLORCHESTRA.name, policies, step, (USUAL,))
                tables.append(rows.assign(prices=price_ratio))
        references = evaluation.evaluate_references((USUAL,))
        optimum = references[references["method"] == OPTIMUM]
        tables.append(optimum.assign(step=0, prices=price_ratio))
    return pd.concat(tables, ignore_index=True)
