"""CoRL on recorded outcomes as a job, which is run once for all lessons that read its rows.

    rows = recorded_job.run(params)

Left out: what the rows are, which is `recorded_benchmark`.
"""

from pathlib import Path

import pandas as pd

from lib.budgeted_routing import expert_outcomes, recorded_benchmark, synthetic_benchmark
from lib.config import ROOT, Params, PriceSettings, RoutingSettings
from lib.experiment import artifacts, seeds, sweep
from lib.recorded_outcomes import headroom, model_selection, tables
from lib.rl import budget_reward, losses

RUNS = ROOT / "data/runs/corl_recorded"
_ROWS = "rows.parquet"  # in the folder of the job


def run(params: Params, runs: str | Path = RUNS) -> pd.DataFrame:
    """Compute the rows of `recorded_benchmark.run`, or read them where they were computed before.

    Args:
        params: Settings, of which `routing` and `recorded.prices` are read.
        runs: Folder of the job.

    Returns:
        A row for each table, seed, budget, method and test question.
    """
    job = make_job(params)
    sweep.run(run_job, [job], runs, label="CoRL on recorded outcomes")
    return artifacts.read_parquet(job.folder(runs) / _ROWS)


def make_job(params: Params) -> sweep.Job:
    """Make the one job of the benchmark.

    Args:
        params: Settings, of which `routing` and `recorded.prices` are read.

    Returns:
        The job.
    """
    settings = params.routing
    files = {
        file_name: artifacts.sha256_file(tables.OUTCOMES_FOLDER / file_name)
        for name in settings.recorded.tables
        for file_name in tables.FILES[name]
    }
    decided_by = {
        "job": "recorded benchmark",
        "routing": settings.to_job_settings("recorded", "learn", "quantile", "high_budget_usd"),
        "prices": params.recorded.prices.model_dump(),
        "files": files,
        "versions": {
            "random streams": seeds.VERSION,
            "losses": losses.VERSION,
            "reward within a budget": budget_reward.VERSION,
            "trials of experts": expert_outcomes.VERSION,
            "synthetic benchmark of budgets": synthetic_benchmark.VERSION,
            "recorded outcomes": tables.VERSION,
            "choices": model_selection.VERSION,
            "headroom": headroom.VERSION,
            "recorded benchmark of budgets": recorded_benchmark.VERSION,
        },
    }
    return sweep.Job("recorded benchmark", decided_by)


def run_job(job: sweep.Job, folder: Path, progress: sweep.JobProgress) -> dict[str, int]:
    """Compute the rows and write them into the folder of the job.

    Args:
        job: Made by `make_job`.
        folder: Folder of the job.
        progress: Called with the fraction that is finished.

    Returns:
        The number of rows.
    """
    routing = RoutingSettings.from_job_settings(job.settings["routing"])
    prices = PriceSettings(**job.settings["prices"])
    rows = recorded_benchmark.run(routing, prices, progress)
    artifacts.write_parquet(folder / _ROWS, rows)
    return {"rows": len(rows)}
