"""ToolOrchestra: lessons and office tasks, a trial of tools, a training and its exams, and the synthetic benchmark.
The models are released ones, whose weights are the same bytes everywhere."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from lib import config
from lib.config import LLMSettings, Params, ToolSettings
from lib.experiment import artifacts, sweep
from lib.experiment.harness import run_job
from lib.experiment.run_context import RunContext
from lib.language_models import checkpoints
from lib.language_models.training import released_weights
from lib.tool_orchestration import experiment, synthetic_benchmark, variants
from tests.golden import SmallJob
from tests.golden.budgeted_routing import LEARN, MODEL, measure_distance

ARM = variants.NAMED["paper"]  # which sits every exam
SHOWN = 8  # rollouts and episodes whose numbers are kept one by one
BASE, AGENT = "lab-caller", "lab-agent"
TOOLS = {
    "lab-nano": "nano",
    "lab-mini": "mini",
    "reasoner": "control",
}  # as the orchestrator calls them
FILES = {
    "nano": "lab-nano",
    "mini": "lab-mini",
    "control": "lab-control",
    "agent": AGENT,
}  # by name in llm.models
# Of a card: dollars per thousand tokens, tokens per second, and up to which difficulty it is good at chains.
CARDS = {
    "lab-nano": (0.001, 1500.0, 2), "lab-mini": (0.002, 1200.0, 4), "lab-control": (0.003, 1000.0, 8),
    BASE: (0.0005, 1400.0, 0), AGENT: (0.004, 800.0, 5),
}  # fmt: skip

# All that the jobs read, so that a change to params.yaml is no change here.
OPTIMISERS = {"muon": 0.02, "adamw": 3e-3, "warmup": 4}
PRICES = {
    "calls": {
        "calculator": {"cost_usd": 1e-6, "seconds": 0.004}, "search": {"cost_usd": 8e-6, "seconds": 0.05},
        "lookup": {"cost_usd": 4e-6, "seconds": 0.01}, "python": {"cost_usd": 6e-6, "seconds": 0.1},
        "office": {"cost_usd": 2e-6, "seconds": 0.02},
    },
    "models": {
        "lab-nano": {"cost_usd": 1.0, "seconds": 1.0}, "lab-mini": {"cost_usd": 0.5, "seconds": 2.0},
        "reasoner": {"cost_usd": 1.5, "seconds": 0.5},
    },
}  # fmt: skip
UNSEEN_PRICES = {
    "calls": {
        name: {"cost_usd": 1e-5 - rate["cost_usd"], "seconds": 0.01}
        for name, rate in PRICES["calls"].items()
    },
    "models": {name: {"cost_usd": 1.0, "seconds": 1.0} for name in PRICES["models"]},
}
SYNTHETIC = {
    "seeds": 2, "updates": [1, 2], "malformed_updates": 2, "groups": 3, "rollouts": 4, "epochs": 2, "clip": 0.2,
    "learning_rate": 0.1, "menu": 3, "prices": 8.0, "spreads": [2.0, 8.0], "spread": 2.0,
    "observation_noise": 0.1, "malformed_probability": 0.2, "users": 4, "test_users": 2, "menus": 3,
    "least_deviation": 0.01,
}  # fmt: skip
LEARN_BY_GROUPS = LEARN | {"advantages": "group", "learning_rate": 3e-4}
SETTINGS = {
    "models": TOOLS, "unseen": ["reasoner"], "base": BASE, "agent": "agent", "spread": 4.0, "seeds": 1, "jobs": 1,
    "rounds": 3, "turn_tokens": 40, "response_tokens": 16, "temperature": 1.0, "test_temperature": 0.0,
    "model_temperature": 1.0, "warm": {"items": 300, "steps": 80, "batch": 16, "preference_bias": 0.5, "seed": 0},
    "offices": 8, "tries": 2, "groups": 6, "rollouts": 4, "updates": 2, "outages": 0.5, "least_deviation": 0.01,
    "budget": 0.5, "learn": LEARN_BY_GROUPS, "save_every": 1, "outcome_items": 12, "test_items": 12, "side": 2,
    "synthetic": SYNTHETIC,
}  # fmt: skip


def small_jobs(folder: Path) -> list[SmallJob]:
    """Every job can run by itself: the start that the training builds on is made under `folder`."""
    settings = make_settings(folder)
    models = folder / "models"
    for name, (cost_usd, tokens_per_second, reach) in CARDS.items():
        checkpoints.save(
            released_weights.unpack(name, config.load("smoke").lab.models[name]), models / name
        )
        artifacts.write_json(
            models / name / "card.json", make_card(cost_usd, tokens_per_second, reach)
        )
    context = RunContext.of(
        settings, models, folder, folder, workers=1, save_every=settings.tools.save_every
    )

    lessons_job, trial_job = first_jobs = experiment.make_first_jobs(settings, models)
    prepare = partial(run_job, work=experiment.prepare, context=context)
    sweep.run(prepare, [lessons_job], folder / "runs", workers=1)
    start = lessons_job.folder(folder / "runs")
    context = replace(context, inputs={lessons_job.key: str(start)})

    training_job, _ = experiment.make_jobs(settings, [ARM], first_jobs)
    train_and_test = partial(run_job, work=experiment.train_and_test, context=context)
    return [
        SmallJob(lessons_job, prepare, partial(summarize_lessons, models / BASE)),
        SmallJob(trial_job, prepare, summarize_trial),
        SmallJob(training_job, train_and_test, partial(summarize_training, start / "model")),
        *(
            SmallJob(job, synthetic_benchmark.work, summarize_benchmark)
            for job in synthetic_benchmark.make_jobs(settings.tools.synthetic)
        ),
    ]


def make_settings(folder: Path) -> Params:
    """Settings of which nothing but the sizes of released models comes from params.yaml.

    folder: for the price lists.
    """
    whole = config.load("smoke")
    paths = {
        "prices": str(folder / "prices.yaml"),
        "unseen_prices": str(folder / "unseen_prices.yaml"),
    }
    artifacts.write_json(paths["prices"], PRICES)  # JSON is YAML
    artifacts.write_json(paths["unseen_prices"], UNSEEN_PRICES)
    models = {name: MODEL | {"model": file} for name, file in FILES.items()}
    base = whole.lab.models[BASE].model_copy(update=OPTIMISERS)
    changes = {
        "tools": config.validate_settings(
            SETTINGS | paths | {"lab_world": whole.tools.lab_world.model_dump()},
            ToolSettings,
            "a golden job",
        ),
        "llm": config.validate_settings(
            {"cassette": "off", "max_usd": 0.0, "models": models}, LLMSettings, "a golden job"
        ),
        "lab": whole.lab.model_copy(update={"models": whole.lab.models | {BASE: base}}),
    }
    return whole.model_copy(update=changes)


def make_card(cost_usd: float, tokens_per_second: float, reach: int) -> dict[str, Any]:
    """A card of a model that does chains up to a difficulty, and nothing else."""
    accuracy = [
        {
            "category": "chain",
            "skin": "plain",
            "difficulty": difficulty,
            "accuracy": float(difficulty <= reach),
        }
        for difficulty in range(1, 9)
    ]
    return {
        "dollars_per_1k_tokens": cost_usd,
        "tokens_per_second": tokens_per_second,
        "accuracy": accuracy,
    }


# What is kept -------------------------------------------------------------------------------------


def summarize_lessons(base: Path, folder: Path, result: None) -> dict[str, Any]:
    offices = artifacts.read_json(folder / "offices.json")
    statistics = artifacts.read_parquet(folder / "statistics.parquet")
    return {
        "distance from the base": measure_distance(base, folder / "model"),
        "budget": artifacts.read_json(folder / "begun.json")["budget"],
        "office tasks": len(offices["tasks"]),
        "statistics": statistics.select_dtypes("number").sum().tolist(),
    }


def summarize_trial(folder: Path, result: None) -> dict[str, Any]:
    tried, pilot = (
        artifacts.read_parquet(folder / f"{name}.parquet") for name in ("tried", "pilot")
    )
    by_tool = tried.groupby("tool", sort=False)[["correct", "cost_usd", "seconds"]].mean()
    return {
        "tools": by_tool.index.tolist(),
        "correct": by_tool["correct"].tolist(),
        "cost_usd": by_tool["cost_usd"].tolist(),
        "seconds": by_tool["seconds"].tolist(),
        "pilot": pilot[["correct", "cost_usd", "seconds", "calls", "malformed"]].mean().tolist(),
        "called in the pilot": pilot["chosen"].head(SHOWN).tolist(),
    }


def summarize_training(start: Path, folder: Path, result: None) -> dict[str, Any]:
    rollouts, learning, episodes = (
        artifacts.read_parquet(folder / f"{name}.parquet")
        for name in ("rollouts", "learning", "episodes")
    )
    by_exam = episodes.groupby("style", sort=False)
    columns = ["correct", "cost_usd", "seconds", "calls", "malformed"]
    return {
        "distance from the start": measure_distance(start, folder / "model"),
        "rewards of rollouts": rollouts["reward"].tolist(),
        "mean of rollouts": rollouts[columns].mean().tolist(),
        "called in rollouts": rollouts["chosen"].head(SHOWN).tolist(),
        "kept": learning[["kept", "malformed", "unanswered", "agreeing"]].to_numpy().tolist(),
        "learning": learning[["loss", "kl", "clipped"]].to_numpy().tolist(),
        "episodes": by_exam.size().to_dict(),
        "exams": by_exam[columns].mean().to_numpy().tolist(),
        "preferences": np.stack(episodes["p"]).sum(0).tolist(),
        "letters": episodes["spoken"].dropna().str.len().head(SHOWN).tolist(),
    }


def summarize_benchmark(folder: Path, result: None) -> dict[str, Any]:
    rows = artifacts.read_parquet(folder / "rows.parquet")
    by_arm = rows.groupby(["method", "step"], sort=False)
    columns = ("correct", "cost_usd", "seconds", "reward", "regret", "malformed_probability")
    return {"rows": len(rows)} | {name: by_arm[name].mean().tolist() for name in columns}
