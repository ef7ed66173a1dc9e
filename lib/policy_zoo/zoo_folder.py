"""The folder of the trained policies with their cards, for every lesson that builds on them.

    zoo = ensure_zoo(params, ["education"])  # data/zoo, complete, for these settings

The policies are those of lesson 01, trained by the function that it calls (`train.build_zoo`), and so are the episodes
that its tables show (`evaluate_zoo`). The cards describe other episodes, of students and rooms that no method is tested
on. All jobs lie under data/runs/zoo, so that the lesson that needs the zoo first makes it for all. Left out: policies
that a user brings, whose folder is handed to an experiment as `zoo`.
"""

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from lib import envs
from lib.config import Params
from lib.experiment import artifacts, file_lock, seeds, sweep
from lib.policy_zoo import evaluate, networks, policies, policy_cards, recipes, train

VERSION = 2  # of which policies are evaluated, and which episodes cards describe
# The mixture of two actions that brings students to mastery soonest, and its probabilities of failed, easy, challenge.
MIXTURE = "half failed, half challenge"
_MIXTURE_PROBABILITIES = (0.5, 0.0, 0.5)


def ensure_zoo(
    params: Params,
    domains: Iterable[str],
    zoo: str | Path | None = None,
    out: str | Path = train.ZOO_FOLDER,
    runs: str | Path = train.RUNS_FOLDER,
) -> Path:
    """Make sure that the trained policies and their cards exist; what is missing is trained, evaluated and described.

    Args:
        params: All settings.
        domains: The domains that are needed: education, minigrid or both.
        zoo: A folder that the user brings, which is returned as it is; None for `out`.
        out: Folder of the policies of these settings.
        runs: Folder of the jobs that train and evaluate.

    Returns:
        The folder of the policies.
    """
    if zoo is not None:
        return Path(zoo)
    for domain in dict.fromkeys(domains):
        if has_zoo(params, domain, out, runs):
            continue
        with file_lock.hold_lock(Path(runs) / "making.lock"):
            # Another notebook may have made it meanwhile.
            if not has_zoo(params, domain, out, runs):
                print(f"First, the {domain} policies of lesson 01:")
                train.build_zoo(params, domain, out, runs)
                evaluate_zoo(params, domain, runs)
                write_cards(params, domain, out, runs)
    return Path(out)


def has_zoo(
    params: Params,
    domain: str,
    out: str | Path = train.ZOO_FOLDER,
    runs: str | Path = train.RUNS_FOLDER,
) -> bool:
    """Check whether a folder has the policies and cards of these settings, byte by byte, and no others.

    Args:
        params: All settings; those of another profile have other policies, and fewer or more seeds.
        domain: education or minigrid.
        out: Folder of the policies.
        runs: Folder of the jobs that train and evaluate.

    Returns:
        Whether it does.
    """
    # Policies.
    folder = Path(out) / domain
    folder_by_key = train.find_trained(runs)
    policy_paths = set()
    for (name, seed), key in _find_policy_keys(params, domain).items():
        if key not in folder_by_key:
            return False
        for suffix in (".json", ".safetensors"):
            source = folder_by_key[key] / f"seed-{seed}" / f"{name}{suffix}"
            if not artifacts.has_same_bytes(source, folder / name / f"seed-{seed}{suffix}"):
                return False
        policy_paths.add(folder / name / f"seed-{seed}.json")
    if policy_paths != set(folder.glob("*/seed-*.json")):
        return False

    # Cards.
    evaluation_job = make_evaluation_job(params, domain)
    evaluation_folder = _find_evaluation_folder(runs)
    if sweep.read_receipt(evaluation_job, evaluation_folder) is None:
        return False
    return all(
        artifacts.has_same_bytes(card_path, folder / card_path.stem / "card.json")
        for card_path in evaluation_job.folder(evaluation_folder).glob("cards/*.json")
    )


# Episodes and cards -------------------------------------------------------------------------------


def evaluate_zoo(params: Params, domain: str, runs: str | Path = train.RUNS_FOLDER) -> pd.DataFrame:
    """Play evaluation episodes with all trained policies of a domain and its baselines, unless they were played before.

    Args:
        params: All settings.
        domain: education or minigrid.
        runs: Folder of the jobs, in which the trained policies are.

    Returns:
        A row per step.
    """
    job = make_evaluation_job(params, domain)
    evaluation_folder = _find_evaluation_folder(runs)
    # Of the settings only the environment and the number of episodes are read, and both are in the job's key.
    work = partial(evaluate_policies, params=params, runs=str(runs))
    sweep.run(work, [job], evaluation_folder, label=f"playing the {domain} zoo")
    return artifacts.read_parquet(job.folder(evaluation_folder) / "steps.parquet")


