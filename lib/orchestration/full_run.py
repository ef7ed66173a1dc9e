"""The full run of lesson 02: every method in every world under twenty seeds of the zoo, and a pretrained model.

The twenty seeds have a folder of their own, so that the zoo of the lesson stays as it is; policies that are trained
already are not trained again. Jobs describe their policies by what trains them instead of by hashes of files, so that a
table of facts can be compared with today's settings where no policy was trained.

SmolLM2-135M-Instruct (`make pretrained`) is an optional extra: where its weights are missing, its rows are left out.
"""

from pathlib import Path

import pandas as pd

from lib.config import ROOT, Params
from lib.experiment import results_table
from lib.experiment.full_results import FullRun
from lib.experiment.sweep import Job, print_to_terminal
from lib.language_models.training import smollm_baseline
from lib.orchestration import experiment
from lib.orchestration.cost_plan import plan_contest_calls, plan_prompted_calls
from lib.orchestration.decision_models import RUNS
from lib.orchestration.jobs import make_constrained_jobs, make_jobs, make_prompted_jobs
from lib.orchestration.worlds import WORLDS
from lib.policy_zoo.recipes import DOMAINS
from lib.policy_zoo.zoo_folder import ensure_zoo

LESSON = "02_orchestration"
SYSTEM = "orchestration"
ZOO = ROOT / "data/runs/orchestration_full/zoo"
_DIGITS = 4  # decimals of results that the table of facts keeps
_RESULTS = ("reward", "correct", "d1", "d2", "d3", "progress")
# Long columns that no estimate of a full run reads: who acted at every step, and the course of mastery.
_COLUMNS_LEFT_OUT = ["chosen", "outcomes"]


def list_jobs(params: Params) -> list[Job]:
    """List every job of the full run: all methods in all worlds, and prompted models in the paper's worlds.

    Args:
        params: All settings.

    Returns:
        The jobs; no file is read.
    """
    jobs = []
    for domain, world in WORLDS:
        jobs += make_jobs(params, domain, world, zoo=None)
    for domain in DOMAINS:
        for model in params.orchestration.further_models:
            jobs += make_prompted_jobs(params, domain, model, zoo=None)
    return jobs


def list_pretrained_jobs(params: Params) -> list[Job]:
    """The jobs of the pretrained model, which are left out where its weights are missing."""
    return make_constrained_jobs(params, smollm_baseline.NAME, smollm_baseline.SHA256, zoo=None)


def make_rows(params: Params) -> pd.DataFrame:
    """Run the jobs of the full run that are not finished, and collect the episodes of all methods.

    Args:
        params: All settings.

    Returns:
        A row per method, seed and episode; the oracle in hindsight is among the methods.
    """
    zoo = ensure_zoo(params, DOMAINS, out=ZOO)
    planned = plan_contest_calls(params, WORLDS)
    prompted = params.orchestration.further_models
    planned += plan_prompted_calls(params, DOMAINS, prompted)
    finished = experiment.run_jobs(
        params, list_jobs(params), "deciding, full run", zoo, RUNS, planned
    )
    episodes = finished.read_tables("episodes", with_identity=False)

    # The oracle compares the methods of the worlds, which all play the same number of episodes.
    is_prompted = episodes["model"].isin(prompted)
    tables = [experiment.add_oracle(episodes[~is_prompted]), episodes[is_prompted]]
    tables.append(make_pretrained_rows(params, zoo))
    return thin_rows(pd.concat(tables, ignore_index=True))


def make_pretrained_rows(params: Params, zoo: Path) -> pd.DataFrame:
    """Play the episodes in which the pretrained SmolLM2-135M-Instruct decides.

    Args:
        params: All settings.
        zoo: Folder of the trained policies.

    Returns:
        A row per method and episode; an empty table where the model's weights are missing.
    """
    folder = smollm_baseline.FOLDER
    if not (folder / "config.json").is_file():
        print_to_terminal(
            f"{smollm_baseline.NAME} is not in {folder}, so its rows are left out; "
            "`make pretrained` unpacks it, then run this again"
        )
        return pd.DataFrame()
    jobs = list_pretrained_jobs(params)
    inputs = {smollm_baseline.SHA256: str(folder)}
    label = f"{smollm_baseline.NAME} deciding, full run"
    finished = experiment.run_jobs(params, jobs, label, zoo, RUNS, inputs=inputs)
    return finished.read_tables("episodes", with_identity=False)


def thin_rows(episodes: pd.DataFrame) -> pd.DataFrame:
    """The results table of the full run, without long columns and without decimals that no interval needs."""
    episodes = episodes.drop(columns=_COLUMNS_LEFT_OUT)
    results = [name for name in _RESULTS if name in episodes]
    episodes[results] = episodes[results].round(_DIGITS)
    return results_table.make_results(SYSTEM, episodes)


FULL_RUN = FullRun(
    LESSON, SYSTEM, list_jobs, make_rows, RUNS, list_optional_jobs=list_pretrained_jobs
)
