"""Recorded outcomes: every method on a small table of agents and on questions of two other sources, and estimates from
logs of the first table."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from lib import config
from lib.config import RecordedSettings
from lib.experiment import artifacts, sweep
from lib.experiment.harness import JobRun, run_job
from lib.experiment.run_context import RunContext
from lib.recorded_outcomes import tables
from lib.routers import experiment, logged_policies
from tests.golden import SmallJob

# All that the jobs read, so that a change to params.yaml is no change here.
SETTINGS = {
    "items": 60, "jobs": 1, "folds": 3, "seeds": 2, "updates": 100, "batch": 32, "learning_rate": 0.05,
    "neighbours": 10, "min_dev_gain": 0.01, "equivalence_margin": 0.02, "draws": 20,
    "prices": {
        "reply_tokens": 100, "per_billion": 1e-8, "exponent": 1.0,
        "routellm": {"mistralai/Mixtral-8x7B-Instruct-v0.1": 2.4e-7, "gpt-4-1106-preview": 2.47e-5},
    },
}  # fmt: skip
LOGGED = "swe-multimodal"  # the table whose job estimates from logs too


def small_jobs(folder: Path) -> list[SmallJob]:
    """A table whose dollars are recorded, one whose are assumed by size, one whose are listed."""
    settings = config.settings(profile="smoke", recorded=SETTINGS).recorded
    agents, by_size, listed = (
        experiment.make_job(settings, name) for name in (LOGGED, "gsm", "gsm8k")
    )
    versions = agents.settings["versions"] | {"estimates from logs": logged_policies.VERSION}
    agents = replace(agents, settings=agents.settings | {"versions": versions})
    context = RunContext.without_models(folder, workers=1)
    replay_table = partial(run_job, work=experiment.replay_shipped_table, context=context)
    return [
        SmallJob(agents, _replay_and_estimate, _summarize_estimates),
        SmallJob(by_size, replay_table, _summarize_table),
        SmallJob(listed, replay_table, _summarize_table),
    ]


def _replay_and_estimate(job: sweep.Job, folder: Path, progress: Callable) -> dict[str, Any]:
    context = RunContext.without_models(folder)
    result = experiment.replay_shipped_table(JobRun(job, folder, progress, context))
    settings = RecordedSettings.from_job_settings(job.settings["settings"])
    table = tables.subsample(tables.SHIPPED[job.settings["table"]](None), settings.items)
    artifacts.write_parquet(
        folder / "estimates.parquet", logged_policies.estimate_from_logs(table, settings)
    )
    return result


def _summarize_table(folder: Path, result: dict[str, Any]) -> dict[str, Any]:
    rows, budgets, aiq, gate = (
        artifacts.read_parquet(folder / f"{name}.parquet")
        for name in ("rows", "budgets", "aiq", "gate")
    )
    by_method = rows.groupby(["method", "condition"], sort=True)[["correct", "cost_usd"]].mean()
    return {
        "table": result,
        "right by arm": {
            " at ".join(method): value for method, value in by_method["correct"].items()
        },
        "dollars by arm": {
            " at ".join(method): value for method, value in by_method["cost_usd"].items()
        },
        "right by level": budgets.groupby("level", sort=True)["correct"].mean().to_dict(),
        "promised by level": budgets.groupby("level", sort=True)["promised"].mean().to_dict(),
        "budgets of items": budgets.loc[budgets["items_over_budget"].notna(), "promised"].mean(),
        "groups over budget": budgets["groups_over_budget"].mean(),
        "items over budget": budgets["items_over_budget"].mean(),
        "area above mixtures": dict(zip(aiq["method"], aiq["value"], strict=True)),
        "its lower ends": aiq["ci_low"].tolist(),
        "what could be won": dict(zip(gate["question"], gate["value"], strict=True)),
        "its lower ends by question": gate["ci_low"].tolist(),
    }


def _summarize_estimates(folder: Path, result: dict[str, Any]) -> dict[str, Any]:
    estimates = artifacts.read_parquet(folder / "estimates.parquet")
    by_estimator = estimates.groupby("estimator", sort=True)["value"].mean().to_dict()
    return _summarize_table(folder, result) | {
        "estimates": by_estimator,
        "truth": estimates["truth"].mean(),
    }
