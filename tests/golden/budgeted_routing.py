"""CoRL: a trial of experts, lessons in the protocol, a training and its tests, the tests of a start, and the synthetic
benchmark. The models are released ones, whose weights are the same bytes everywhere."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from lib import config
from lib.budgeted_routing import controller_job, jobs, synthetic_benchmark, variants
from lib.config import LLMSettings, Params, RoutingSettings
from lib.experiment import artifacts, seeds, sweep
from lib.experiment.harness import run_job
from lib.experiment.run_context import RunContext
from lib.language_models import checkpoints
from lib.language_models.training import released_weights
from lib.rl import budget_reward, losses, token_ppo
from tests.golden import SmallJob

ARM = variants.VARIANTS_BY_NAME["number"]  # whose prompts and budgets nothing else here has
SHOWN = 8  # rollouts and tests whose numbers are kept one by one
EXPERTS = {"lab-nano": "nano", "lab-mini": "mini", "lab-large": "large"}
DOLLARS = {"lab-nano": 0.0002, "lab-mini": 0.0005, "lab-large": 0.002}  # per thousand tokens

# All that the jobs read, so that a change to params.yaml is no change here.
MODEL = {
    "backend": "lab", "kwh_per_token": 0.0, "temperature": 1.0, "max_tokens": 40, "timeout": 60.0, "retries": 0,
    "concurrency": 64,
}  # fmt: skip
BASE = {"muon": 0.02, "adamw": 3e-3, "warmup": 4}
LEARN = {
    "advantages": "gae", "learning_rate": 3e-3, "value_learning_rate": 1e-2, "value": "apart", "value_weight": 0.5,
    "warmup": 1, "value_warmup": 2, "schedule": "linear", "epochs": 2, "minibatch": 8, "microbatch": 4, "clip": 0.2,
    "kl": 0.05, "gamma": 0.99, "lam": 0.95, "average": "sequence", "whiten": True, "divide": True, "max_grad_norm": 1.0,
}  # fmt: skip
SYNTHETIC = {
    "seeds": 2, "updates": 3, "batch": 24, "minibatch": 12, "epochs": 2, "learning_rate": 0.03, "kl": 1e-3,
    "hidden": 8, "queries": 10, "kinds": 3, "self_accuracy": 0.35, "specialist": 0.55, "generalist": 0.8,
    "specialist_advantage": 0.35, "accuracy_noise": 0.05, "prices": [1.0, 1.5, 3.0],
    "budgets": {"low": 1.2, "medium": 3.5, "high": 1000.0}, "reply_signal_accuracy": 0.65,
    "central": {"complementarity": 0.9, "spread": 1.0, "noise": 0.3},
    "map": {"complementarity": [0.0], "spread": [1.0], "noise": [1.0]},
}  # fmt: skip
RECORDED = {
    "tables": ["gsm8k"], "items": 120, "seeds": 1, "folds": 4, "gate_seeds": 1, "ladder": 3, "updates": 2, "batch": 12,
    "minibatch": 6, "epochs": 1, "learning_rate": 1e-3, "kl": 1e-3, "hidden": 4, "feature_scale": 0.3, "eval_every": 1,
    "neighbours": [5], "inverse_penalties": [1e-2], "with_question_length": False,
}  # fmt: skip
SPLITTING = {  # of no job here
    "experts": EXPERTS, "questions": {"chain": [1, 2]}, "base": "lab-nano", "calls_by_budget": {"low": 1, "medium": 2},
    "split_share": 0.5, "warm": {"items": 8, "steps": 1, "batch": 4, "seed": 0},
}  # fmt: skip
SETTINGS = {
    "experts": EXPERTS, "ladder": {"experts": EXPERTS, "questions": {"chain": [1, 2]}}, "budget_range": [5, 160],
    "splitting": SPLITTING, "splitting_seeds": 1, "fixed_budget_seeds": 1, "test_samples": 1,
    "base": "lab-nano", "seeds": 1, "ablation_seeds": 1, "equivalence_margin": 0.03, "jobs": 1,
    "questions": {"chain": [1, 2, 3], "facts": [1]}, "rounds": 3, "turn_tokens": 40, "response_tokens": 12,
    "temperature": 1.0, "test_temperature": 0.0, "expert_temperature": 1.0, "budget_unit_usd": 1e-6,
    "quantile": 0.95, "high_budget_usd": 1000.0, "train_items": 16, "test_items": 6, "numeric_budgets": [20, 300],
    "warm": {"items": 400, "steps": 200, "batch": 16, "seed": 0}, "learn": LEARN, "batch": 16,
    "updates": {"soft": 2, "hard": 2, "number": 2}, "save_every": 1, "synthetic": SYNTHETIC,
    "recorded": RECORDED,
}  # fmt: skip


def small_jobs(folder: Path) -> list[SmallJob]:
    """Every job can run by itself: the trial and the controller that others build on are made under `folder`."""
    settings = make_settings()
    models = folder / "models"
    for name, cost_usd in DOLLARS.items():
        checkpoints.save(
            released_weights.unpack(name, config.load("smoke").lab.models[name]), models / name
        )
        artifacts.write_json(models / name / "card.json", {"dollars_per_1k_tokens": cost_usd})
    context = RunContext.of(
        settings, models, folder, folder, workers=1, save_every=settings.routing.save_every
    )

    first_jobs = jobs.make_first_jobs(settings, models)
    prepare = partial(run_job, work=controller_job.run_first_job, context=context)
    sweep.run(prepare, first_jobs, folder / "runs", workers=1)
    context = replace(
        context, inputs={job.key: str(job.folder(folder / "runs")) for job in first_jobs}
    )

    trial_job, lessons_job = first_jobs
    training_job, start_job = jobs.make_jobs(settings, [ARM], first_jobs)
    train_and_test = partial(run_job, work=controller_job.train_and_test, context=context)
    controller = lessons_job.folder(folder / "runs") / "model"
    return [
        SmallJob(trial_job, prepare, summarize_trial),
        SmallJob(lessons_job, prepare, partial(summarize_lessons, models / settings.routing.base)),
        SmallJob(training_job, train_and_test, partial(summarize_training, controller)),
        SmallJob(start_job, train_and_test, summarize_tests),
        SmallJob(make_benchmark_job(settings.routing), run_benchmark, summarize_benchmark),
    ]


def make_settings() -> Params:
    whole = config.load("smoke")
    models = {name: MODEL | {"model": word} for word, name in EXPERTS.items()}
    base = whole.lab.models[SETTINGS["base"]].model_copy(update=BASE)
    changes = {
        "routing": config.validate_settings(SETTINGS, RoutingSettings, "a golden job"),
        "llm": config.validate_settings(
            {"cassette": "off", "max_usd": 0.0, "models": models}, LLMSettings, "a golden job"
        ),
        "lab": whole.lab.model_copy(update={"models": whole.lab.models | {SETTINGS["base"]: base}}),
    }
    return whole.model_copy(update=changes)


# The synthetic benchmark is no sweep: this is one of its pieces as a job.


def make_benchmark_job(settings: RoutingSettings) -> sweep.Job:
    versions = {
        "random streams": seeds.VERSION,
        "losses": losses.VERSION,
        "reward within a budget": budget_reward.VERSION,
        "token PPO": token_ppo.VERSION,
        "synthetic benchmark of budgets": synthetic_benchmark.VERSION,
    }
    handed = settings.to_job_settings("synthetic", "learn")
    return sweep.Job(
        "synthetic benchmark",
        {"job": "synthetic benchmark", "routing": handed, "versions": versions},
    )


def run_benchmark(job: sweep.Job, folder: Path, progress) -> int:
    settings = RoutingSettings.from_job_settings(job.settings["routing"])
    rows = synthetic_benchmark.train_and_evaluate(settings, [settings.synthetic.central])
    artifacts.write_parquet(folder / "rows.parquet", rows)
    return len(rows)


# What is kept -------------------------------------------------------------------------------------


def summarize_trial(folder: Path, result: dict[str, int]) -> dict[str, Any]:
    experts, alone = (
        artifacts.read_parquet(folder / f"{name}.parquet") for name in ("experts", "alone")
    )
    by_expert = experts.groupby("method", sort=False)[["correct", "cost_usd"]].mean()
    return {
        "questions": result["questions"],
        "correct": by_expert["correct"].tolist(),
        "cost_usd": by_expert["cost_usd"].tolist(),
        "letters of replies": experts["reply"].str.len().tail(SHOWN).tolist(),
        "right alone": alone["correct"].mean(),
        "tokens alone": alone["tokens"].head(SHOWN).tolist(),
    }


def summarize_lessons(base: Path, folder: Path, result: dict[str, int]) -> dict[str, Any]:
    return {
        "steps": result["steps"],
        "distance from the base": measure_distance(base, folder / "model"),
    }


def summarize_training(controller: Path, folder: Path, result: dict[str, float]) -> dict[str, Any]:
    rollouts, learning = (
        artifacts.read_parquet(folder / f"{name}.parquet") for name in ("rollouts", "learning")
    )
    means = rollouts[
        ["correct", "within", "reward", "cost_usd", "calls", "malformed", "written"]
    ].mean()
    return {
        "distance from the controller": measure_distance(controller, folder / "model"),
        "budgets of rollouts": rollouts["condition"].head(SHOWN).tolist(),
        "tokens of rollouts": rollouts["tokens"].head(SHOWN).tolist(),
        "last rewards": rollouts["reward"].tail(SHOWN).tolist(),
        "mean of rollouts": means.tolist(),
        "learning": {
            name: learning[name].tolist() for name in ("loss", "kl", "clipped", "value_error")
        },
        "tests": summarize_tests(folder, result),
    }


def summarize_tests(folder: Path, result: dict[str, float]) -> dict[str, Any]:
    episodes = artifacts.read_parquet(folder / "episodes.parquet")
    by_test = episodes.groupby(["style", "temperature", "condition"], sort=False)
    return {
        "episodes": len(episodes),
        "reward": by_test["reward"].mean().tolist(),
        "cost_usd": by_test["cost_usd"].mean().tolist(),
        "budgets": by_test["budget"].first().tolist(),
        "tokens": episodes["tokens"].tail(SHOWN).tolist(),
        "letters": episodes["spoken"].str.len().tail(SHOWN).tolist(),
    }


def summarize_benchmark(folder: Path, result: int) -> dict[str, Any]:
    rows = artifacts.read_parquet(folder / "rows.parquet")
    by_arm = rows.groupby(["method", "temperature"], sort=False)
    columns = ("reward", "cost_usd", "mean_calls")
    return {"rows": result} | {name: by_arm[name].mean().tolist() for name in columns}


def measure_distance(before: Path, after: Path) -> float:
    """Between the weights of two models, in the Euclidean norm."""
    first, second = (
        artifacts.read_tensors(model / "model.safetensors") for model in (before, after)
    )
    squares = [np.square(second[name].astype(float) - first[name]).sum() for name in first]
    return float(np.sqrt(sum(squares)))
