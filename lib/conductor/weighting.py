"""What says how much each reward counts for a rollout: a fixed vector, a random one, or the Conductor.

A weighting is asked once per step, with the states at the ends of all rollouts, and told afterwards what
advantages came of it. Only the Conductor (`lib.conductor.meta_policy_training`) listens.
"""

from collections.abc import Mapping

import numpy as np
import torch

from lib.conductor.rewards import COMPONENTS
from lib.experiment import seeds

VERSION = 1  # of fixed and random weights


class Weighting:
    """The interface, and what a weighting does that does not learn."""

    names: tuple[str, ...] = COMPONENTS  # of the rewards that its weights are for, in their order
    centred = False  # whether each reward's group mean is taken away before it is weighed

    def __call__(self, h: torch.Tensor, step: int) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Weights (B, K) of one step's rollouts in training, and the emphasis actions (B,) behind them, if any."""
        return self.settled(h), None

    def settled(self, h: torch.Tensor) -> torch.Tensor:
        """The weights (B, K) outside training, where nothing is drawn."""
        raise NotImplementedError

    def learn(
        self,
        advantage: torch.Tensor,
        rewards: torch.Tensor | None = None,
        quality: torch.Tensor | None = None,
        prompt: torch.Tensor | None = None,
    ) -> None:
        """What came of the last call, for those who learn: advantage (B,); rewards (B, K), normalised, in the order of
        `names`; quality (B,), what a verifier or judge says; prompt (B,), the numbers of the prompts."""

    def after_step(self) -> None:
        """Called when the policy's own update is done."""

    def state(self) -> dict[str, np.ndarray]:
        """Everything that the next call depends on."""
        return {}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Go on from `state`."""


class Fixed(Weighting):
    """The same weights for every rollout: static scalarisation."""

    def __init__(self, weights: Mapping[str, float]) -> None:
        """weights: by reward; what is not named counts nothing. Raises ValueError where nothing is named."""
        if not weights:
            raise ValueError("fixed weights need at least one reward")
        self.names = tuple(weights)
        self.weights = torch.tensor([float(weight) for weight in weights.values()])

    def settled(self, h: torch.Tensor) -> torch.Tensor:
        return self.weights.to(h.device).expand(*h.shape[:-1], -1)


class Dirichlet(Weighting):
    """Weights drawn evenly from the simplex for every response (the paper's Rand)."""

    def __init__(self, seed: int) -> None:
        self.stream = seeds.key("conductor", "random weights", seed=seed)

    def __call__(self, h: torch.Tensor, step: int) -> tuple[torch.Tensor, None]:
        numbers = h.shape[-2] * len(self.names)
        counter = step * numbers + np.arange(numbers).reshape(h.shape[-2], -1)
        spacing = -np.log1p(
            -seeds.uniform(self.stream, counter)
        )  # exponential; normalised it is Dirichlet(1, ..., 1)
        return torch.from_numpy(spacing / spacing.sum(-1, keepdims=True)).to(h), None

    def settled(self, h: torch.Tensor) -> torch.Tensor:
        return h.new_full((*h.shape[:-1], len(self.names)), 1 / len(self.names))
