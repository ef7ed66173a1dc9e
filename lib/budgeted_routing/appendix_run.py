"""What the appendix of lesson 05 trains beyond the lesson, and its full run.

splitting      a world in which a query that the controller writes can pay (g of CoRL, eq. 2), beside the same training
               with the user's question passed on word for word
fixed budget   one budget in a whole training, which the prompt does not name (CoRL, Figures 4 to 7)
samples        CoRL tested as in the paper, by the mean of several samples of every answer; only in the full run
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from lib.budgeted_routing import experiment, jobs, results
from lib.budgeted_routing.experiment import BudgetedRoutingResults
from lib.budgeted_routing.expert_outcomes import RUNS
from lib.budgeted_routing.variants import FIXED_BUDGET_VARIANTS, MEAN_OF_SAMPLES, RoutingVariant
from lib.budgeted_routing.worlds import (
    COMPLEMENTARY,
    SPLITTING,
    SPLITTING_VARIANTS,
    select_world,
)
from lib.config import Params
from lib.experiment import results_table
from lib.experiment.full_results import FullRun
from lib.experiment.sweep import Job
from lib.language_models import checkpoints
from lib.language_models.training.model_cards import replace_card_hashes

LESSON = "05a_budgeted_routing_details"
FIXED_BUDGET = "fixed budget"
SAMPLES = "samples"


@dataclass(frozen=True)
class Study:
    """One experiment of the appendix.

    Attributes:
        name: What the appendix calls it.
        world: Its experts and questions (`worlds`).
        compared: The variants of CoRL that are trained.
        keeps_baselines: Whether its rows have the start and the baselines too, which other parts of the lesson lack.
    """

    name: str
    world: str
    compared: Sequence[RoutingVariant]
    keeps_baselines: bool


# Those that a reader's run trains, and those of the full run alone.
STUDIES = (
    Study(SPLITTING, SPLITTING, SPLITTING_VARIANTS, keeps_baselines=True),
    Study(FIXED_BUDGET, COMPLEMENTARY, FIXED_BUDGET_VARIANTS, keeps_baselines=False),
)
RECORDED_STUDIES = (
    *STUDIES,
    Study(SAMPLES, COMPLEMENTARY, (MEAN_OF_SAMPLES,), keeps_baselines=True),
)


def select_study(params: Params, study: Study) -> Params:
    """Select the settings of one experiment of the appendix: its experts, its questions, and its number of seeds.

    Args:
        params: All settings, as params.yaml has them.
        study: The experiment, for example that with one fixed budget; its `world` is a set of experts and questions.

    Returns:
        A copy of the settings. Fixed budgets and means of samples use the lesson's main world with fewer seeds, the
        splitting world has a number of seeds of its own.
    """
    world_params = select_world(params, study.world)
    if study.name == SPLITTING:
        return world_params
    changes = {"seeds": params.routing.fixed_budget_seeds}
    routing = world_params.routing.model_copy(update=changes)
    return world_params.model_copy(update={"routing": routing})


def run(
    params: Params, models: str | Path | None = None, runs: str | Path = RUNS
) -> dict[str, BudgetedRoutingResults]:
    """Run the experiments of STUDIES, as far as they are not done yet.

    Args:
        params: All settings.
        models: Folder of the language models; None for those of lesson 03.
        runs: Folder of the jobs, whose finished results are used again.

    Returns:
        Results by the study's name.
    """
    return {study.name: _run_study(params, study, models, runs) for study in STUDIES}


def make_study_rows(study_results: BudgetedRoutingResults, study: Study) -> pd.DataFrame:
    """Make the rows of the results table of one study.

    Args:
        study_results: Tables of its experiment.
        study: The study.

    Returns:
        Rows as `results.make_world_rows` makes them.
    """
    rows = results.make_world_rows(study_results, study.world)
    if study.keeps_baselines:
        return rows
    labels = [variant.label for variant in study.compared]
    return results_table.select(rows, method=labels)


def make_rows(results_by_study: dict[str, BudgetedRoutingResults]) -> pd.DataFrame:
    """Make the rows of the results table of STUDIES.

    Args:
        results_by_study: What `run` returns.

    Returns:
        Rows of tests and of training episodes, with the column world.
    """
    tables = [make_study_rows(results_by_study[study.name], study) for study in STUDIES]
    return pd.concat(tables, ignore_index=True)


def _run_study(
    params: Params, study: Study, models: str | Path | None, runs: str | Path
) -> BudgetedRoutingResults:
    """Run the experiment of one study, as far as it is not done yet."""
    label = f"training controllers, {study.name} ({study.world})"
    return experiment.run(select_study(params, study), study.compared, models, runs, label)


# The full run -------------------------------------------------------------------------------------


def list_jobs(params: Params) -> list[Job]:
    """List every job of the recorded studies, once each.

    Args:
        params: All settings.

    Returns:
        The jobs.
    """
    jobs_by_label = {}
    for study in RECORDED_STUDIES:
        study_params = select_study(params, study)
        first_jobs = jobs.make_first_jobs(study_params, Path(checkpoints.MODELS))
        for job in [*first_jobs, *jobs.make_jobs(study_params, study.compared, first_jobs)]:
            jobs_by_label[job.label] = job
    return list(jobs_by_label.values())


def make_full_rows(params: Params) -> pd.DataFrame:
    """Run the trainings of the recorded studies that are not finished, and collect their tests.

    Args:
        params: All settings.

    Returns:
        A row per test episode.
    """
    tables = []
    for study in RECORDED_STUDIES:
        study_results = _run_study(params, study, None, RUNS)
        rows = make_study_rows(study_results, study)
        tables.append(results_table.select(rows, split="test"))
    return pd.concat(tables, ignore_index=True)


FULL_RUN = FullRun(LESSON, results.SYSTEM, list_jobs, make_full_rows, RUNS, replace_card_hashes)
