"""MAESTRO: a start that errs, the reward model, the Conductor's training with its exam, and an arm of the synthetic
benchmark. Models begin as the released policy, whose weights are the same bytes everywhere."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from lib import config
from lib.conductor import (
    initial_policy,
    jobs,
    synthetic_benchmark,
    training_job,
    variants,
)
from lib.conductor import reward_model as preference
from lib.conductor.rewards import COMPONENTS
from lib.config import Params
from lib.experiment import artifacts, sweep
from lib.experiment.harness import run_job
from lib.experiment.run_context import RunContext
from lib.language_models import checkpoints
from lib.language_models.training import released_weights
from tests.golden import SmallJob

POLICY = "lab-policy"
BENCHMARK_ARM = "Anchored 100%, judge"  # the head that the training below has not: paid by what somebody verified
SEED = 1  # of the training: every stream of random numbers that it names depends on it
SHOWN = 8  # rollouts and items whose numbers are kept one by one

# All that the jobs read, so that a change to params.yaml is no change here.
SETTINGS = {
    "policy": POLICY, "seeds": 1, "jobs": 1, "categories": ["reasoning", "story", "translation"],
    "prompts": 8, "test_items": 4, "samples": 4,
    "initial_policy": {
        "items": 24, "thought_rate": 0.6, "repetition_rate": 0.2, "malformed_rate": 0.3,
        "error_rates": {
            "reasoning": {"with_thought": 0.35, "without_thought": 0.75},
            "story": {"with_thought": 0.5, "without_thought": 0.5},
            "translation": {"with_thought": 0.7, "without_thought": 0.35},
        },
        "batch": 8, "learning_rate": 2e-3},
    "grpo": {
        "epochs": 1, "prompts_per_step": 4, "generations": 4, "max_tokens": 24, "learning_rate": 2e-3,
        "temperature": 1.0, "kl": 0.1, "sync_every": 1, "sync_mixup": 0.6, "top_entropy": 0.5,
        "importance": "sequence", "scale": "group", "save_every": 1,
    },
    "head": {
        "layer": "last", "head_input": "both", "kappa": 0.5, "floor": 1e-4, "temperature": 1.0, "learning_rate": 3e-3,
        "update_interval": 1, "entropy": 0.1, "pairwise": 0.1, "joint": False, "homogeneous": False, "centred": True,
        "anchor": "none", "verified_fraction": 0.1, "verifier_error_rate": 0.0,
    },
    "rewards": {"require_thought": False, "min_length": 4, "max_length": 24},
    "preference": {
        "prompts": 16, "replies": 2, "annotator_error_rate": 0.1, "epochs": 1, "batch": 16, "learning_rate": 1e-3,
    },
    "synthetic": {
        "seeds": 2, "steps": 6, "map_seeds": 2, "categories": 4, "candidates": 4, "features": 4, "prompts": 8,
        "group": 4, "learning_rate": 0.3, "head_learning_rate": 0.02,
        "matching_agreement": 0.9, "other_agreement": 0.3, "kappas": [0.0, 1.0],
        "pairwise": 0.1,
        "map": {"other_agreement": [0.3], "noise": [0.0], "easy_fraction": [1.0]},
    },
}  # fmt: skip


def small_jobs(folder: Path) -> list[SmallJob]:
    """Every job can run by itself: the start and the reward model that others build on are made under `folder`."""
    settings = config.settings(profile="smoke", conductor=SETTINGS)
    policy = checkpoints.save(
        released_weights.unpack(POLICY, settings.lab.models[POLICY]), folder / POLICY
    )
    make_start = partial(initial_policy.run_job, policy=str(policy))
    start_jobs = {
        seed: initial_policy.make_job(settings.conductor.initial_policy, policy, seed)
        for seed in (jobs.REWARD_MODEL_SEED, SEED)
    }
    reward_job = preference.make_job(settings.conductor, policy, jobs.REWARD_MODEL_SEED)

    # Every job finds those that it builds on under their keys.
    first_jobs = [*start_jobs.values(), reward_job]
    context = replace(
        RunContext.of(settings, folder, folder, folder, workers=1),
        inputs={job.key: str(job.folder(folder / "runs")) for job in first_jobs},
    )
    make_start = partial(run_job, work=make_start, context=context)
    train_reward_model = partial(run_job, work=preference.run_job, context=context)
    train_variant = partial(run_job, work=training_job.run_job, context=context)
    starts = {seed: _finish(make_start, job, folder) for seed, job in start_jobs.items()}
    _finish(train_reward_model, reward_job, folder)
    (variant_job,) = jobs.make_jobs(settings, [variants.CONDUCTOR], policy, [SEED])
    return [
        SmallJob(start_jobs[SEED], make_start, partial(_summarize_start, policy)),
        SmallJob(
            reward_job,
            train_reward_model,
            partial(_summarize_reward_model, starts[jobs.REWARD_MODEL_SEED]),
        ),
        SmallJob(variant_job, train_variant, partial(_summarize_training, starts[SEED])),
        SmallJob(_find_benchmark_job(settings), synthetic_benchmark.run_job, _summarize_benchmark),
    ]


def _finish(work: Callable, job: sweep.Job, folder: Path) -> Path:
    """Run a job that others build on; returns the folder of its model."""
    sweep.run(work, [job], folder / "runs", workers=1)
    return job.folder(folder / "runs") / "model"


def _find_benchmark_job(settings: Params) -> sweep.Job:
    jobs = synthetic_benchmark.make_jobs(settings.conductor.synthetic, settings.conductor.head)
    (job,) = [job for job in jobs if job.settings["variant"] == BENCHMARK_ARM]
    return job


def _summarize_start(policy: Path, folder: Path, result: dict[str, float]) -> dict[str, Any]:
    return {
        "loss": result["loss"],
        "distance from the policy": _measure_distance(policy, folder / "model"),
    }


def _summarize_reward_model(
    start_model: Path, folder: Path, result: dict[str, int]
) -> dict[str, Any]:
    agreement = artifacts.read_parquet(folder / "agreement.parquet")
    scale = artifacts.read_json(folder / "model" / "scale.json")
    return {
        "pairs": result["pairs"],
        "categories": agreement["group"].tolist(),
        "correct": agreement["correct"].tolist(),
        "centre": scale["centre"],
        "spread": scale["spread"],
        "distance from the start": _measure_distance(start_model, folder / "model"),
    }


def _summarize_training(
    start_model: Path, folder: Path, result: dict[str, float]
) -> dict[str, Any]:
    items, components, rollouts = (
        artifacts.read_parquet(folder / f"{name}.parquet")
        for name in ("items", "components", "rollouts")
    )
    weights = [f"w_{name}" for name in COMPONENTS]
    first = rollouts.head(SHOWN)
    return {
        "updates": result["steps"],
        "distance from the start": _measure_distance(start_model, folder / "model"),
        # The exam.
        "scores": items["correct"].tolist(),
        "mean of the exam": items[["verified", "novel", "tokens_out", "well_formed"]]
        .mean()
        .tolist(),
        "mean of the rewards": components[list(COMPONENTS)].mean().tolist(),
        "weights on the first items": components[weights].head(2).to_numpy().tolist(),
        # The training.
        "tokens of rollouts": first["tokens_out"].tolist(),
        "emphases of rollouts": first["action"].tolist(),
        "advantages of rollouts": first["advantage"].tolist(),
        "last advantages": rollouts["advantage"].tail(SHOWN).tolist(),
        "mean of rollouts": rollouts[["correct", *COMPONENTS]].mean().tolist(),
        "mean of normalised rewards": rollouts[[f"r_{name}" for name in COMPONENTS]]
        .mean()
        .tolist(),
        "last weights": rollouts[weights].tail(1).to_numpy()[0].tolist(),
    }


def _summarize_benchmark(folder: Path, result: int) -> dict[str, Any]:
    rows = artifacts.read_parquet(folder / "rows.parquet")
    weights = [f"w_{name}" for name in COMPONENTS]
    return {
        "rows": result,
        "quality": rows["reward"].tolist(),
        "mean weights": rows[weights].mean().tolist(),
    }


def _measure_distance(before: Path, after: Path) -> float:
    """Between the weights that two models share by name, in the Euclidean norm."""
    first, second = (
        artifacts.read_tensors(model / "model.safetensors") for model in (before, after)
    )
    squares = [
        np.square(second[name].astype(float) - first[name]).sum()
        for name in first
        if name in second
    ]
    return float(np.sqrt(sum(squares)))
