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
class SampledOptions:
    """One choice of G controllers in each of r episodes: to answer, or to call an expert.

    Attributes:
        inputs: (G, r, inputs) what the networks read.
        options: (G, r) numbers of the options that were sampled; 0 calls nobody.
        logprobs: (G, r) their log-probabilities.
        values: (G, r) estimate V of the reward.
    """

    inputs: Tensor
    options: Tensor
    logprobs: Tensor
    values: Tensor


class BatchedControllers(nn.Module):
    """G controllers side by side, each a network with one hidden layer; a controller is the policy that routes a query.

    It reads the observation of the query, the budget, which expert was called, and the signal whether its reply looks
    correct. It chooses an option (0: answer, or hand on the reply; above 0: call an expert) and estimates the reward V.
    Before training all options are equally likely and V is 0, because the weights of both heads are 0.

    Written out by hand: `lib.rl.seed_batched.SeedBatched` takes 1.6 to 2 times as long for a training step of 32
    controllers (tests/benchmarks/test_seed_batched_speed.py).
    """

    def __init__(self, settings: RoutingSyntheticSettings, num_grid_points: int) -> None:
        """Initializes untrained controllers, one for each grid point and seed.

        Args:
            settings: Number of seeds, of kinds of queries, of experts (one per price) and of hidden units.
            num_grid_points: Number of settings of the environment; a seed has equal initial weights in all of them.
        """
        super().__init__()
        num_experts = len(settings.prices)
        self.num_options = 1 + num_experts
        num_inputs = settings.kinds + len(BUDGETS) + num_experts + 1  # the last one is the signal

        # Hidden weights differ between seeds.
        trunk_by_seed = []
        for seed in range(settings.seeds):
            rng = seeds.rng("routing", "synthetic", "weights", seed=seed)
            trunk_by_seed.append(rng.standard_normal((num_inputs, settings.hidden)))
        trunk = np.stack(trunk_by_seed * num_grid_points)  # (controllers, inputs, hidden)
        num_controllers = len(trunk)
        self.trunk = nn.Parameter(torch.tensor(trunk, dtype=torch.float32))
        self.trunk_bias = nn.Parameter(torch.zeros(num_controllers, 1, settings.hidden))

        # With zero weights in the heads all options are equally likely, and V is 0.
        self.actor = nn.Parameter(torch.zeros(num_controllers, settings.hidden, self.num_options))
        self.critic = nn.Parameter(torch.zeros(num_controllers, settings.hidden, 1))
        self.actor_bias = nn.Parameter(torch.zeros(num_controllers, 1, self.num_options))
        self.critic_bias = nn.Parameter(torch.zeros(num_controllers, 1, 1))

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Computes each controller's log-probabilities of all options, and its estimate V of the reward.

        Args:
            inputs: (G, r, inputs) from `encode_inputs`: r situations of each of G controllers.

        Returns:
            (G, r, A) log-probabilities of A options, and (G, r) values.
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
            observations: (..., K) what is observed of the queries, for K kinds.
            budget_words: (...) 0 where the budget is not in the prompt, else 1 + its index in BUDGETS.
            called_expert: (...) number of the expert that was called, 0 before the first choice.
            signals: (...) 1 where its reply looks correct, -1 where it looks wrong, 0 before the first choice.

        Returns:
            (..., inputs): observation, budget (one-hot), called expert (one-hot) and signal.
        """
        budget_one_hot = nn.functional.one_hot(budget_words, len(BUDGETS) + 1)[..., 1:]
        expert_one_hot = nn.functional.one_hot(called_expert, self.num_options)[..., 1:]
        return torch.cat([observations, budget_one_hot, expert_one_hot, signals[..., None]], -1)

    def sample_options(self, inputs: Tensor, uniforms: Tensor) -> SampledOptions:
        """Samples one option (answer, or call an expert) for each input, at temperature 1.

        Args:
            inputs: (G, r, inputs) from `encode_inputs`: r situations of each of G controllers.
            uniforms: (G, r) uniform random numbers in [0, 1), which decide.

        Returns:
            The inputs, the sampled options, their log-probabilities and V, (G, r) each.
        """
        logprobs, values = self(inputs)
        # The first option at which the distribution function reaches the uniform number. Rounding may leave the
        # function below 1 at the last option.
        is_below = logprobs.exp().cumsum(-1) < uniforms[..., None]  # (G, r, A)
        options = is_below.sum(-1).clamp(max=self.num_options - 1)
        option_logprobs = torch.gather(logprobs, 2, options[..., None])[..., 0]
        return SampledOptions(inputs, options, option_logprobs, values)

    @torch.no_grad()
    def compute_strategy(self, observations: Tensor, budget_in_prompt: bool = True) -> Strategy:
        """Computes the probabilities of every choice that the controllers may come to, under every budget.

        From these the mean reward follows exactly, without sampling (`synthetic_strategies.evaluate_strategy`).

        Args:
            observations: (G, n, K) what is observed of n queries by each of G controllers, for K kinds.
            budget_in_prompt: Whether the controllers read the budget.

        Returns:
            Their strategy at temperature 1, for each of the queries.
        """
        # A controller chooses before any call, and after each of A options and 2 signals: 1 + 2 A situations.
        options = torch.arange(float(self.num_options))
        after_first_choice = torch.cartesian_prod(options, torch.tensor([-1.0, 1.0]))  # (2 A, 2)
        situations = torch.cat([torch.zeros(1, 2), after_first_choice])
        called_expert = situations[:, 0].long()
        signals = situations[:, 1]

        # All situations of all n queries under all B budgets as inputs, (G, B, n, 1 + 2 A, inputs).
        num_controllers, num_queries, _ = observations.shape
        num_situations = len(situations)
        shape = (num_controllers, len(BUDGETS), num_queries, num_situations)
        budget_words = torch.arange(1, 1 + len(BUDGETS)) * budget_in_prompt  # (B,)
        inputs = self.encode_inputs(
            observations[:, None, :, None].expand(*shape, -1),
            budget_words[:, None, None].expand(shape),
            called_expert.expand(shape),
            signals.expand(shape),
        )
        logprobs, _ = self(inputs.flatten(1, 3))
        probabilities = logprobs.exp().view(*shape, -1)  # (G, B, n, 1 + 2 A, A)

        first = probabilities[:, :, :, 0]
        second = probabilities[:, :, :, 1:].unflatten(3, (self.num_options, 2)).clone()
        # After its own answer, option 0, a controller calls nobody.
        no_call = nn.functional.one_hot(torch.tensor(0), self.num_options).float()
        second[:, :, :, 0] = no_call
        return Strategy(first, second)
