"""Weightings: what decides how much each reward counts for a rollout. Fixed weights, random ones, or the Conductor.

A policy is trained with the weighted sum of several rewards, R = sum_k w_k r_k. A weighting is called once per GRPO
step, with the hidden states at the ends of all rollouts, and returns w. Afterwards it is handed the advantages that
followed from its weights; only the Conductor (`lib.conductor.meta_policy_training`) learns from them.

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
        rewards: (..., B, K) rewards as they are weighted, in the order of `Weighting.names`.
        quality: (..., B) what a verifier or judge says that the replies are worth; None where none is asked.
        prompt: (..., B) number of each rollout's prompt in the training data.
    """

    advantage: torch.Tensor
    rewards: torch.Tensor | None = None
    quality: torch.Tensor | None = None
    prompt: torch.Tensor | None = None


class Weighting:
    """The interface of all weightings; its defaults are those of one that samples and learns nothing.

    Attributes:
        names: The rewards that are weighted, in the order of the weights.
        centred: Whether each reward's mean in its group (the rollouts of one prompt) is subtracted before weighting.
    """

    names: tuple[str, ...] = COMPONENTS
    centred = False

    def weigh_rollouts(
        self, h: torch.Tensor, step: int
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Weigh the rewards of one training step. The default samples nothing: these are the mean weights.

        Args:
            h: (..., B, d) hidden states at the ends of the rollouts.
            step: Number of the GRPO step; it selects the random numbers.

        Returns:
            (..., B, K) weights; and (..., B) the emphasis of each rollout, the index of the reward whose weight was
            raised by chance, or None for weightings that sample none.
        """
        return self.compute_mean_weights(h), None

    def compute_mean_weights(self, h: torch.Tensor) -> torch.Tensor:
        """Compute the weights outside training, where nothing is sampled.

        Args:
            h: (..., B, d) hidden states at the ends of the rollouts.

        Returns:
            (..., B, K) weights.
        """
        raise NotImplementedError

    def learn(self, outcomes: RolloutOutcomes) -> None:
        """Learn from what followed from the weights of the last `weigh_rollouts`. The default learns nothing."""

    def finish_step(self) -> None:
        """Called after the policy's own update."""

    def get_state(self) -> dict[str, np.ndarray]:
        """Everything that the next call depends on, for a checkpoint."""
        return {}

    def load_state(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Continue from `get_state`."""


class FixedWeighting(Weighting):
    """The same weights for every rollout: static scalarisation.

    Attributes:
        weights: (K,) in the order of `names`.
    """

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
        # (K,) to (..., B, K)
        return self.weights.to(h.device).expand(*h.shape[:-1], -1)


class RandomWeighting(Weighting):
    """Weights sampled uniformly from the simplex for every response (the paper's Random-Weights).

    Attributes:
        stream: Key of the random numbers; (S, 1, 1) keys where several seeds are batched.
    """

    def __init__(self, seed: int) -> None:
        """Name the stream of random numbers.

        Args:
            seed: Seed of the weights.
        """
        self.stream = seeds.key("conductor", "random weights", seed=seed)

    def weigh_rollouts(self, h: torch.Tensor, step: int) -> tuple[torch.Tensor, None]:
        """Sample weights for every rollout of a step.

        Args:
            h: (..., B, d) hidden states; only their shape is read.
            step: Number of the GRPO step; it selects the random numbers.

        Returns:
            (..., B, K) weights, rows sum to 1; and None, as no reward is emphasised.
        """
        num_rollouts = h.shape[-2]
        num_rewards = len(self.names)

        # Uniform random numbers, (..., B, K): the stream is read on from where the last step ended.
        numbers_per_step = num_rollouts * num_rewards
        positions = step * numbers_per_step + np.arange(numbers_per_step)
        uniforms = seeds.uniform(self.stream, positions.reshape(num_rollouts, num_rewards))

        # Exponential variables divided by their sum are Dirichlet(1, ..., 1), uniform on the simplex.
        exponentials = -np.log1p(-uniforms)
        weights = exponentials / exponentials.sum(-1, keepdims=True)
        return torch.from_numpy(weights).to(h), None

    def compute_mean_weights(self, h: torch.Tensor) -> torch.Tensor:
        num_rewards = len(self.names)
        # The mean of Dirichlet(1, ..., 1): all rewards count alike.
        return h.new_full((*h.shape[:-1], num_rewards), 1 / num_rewards)
