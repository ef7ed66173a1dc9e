"""Orchestration over a tiny zoo without training: prompted episodes of students, who are judged, and of rooms, and two
contests: students of the paper's world, and rooms of ours."""

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
from lib.orchestration import decision_benchmark, experiment, llm_judge, prompted_experiment
from lib.orchestration.decision_context import Rational
from lib.orchestration.variants import Method
from tests.golden import SmallJob
from tests.golden.policy_zoo import EDUCATION, MINIGRID, ZOO
from tests.orchestration import zoo

MODEL = "scripted-medium"
SHOWN = 12  # choices that are kept one by one
SITUATIONS = 24  # of the fixed ones

# All that the jobs read, so that a change to params.yaml is no change here.
SCRIPTED = {
    "backend": "scripted", "price_in": 1e-8, "price_out": 1.5e-7, "kwh_per_token": 1.4e-6, "temperature": 0.7,
    "max_tokens": 1000, "omit": [],
}  # fmt: skip
ORCHESTRATION = {
    "models": [MODEL], "judge": MODEL, "episodes": 2, "jobs": 1, "memory": 3, "summarise_every": 4, "probes": 2,
    "candidates": 2, "lookahead": 2, "rollout_copies": 3, "fallback": "SO-d2", "weights": [1.0, 1.0, 2.0],
    "students": 8, "training": 4, "readers": ["rational", MODEL, "lab-orchestrator"], "decision_intervals": [3],
    "lookahead_depths": [3],
    "ceiling": {"education": {"steps": 3, "then": [1]}, "minigrid": {"steps": 3, "then": [1]}},
    "custom_environments": {"education": {"spread": 0.4}, "minigrid": {"horizon": 12, "lava": 3}, "slip": 0.1},
}  # fmt: skip


def small_jobs(folder: Path) -> list[SmallJob]:
    """Prompted episodes in both domains, and a contest in each."""
    settings = config.settings(
        profile="smoke",
        education=EDUCATION | {"horizon": 10},
        minigrid=MINIGRID | {"horizon": 10},
        zoo=ZOO | {"seeds": 1},
        llm={"models": {MODEL: SCRIPTED}},
        orchestration=ORCHESTRATION,
    )
    for domain in zoo.DOMAINS:
        zoo.write(folder / "zoo", domain, zoo.make_cards(settings, domain, episodes=4), seeds=1)
    context = RunContext.of(
        settings, folder / "zoo", folder / "runs", folder / "cassettes", workers=1
    )
    place = folder / "zoo"
    (reflecting,) = prompted_experiment.make_jobs(
        settings, "education", [Method(f"RO {MODEL}", "RO", MODEL, budget=1.0)], place
    )
    (knowing,) = prompted_experiment.make_jobs(
        settings, "minigrid", [Method(f"KO {MODEL}", "KO", MODEL)], place
    )
    (students,) = experiment.make_jobs(settings, "education", "paper", place)
    (rooms,) = experiment.make_jobs(settings, "minigrid", "ours", place)
    decide_and_judge = partial(_decide_and_judge, context=context, settings=settings)
    play_and_read = partial(_play_and_read, context=context)
    return [
        SmallJob(
            _add_versions(reflecting, {"judge": llm_judge.VERSION}),
            decide_and_judge,
            _summarize_decisions,
        ),
        SmallJob(
            knowing,
            partial(run_job, work=prompted_experiment.decide_episodes, context=context),
            _summarize_decisions,
        ),
        SmallJob(
            students,
            partial(run_job, work=experiment.play_contest, context=context),
            _summarize_contest,
        ),
        SmallJob(
            _add_versions(rooms, {"fixed situations": decision_benchmark.VERSION}),
            play_and_read,
            _summarize_readers,
        ),
    ]


def _add_versions(job: sweep.Job, versions: dict[str, int]) -> sweep.Job:
    return replace(job, settings=job.settings | {"versions": job.settings["versions"] | versions})


def _decide_and_judge(
    job: sweep.Job, folder: Path, progress: Callable, context: RunContext, settings: Params
) -> dict[str, int]:
    result = prompted_experiment.decide_episodes(JobRun(job, folder, progress, context))
    record = artifacts.read_parquet(folder / "record.parquet")

    async def ask() -> pd.DataFrame:
        async with prompted_experiment.open_lesson_models(
            context.llm, [MODEL], 1, context.runs, context.cassettes
        ) as models:
            return await llm_judge.judge(models[MODEL], record, settings.education)

    artifacts.write_parquet(folder / "judged.parquet", run_coroutine(ask()))
    return result


def _play_and_read(
    job: sweep.Job, folder: Path, progress: Callable, context: RunContext
) -> dict[str, int]:
    result = experiment.play_contest(JobRun(job, folder, progress, context))
    posed = [*decision_benchmark.load()[:SITUATIONS], *decision_benchmark.made_up(4)]
    artifacts.write_parquet(
        folder / "answers.parquet",
        decision_benchmark.answers([Rational(), decision_benchmark.UniformDecider()], posed),
    )
    return result


def _summarize_decisions(folder: Path, result: dict[str, int]) -> dict[str, Any]:
    record = artifacts.read_parquet(folder / "record.parquet")
    rewards = ["reward_0", "reward_1", "reward_2"]
    summary = {
        "episodes": result["episodes"],
        "decisions": result["decisions"],
        "choices": record["choice"].head(SHOWN).tolist(),
        "looked at": record["looked"].head(SHOWN).tolist(),
        "actions": record["action"].head(SHOWN).tolist(),
        "first reasoning": record["reasoning"].iloc[0],
        "prompt tokens": record["tokens_in"].head(SHOWN).tolist(),
        "reply tokens": record["tokens_out"].sum(),
        "cost_usd": record["cost_usd"].sum(),
        "energy": record["kwh"].sum(),
        "unusable replies": record["invalid"].sum(),
        "fallbacks": record["fallback"].sum(),
        "mean rewards": record[rewards].mean().tolist(),
    }
    if (folder / "judged.parquet").exists():
        summary["scores"] = (
            artifacts.read_parquet(folder / "judged.parquet")[list(llm_judge.CRITERIA)]
            .mean()
            .to_dict()
        )
    return summary


def _summarize_contest(folder: Path, result: dict[str, int]) -> dict[str, Any]:
    rows = experiment.hindsight(artifacts.read_parquet(folder / "episodes.parquet"))
    return {
        "rows": result["episodes"],
        "reward by arm": rows.groupby("method", sort=False)["reward"].mean().to_dict(),
        "length by arm": rows.groupby("method", sort=False)["length"].mean().to_dict(),
        "objectives": rows[["d1", "d2", "d3"]].mean().tolist(),
        "malformed": rows["malformed"].sum(),
        "decisions": rows["calls"].sum(),
        "what queries weigh": sorted(set(rows["style"])),
    }


def _summarize_readers(folder: Path, result: dict[str, int]) -> dict[str, Any]:
    answers = artifacts.read_parquet(folder / "answers.parquet").groupby("method", sort=True)
    return _summarize_contest(folder, result) | {
        "right about fixed situations": answers["correct"].mean().to_dict(),
        "lost in fixed situations": answers["reward"].mean().to_dict(),
    }
