"""Orchestration over a tiny zoo without training: episodes of students and of rooms, and prompted episodes that a judge
scores."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from lib import config
from lib.config import Params
from lib.experiment import artifacts, sweep
from lib.experiment.harness import JobRun, run_job
from lib.experiment.run_context import RunContext
from lib.llm.event_loop import run_coroutine
from lib.llm.open_models import open_models
from lib.orchestration import experiment, lab_orchestrator, llm_judge
from lib.orchestration.jobs import make_jobs, make_prompted_jobs
from tests.golden import SmallJob
from tests.golden.policy_zoo import EDUCATION, MINIGRID, ZOO
from tests.orchestration import zoo

MODEL = "scripted-medium"
SHOWN = 12  # choices that are kept one by one

# All that the jobs read, so that a change to params.yaml is no change here.
SCRIPTED = {
    "backend": "scripted", "price_in": 1e-8, "price_out": 1.5e-7, "kwh_per_token": 1.4e-6, "temperature": 0.7,
    "max_tokens": 1000, "omit": [],
}  # fmt: skip
ORCHESTRATION = {
    "model": MODEL, "prompted": ["scripted-large"], "judge": MODEL, "episodes": 2, "jobs": 1,
    "memory": 3, "summary_interval": 4,
    "max_calls": 2, "lookahead": 2, "rollout_copies": 3, "fallback": "SO-d2", "weights": [1.0, 1.0, 2.0],
    "students": 6, "training": 4, "decision_intervals": [3], "lookahead_depths": [3],
    "upper_bound": {"education": {"steps": 3, "handovers": [1]}, "minigrid": {"steps": 3, "handovers": [1]}},
    "varied": {"education": {"spread": 0.4}, "minigrid": {"horizon": 12, "lava": 3}, "slip": 0.1},
}  # fmt: skip


def small_jobs(folder: Path) -> list[SmallJob]:
    """A job of all methods in each domain, students by a scripted model, rooms by the lab's; prompted episodes."""
    params = config.settings(
        profile="smoke",
        education=EDUCATION | {"horizon": 10},
        minigrid=MINIGRID | {"horizon": 10},
        zoo=ZOO | {"seeds": 1},
        llm={"models": {MODEL: SCRIPTED}},
        orchestration=ORCHESTRATION,
    )
    for domain in zoo.DOMAINS:
        zoo.write(folder / "zoo", domain, zoo.make_cards(params, domain, episodes=4), seeds=1)
    context = RunContext.of(
        params, folder / "zoo", folder / "runs", folder / "cassettes", workers=1
    )
    place = folder / "zoo"
    (students,) = make_jobs(params, "education", "paper", place)
    of_lab = params.orchestration.model_copy(update={"model": lab_orchestrator.NAME})
    with_lab = params.model_copy(update={"orchestration": of_lab})
    (rooms,) = make_jobs(with_lab, "minigrid", "varied", place)
    without = ((), ("mem_s", "mem_l"))
    (prompted,) = make_prompted_jobs(params, "education", MODEL, place, without)
    (prompted_rooms,) = make_prompted_jobs(params, "minigrid", MODEL, place)
    play = partial(run_job, work=experiment.play_job, context=context)
    play_and_judge = partial(_play_and_judge, context=context, params=params)
    return [
        SmallJob(students, play, _summarize_episode_set),
        SmallJob(rooms, play, _summarize_episode_set),
        SmallJob(
            _add_versions(prompted, {"judge": llm_judge.VERSION}),
            play_and_judge,
            _summarize_prompted,
        ),
        SmallJob(prompted_rooms, play, _summarize_prompted),
    ]


def _add_versions(job: sweep.Job, versions: dict[str, int]) -> sweep.Job:
    return replace(job, settings=job.settings | {"versions": job.settings["versions"] | versions})


def _play_and_judge(
    job: sweep.Job, folder: Path, progress: Callable, context: RunContext, params: Params
) -> dict[str, int]:
    result = experiment.play_job(JobRun(job, folder, progress, context))
    steps = artifacts.read_parquet(folder / "steps.parquet")

    async def ask() -> pd.DataFrame:
        opened = open_models(context.llm, [MODEL], "golden", context.runs, context.cassettes)
        async with opened as models:
            return await llm_judge.judge(models[MODEL], steps, params.education)

    artifacts.write_parquet(folder / "judged.parquet", run_coroutine(ask()))
    return result


def _summarize_episode_set(folder: Path, result: dict[str, int]) -> dict[str, Any]:
    rows = experiment.add_oracle(artifacts.read_parquet(folder / "episodes.parquet"))
    by_method = rows.groupby("method", sort=False)
    summary = {
        "rows": result["episodes"],
        "reward by method": by_method["reward"].mean().to_dict(),
        "length by method": by_method["length"].mean().to_dict(),
        "objectives": rows[["d1", "d2", "d3"]].mean().tolist(),
        "decisions": rows["decisions"].sum(),
        "what queries weigh": sorted(set(rows["style"])),
    }
    return summary | _sum_usage(rows)


def _summarize_prompted(folder: Path, result: dict[str, int]) -> dict[str, Any]:
    episodes = artifacts.read_parquet(folder / "episodes.parquet")
    steps = artifacts.read_parquet(folder / "steps.parquet")
    results = [name for name in ("d1", "d2", "d3", "progress") if name in episodes]
    summary = {
        "episodes": result["episodes"],
        "mean results": episodes.groupby("method", sort=False)[results].mean().to_dict("index"),
        "choices": steps["choice"].head(SHOWN).tolist(),
        "tried": steps["tried"].tail(SHOWN).tolist(),
        "actions": steps["action"].head(SHOWN).tolist(),
        "first reasoning": steps["reasoning"].iloc[0],
        "prompt tokens": steps["tokens_in"].head(SHOWN).tolist(),
        "failures": steps["failure"].value_counts().to_dict(),
    }
    if (folder / "judged.parquet").exists():
        judged = artifacts.read_parquet(folder / "judged.parquet")
        summary["scores"] = judged[list(llm_judge.CRITERIA)].mean().to_dict()
    return summary | _sum_usage(episodes)


def _sum_usage(rows: pd.DataFrame) -> dict[str, Any]:
    """What deciding took in all, and what went wrong."""
    names = ("calls", "tokens_in", "tokens_out", "cost_usd", "kwh")
    counts = ("invalid_replies", "malformed", "failures")
    return {name: rows[name].sum() for name in (*names, *counts)}