def evaluate_zoo_and_mixture(
    params: Params, domain: str, runs: str | Path = train.RUNS_FOLDER
) -> pd.DataFrame:
    """Play the episodes of `evaluate_zoo` and, in education, those of a mixture of two actions.

    The mixture teaches the same students: failed questions or challenges, with equal probability in every step.

    Args:
        params: All settings.
        domain: education or minigrid.
        runs: Folder of the jobs, in which the trained policies are.

    Returns:
        A row per step.
    """
    steps = evaluate_zoo(params, domain, runs)
    if domain != "education":
        return steps
    mixture = evaluate.make_mixture(_MIXTURE_PROBABILITIES)
    actors = {MIXTURE: [mixture] * params.zoo.seeds}
    mixture_steps = evaluate.evaluate(params, actors, domain, get_task(params, domain))
    return pd.concat([steps, mixture_steps], ignore_index=True)


def write_cards(
    params: Params,
    domain: str,
    out: str | Path = train.ZOO_FOLDER,
    runs: str | Path = train.RUNS_FOLDER,
) -> dict[str, dict[str, Any]]:
    """Write the card of every policy (what it does, in words) beside its parameters.

    Args:
        params: All settings.
        domain: education or minigrid.
        out: Folder of the policies.
        runs: Folder of the jobs; the one that evaluates these policies has run.

    Returns:
        Cards by name of the policy.
    """
    job_folder = make_evaluation_job(params, domain).folder(_find_evaluation_folder(runs))
    cards = {}
    for path in job_folder.glob("cards/*.json"):
        name = path.stem
        cards[name] = artifacts.read_json(path)
        artifacts.write_json(Path(out) / domain / name / "card.json", cards[name])
    return cards


def get_task(params: Params, domain: str) -> str:
    """What policies are evaluated on: a topic, or the room with all objectives."""
    return params.education.topic if domain == "education" else "composite"


def make_evaluation_job(params: Params, domain: str) -> sweep.Job:
    """Make the job that evaluates the trained policies of a domain and writes their cards.

    Policies stand in the settings by the keys of their trainings, so that the job runs again when a policy is trained
    anew.

    Args:
        params: All settings.
        domain: education or minigrid.

    Returns:
        The job.
    """
    keys_by_policy: dict[str, list[str]] = {}  # a key for each seed
    for (name, _), key in _find_policy_keys(params, domain).items():
        keys_by_policy.setdefault(name, []).append(key)
    settings = {
        "job": "policy evaluation",
        "domain": domain,
        "environment": recipes.describe_environment(params, domain),
        "task": get_task(params, domain),
        "episodes": params.zoo.episodes,
        "policies": keys_by_policy,
        "versions": {
            "random streams": seeds.VERSION,
            "environments": envs.VERSION,
            "recipes": recipes.VERSION,
            "networks": networks.VERSION,
            "policies": policies.VERSION,
            "evaluation": evaluate.VERSION,
            "policy cards": policy_cards.VERSION,
            "zoo": VERSION,
        },
    }
    return sweep.Job(f"{domain}/played", settings)


def evaluate_policies(
    job: sweep.Job, folder: Path, progress: sweep.JobProgress, params: Params, runs: str
) -> dict[str, int]:
    """Play evaluation episodes with trained policies, and write steps and policy cards.

    Args:
        job: Names the policies by the keys of their trainings.
        folder: Folder for steps and cards.
        progress: Not called, because the job takes seconds.
        params: All settings, those that the job was made from.
        runs: Folder of the jobs that trained the policies.

    Returns:
        `steps`, the number of steps.
    """
    # Policies.
    folder_by_key = train.find_trained(runs)
    zoo = {}
    for name, keys in job.settings["policies"].items():
        paths = [
            folder_by_key[key] / f"seed-{seed}" / f"{name}.json" for seed, key in enumerate(keys)
        ]
        zoo[name] = [policies.load(path) for path in paths]

    # Episodes.
    domain = job.settings["domain"]
    task = job.settings["task"]
    actors = evaluate.make_actors(zoo)
    baselines = evaluate.make_baselines(domain, params.zoo.seeds)
    steps = evaluate.evaluate(params, actors | baselines, domain, task)
    artifacts.write_parquet(folder / "steps.parquet", steps)

    # Cards. Orchestrators read them, so they must not know the students that orchestrators are tested on.
    card_steps = evaluate.evaluate(params, actors, domain, task, "cards")
    for name in zoo:
        card = policy_cards.make_card(card_steps, domain, name)
        artifacts.write_json(folder / "cards" / f"{name}.json", card.model_dump())
    return {"steps": len(steps)}


def _find_policy_keys(params: Params, domain: str) -> dict[tuple[str, int], str]:
    """Find the key of every policy's training, a hash of all that decides it.

    Args:
        params: All settings.
        domain: education or minigrid.

    Returns:
        Policies in the order in which lesson 01 shows them, seeds in rising order.
    """
    key_by_policy = {}
    for job in train.make_jobs(params, domain):
        keys = train.compute_policy_keys(job.settings)
        for policy, key in zip(job.settings["policies"], keys, strict=True):
            key_by_policy[policy["recipe"]["name"], policy["seed"]] = key

    ordered_keys = {}
    for recipe in recipes.list_recipes(params, domain):
        for seed in range(params.zoo.seeds):
            ordered_keys[recipe.name, seed] = key_by_policy[recipe.name, seed]
    return ordered_keys


def _find_evaluation_folder(runs: str | Path) -> Path:
    """Folder of the jobs that evaluate; those that train have their folders beside it."""
    return Path(runs) / "played"
