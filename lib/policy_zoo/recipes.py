"""Which policies each zoo holds and how each is trained (PO, 4.1.2, 4.1.3, Tables 6 and 7).

A recipe names a policy, what it is paid for, in which environment and with which settings. Recipes
of one `stack` have one shape and are trained together.
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
from lib.policy_zoo.networks import KINDS, Cnn, Mlp, Network, describe, restore
from lib.policy_zoo.objectives import KINDS as OBJECTIVE_KINDS
from lib.policy_zoo.objectives import Linear, Objective, RewardMachine, Vector

VERSION = 1  # of how a policy and its environment are made from settings
DOMAINS = ("education", "minigrid")
ACTIONS = {"education": EDUCATION_ACTIONS, "minigrid": GRID_ACTIONS}
OBJECTIVES = {"education": EDUCATION_OBJECTIVES, "minigrid": ("goal", "no-lava", "gold")}
SINGLE = ("SO-d1", "SO-d2", "SO-d3")  # the policies that orchestrators choose from
REFERENCES = {"education": ("MO-S", "MO-RM", "MO-MGDA"), "minigrid": ("MO-pseudoS",)}


@dataclass(frozen=True)
class Recipe:
    """One policy of a zoo. task: the room it is trained in (minigrid), or the skill."""

    name: str
    domain: str
    objective: Objective
    settings: PPOSettings
    network: Network
    task: str
    stack: str

    def facts(self) -> dict[str, Any]:
        """All that decides a training but environment and seed, as JSON; with whom it is trained does not."""
        facts = {
            "name": self.name,
            "domain": self.domain,
            "task": self.task,
            "settings": self.settings.model_dump(),
        }
        parts = {
            "objective": describe(self.objective, OBJECTIVE_KINDS),
            "network": describe(self.network, KINDS),
        }
        return facts | parts

    @classmethod
    def of(cls, facts: dict[str, Any], stack: str = "") -> Recipe:
        """The recipe that `facts` tell. Raises ValueError for an objective or a network of an unknown kind."""
        objective = restore(facts["objective"], OBJECTIVE_KINDS)
        parts = {"objective": objective, "network": restore(facts["network"], KINDS)}
        return cls(**facts | parts | {"settings": PPOSettings(**facts["settings"]), "stack": stack})


def recipes(params: ZooParams, domain: str) -> list[Recipe]:
    """All recipes of a domain. Raises ValueError for an unknown one."""
    if domain == "education":
        return _education(params)
    if domain == "minigrid":
        return _minigrid(params)
    raise ValueError(f"unknown domain {domain!r}; there are {', '.join(DOMAINS)}")


def _education(params: ZooParams) -> list[Recipe]:
    paid = {name: Linear(tuple(float(i == k) for i in range(3))) for k, name in enumerate(SINGLE)}
    paid |= {"MO-S": Linear((1 / 3, 1 / 3, 1 / 3)), "MO-RM": RewardMachine()}
    zoo, task = params.zoo.education, params.education.topic
    network = Mlp(inputs=13, actions=3)
    rows = [
        Recipe(n, "education", o, zoo.single, network, task, "table-6") for n, o in paid.items()
    ]
    per_objective = Mlp(inputs=13, actions=3, values=3)
    return [
        *rows,
        Recipe("MO-MGDA", "education", Vector(), zoo.mgda, per_objective, task, "MO-MGDA"),
    ]


def _minigrid(params: ZooParams) -> list[Recipe]:
    zoo = params.zoo.minigrid
    goal, gold = (
        Linear((1.0, 0.0, 0.0)),
        Linear((0.0, 0.0, 2.0)),
    )  # +1 per piece; the vector has shares
    rows = [
        ("SO-d1", goal, zoo.navigate, "empty"),
        ("SO-d2", goal, zoo.lava, "lava_gap"),  # lava ends the episode: reaching the goal avoids it
        ("SO-d3", gold, zoo.gold, "gold_room"),
        ("MO-pseudoS", Linear((1.0, 0.0, 2.0)), zoo.pseudo, "composite"),  # 1[goal] + gold pieces
    ]
    return [Recipe(n, "minigrid", o, s, Cnn(actions=6), task, n) for n, o, s, task in rows]


def make_batch(
    params: Environments, domain: str, tasks: Sequence[str], seed: int = 0
) -> BatchedEnv:
    """A batched twin with one row per entry of `tasks`."""
    if domain == "education":
        return EducationBatch(make_education_rules(params.education), len(tasks), seed)
    room = params.minigrid
    return GridBatch(tasks, len(tasks), seed, lava=room.lava, horizon=room.horizon)


def describe_environment(params: Environments, domain: str) -> dict[str, Any]:
    """What a job holds of its environment: the settings of its domain, and hashes of the files that they name."""
    section = getattr(params, domain)
    paths: list[str] = []
    if domain == "education":
        paths = [section.bank]
        if section.difficulty == "calibrated":
            paths.append(section.answers)
    files = [ROOT / path for path in paths]  # an absolute path stays as it is
    hashes = [
        artifacts.sha256_file(file) for file in files if file.is_file()
    ]  # whoever reads one that is missing says so
    return {"settings": section.model_dump(), "files": hashes}


def restore_environment(description: dict[str, Any], domain: str) -> Environments:
    """The environments as a job sees them: the one that `describe_environment` told of, and no other."""
    return Environments.from_job_settings({domain: description["settings"]})
