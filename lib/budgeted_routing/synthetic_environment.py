"""CoRL's synthetic environment: routing queries under a budget, with few enough options that the optimum is computed.

A query is of one of K kinds, and a noisy observation of the kind is all that a controller (the model that decides)
sees of it. One episode:

1. The controller answers the query itself, or calls one of E experts for a price.
2. The expert's reply is correct with a known probability, which depends on the kind. A signal says whether the reply
   looks correct, and is itself right with probability `reply_signal_accuracy`.
3. The controller hands on the reply, or calls one expert more and hands on its reply.

The reward is CoRL's (`rl.budget_reward`): 1 for a correct answer whose calls cost at most the budget, else 0. Each of
many controllers has an environment of its own, and all of them are held in one stack of tensors.

Letters of shapes: G environments, K kinds, A = 1 + E options (option 0 is to stop: to answer, or to hand on the reply),
B budgets, n queries.

Left out, beside the lab: prompts and words, malformed turns, and the cost of the controller's own tokens. What a
strategy earns in these environments is in `synthetic_strategies`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from lib.config import RoutingSyntheticSettings
from lib.experiment import seeds

BUDGETS = ("low", "medium", "high")
KNOBS = ("complementarity", "spread", "noise")  # in which environments differ beyond their seed

# Uniform numbers of an episode: the kind, K for the observation, and those of UNIFORMS_OF_TURNS in this order.
UNIFORMS_OF_TURNS = (
    "first choice",
    "first reply",
    "signal of the first reply",
    "second choice",
    "second reply",
)
# Accuracies of an environment are kept away from 0 and 1, so that every expert errs now and then.
LOWEST_ACCURACY = 0.02
HIGHEST_ACCURACY = 0.98


@dataclass(frozen=True)
class RoutingEnvironments:
    """A stack of G environments, one for each controller that is trained.

    Attributes:
        accuracy: (G, K, A) probability that the answer of each option is correct, by kind of query.
        price: (G, A) cost of a call; 0 for option 0, which calls nobody.
        budget: (B,) what an episode may cost, in the unit of `price`.
        noise: (G, 1, 1) standard deviation of the noise in what is observed of a kind.
        reply_signal_accuracy: Probability that a correct reply looks correct, and that a wrong one looks wrong.

    Raises:
        ValueError: A probability, a price or the noise is out of its range.
    """

    accuracy: Tensor
    price: Tensor
    budget: Tensor
    noise: Tensor
    reply_signal_accuracy: float

    def __post_init__(self):
        if (self.accuracy < 0).any() or (self.accuracy > 1).any():
            raise ValueError(
                f"accuracies are probabilities in [0, 1], got {float(self.accuracy.min()):g} to "
                f"{float(self.accuracy.max()):g}; clip them"
            )
        if not 0.5 <= self.reply_signal_accuracy <= 1:
            raise ValueError(
                f"reply_signal_accuracy must lie in [0.5, 1], got {self.reply_signal_accuracy:g}; "
                "0.5 is a signal that says nothing"
            )
        if (self.price < 0).any():
            raise ValueError(
                f"prices must not be negative, got {float(self.price.min()):g}; 0 is free of charge"
            )
        if (self.noise <= 0).any():
            raise ValueError(
                f"noise must be above 0, got {float(self.noise.min()):g}; "
                "Bayes' rule divides by its square"
            )

    def compute_reply_probabilities(self) -> Tensor:
        """Joint probability of the correctness of a reply and of its signal, by kind and option.

        Returns:
            (G, K, A, 2, 2): the last two are the reply (0 wrong, 1 correct) and its signal (0 looks wrong, 1 looks
            correct). The controller's own answer has no signal, which is written as one that is random.
        """
        reply_probability = torch.stack([1 - self.accuracy, self.accuracy], -1)  # (G, K, A, 2)
        p = self.reply_signal_accuracy
        signal_given_reply = torch.tensor([[p, 1 - p], [1 - p, p]])  # (reply, signal)

        # P(reply, signal) = P(reply) P(signal | reply)
        joint = reply_probability[..., None] * signal_given_reply  # (G, K, A, 2, 2)
        joint[:, :, 0] = reply_probability[:, :, 0, :, None] / 2
        return joint

    def compute_beliefs(self, observations: Tensor) -> Tensor:
        """Posterior probability of every kind given what is observed of a query.

        Kinds are equally likely. The observation of kind k is the k-th unit vector with Gaussian noise of standard
        deviation `noise`, so that its log-density is x_k / noise^2 but for what all kinds share.

        Args:
            observations: (G, n, K) from `make_queries`.

        Returns:
            (G, n, K) P(kind | observation), by Bayes' rule.
        """
        return torch.softmax(observations / self.noise**2, -1)


def make_environments(
    settings: RoutingSyntheticSettings, grid_points: Sequence[Mapping[str, float]]
) -> RoutingEnvironments:
    """Makes the environments of all seeds at every grid point.

    The experts are specialists, each for one kind, and a generalist, which is the last and the most expensive. The
    environment of a seed differs from that of another by noise on all accuracies, which is the same at all grid
    points.

    Args:
        settings: Accuracies, prices and budgets.
        grid_points: Values of KNOBS. complementarity: from 0, where a specialist is equally good on all kinds, to 1,
            where it is much better on its kind; spread: exponent of the prices, 0 for equal prices; noise: standard
            deviation of the noise in observations.

    Returns:
        G = len(grid_points) * settings.seeds environments, grid point after grid point and in each seed after seed.
    """
    num_options = 1 + len(settings.prices)
    accuracy_noise = [
        seeds.rng("routing", "synthetic", "world", seed=seed).standard_normal(
            (settings.kinds, num_options)
        )
        for seed in range(settings.seeds)
    ]

    accuracy = []
    price = []
    noise = []
    for grid_point in grid_points:
        mean_accuracy = _compute_mean_accuracy(settings, grid_point["complementarity"])  # (K, A)
        option_price = [0.0, *(np.array(settings.prices) ** grid_point["spread"])]  # (A,)
        for standard_normal in accuracy_noise:
            noisy_accuracy = mean_accuracy + settings.accuracy_noise * standard_normal
            accuracy.append(np.clip(noisy_accuracy, LOWEST_ACCURACY, HIGHEST_ACCURACY))
            price.append(option_price)
            noise.append(grid_point["noise"])

    return RoutingEnvironments(
        accuracy=torch.tensor(np.array(accuracy), dtype=torch.float32),
        price=torch.tensor(np.array(price), dtype=torch.float32),
        budget=torch.tensor([settings.budgets[name] for name in BUDGETS]),
        noise=torch.tensor(np.array(noise), dtype=torch.float32)[:, None, None],
        reply_signal_accuracy=settings.reply_signal_accuracy,
    )


def _compute_mean_accuracy(
    settings: RoutingSyntheticSettings, complementarity: float
) -> np.ndarray:
    """Accuracy of every option on every kind before the noise between environments, (K, A)."""
    advantage = settings.specialist_advantage * complementarity
    num_specialists = len(settings.prices) - 1

    accuracy = np.full((settings.kinds, 1 + len(settings.prices)), settings.specialist - advantage)
    accuracy[:, 0] = settings.self_accuracy
    accuracy[:, -1] = settings.generalist
    for specialist in range(num_specialists):
        kind = specialist % settings.kinds  # the one that it is good at
        accuracy[kind, 1 + specialist] = settings.specialist + advantage
    return accuracy


def draw_uniforms(
    settings: RoutingSyntheticSettings, stream: str, num_episodes: int, number: int = 0
) -> Tensor:
    """Draws all random numbers that episodes need.

    They are the same for every variant of training and at every grid point, so that comparisons are paired.

    Args:
        settings: Number of kinds and seeds.
        stream: Name of the random stream.
        num_episodes: Of each seed.
        number: Number of the batch of episodes.

    Returns:
        (seeds, num_episodes, 1 + K + 5) uniform numbers: of the kind, of the observation, and UNIFORMS_OF_TURNS.
    """
    num_uniforms = 1 + settings.kinds + len(UNIFORMS_OF_TURNS)
    keys = seeds.keys("routing", "synthetic", stream, number, n=settings.seeds)  # (seeds,)
    uniforms = seeds.uniform(keys[:, None], np.arange(num_episodes * num_uniforms))
    return torch.tensor(uniforms, dtype=torch.float32).view(
        settings.seeds, num_episodes, num_uniforms
    )


def make_queries(environments: RoutingEnvironments, uniforms: Tensor) -> tuple[Tensor, Tensor]:
    """Makes queries: their kinds, and what a controller observes of them.

    Args:
        environments: Of G controllers.
        uniforms: (G, n, 1 + K or more) from `draw_uniforms`; what follows the first 1 + K is not read.

    Returns:
        kinds (G, n), and observations (G, n, K): the unit vector of the kind with Gaussian noise.
    """
    num_kinds = environments.accuracy.shape[1]
    kinds = (uniforms[..., 0] * num_kinds).long()

    # The inverse of the normal distribution function is infinite at 0 and 1.
    uniforms_of_noise = uniforms[..., 1 : 1 + num_kinds].clamp(1e-6, 1 - 1e-6)
    standard_normal = torch.special.ndtri(uniforms_of_noise)  # (G, n, K)
    observations = nn.functional.one_hot(kinds, num_kinds) + environments.noise * standard_normal
    return kinds, observations
