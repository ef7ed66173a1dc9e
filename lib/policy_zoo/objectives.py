"""What a policy is paid for: how a vector reward becomes the training signal.

Three formulations of appendix A.3: fixed weights (single objectives and MO-S), a reward machine
(MO-RM), and the vector itself (MO-MGDA, where the combination happens among gradients).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from lib.envs.education import OBJECTIVES

VERSION = 1  # of what policies are paid


class Objective(Protocol):
    """Maps vector rewards (E, k) and the observations acted on (E, ...) to training rewards (E,) or (E, V)."""

    def __call__(self, reward: np.ndarray, observation: np.ndarray) -> np.ndarray: ...

    def told(self, names: Sequence[str]) -> str:
        """What is paid for, in the names of the k objectives."""


@dataclass(frozen=True)
class Linear:
    """r = sum_i w_i r_i (equation 2); one weight alone is a single-objective policy."""

    weights: tuple[float, ...]

    def __call__(self, reward: np.ndarray, observation: np.ndarray) -> np.ndarray:
        return reward @ np.asarray(self.weights)

    def told(self, names: Sequence[str]) -> str:
        paid = [(w, name) for w, name in zip(self.weights, names, strict=True) if w]
        return " + ".join(name if w == 1 else f"{w:.2g} {name}" for w, name in paid)


@dataclass(frozen=True)
class Vector:
    """All objectives, uncombined."""

    def __call__(self, reward: np.ndarray, observation: np.ndarray) -> np.ndarray:
        return reward

    def told(self, names: Sequence[str]) -> str:
        return f"{', '.join(names)}, gradients combined"


@dataclass(frozen=True)
class RewardMachine:
    """Two phases: u0 pays performance and gap, u1 gap and aptitude (A.3).

    The machine is in u1 while average mastery is at least `threshold` and in u0 otherwise, so its
    state follows from the observation acted on, whose first entry is mastery.
    """

    threshold: float = 0.6

    def state(self, observation: np.ndarray) -> np.ndarray:
        """0 or 1 for each of the observations (E, 13)."""
        return (observation[..., 0] >= self.threshold - 1e-6).astype(np.int64)

    def __call__(self, reward: np.ndarray, observation: np.ndarray) -> np.ndarray:
        by_name = {name: reward[:, i] for i, name in enumerate(OBJECTIVES)}
        u0 = 0.5 * by_name["performance"] + 0.5 * by_name["gap"]
        u1 = 0.5 * by_name["gap"] + 0.5 * by_name["aptitude"]
        return np.where(self.state(observation) == 1, u1, u0)

    def told(self, names: Sequence[str]) -> str:
        return f"a reward machine of {', '.join(names)}"


# by the names that recipes in the settings of a job know them by
KINDS = {"Linear": Linear, "Vector": Vector, "RewardMachine": RewardMachine}
