"""The full run of lesson 04: every method of MAESTRO's Tables 1 and 3, the layers of Table 4 and the losses of Table 5.

At `laptop` a lesson trains a few methods under two seeds; at `full` the methods of the primary comparison have
`conductor.seeds` seeds, the others `conductor.ablation_seeds`. Of the training rollouts the table of facts keeps those
that an estimate reads: of the Conductor and of equal weights.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from lib.conductor import experiment, initial_policy, reward_model
from lib.conductor.jobs import REWARD_MODEL_SEED, make_jobs
from lib.conductor.lesson_estimates import FIRST_STEPS
from lib.conductor.results import make_results_table
from lib.conductor.rewards import COMPONENTS
from lib.conductor.variants import (
    CONDUCTOR,
    EQUAL_WEIGHTS,
    LAYERS,
    LOSSES,
    PRIMARY,
    SECONDARY,
    TRAINED_IN_SIGHT,
    ConductorVariant,
)
from lib.config import Params
from lib.experiment.full_results import FullRun
from lib.experiment.sweep import Job
from lib.language_models import checkpoints

LESSON = "04_conductor"
SYSTEM = "conductor"
# Columns of the results table that no estimate reads.
_COLUMNS_LEFT_OUT = ("calls", "reward", "tokens_in", "malformed", "quality", "anchor", "judge")
_DECIMALS = 3  # of what was measured; more would only make the table larger


def group_variants(params: Params) -> list[tuple[Sequence[ConductorVariant], int]]:
    """List the variants of the full run in the order of their training.

    Args:
        params: All settings.

    Returns:
        Groups of variants, each with its number of seeds.
    """
    settings = params.conductor
    return [
        (TRAINED_IN_SIGHT, settings.seeds),
        (PRIMARY, settings.seeds),
        (LAYERS, settings.layer_seeds),
        (SECONDARY, settings.ablation_seeds),
        (LOSSES, settings.ablation_seeds),
    ]


def list_jobs(params: Params) -> list[Job]:
    """List every job of the experiment: initial policies, the reward model, variants.

    Args:
        params: All settings.

    Returns:
        The jobs.
    """
    settings = params.conductor
    policy = Path(checkpoints.MODELS) / settings.policy
    num_seeds = max(count for _, count in group_variants(params))
    all_jobs = []
    for seed in sorted({REWARD_MODEL_SEED, *range(num_seeds)}):
        all_jobs.append(initial_policy.make_job(settings.initial_policy, policy, seed))
    all_jobs.append(reward_model.make_job(settings, policy, REWARD_MODEL_SEED))
    for compared, count in group_variants(params)[1:]:  # the first group is part of the second
        all_jobs += make_jobs(params, compared, policy, range(count))
    return all_jobs


def make_rows(params: Params) -> pd.DataFrame:
    """Run the jobs that are not finished, and collect the results that are kept.

    Args:
        params: All settings.

    Returns:
        Tests of all methods, and training rollouts of the Conductor and of equal weights.
    """
    # First what a lesson shows, so that a run that is interrupted has it.
    first_variants, num_seeds = group_variants(params)[0]
    experiment.run(params, first_variants, training_seeds=range(num_seeds))

    tables = []
    for compared, count in group_variants(params)[1:]:
        results = experiment.run(params, compared, training_seeds=range(count))
        tables.append(make_results_table(results))
    rows = pd.concat(tables, ignore_index=True)
    is_test = rows["split"].ne("train")
    has_read_rollouts = rows["method"].isin([CONDUCTOR.label, EQUAL_WEIGHTS.label])
    rows = rows[is_test | has_read_rollouts]
    return thin_columns(rows)


def thin_columns(rows: pd.DataFrame) -> pd.DataFrame:
    """Make the results table smaller: drop texts and columns that no estimate reads, and round measurements.

    Args:
        rows: The results table.

    Returns:
        The smaller table.
    """
    texts = ("prompt", "reference", "reply")
    dropped = [name for name in (*_COLUMNS_LEFT_OUT, *texts) if name in rows]
    thinned = rows.drop(columns=dropped)
    is_float = thinned.dtypes.eq("float64") | thinned.dtypes.eq("float32")
    measured = thinned.columns[is_float].drop("correct", errors="ignore")
    thinned = thinned.assign(**thinned[measured].round(_DECIMALS).astype("float32"))

    # Raw rewards are read at the start of training alone, before policies have moved.
    is_later_rollout = thinned["split"].eq("train") & thinned["step"].ge(FIRST_STEPS)
    raw = [name for name in COMPONENTS if name in thinned]
    thinned.loc[is_later_rollout, raw] = np.nan
    return thinned


FULL_RUN = FullRun(LESSON, SYSTEM, list_jobs, make_rows, experiment.RUNS)
