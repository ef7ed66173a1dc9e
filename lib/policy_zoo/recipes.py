"""Which policies each zoo has and how each is trained (policy orchestration, 4.1.2, 4.1.3, Tables 6 and 7).

A recipe names a policy, its objective, its environment and its settings. Names are the paper's: SO-d1, SO-d2 and SO-d3
are trained for one objective each (SO, single objective; d1 to d3, the dimensions of the vector reward), policies that
begin with MO- for several objectives at once. Recipes of one `stack` have networks and rollouts of one shape, and are
trained side by side as one batch of matrix products.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lib.config import ROOT, Environments, PPOSettings, ZooParams
from lib.envs import make_education_rules
from lib.envs.batched_env import BatchedEnv
from lib.envs.education import ACTIONS as EDUCATION_ACTIONS
from lib.envs.education import OBJECTIVES as EDUCATION_OBJECTIVES
from lib.envs.education_batch import EducationBatch
from lib.envs.grid_batch import GridBatch
from lib.envs.layouts import ACTIONS as GRID_ACTIONS
from lib.experiment import artifacts
from lib.policy_zoo.networks import (
    NETWORK_TYPES,
    Cnn,
    Mlp,
    Network,
    describe_component,
    restore_component,
)
from lib.policy_zoo.objectives import (
    OBJECTIVE_TYPES,
    LinearScalarization,
    Objective,
    RewardMachine,
    VectorReward,
)

VERSION = 1  # of how a policy and its environment are made from settings
DOMAINS = ("education", "minigrid")
ACTIONS = {"education": EDUCATION_ACTIONS, "minigrid": GRID_ACTIONS}
OBJECTIVES = {"education": EDUCATION_OBJECTIVES, "minigrid": ("goal", "no-lava", "gold")}
SINGLE = ("SO-d1", "SO-d2", "SO-d3")  # one objective each; orchestrators choose among them
REFERENCES = {"education": ("MO-S", "MO-RM", "MO-MGDA"), "minigrid": ("MO-pseudoS",)}


@dataclass(frozen=True)
class Recipe:
    """One policy of a zoo, before it is trained: what it is rewarded for, and how it is trained.

    Attributes:
        name: Name of the policy in the paper's tables.
        domain: education or minigrid.
        objective: What it is rewarded for.
        settings: Settings of PPO.
        network: Architecture of the policy's network.
        task: The skill that is taught, or the room that it is trained in.
        stack: Name of the group of recipes that are trained side by side.
    """

    name: str
    domain: str
    objective: Objective
    settings: PPOSettings
    network: Network
    task: str
    stack: str

    def to_json(self) -> dict[str, Any]:
        """Convert the recipe to JSON: all that decides a training except environment and seed.

        `stack` is left out, because a policy does not depend on those that are trained beside it.

        Returns:
            The JSON.
        """
        return {
            "name": self.name,
            "domain": self.domain,
            "task": self.task,
            "settings": self.settings.model_dump(),
            "objective": describe_component(self.objective, OBJECTIVE_TYPES),
            "network": describe_component(self.network, NETWORK_TYPES),
        }

    @classmethod
    def from_json(cls, description: dict[str, Any], stack: str = "") -> Recipe:
        """Restore a recipe from its JSON.

        Args:
            description: A recipe as `to_json` returns it.
            stack: Name of the group of recipes that are trained side by side.

        Returns:
            The recipe.

        Raises:
            ValueError: The type of the objective or of the network is unknown.
        """
        return cls(
            name=description["name"],
            domain=description["domain"],
            objective=restore_component(description["objective"], OBJECTIVE_TYPES),
            settings=PPOSettings(**description["settings"]),
            network=restore_component(description["network"], NETWORK_TYPES),
            task=description["task"],
            stack=stack,
        )


def list_recipes(params: ZooParams, domain: str) -> list[Recipe]:
    """The recipes of all policies of a domain, in the order of the paper's tables.

    Args:
        params: Settings of the environments and of the trainings.
        domain: education or minigrid.

    Raises:
        ValueError: The domain is unknown.
    """
    if domain == "education":
        return _list_education_recipes(params)
    if domain == "minigrid":
        return _list_minigrid_recipes(params)
    raise ValueError(f"unknown domain {domain!r}; there are {', '.join(DOMAINS)}")


def _list_education_recipes(params: ZooParams) -> list[Recipe]:
    """List the training recipes of the six policies that teach students (the paper's Table 6).

    SO-d1 to SO-d3 are rewarded for one objective each. For all three objectives there are MO-S (equal weights), MO-RM
    (a reward machine, whose objectives change with mastery) and MO-MGDA (gradients of the objectives combined, which
    takes a critic head for each).

    Args:
        params: All settings.

    Returns:
        The recipes.
    """
    objectives: dict[str, Objective] = {
        "SO-d1": LinearScalarization((1.0, 0.0, 0.0)),  # aptitude: questions above mastery
        "SO-d2": LinearScalarization((0.0, 1.0, 0.0)),  # gap: failed questions answered right
        "SO-d3": LinearScalarization((0.0, 0.0, 1.0)),  # performance: right answers
        "MO-S": LinearScalarization((1 / 3, 1 / 3, 1 / 3)),
        "MO-RM": RewardMachine(),
    }
    settings = params.zoo.education
    recipes = [
        Recipe(
            name=name,
            domain="education",
            objective=objective,
            settings=settings.single,
            network=Mlp(inputs=13, actions=3),
            task=params.education.topic,
            stack="table-6",
        )
        for name, objective in objectives.items()
    ]
    mgda = Recipe(
        name="MO-MGDA",
        domain="education",
        objective=VectorReward(),
        settings=settings.mgda,
        network=Mlp(inputs=13, actions=3, values=3),
        task=params.education.topic,
        stack="MO-MGDA",
    )
    return [*recipes, mgda]


def _list_minigrid_recipes(params: ZooParams) -> list[Recipe]:
    """List the training recipes of the four policies of rooms, each trained in a room of its own (the paper's Table 7).

    SO-d1 walks to the goal of an empty room, SO-d2 to the goal past lava, SO-d3 collects gold.

    MO-pseudoS is rewarded for goal and gold in the room with everything. Avoiding lava has no reward of its own, hence
    "pseudo": rewards of several objectives in one number.

    Args:
        params: All settings.

    Returns:
        The recipes.
    """
    settings_by_policy = params.zoo.minigrid
    # Weights of (goal, no lava, gold). Picking up one of the two pieces of gold gives a vector reward of 1/2, its share
    # of all gold, so that a weight of 2 rewards each piece with 1, as much as the goal.
    goal = LinearScalarization((1.0, 0.0, 0.0))
    gold = LinearScalarization((0.0, 0.0, 2.0))
    goal_and_gold = LinearScalarization((1.0, 0.0, 2.0))
    # Policy, objective, settings of PPO, room.
    trainings = [
        ("SO-d1", goal, settings_by_policy.navigate, "empty"),
        # Lava ends the episode, so that reaching the goal means avoiding it.
        ("SO-d2", goal, settings_by_policy.lava, "lava_gap"),
        ("SO-d3", gold, settings_by_policy.gold, "gold_room"),
        ("MO-pseudoS", goal_and_gold, settings_by_policy.pseudo, "composite"),
    ]
    return [
        Recipe(
            name=name,
            domain="minigrid",
            objective=objective,
            settings=ppo_settings,
            network=Cnn(actions=6),
            task=room,
            stack=name,  # each by itself: then equal views of its room are computed once (`ppo`)
        )
        for name, objective, ppo_settings, room in trainings
    ]


# Environments -------------------------------------------------------------------------------------


def make_batched_env(
    params: Environments, domain: str, tasks: Sequence[str], seed: int = 0
) -> BatchedEnv:
    """Make a batched environment: many students of one skill, or many rooms, that step together.

    Args:
        params: Settings of the environments.
        domain: education or minigrid.
        tasks: One for each row: the room, in minigrid.
        seed: Seed of the first row; row i has seed + i.

    Returns:
        The environment, a row for each task.
    """
    if domain == "education":
        return EducationBatch(make_education_rules(params.education), len(tasks), seed)
    room = params.minigrid
    return GridBatch(tasks, len(tasks), seed, lava=room.lava, horizon=room.horizon)


def describe_environment(params: Environments, domain: str) -> dict[str, Any]:
    """Describe the environment of a job: the settings of its domain, and hashes of the files that they name.

    Args:
        params: Settings of the environments.
        domain: education or minigrid.

    Returns:
        Settings that enter the cache key of the job.
    """
    section = getattr(params, domain)
    paths: list[str] = []
    if domain == "education":
        paths.append(section.bank)
        if section.difficulty == "calibrated":
            paths.append(section.answers)

    hashes = []
    for path in paths:
        file = ROOT / path  # an absolute path stays as it is
        if file.is_file():  # a missing one is reported where it is read
            hashes.append(artifacts.sha256_file(file))
    return {"settings": section.model_dump(), "files": hashes}


def restore_environment(description: dict[str, Any], domain: str) -> Environments:
    """The settings of the environment that `describe_environment` described, and of no other."""
    return Environments.from_job_settings({domain: description["settings"]})
