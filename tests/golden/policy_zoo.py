"""Policies: stacks of both domains and one by stable-baselines3 are trained for a few updates and evaluated; strategies
that need no training are played."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lib import config, envs, stats
from lib.config import Params
from lib.envs import make_education_rules
from lib.experiment import artifacts, seeds, sweep
from lib.policy_zoo import (
    evaluate,
    networks,
    policies,
    policy_cards,
    recipes,
    simulator_calibration,
    tour_demo,
    train,
)
from lib.policy_zoo.recipes import SINGLE
from tests.golden import SmallJob

TASK = {"education": "student", "minigrid": "composite"}
SHOWN = 12  # actions that are kept one by one

# All that the jobs read, so that a change to params.yaml is no change here.
EDUCATION = {
    "bank": "data/bank/mathe_items.csv", "topic": "Linear Algebra", "horizon": 15, "questions": 5,
    "discrimination": 4.0, "delta": 0.2, "near_delta": "at_most", "consecutive": 2, "goal": 0.8, "initial": 0.4,
    "steps_per_level": 2, "warmup": "measure", "ncc_rule": "at_or_above", "ncc_scope": "episode",
    "repeats": "not_easy", "solved": "retire", "spread": 0.2, "difficulty": "label", "answers": None,
}  # fmt: skip
SEARCHED = {  # a few combinations, those in force among them
    "steps_per_level": (1, 2),
    "near_delta": ("below", "at_most"),
    "solved": ("retire", "requeue"),
}
MINIGRID = {"horizon": 16, "lava": 2}
PPO = {
    "timesteps": 256, "num_envs": 8, "rollout": 128, "minibatch": 64, "epochs": 2, "gamma": 0.99, "gae_lambda": 0.95,
    "clip": 0.2, "learning_rate": 3e-3, "entropy": 0.02, "value": 0.5, "max_grad_norm": 0.5, "target_kl": 0.02,
}  # fmt: skip
ZOO = {
    "learner": "stacked",
    "seeds": 2,
    "jobs": 1,
    "episodes": 4,
    "education": {"single": PPO, "mgda": PPO},
    "minigrid": dict.fromkeys(("navigate", "lava", "gold", "pseudo"), PPO),
}


def small_jobs(folder: Path) -> list[SmallJob]:
    """A stack of education, MGDA, a room, a policy of stable-baselines3; and strategies without training."""
    settings = config.settings(profile="smoke", education=EDUCATION, minigrid=MINIGRID, zoo=ZOO)
    by_reference = config.settings(
        profile="smoke",
        education=EDUCATION,
        minigrid=MINIGRID,
        zoo=ZOO | {"learner": "stable-baselines3"},
    )
    jobs = [
        _find_job(settings, "education", "SO-d1"),
        _find_job(settings, "education", "MO-MGDA"),
        _find_job(settings, "minigrid", "MO-pseudoS"),
        _find_job(by_reference, "education", "MO-RM"),
    ]
    work = partial(_train_and_evaluate, settings=settings)
    return [
        *(SmallJob(_add_evaluation(job), work, _summarize_training) for job in jobs),
        _make_strategies(settings),
    ]


def _find_job(settings: Params, domain: str, name: str) -> sweep.Job:
    """The job that trains the first seed of a policy."""
    for job in train.make_jobs(settings, domain):
        names = [policy["recipe"]["name"] for policy in job.settings["policies"]]
        if name in names:
            return job
    raise KeyError(name)


def _add_evaluation(job: sweep.Job) -> sweep.Job:
    """The same job, which evaluates what it trained."""
    evaluated_by = {
        "evaluation": evaluate.VERSION,
        "policy cards": policy_cards.VERSION,
        "statistics": stats.VERSION,
    }
    return replace(
        job, settings=job.settings | {"versions": job.settings["versions"] | evaluated_by}
    )


def _train_and_evaluate(
    job: sweep.Job, folder: Path, progress: Callable, settings: Params
) -> dict[str, Any]:
    result = train.train_policies(job, folder, progress)
    zoo: dict[str, list[policies.Policy]] = {}
    for policy in job.settings["policies"]:
        name = policy["recipe"]["name"]
        zoo.setdefault(name, []).append(
            policies.load(folder / f"seed-{policy['seed']}" / f"{name}.json")
        )
    domain = job.settings["policies"][0]["recipe"]["domain"]

    # Episodes of the trained policies and of those that look at nothing.
    actors = evaluate.make_actors(zoo) | evaluate.make_baselines(domain, 1)
    steps = evaluate.evaluate(settings, actors, domain, TASK[domain])
    episodes = evaluate.summarize_episodes(steps, domain)
    if set(SINGLE) <= set(zoo):
        episodes = evaluate.add_oracle(episodes, domain)
    rows = evaluate.make_rows(episodes, domain, TASK[domain])
    growth = evaluate.measure_union_growth(rows, list(zoo))
    artifacts.write_parquet(folder / "steps.parquet", steps)
    artifacts.write_parquet(folder / "rows.parquet", rows)
    artifacts.write_parquet(folder / "growth.parquet", growth)
    for name in zoo:
        artifacts.write_json(
            folder / f"card-{name}.json", policy_cards.make_card(steps, domain, name).model_dump()
        )
    return result


def _summarize_training(folder: Path, result: dict[str, Any]) -> dict[str, Any]:
    curve, steps, rows, growth = (
        artifacts.read_parquet(folder / f"{name}.parquet")
        for name in ("curve", "steps", "rows", "growth")
    )
    trained = [policies.load(path) for path in sorted(folder.glob("seed-*/*.json"))]
    changes = [_subtract_first_weights(policy) for policy in trained]
    card = artifacts.read_json(min(folder.glob("card-*.json")))
    fronts = rows.groupby("method", sort=True)[["d1", "d2", "d3"]]
    return {
        "policies": len(result["policies"]),
        # How far the training took the heads and all parameters from their first values.
        "changes of actors": [_measure_norm(change, "action_net") for change in changes],
        "changes of critics": [_measure_norm(change, "value_net") for change in changes],
        "changes of all parameters": [_measure_norm(change, "") for change in changes],
        "norms of all parameters": [_measure_norm(policy.params, "") for policy in trained],
        "episodes of the training": len(curve),
        "mean of the training": curve[["length", "return_0", "return_1", "return_2"]]
        .mean()
        .tolist(),
        # The evaluation.
        "first actions": steps["action"].head(SHOWN).tolist(),
        "length by arm": rows.groupby("method", sort=True)["length"].mean().to_dict(),
        "reward by arm": rows.groupby("method", sort=True)["reward"].mean().to_dict(),
        "objectives": rows[["d1", "d2", "d3"]].mean().tolist(),
        "hypervolume of means": {
            method: evaluate.hv_mean(part.to_numpy()) for method, part in fronts
        },
        "hypervolume of unions": growth["value"].tolist(),
        # The card.
        "behaviour": card["behavior_hint"],
        "applicability": card["applicability"],
        "failures": card["failure_modes"],
        "snippets": card["example_snippets"],
        "normalised reward": card["normalized_reward"],
    }


def _subtract_first_weights(policy: policies.Policy) -> dict[str, np.ndarray]:
    first = networks.draw_initial_parameters(
        policy.network, "zoo", policy.domain, policy.name, seed=policy.about["seed"]
    )
    return {name: array.astype(float) - first[name] for name, array in policy.params.items()}


def _measure_norm(parameters: dict[str, np.ndarray], part: str) -> float:
    squares = [
        np.square(array, dtype=float).sum() for name, array in parameters.items() if part in name
    ]
    return float(np.sqrt(sum(squares)))


# Without training ---------------------------------------------------------------------------------


def _make_strategies(settings: Params) -> SmallJob:
    versions = {
        "random streams": seeds.VERSION,
        "environments": envs.VERSION,
        "recipes": recipes.VERSION,
        "evaluation": evaluate.VERSION,
        "demonstrations": tour_demo.VERSION,
        "switches": simulator_calibration.VERSION,
    }
    environment = recipes.describe_environment(settings, "education")
    job = sweep.Job(
        "strategies", {"job": "strategies", "environment": environment, "versions": versions}
    )
    return SmallJob(job, _play_strategies, _summarize_strategies)


def _play_strategies(job: sweep.Job, folder: Path, progress: Callable) -> None:
    environments = recipes.restore_environment(job.settings["environment"], "education")
    rules = make_education_rules(environments.education)
    rows = [
        tour_demo.try_actions(rules, seed=0, warm_steps=3, copies=6),
        tour_demo.play_mixtures(rules, tour_demo.make_simplex(3), students=4),
        tour_demo.play_reactive_rules(rules, students=2),
    ]
    artifacts.write_parquet(folder / "rows.parquet", pd.concat(rows, ignore_index=True))
    search = simulator_calibration.search(rules, num_students=2, switches=SEARCHED)
    artifacts.write_parquet(
        folder / "search.parquet",
        search.assign(rank=simulator_calibration.find_rank(search, rules)),
    )


def _summarize_strategies(folder: Path, _: None) -> dict[str, Any]:
    rows, search = (
        artifacts.read_parquet(folder / f"{name}.parquet") for name in ("rows", "search")
    )
    return {
        "reward by arm": rows.groupby("method", sort=True)["reward"].mean().tolist(),
        "objectives": rows[["aptitude", "gap", "performance"]].mean().tolist(),
        "length": rows["length"].mean(),
        "distances": search["distance"].head(SHOWN).tolist(),
        "mean distance": search["distance"].mean(),
        "place of the switches": int(search["rank"].iloc[0]),
    }
