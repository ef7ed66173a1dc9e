"""The controllers of CoRL's synthetic environment: small networks, which choose options and estimate values.

As in the lab, probabilities of options and the value V are heads on one trunk, and the budget is part of the input.
Here the trunk is one hidden layer, and G controllers are computed at once, each with weights and an environment of its
own.

Letters of shapes: G controllers, r inputs of each, K kinds, A options, B budgets.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from lib.budgeted_routing.synthetic_environment import BUDGETS
from lib.budgeted_routing.synthetic_strategies import Strategy
from lib.config import RoutingSyntheticSettings
from lib.experiment import seeds


@dataclass(frozen=True)
class Choices:
    """One choice in each of r episodes of G controllers.

    Attributes:
        inputs: (G, r, inputs) what the networks read.
        options: (G, r) numbers of the options that were sampled.
        logprobs: (G, r) their log-probabilities.
        values: (G, r) V of the inputs.
    """

    inputs: Tensor
    options: Tensor
    logprobs: Tensor
    values: Tensor


class BatchedControllers(nn.Module):
    """G controllers side by side, each a network with one hidden layer.

    They read the observation of the query, the budget, which expert was called, and the signal of its reply. At the
    start all options are equally likely and V is 0, because the weights of both heads are 0.

    Written out by hand: `lib.rl.seed_batched.SeedBatched` takes 1.6 to 2 times as long for a training step of 32
    controllers (tests/benchmarks/test_seed_batched_speed.py).
    """

    def __init__(self, settings: RoutingSyntheticSettings, num_grid_points: int) -> None:
        """Makes the controllers before training.

        Args:
            settings: Seeds, kinds, experts and hidden units.
            num_grid_points: Controllers of each seed, which start with equal weights.
        """
        super().__init__()
        self.num_options = 1 + len(settings.prices)
        num_experts = self.num_options - 1
        num_inputs = settings.kinds + len(BUDGETS) + num_experts + 1  # the last one is the signal

        trunk_by_seed = []
        for seed in range(settings.seeds):
            rng = seeds.rng("routing", "synthetic", "weights", seed=seed)
            trunk_by_seed.append(rng.standard_normal((num_inputs, settings.hidden)))
        trunk = np.stack(trunk_by_seed * num_grid_points)  # (G, inputs, hidden)

        num_controllers = len(trunk)
        self.trunk = nn.Parameter(torch.tensor(trunk, dtype=torch.float32))
        self.trunk_bias = nn.Parameter(torch.zeros(num_controllers, 1, settings.hidden))
        self.actor = nn.Parameter(torch.zeros(num_controllers, settings.hidden, self.num_options))
        self.critic = nn.Parameter(torch.zeros(num_controllers, settings.hidden, 1))
        self.actor_bias = nn.Parameter(torch.zeros(num_controllers, 1, self.num_options))
        self.critic_bias = nn.Parameter(torch.zeros(num_controllers, 1, 1))

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probabilities of all options, and V.

        Args:
            inputs: (G, r, inputs) from `encode_inputs`.

        Returns:
            (G, r, A) log-probabilities, and (G, r) values.
        """
        # baddbmm(bias, x, weights) is x_g W_g + b_g for every controller g.
        hidden = torch.tanh(torch.baddbmm(self.trunk_bias, inputs, self.trunk))  # (G, r, hidden)
        scores = torch.baddbmm(self.actor_bias, hidden, self.actor)  # (G, r, A)
        # Three times as fast as log_softmax over a few options.
        logprobs = scores - scores.logsumexp(-1, keepdim=True)
        values = torch.baddbmm(self.critic_bias, hidden, self.critic)  # (G, r, 1)
        return logprobs, values[..., 0]

    def encode_inputs(
        self, observations: Tensor, budget_words: Tensor, called_expert: Tensor, signals: Tensor
    ) -> Tensor:
        """Puts what a controller reads before a choice into one vector.

        Args:
            observations: (..., K) of the queries.
            budget_words: (...) 0 where the budget is not in the prompt, else 1 + its index in BUDGETS.
            called_expert: (...) number of the expert that was called, 0 before the first choice.
            signals: (...) 1 where its reply looks correct, -1 where it looks wrong, 0 before the first choice.

        Returns:
            (..., inputs), budget and expert one-hot.
        """
        budget_one_hot = nn.functional.one_hot(budget_words, len(BUDGETS) + 1)[..., 1:]
        expert_one_hot = nn.functional.one_hot(called_expert, self.num_options)[..., 1:]
        return torch.cat([observations, budget_one_hot, expert_one_hot, signals[..., None]], -1)

    def sample_options(self, inputs: Tensor, uniforms: Tensor) -> Choices:
        """Samples one option for each input, at temperature 1.

        Args:
            inputs: (G, r, inputs) from `encode_inputs`.
            uniforms: (G, r) uniform numbers in [0, 1), which decide.
        """
        logprobs, values = self(inputs)
        # The first option at which the distribution function reaches the uniform number. Rounding may leave the
        # function below 1 at the last option.
        is_below = logprobs.exp().cumsum(-1) < uniforms[..., None]  # (G, r, A)
        options = is_below.sum(-1).clamp(max=self.num_options - 1)
        option_logprobs = torch.gather(logprobs, 2, options[..., None])[..., 0]
        return Choices(inputs, options, option_logprobs, values)

    @torch.no_grad()
    def compute_strategy(self, observations: Tensor, budget_in_prompt: bool = True) -> Strategy:
        """Probabilities of all choices that the controllers may come to, under every budget.

        Args:
            observations: (G, n, K) of n queries.
            budget_in_prompt: Whether they read the budget.

        Returns:
            Their strategy at temperature 1, for each of the queries.
        """
        # A controller chooses before any call, and after every option and signal: 1 + 2 A situations.
        options = torch.arange(float(self.num_options))
        after_first_choice = torch.cartesian_prod(options, torch.tensor([-1.0, 1.0]))  # (2 A, 2)
        situations = torch.cat([torch.zeros(1, 2), after_first_choice])
        called_expert = situations[:, 0].long()
        signals = situations[:, 1]

        # All situations of all queries under all budgets as inputs, (G, B, n, 1 + 2 A, inputs).
        num_controllers, num_queries, _ = observations.shape
        shape = (num_controllers, len(BUDGETS), num_queries, len(situations))
        budget_words = torch.arange(1, 1 + len(BUDGETS))[None, :, None, None] * budget_in_prompt
        inputs = self.encode_inputs(
            observations[:, None, :, None].expand(*shape, -1),
            budget_words.expand(shape),
            called_expert.expand(shape),
            signals.expand(shape),
        )
        logprobs, _ = self(inputs.flatten(1, 3))
        probabilities = logprobs.exp().view(*shape, -1)  # (G, B, n, 1 + 2 A, A)

        first = probabilities[:, :, :, 0]
        second = probabilities[:, :, :, 1:].unflatten(3, (self.num_options, 2)).clone()
        # After its own answer a controller calls nobody.
        stop = nn.functional.one_hot(torch.tensor(0), self.num_options).float()
        second[:, :, :, 0] = stop
        return Strategy(first, second)
