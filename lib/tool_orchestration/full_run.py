"""The full run of lesson 06: every variant of the lab world, each seed from a start of its own.

At `laptop` the lesson itself trains ToolOrchestra. At `full` ToolOrchestra has `tools.lab_world.seeds` seeds, each
control `tools.lab_world.control_seeds`. Rows of training are averaged over the episodes of an update.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from lib.config import Params
from lib.experiment.full_results import FullRun
from lib.experiment.sweep import Job
from lib.language_models import checkpoints
from lib.tool_orchestration import lab_experiment, lab_results, lab_world
from lib.tool_orchestration.lab_menus import QUESTIONS
from lib.tool_orchestration.lab_training import (
    LIST_PRICES,
    NO_PREFERENCES,
    PREFERENCES,
    SIGN_ERROR,
    LabVariant,
)

LESSON = "06_tool_orchestration"
TRAINED_IN_LESSON = (PREFERENCES,)
CONTROLS = (NO_PREFERENCES, SIGN_ERROR, LIST_PRICES)
_DECIMALS = 5  # of what was measured; more would only make the table larger
_EXACT = ("cost_usd", "own_cost_usd")  # small numbers, which are not rounded


def group_variants(params: Params) -> list[tuple[Sequence[LabVariant], int]]:
    """List the training variants of the full run with their numbers of seeds.

    Args:
        params: `tools.lab_world` has the numbers of seeds.

    Returns:
        (variants, number of seeds of each), in the order in which they are trained.
    """
    settings = params.tools.lab_world
    return [
        (TRAINED_IN_LESSON, settings.seeds),
        (CONTROLS, settings.control_seeds),
    ]


def list_jobs(params: Params) -> list[Job]:
    """List all jobs of the experiment: outcomes of tools, warm-up trainings, and trainings of the orchestrator.

    Args:
        params: All settings.

    Returns:
        The jobs.
    """
    models = Path(checkpoints.MODELS)
    first_jobs = lab_experiment.make_first_jobs(params, models)
    starts = lab_experiment.make_starts(params, models, first_jobs)
    all_jobs = [*first_jobs, *starts]
    for variants, num_seeds in group_variants(params):
        all_jobs += lab_experiment.make_jobs(params, variants, starts, num_seeds)
    return all_jobs


def make_rows(params: Params) -> pd.DataFrame:
    """Run the trainings that are not finished, and collect the results of all methods.

    Args:
        params: All settings.

    Returns:
        Rows of the results table, rounded.
    """
    tables = []
    for variants, num_seeds in group_variants(params):
        results = lab_experiment.run(params, variants, num_seeds=num_seeds)
        tables.append(lab_results.make_rows(results))
    # Groups share the start, the baselines and the gates.
    rows = pd.concat(tables, ignore_index=True)
    key = ["method", "seed", "split", "step", "style", "item"]
    return round_measurements(rows.drop_duplicates(key).reset_index(drop=True))


def round_measurements(rows: pd.DataFrame) -> pd.DataFrame:
    """Round all columns of floats to _DECIMALS, except those of small amounts (_EXACT)."""
    is_float = rows.dtypes.eq("float64")
    measured = [name for name in rows.columns[is_float] if name not in _EXACT]
    return rows.assign(**rows[measured].round(_DECIMALS))


def describe_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """Replace the hashes of model cards in a job's settings by what menus say of each tool.

    Args:
        settings: Settings of the job.

    Returns:
        Settings that are equal on all machines. A card also has measured speeds, which no job reads and which differ.
    """
    if "models" not in settings:
        return settings
    models = dict(settings["models"])
    weights = {name: hashes[0] for name, hashes in models["weights"].items()}
    tools = lab_world.read_tools_from_folders(list(weights), str(checkpoints.MODELS))
    abilities = {}
    for tool in tools:
        abilities[tool.name] = [tool.describe_ability(kind) for kind in QUESTIONS]
    return settings | {"models": models | {"weights": weights, "abilities": abilities}}


FULL_RUN = FullRun(
    LESSON, lab_results.SYSTEM, list_jobs, make_rows, lab_experiment.RUNS, describe_settings
)
