"""Weightings: what decides how much each reward counts for a rollout. Fixed weights, random ones, or the Conductor.

A weighting is called once per GRPO step, with the hidden states at the ends of all rollouts. Afterwards it learns what
advantages followed from its weights. Only the Conductor (`lib.conductor.meta_policy_training`) uses that.

Letters of shapes: B rollouts of a step, d width of a state, K rewards.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from lib.conductor.rewards import COMPONENTS
from lib.experiment import seeds

VERSION = 1  # of fixed and random weights


@dataclass(frozen=True)
class RolloutOutcomes:
    """What is known of a step's rollouts once the policy's advantages are computed.

    Attributes:
        advantage: (..., B) group-relative advantages that the policy is trained with.
        rewards: (..., B, K) normalised rewards, in the order of `Weighting.names`.
        quality: (..., B) verified quality; None where nothing is verified.
        prompt: (..., B) numbers of the prompts.
    """

    advantage: torch.Tensor
    rewards: torch.Tensor | None = None
    quality: torch.Tensor | None = None
    prompt: torch.Tensor | None = None


class Weighting:
    """The interface, and the default of a weighting that does not learn.

    Attributes:
        names: Rewards that the weights are for, in the order of the weights.
        centred: Whether each reward's group mean is subtracted before it is weighted.
    """

    names: tuple[str, ...] = COMPONENTS
    centred = False

    def weigh_rollouts(
        self, h: torch.Tensor, step: int
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Weights of one training step.

        Args:
            h: (B, d) hidden states.
            step: Number of the GRPO step; it selects the random numbers.

        Returns:
            (B, K) weights, and (B,) sampled emphases, None where none are sampled.
        """
        return self.compute_mean_weights(h), None

    def compute_mean_weights(self, h: torch.Tensor) -> torch.Tensor:
        """Weights (B, K) outside training, where nothing is sampled."""
        raise NotImplementedError

    def learn(self, outcomes: RolloutOutcomes) -> None:
        """Learn from the outcomes of the last `weigh_rollouts`. The default learns nothing."""

    def finish_step(self) -> None:
        """Called after the policy's own update."""

    def get_state(self) -> dict[str, np.ndarray]:
        """Everything that the next call depends on, for a checkpoint."""
        return {}

    def load_state(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Continue from `get_state`."""


class FixedWeighting(Weighting):
    """The same weights for every rollout: static scalarisation."""

    def __init__(self, weights: Mapping[str, float]) -> None:
        """Keep the weights.

        Args:
            weights: By reward; rewards that are not named count nothing.

        Raises:
            ValueError: No reward is named.
        """
        if not weights:
            raise ValueError("fixed weights need at least one reward")
        self.names = tuple(weights)
        self.weights = torch.tensor([float(weight) for weight in weights.values()])

    def compute_mean_weights(self, h: torch.Tensor) -> torch.Tensor:
        return self.weights.to(h.device).expand(*h.shape[:-1], -1)


class RandomWeighting(Weighting):
    """Weights sampled uniformly from the simplex for every response (the paper's Random-Weights).

    Attributes:
        stream: Key of the random numbers; (S, 1, 1) keys where several seeds are batched.
    """

    def __init__(self, seed: int) -> None:
        self.stream = seeds.key("conductor", "random weights", seed=seed)

    def weigh_rollouts(self, h: torch.Tensor, step: int) -> tuple[torch.Tensor, None]:
        num_rollouts, num_rewards = h.shape[-2], len(self.names)
        first = step * num_rollouts * num_rewards
        # (B, K) random numbers, no two of a training the same.
        counters = first + np.arange(num_rollouts * num_rewards).reshape(num_rollouts, num_rewards)
        # Exponential variables divided by their sum are Dirichlet(1, ..., 1), uniform on the simplex.
        exponentials = -np.log1p(-seeds.uniform(self.stream, counters))
        weights = exponentials / exponentials.sum(-1, keepdims=True)
        return torch.from_numpy(weights).to(h), None

    def compute_mean_weights(self, h: torch.Tensor) -> torch.Tensor:
        num_rewards = len(self.names)
        # The mean of Dirichlet(1, ..., 1), which is Equal.
        return h.new_full((*h.shape[:-1], num_rewards), 1 / num_rewards)
