"""The jobs of lesson 02: what each of them holds, which decides its key.

A job is a world under one seed of the policy zoo. Prompted models, and models whose replies are constrained, have jobs
of their own with fewer episodes.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lib import envs
from lib.config import Params
from lib.experiment import seeds
from lib.experiment.sweep import Job
from lib.orchestration import (
    baseline_models,
    contexts,
    decision_model,
    decision_models,
    domain_descriptions,
    episode_batch,
    worlds,
)
from lib.orchestration.contexts import SYSTEMS
from lib.orchestration.menus import describe_menu, has_planned_policies
from lib.orchestration.worlds import make_environments
from lib.policy_zoo import networks, planned_policies, policies, recipes, train

# Fields of the settings that a job reads.
_READ_BY_ALL = ("memory", "max_calls", "lookahead", "rollout_copies", "fallback", "weights")
_READ_BY_CONTEST = ("students", "training", "summary_interval")
_READ_BY_PROMPTED = ("episodes", "training", "summary_interval")
_READ_BY_CONSTRAINED = ("episodes", "training")
CONSTRAINED_SEED = 0  # a model on this machine's processor is slow: one seed of the zoo,
CONSTRAINED_INTERVAL = 5  # and steps between its decisions


def make_jobs(
    params: Params, domain: str, world: str, zoo: str | Path | None = train.ZOO_FOLDER
) -> list[Job]:
    """Make the jobs of one world, one for each seed of the policy zoo, in which all methods but prompted models play.

    A world is an environment together with a kind of query, the weights of the objectives.

    Args:
        params: All settings; a job is handed those that it reads.
        domain: education or minigrid.
        world: paper, speed or varied: which environment and which queries.
        zoo: Folder of the trained policies; None describes them by what trains them, so that no file is read.

    Returns:
        The jobs. Each is a label and the settings that decide its results; their hash is its cache key.

    Raises:
        PolicyError: A policy is missing.
        ValueError: `orchestration.model` is no name of a model.
    """
    settings = params.orchestration
    # A field that no method of this world reads is left out, so that it does not change the key.
    fields = [*_READ_BY_ALL, *_READ_BY_CONTEST]
    if world == "varied":
        fields.append("decision_intervals")
    elif domain == "education":
        fields.append("lookahead_depths")
    shared = _describe_world(params, domain, world, settings.model) | {
        "job": "contest",
        "orchestration": settings.to_job_settings(*fields),
        "upper_bound": settings.upper_bound[domain].model_dump(),
    }
    return [
        Job(
            f"{domain}/{world}/seed-{seed}",
            shared | {"seed": seed, "menu": describe_menu(params, domain, world, seed, zoo)},
        )
        for seed in range(params.zoo.seeds)
    ]


def make_prompted_jobs(
    params: Params,
    domain: str,
    model: str,
    zoo: str | Path | None = train.ZOO_FOLDER,
    without: Sequence[Sequence[str]] = ((),),
) -> list[Job]:
    """Make jobs in which a prompted chat model decides as KO, TO and RO in the paper's world.

    KO (knowledge-based orchestration) reads descriptions of the policies; TO (tool-based) tries them for one step on
    copies of the environment, RO (reflection-based) for several.

    Args:
        params: All settings.
        domain: education or minigrid.
        model: A name of `llm.models`.
        zoo: Folder of the trained policies; None describes them by what trains them, so that no file is read.
        without: Context components to leave out, a variant for each entry.

    Returns:
        A job for each seed of the policy zoo.
    """
    settings = params.orchestration
    shared = _describe_world(params, domain, "paper", model) | {
        "job": "prompted model",
        "orchestration": settings.to_job_settings(*_READ_BY_ALL, *_READ_BY_PROMPTED),
        "without": [list(components) for components in without],
    }
    return [
        Job(
            f"prompted/{domain}/{model}/seed-{seed}",
            shared | {"seed": seed, "menu": describe_menu(params, domain, "paper", seed, zoo)},
        )
        for seed in range(params.zoo.seeds)
    ]


def make_constrained_jobs(
    params: Params, name: str, identity: str, zoo: str | Path | None = train.ZOO_FOLDER
) -> list[Job]:
    """Make jobs in which a model decides for the paper's students and can reply with the name of a policy only.

    KO (knowledge-based orchestration) reads descriptions of the policies; TO (tool-based) tries them for one step on
    copies of the environment, RO (reflection-based) for several.

    Args:
        params: All settings; a job is handed those that it reads.
        name: Name of the model.
        identity: Text that stands for the model's weights in the keys of the jobs.
        zoo: Folder of the trained policies; None describes them by what trains them, so that no file is read.

    Returns:
        A job each for KO, TO and RO.
    """
    domain = "education"
    settings = params.orchestration
    # Weights may lie anywhere: what stands for them is in the key, and their folder is not.
    shared = {
        "job": "constrained model",
        "domain": domain,
        "world": "paper",
        "environment": recipes.describe_environment(params, domain),
        "model": name,
        "inputs": {"model": identity},
        "interval": CONSTRAINED_INTERVAL,
        "orchestration": settings.to_job_settings(*_READ_BY_ALL, *_READ_BY_CONSTRAINED),
        "seed": CONSTRAINED_SEED,
        "menu": describe_menu(params, domain, "paper", CONSTRAINED_SEED, zoo),
        "versions": list_versions(domain, "paper") | decision_models.list_constrained_versions(),
    }
    return [
        Job(f"constrained/{domain}/{name}/{system}", shared | {"system": system})
        for system in SYSTEMS
    ]


def _describe_world(params: Params, domain: str, world: str, model: str) -> dict[str, Any]:
    """Describe what all jobs of a world share: environment, decision model, and versions of the code.

    A world is an environment together with a kind of query, the weights of the objectives.

    Args:
        params: All settings.
        domain: education or minigrid.
        world: paper, speed or varied.
        model: Name of the decision model.

    Returns:
        Settings that enter the cache keys of the jobs.
    """
    environments = make_environments(params, world)
    return {
        "domain": domain,
        "world": world,
        "environment": recipes.describe_environment(environments, domain),
        "model": model,
        "model_description": decision_models.describe_decision_model(model, params.lab, params.llm),
        "versions": list_versions(domain, world) | decision_models.versions(model, params.llm),
    }


def list_versions(domain: str, world: str) -> dict[str, int]:
    """List the VERSION constants of the code that decides the episodes of a job, whichever model decides.

    Args:
        domain: education or minigrid.
        world: paper, speed or varied.

    Returns:
        Version numbers by the name of the code.
    """
    decided_by = {
        "random streams": seeds.VERSION,
        "environments": envs.VERSION,
        "recipes": recipes.VERSION,
        "contexts": contexts.VERSION,
        "decisions": decision_model.VERSION,
        "domains": domain_descriptions.VERSION,
        "episodes": episode_batch.VERSION,
        "baselines": baseline_models.VERSION,
        "experiment": worlds.VERSION,
    }
    if has_planned_policies(domain, world):
        decided_by["planned policies"] = planned_policies.VERSION
    else:
        decided_by["networks"] = networks.VERSION
        decided_by["policies"] = policies.VERSION
    return decided_by
