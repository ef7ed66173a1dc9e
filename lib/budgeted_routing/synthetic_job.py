"""CoRL's synthetic benchmark as a job, which is run once for all lessons that read its rows.

    rows = synthetic_job.run(params.routing)

Left out: what the rows are, which is `synthetic_benchmark`.
"""

from pathlib import Path

import pandas as pd

from lib.budgeted_routing import synthetic_benchmark
from lib.config import ROOT, RoutingSettings
from lib.experiment import artifacts, seeds, sweep
from lib.rl import budget_reward, losses, token_ppo

RUNS = ROOT / "data/runs/corl_synthetic"
_ROWS = "rows.parquet"  # in the folder of the job


def run(settings: RoutingSettings, runs: str | Path = RUNS) -> pd.DataFrame:
    """Computes the rows of `synthetic_benchmark.run`, or reads them where they were computed before.

    Args:
        settings: Settings, of which `synthetic` and `learn` are read.
        runs: Folder of the job.

    Returns:
        Means of all methods by grid point, seed and budget.
    """
    job = make_job(settings)
    sweep.run(run_job, [job], runs, label="the synthetic environment of budgets")
    return artifacts.read_parquet(job.folder(runs) / _ROWS)


def make_job(settings: RoutingSettings) -> sweep.Job:
    """Makes the one job of the benchmark, whose parts take seconds each and run as threads.

    Args:
        settings: Settings, of which `synthetic` and `learn` decide the rows.

    Returns:
        The job.
    """
    decided_by = {
        "job": "synthetic benchmark",
        "routing": settings.to_job_settings("synthetic", "learn"),
        "versions": {
            "random streams": seeds.VERSION,
            "losses": losses.VERSION,
            "reward within a budget": budget_reward.VERSION,
            "token PPO": token_ppo.VERSION,
            "synthetic benchmark of budgets": synthetic_benchmark.VERSION,
        },
    }
    return sweep.Job("synthetic benchmark", decided_by)


def run_job(job: sweep.Job, folder: Path, progress: sweep.JobProgress) -> dict[str, int]:
    """Computes the rows and writes them into the folder of the job.

    Args:
        job: Made by `make_job`.
        folder: Folder of the job.
        progress: Called with the fraction that is finished.

    Returns:
        The number of rows.
    """
    settings = RoutingSettings.from_job_settings(job.settings["routing"])
    rows = synthetic_benchmark.run(settings, progress)
    artifacts.write_parquet(folder / _ROWS, rows)
    return {"rows": len(rows)}
