"""What a policy is rewarded for: how a vector reward becomes the training signal.

Three formulations of the paper's appendix A.3: fixed weights (single objectives and MO-S), a reward machine (MO-RM),
and the vector itself (MO-MGDA, which combines gradients instead of rewards).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from lib.envs.education import OBJECTIVES

VERSION = 1  # of training rewards


class Objective(Protocol):
    """Maps vector rewards to training rewards.

    A new one is a frozen dataclass with these two methods and an entry in `OBJECTIVE_TYPES`.
    """

    def __call__(self, reward: np.ndarray, observation: np.ndarray) -> np.ndarray:
        """The training rewards of one step in E environments, (E,), or (E, V) for a critic with V heads.

        Args:
            reward: (E, k) rewards of the k objectives.
            observation: (E, ...) what the policy saw before the step.
        """
        ...

    def describe_reward(self, objective_names: Sequence[str]) -> str:
        """What is rewarded, in the names of the k objectives."""
        ...


@dataclass(frozen=True)
class LinearScalarization:
    """Weighted sum of the objectives, r = sum_i w_i r_i.

    A single weight of 1 makes a single-objective policy, equal weights make MO-S.

    Source: policy orchestration, equation 2.
    """

    weights: tuple[float, ...]

    def __call__(self, reward: np.ndarray, observation: np.ndarray) -> np.ndarray:
        return reward @ np.asarray(self.weights)  # sum_i w_i r_i

    def describe_reward(self, objective_names: Sequence[str]) -> str:
        """Describe the weighted sum in words, such as "goal + 2 gold"; objectives of weight 0 are left out.

        Args:
            objective_names: A name for each weight.

        Returns:
            The text.
        """
        terms = []
        for weight, name in zip(self.weights, objective_names, strict=True):
            if weight == 1:
                terms.append(name)
            elif weight:
                terms.append(f"{weight:.2g} {name}")
        return " + ".join(terms)


@dataclass(frozen=True)
class VectorReward:
    """All objectives side by side, one critic head each; MGDA combines their gradients."""

    def __call__(self, reward: np.ndarray, observation: np.ndarray) -> np.ndarray:
        return reward

    def describe_reward(self, objective_names: Sequence[str]) -> str:
        return f"{', '.join(objective_names)}, gradients combined"


@dataclass(frozen=True)
class RewardMachine:
    """Two phases of learning: first performance and gap, then gap and aptitude.

        u0:  r = .5 performance + .5 gap        while average mastery is below `threshold`
        u1:  r = .5 gap + .5 aptitude           from there on

    The state follows from the observation alone, whose first entry is mastery, so the machine needs no memory and
    goes back to u0 where mastery falls.

    Source: policy orchestration, A.3.
    """

    threshold: float = 0.6

    def find_state(self, observation: np.ndarray) -> np.ndarray:
        """The phase of learning, 0 or 1, of each observation (E, 13): whether mastery has reached `threshold`."""
        mastery = observation[..., 0]
        is_above = mastery >= self.threshold - 1e-6  # observations are float32
        return is_above.astype(np.int64)

    def __call__(self, reward: np.ndarray, observation: np.ndarray) -> np.ndarray:
        """Training rewards (E,) of one step, by the phase of learning that each student is in.

        Args:
            reward: (E, 3) rewards of the objectives.
            observation: (E, 13) what the policy saw before the step; its first entry is mastery.
        """
        aptitude = reward[:, OBJECTIVES.index("aptitude")]
        gap = reward[:, OBJECTIVES.index("gap")]
        performance = reward[:, OBJECTIVES.index("performance")]

        reward_in_u0 = 0.5 * performance + 0.5 * gap
        reward_in_u1 = 0.5 * gap + 0.5 * aptitude
        return np.where(self.find_state(observation) == 1, reward_in_u1, reward_in_u0)

    def describe_reward(self, objective_names: Sequence[str]) -> str:
        return f"a reward machine of {', '.join(objective_names)}"


# Classes by the names that the settings of jobs know them by, so that a class may be renamed.
OBJECTIVE_TYPES = {
    "Linear": LinearScalarization,
    "Vector": VectorReward,
    "RewardMachine": RewardMachine,
}
