"""The full run of lesson 05: every variant under every seed, on the lesson's own settings.

At `laptop` the main variant has all its seeds and the others have `ablation_seeds`; at `full` all have as many.
Training rollouts are left out: a table of facts holds what was tested.
"""

from pathlib import Path

import pandas as pd

from lib.budgeted_routing import experiment, results
from lib.budgeted_routing.expert_outcomes import RUNS
from lib.config import Params
from lib.experiment import results_table
from lib.experiment.full_results import FullRun
from lib.experiment.sweep import Job
from lib.language_models import checkpoints

LESSON = "05_budgeted_routing"


def list_jobs(params: Params) -> list[Job]:
    """Every job of the experiment: trials, lessons in the protocol, trainings, tests of the start."""
    first_jobs = experiment.make_first_jobs(params, Path(checkpoints.MODELS))
    return [*first_jobs, *experiment.make_jobs(params, experiment.VARIANTS, first_jobs)]


def make_rows(params: Params) -> pd.DataFrame:
    """Trains what is not trained yet, and returns the test rows of all methods."""
    finished = experiment.run(params, label="training controllers, full run")
    return results_table.select(results.rows(finished), split="test")


FULL_RUN = FullRun(LESSON, results.SYSTEM, list_jobs, make_rows, RUNS)
