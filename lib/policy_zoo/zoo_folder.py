"""The folder of the trained policies with their cards, for every lesson that builds on them: made where it is missing.

    zoo = ensure_zoo(params, ["education"])  # data/zoo, complete, for these settings

The policies are those of lesson 01, trained by the function that it calls (`train.build`), and so are the episodes
that their cards describe (`play_zoo`). All jobs are kept under data/runs/zoo, so who makes the zoo first makes it for
all. Left out: policies of one's own, whose folder is handed to an experiment as `zoo`.
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

VERSION = 1  # of which actors are played


def ensure_zoo(
    params: Params,
    domains: Iterable[str],
    zoo: str | Path | None = None,
    out: str | Path = train.ZOO,
    runs: str | Path = train.RUNS,
) -> Path:
    """The folder of the zoo. Policies that lesson 01 has not made yet are trained, played and described.

    Args:
        params: All settings.
        domains: Of education and minigrid those that are needed.
        zoo: A folder of one's own, which is returned as it is; None for `out`.
        out: Where the zoo of these settings lies.
        runs: Folder of the jobs.

    Returns:
        The folder.
    """
    if zoo is not None:
        return Path(zoo)
    for domain in dict.fromkeys(domains):
        if has_zoo(params, domain, out, runs):
            continue
        with file_lock.hold_lock(Path(runs) / "making.lock"):
            if not has_zoo(params, domain, out, runs):  # no other notebook made it meanwhile
                print(f"First, the {domain} policies of lesson 01:")
                train.build(params, domain, out, runs)
                play_zoo(params, domain, runs)
                write_cards(params, domain, out, runs)
    return Path(out)


def has_zoo(
    params: Params, domain: str, out: str | Path = train.ZOO, runs: str | Path = train.RUNS
) -> bool:
    """Whether `out` holds the policies and cards of these settings: what their finished jobs left, and no others.

    Args:
        params: All settings; those of another profile have other policies, and fewer or more seeds.
        domain: education or minigrid.
        out: Folder of the zoo.
        runs: Folder of the jobs.
    """
    folder = Path(out) / domain
    folder_by_key = train.find_trained(runs)
    policy_paths = set()
    for (name, seed), key in _find_keys(params, domain).items():
        if key not in folder_by_key:
            return False
        for suffix in (".json", ".safetensors"):
            source = folder_by_key[key] / f"seed-{seed}" / f"{name}{suffix}"
            if not artifacts.has_same_bytes(source, folder / name / f"seed-{seed}{suffix}"):
                return False
        policy_paths.add(folder / name / f"seed-{seed}.json")
    if policy_paths != set(folder.glob("*/seed-*.json")):
        return False

    playing_job = make_playing_job(params, domain)
    if sweep.read_receipt(playing_job, _find_episodes(runs)) is None:
        return False
    return all(
        artifacts.has_same_bytes(card, folder / card.stem / "card.json")
        for card in playing_job.folder(_find_episodes(runs)).glob("cards/*.json")
    )


# Episodes and cards -------------------------------------------------------------------------------


def play_zoo(params: Params, domain: str, runs: str | Path = train.RUNS) -> pd.DataFrame:
    """The step record of all trained policies of a domain and of its baselines, see `evaluate.evaluate`.

    Args:
        params: All settings.
        domain: education or minigrid.
        runs: Folder of the jobs, which holds the trained policies.

    Returns:
        What was played once is read.
    """
    job = make_playing_job(params, domain)
    # Of the settings only the environment and the number of episodes are read, and both are in the job's key.
    work = partial(play_policies, params=params, runs=str(runs))
    sweep.run(work, [job], _find_episodes(runs), label=f"playing the {domain} zoo")
    return artifacts.read_parquet(job.folder(_find_episodes(runs)) / "steps.parquet")


def write_cards(
    params: Params, domain: str, out: str | Path = train.ZOO, runs: str | Path = train.RUNS
) -> dict[str, dict[str, Any]]:
    """Puts the card of every policy beside its weights.

    Args:
        params: All settings.
        domain: education or minigrid.
        out: Folder of the zoo.
        runs: Folder of the jobs; that of `play_zoo` is finished.

    Returns:
        The cards by policy.
    """
    cards = {}
    for path in make_playing_job(params, domain).folder(_find_episodes(runs)).glob("cards/*.json"):
        cards[path.stem] = artifacts.read_json(path)
        artifacts.write_json(Path(out) / domain / path.stem / "card.json", cards[path.stem])
    return cards


def get_task(params: Params, domain: str) -> str:
    """What policies are tested on: a topic, or the room with everything."""
    return params.education.topic if domain == "education" else "composite"


def make_playing_job(params: Params, domain: str) -> sweep.Job:
    """The job that plays the trained policies of a domain."""
    keys_by_policy: dict[str, list[str]] = {}
    for (name, _), key in _find_keys(params, domain).items():
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


def play_policies(
    job: sweep.Job, folder: Path, progress: sweep.JobProgress, params: Params, runs: str
) -> dict[str, int]:
    """Plays the policies; leaves their steps and cards in `folder`.

    Args:
        job: Of `make_playing_job`.
        folder: Where it writes.
        progress: Not called: it takes seconds.
        params: Those that the job was made from.
        runs: Folder of the jobs that trained the policies.

    Returns:
        The number of steps.
    """
    folder_by_key = train.find_trained(runs)
    zoo = {}
    for name, keys in job.settings["policies"].items():
        paths = [
            folder_by_key[key] / f"seed-{seed}" / f"{name}.json" for seed, key in enumerate(keys)
        ]
        zoo[name] = [policies.load(path) for path in paths]

    domain, task = job.settings["domain"], job.settings["task"]
    baselines = evaluate.baselines(domain, params.zoo.seeds)
    steps = evaluate.evaluate(params, evaluate.actors(zoo) | baselines, domain, task)
    artifacts.write_parquet(folder / "steps.parquet", steps)
    for name in zoo:
        card = policy_cards.make_card(steps, domain, name)
        artifacts.write_json(folder / "cards" / f"{name}.json", card.model_dump())
    return {"steps": len(steps)}


def _find_keys(params: Params, domain: str) -> dict[tuple[str, int], str]:
    """The key of every policy by name and seed, in the order in which lesson 01 shows them; seeds in order."""
    key_by_policy = {}
    for job in train.make_jobs(params, domain):
        for policy, key in zip(
            job.settings["policies"], train.policy_keys(job.settings), strict=True
        ):
            key_by_policy[policy["recipe"]["name"], policy["seed"]] = key
    names = [recipe.name for recipe in recipes.recipes(params, domain)]
    return {
        (name, seed): key_by_policy[name, seed]
        for name in names
        for seed in range(params.zoo.seeds)
    }


def _find_episodes(runs: str | Path) -> Path:
    """Folder of the jobs that play, apart from those that train."""
    return Path(runs) / "played"
