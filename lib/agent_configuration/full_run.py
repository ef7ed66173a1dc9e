"""The full run of lesson 07: every variant, with one policy for each kind of question, on the lesson's own settings.

At `laptop` the lesson trains ARC and the flat bandit for a few hundred episodes of each kind. At `full` each policy has
`configuration.episodes` of them, ARC and its first baselines `configuration.seeds` trainings, the ablations
`configuration.ablation_seeds`. Rows of training are averaged over the episodes of an update.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from lib.agent_configuration import experiment, results
from lib.agent_configuration.jobs import (
    make_choices_job,
    make_constants_job,
    make_jobs,
    select_trainings,
)
from lib.agent_configuration.variants import VARIANTS
from lib.agent_configuration.workbench import RUNS
from lib.config import Params
from lib.experiment.full_results import FullRun
from lib.experiment.sweep import Job
from lib.language_models import checkpoints
from lib.language_models.training.model_cards import replace_card_hashes

LESSON = "07_agent_configuration"
_DECIMALS = 5  # of what was measured; more would only make the table larger
_EXACT = ("cost_usd",)  # small numbers, which are not rounded
# What no estimate reads, and what is long.
_LEFT_OUT = ["key", "prompt", "turns", "cut", "allocated", "seconds"]


def list_jobs(params: Params) -> list[Job]:
    """List every job of the experiment: searches, trainings, and the choices of all policies for the oracle."""
    models = Path(checkpoints.MODELS)
    jobs = make_jobs(params, VARIANTS, models)
    constants = make_constants_job(params, models, jobs)
    return [*jobs, constants, make_choices_job(params, models, select_trainings(jobs))]


def make_rows(params: Params) -> pd.DataFrame:
    """Train what is not trained yet, and return the rows of all methods."""
    rows = results.make_rows(experiment.run(params, VARIANTS), params)
    return round_measurements(number_items(rows))


def number_items(rows: pd.DataFrame) -> pd.DataFrame:
    """Replace questions by short names such as "hops 12", and drop long columns.

    Args:
        rows: Rows with item and group.

    Returns:
        The rows with the short names as item; equal items of a group have equal names.
    """
    names: dict[tuple[str, str], str] = {}
    short_names = []
    for group, item in zip(rows["group"], rows["item"], strict=True):
        name = names.setdefault((group, item), f"{group} {len(names)}")
        short_names.append(name)
    columns = [name for name in _LEFT_OUT if name in rows]
    return rows.drop(columns=columns).assign(item=short_names)


def round_measurements(rows: pd.DataFrame) -> pd.DataFrame:
    """Round what was measured; more decimals would only make the table larger."""
    is_number = rows.dtypes.eq("float64")
    measured = [name for name in rows.columns[is_number] if name not in _EXACT]
    return rows.assign(**rows[measured].round(_DECIMALS))


FULL_RUN = FullRun(LESSON, results.SYSTEM, list_jobs, make_rows, RUNS, replace_card_hashes)
