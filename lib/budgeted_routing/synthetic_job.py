"""The synthetic benchmark of budgets as a job: whichever lesson asks first computes its rows, others read them.

    rows = synthetic_job.run(params.routing)

Left out: what is computed, which is `synthetic_benchmark`.
"""

from pathlib import Path

import pandas as pd

from lib.budgeted_routing import synthetic_benchmark
from lib.config import ROOT, RoutingSettings
from lib.experiment import artifacts, seeds, sweep
from lib.rl import budget_reward, losses, token_ppo

RUNS = ROOT / "data/runs/corl_glass"


def run(settings: RoutingSettings, runs: str | Path = RUNS) -> pd.DataFrame:
    """The rows of `synthetic_benchmark.run`, which are computed once.

    Args:
        settings: Of which `glass` and `learn` are read.
        runs: Folder of the job.
    """
    job = make_job(settings)
    sweep.run(work, [job], runs, label="the synthetic environment of budgets")
    return artifacts.read_parquet(job.folder(runs) / "rows.parquet")


def make_job(settings: RoutingSettings) -> sweep.Job:
    """The one job: its parts are threads and no jobs of their own, because they take seconds each."""
    decided_by = {
        "job": "synthetic benchmark",
        "routing": settings.to_job_settings("glass", "learn"),
        "versions": {
            "random streams": seeds.VERSION,
            "losses": losses.VERSION,
            "reward within a budget": budget_reward.VERSION,
            "token PPO": token_ppo.VERSION,
            "synthetic benchmark of budgets": synthetic_benchmark.VERSION,
        },
    }
    return sweep.Job("synthetic benchmark", decided_by)


def work(job: sweep.Job, folder: Path, progress: sweep.JobProgress) -> dict[str, int]:
    """Computes the rows, leaves them in `folder`, and returns how many there are."""
    settings = RoutingSettings.from_job_settings(job.settings["routing"])
    rows = synthetic_benchmark.run(settings, progress)
    artifacts.write_parquet(folder / "rows.parquet", rows)
    return {"rows": len(rows)}
