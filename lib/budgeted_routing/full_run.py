"""The full run of lesson 05: every world, variant and seed, on the lesson's own settings.

At `laptop` there are few seeds; at `full` every variant has `routing.seeds` of them. Training rollouts are left out: a
table of facts holds what was tested.
"""

from pathlib import Path

import pandas as pd

from lib.budgeted_routing import experiment, jobs, results
from lib.budgeted_routing.expert_outcomes import RUNS
from lib.budgeted_routing.worlds import VARIANTS_BY_WORLD, select_world
from lib.config import Params
from lib.experiment import results_table
from lib.experiment.full_results import FullRun
from lib.experiment.sweep import Job
from lib.language_models import checkpoints
from lib.language_models.training.model_cards import replace_card_hashes

LESSON = "05_budgeted_routing"


def list_jobs(params: Params) -> list[Job]:
    """List every job of the experiment: trials of experts, warm-up trainings, trainings by reward, and tests.

    Args:
        params: All settings.

    Returns:
        The jobs.
    """
    all_jobs = []
    for world, compared in VARIANTS_BY_WORLD.items():
        world_params = select_world(params, world)
        first_jobs = jobs.make_first_jobs(world_params, Path(checkpoints.MODELS))
        all_jobs += [*first_jobs, *jobs.make_jobs(world_params, compared, first_jobs)]
    return all_jobs


def make_rows(params: Params) -> pd.DataFrame:
    """Train what is not trained yet, and return the test rows of all methods in all worlds."""
    results_by_world = experiment.run_worlds(params)
    return results_table.select(results.make_rows(results_by_world), split="test")


FULL_RUN = FullRun(LESSON, results.SYSTEM, list_jobs, make_rows, RUNS, replace_card_hashes)
