"""Which policies each zoo has and how each is trained (policy orchestration, 4.1.2, 4.1.3, Tables 6 and 7).

A recipe names a policy, its objective, its environment and its settings. Recipes of one `stack` have networks and
rollouts of one shape, and are trained side by side.
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
    """One policy of a zoo.

    Attributes:
        name: As in the paper's tables.
        domain: education or minigrid.
        objective: What it is rewarded for.
        settings: Of PPO.
        network: Its architecture.
        task: The skill that is taught, or the room that it is trained in.
        stack: Recipes of one stack are trained side by side.
    """

    name: str
    domain: str
    objective: Objective
    settings: PPOSettings
    network: Network
    task: str
    stack: str

    def to_json(self) -> dict[str, Any]:
        """All that decides a training but environment and seed; `stack` does not, and is left out."""
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
        """The inverse of `to_json`.

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
    """All recipes of a domain, in the order of the paper's tables.

    Raises:
        ValueError: The domain is unknown.
    """
    if domain == "education":
        return _list_education_recipes(params)
    if domain == "minigrid":
        return _list_minigrid_recipes(params)
    raise ValueError(f"unknown domain {domain!r}; there are {', '.join(DOMAINS)}")


def _list_education_recipes(params: ZooParams) -> list[Recipe]:
    """Table 6: single objectives, fixed weights and reward machine with one critic head, MO-MGDA with three."""
    objectives: dict[str, Objective] = {
        "SO-d1": LinearScalarization((1.0, 0.0, 0.0)),  # aptitude
        "SO-d2": LinearScalarization((0.0, 1.0, 0.0)),  # gap
        "SO-d3": LinearScalarization((0.0, 0.0, 1.0)),  # performance
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
    """Table 7: every policy in the room that asks for its objective, and each trained by itself."""
    settings = params.zoo.minigrid
    # The vector reward has the share of the two pieces of gold: a weight of 2 gives +1 for each.
    goal = LinearScalarization((1.0, 0.0, 0.0))
    gold = LinearScalarization((0.0, 0.0, 2.0))
    goal_and_gold = LinearScalarization((1.0, 0.0, 2.0))
    trainings = [
        ("SO-d1", goal, settings.navigate, "empty"),
        # Lava ends the episode, so that reaching the goal means avoiding it.
        ("SO-d2", goal, settings.lava, "lava_gap"),
        ("SO-d3", gold, settings.gold, "gold_room"),
        ("MO-pseudoS", goal_and_gold, settings.pseudo, "composite"),
    ]
    return [
        Recipe(
            name=name,
            domain="minigrid",
            objective=objective,
            settings=ppo_settings,
            network=Cnn(actions=6),
            task=room,
            stack=name,
        )
        for name, objective, ppo_settings, room in trainings
    ]


# Environments -------------------------------------------------------------------------------------


def make_batched_env(
    params: Environments, domain: str, tasks: Sequence[str], seed: int = 0
) -> BatchedEnv:
    """A batched environment.

    Args:
        params: Settings of the environments.
        domain: education or minigrid.
        tasks: One for each row: the room, in minigrid.
        seed: Of the first row; row i has seed + i.
    """
    if domain == "education":
        return EducationBatch(make_education_rules(params.education), len(tasks), seed)
    room = params.minigrid
    return GridBatch(tasks, len(tasks), seed, lava=room.lava, horizon=room.horizon)


def describe_environment(params: Environments, domain: str) -> dict[str, Any]:
    """What the settings of a job say of its environment.

    Args:
        params: Settings of the environments.
        domain: education or minigrid.

    Returns:
        The settings of the domain, and hashes of the files that they name.
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
