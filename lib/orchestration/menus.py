"""The policies that are chosen from: what a job's settings say of them, and how they act in a batch of episodes.

Most menus hold trained policies of the zoo; the varied rooms have planned policies, which need no file. A job describes
its menu (`describe_menu`), so that its key changes with the policies; a process that plays the job opens them again
(`make_menu`, `read_cards`).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from lib.config import Params
from lib.envs.batched_env import BatchedEnv
from lib.experiment import artifacts
from lib.policy_zoo import policies, train, zoo_folder
from lib.policy_zoo.networks import sample_actions
from lib.policy_zoo.planned_policies import TARGET_BY_POLICY, plan_actions
from lib.policy_zoo.policies import Policy, PolicyError, PolicyGroup
from lib.policy_zoo.recipes import OBJECTIVES, REFERENCES, SINGLE

_HASH_DIGITS = 16


class Menu(Protocol):
    """Policies by name; those of `lib.policy_zoo.recipes.SINGLE` are the ones to choose from."""

    names: tuple[str, ...]

    def act(
        self, env: BatchedEnv, policies: np.ndarray, observation: np.ndarray, draws: np.ndarray
    ) -> np.ndarray:
        """Actions in a batch of episodes, in each of which one policy of the menu acts.

        Args:
            env: The batch.
            policies: (rows,) indices of `names`.
            observation: (rows, ...).
            draws: (rows,) random numbers in [0, 1), by which actions are sampled.

        Returns:
            (rows,) actions.
        """
        ...


class TrainedMenu:
    """Policies of the zoo."""

    def __init__(self, policies: Mapping[str, Policy]) -> None:
        """Put trained policies in the order of the menu.

        Args:
            policies: By name. Those in `SINGLE`, trained for one objective each, come first; references of the paper,
                trained for several objectives, follow.
        """
        references = [name for name in policies if name not in SINGLE]
        self.names = (*SINGLE, *references)
        self.policies = PolicyGroup([policies[name] for name in self.names])

    def act(
        self, env: BatchedEnv, policies: np.ndarray, observation: np.ndarray, draws: np.ndarray
    ) -> np.ndarray:
        """Let trained policies choose the actions of a batch of episodes.

        Args:
            env: The batch, which trained policies do not look into.
            policies: (rows,) index of the policy that acts in each row.
            observation: (rows, ...).
            draws: (rows,) random numbers in [0, 1), by which actions are sampled.

        Returns:
            (rows,) actions.
        """
        logprobs = self.policies.compute_logits(policies, observation).log_softmax(-1)
        return sample_actions(logprobs, torch.from_numpy(draws)).numpy()


class PlannedMenu:
    """The planned policies of rooms."""

    names = tuple(TARGET_BY_POLICY)

    def __init__(self, slip: float) -> None:
        """slip: share of moves that are random."""
        self.slip = slip

    def act(
        self, env: BatchedEnv, policies: np.ndarray, observation: np.ndarray, draws: np.ndarray
    ) -> np.ndarray:
        """Actions (rows,) of planned policies in a batch of rooms.

        Args:
            env: The batch, from which the policies read the map of each room.
            policies: (rows,) index of the policy that acts in each row.
            observation: Not read.
            draws: (rows,) random numbers in [0, 1), which decide where a policy slips.
        """
        return plan_actions(env, np.array(self.names)[policies], draws, self.slip)


# What a job says of its menu ------------------------------------------------------------------------


def has_planned_policies(domain: str, world: str) -> bool:
    """Whether planned policies act in a world, instead of trained ones."""
    return (domain, world) == ("minigrid", "varied")


def describe_menu(
    params: Params, domain: str, world: str, seed: int, zoo: str | Path | None
) -> dict[str, Any]:
    """Describe the policies of a job and their cards as settings, so that the job's key changes with them.

    Args:
        params: All settings.
        domain: education or minigrid.
        world: paper, speed or varied, which decides the policies that act.
        seed: Number of the training whose policies act.
        zoo: Folder of the trained policies; None for those that these settings train, wherever they lie.

    Returns:
        The share of random moves of planned policies (`slip`), or a hash for each trained policy and card: of its file,
        or, without a folder, of the settings that it is made from.

    Raises:
        PolicyError: A file is missing.
    """
    if has_planned_policies(domain, world):
        return {"slip": params.orchestration.varied.slip}

    # The references of the paper were trained for its own worlds.
    names = SINGLE
    if world != "varied":
        names = (*SINGLE, *REFERENCES[domain])

    if zoo is None:
        training_hashes = _hash_training_settings(params, domain, seed)
        return {
            "policies": {name: training_hashes[name] for name in names},
            "cards": _hash_card_settings(params, domain),
        }

    # A policy or card that is written anew changes the jobs that read it, and no others.
    policy_hashes = {}
    for name in names:
        policy_hashes[name] = policies.hash_policy(_find_policy(zoo, domain, name, seed))
    card_hashes = {name: artifacts.sha256_file(_find_card(zoo, domain, name)) for name in SINGLE}
    return {"policies": policy_hashes, "cards": card_hashes}


def _hash_training_settings(params: Params, domain: str, seed: int) -> dict[str, str]:
    """Hash the settings that decide the training of each policy under one seed.

    Args:
        params: All settings.
        domain: education or minigrid.
        seed: Seed of the training.

    Returns:
        Hashes by name of the policy.
    """
    hashes = {}
    for job in train.make_jobs(params, domain):
        # A job trains several policies side by side; what the others are does not matter to one.
        shared = {name: value for name, value in job.settings.items() if name != "policies"}
        for policy in job.settings["policies"]:
            if policy["seed"] == seed:
                policy_name = policy["recipe"]["name"]
                hashes[policy_name] = artifacts.sha256_json(shared | policy)[:_HASH_DIGITS]
    return hashes


def _hash_card_settings(params: Params, domain: str) -> str:
    """A hash of what decides the cards, beside the policies."""
    settings = zoo_folder.make_evaluation_job(params, domain).settings
    settings = {name: value for name, value in settings.items() if name != "policies"}
    return artifacts.sha256_json(settings)[:_HASH_DIGITS]


# From a job's description to policies and cards -----------------------------------------------------


def make_menu(description: Mapping[str, Any], domain: str, seed: int, zoo: str | Path) -> Menu:
    """Open the policies that a job's settings describe.

    Args:
        description: Names and hashes of trained policies, or the slip of planned ones (see `describe_menu`).
        domain: education or minigrid.
        seed: Number of the training whose policies act.
        zoo: Folder of the trained policies.

    Returns:
        The policies to choose from.

    Raises:
        PolicyError: A file is missing, or is no policy.
    """
    if "slip" in description:
        return PlannedMenu(description["slip"])
    trained = {}
    for name in description["policies"]:
        trained[name] = policies.load(_find_policy(zoo, domain, name, seed))
    return TrainedMenu(trained)


def read_cards(
    description: Mapping[str, Any], domain: str, zoo: str | Path
) -> dict[str, Mapping[str, Any]]:
    """Read the cards of a job's policies, which say in words what is known of a policy.

    Args:
        description: Names and hashes of trained policies, or the slip of planned ones (see `describe_menu`).
        domain: education or minigrid.
        zoo: Folder of the trained policies.

    Returns:
        By policy, the fields of its card; planned policies have a short one.

    Raises:
        PolicyError: A card is missing.
    """
    cards = {}
    for name, objective in zip(SINGLE, OBJECTIVES[domain], strict=True):
        if "slip" in description:
            cards[name] = {
                "name": name,
                "optimized_objective": objective,
                "behavior_hint": "walks the shortest way that avoids lava, and slips at times",
            }
        else:
            cards[name] = artifacts.read_json(_find_card(zoo, domain, name))
    return cards


def _find_policy(zoo: str | Path, domain: str, name: str, seed: int) -> Path:
    return Path(zoo) / domain / name / f"seed-{seed}.json"


def _find_card(zoo: str | Path, domain: str, name: str) -> Path:
    path = Path(zoo) / domain / name / "card.json"
    if not path.is_file():
        raise PolicyError(f"{path} is missing; train the zoo with `make repro`")
    return path
