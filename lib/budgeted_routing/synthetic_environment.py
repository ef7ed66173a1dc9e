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
        """Computes the joint probability of a reply being and looking correct, by kind of query and option.

        An option is to answer (option 0, the controller itself) or to call one of the experts. A signal says whether an
        expert's reply looks correct; the controller's own answer has none, which is written as one that is random.

        Returns:
            (G, K, A, 2, 2) for G environments, K kinds and A options; the last two axes are the reply (0 wrong, 1
            correct) and its signal (0 looks wrong, 1 looks correct).
        """
        reply_probability = torch.stack([1 - self.accuracy, self.accuracy], -1)  # (G, K, A, 2)
        p = self.reply_signal_accuracy
        signal_given_reply = torch.tensor([[p, 1 - p], [1 - p, p]])  # (reply, signal)

        # P(reply, signal) = P(reply) P(signal | reply)
        joint = reply_probability[..., None] * signal_given_reply  # (G, K, A, 2, 2)
        joint[:, :, 0] = reply_probability[:, :, 0, :, None] / 2
        return joint

    def compute_beliefs(self, observations: Tensor) -> Tensor:
        """Computes the posterior probability of every kind of query given what is observed of the query (Bayes' rule).

        All kinds are equally likely. A query of kind k is observed as the k-th unit vector plus Gaussian noise of
        standard deviation `noise`, so that its log-density is x_k / noise^2 up to a term that all kinds share.

        Args:
            observations: (G, n, K) from `make_queries`, for G environments, n queries and K kinds.

        Returns:
            (G, n, K) P(kind | observation).
        """
        return torch.softmax(observations / self.noise**2, -1)


def make_environments(
    settings: RoutingSyntheticSettings, grid_points: Sequence[Mapping[str, float]]
) -> RoutingEnvironments:
    """Makes synthetic environments, in which a controller routes queries to experts: one per grid point and seed.

    Experts are specialists, each best on one kind of query, and a generalist, the last and most expensive one. Seeds
    differ by noise on all accuracies, which is the same at all grid points, so that grid points are compared in pairs.

    Args:
        settings: Accuracies, prices and budgets; `seeds` is the number of environments at each grid point.
        grid_points: Values of the KNOBS. complementarity: from 0, where a specialist is equally good on all kinds, to
            1, where it is much better on its kind; spread: exponent of the prices, 0 for equal prices; noise: standard
            deviation of the noise in observations.

    Returns:
        len(grid_points) x `seeds` environments, grid point after grid point and in each seed after seed.
    """
    num_options = 1 + len(settings.prices)
    noise_by_seed = []
    for seed in range(settings.seeds):
        rng = seeds.rng("routing", "synthetic", "world", seed=seed)
        noise_by_seed.append(rng.standard_normal((settings.kinds, num_options)))

    accuracy = []
    price = []
    noise = []
    for grid_point in grid_points:
        mean_accuracy = _compute_mean_accuracy(settings, grid_point["complementarity"])  # (K, A)
        option_price = [0.0, *(np.array(settings.prices) ** grid_point["spread"])]  # (A,)
        for standard_normal in noise_by_seed:
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
    """Computes the accuracy of every option on every kind of query, as a mean over environments.

    Option 0 is the controller's own answer, the last one the generalist, and those between are specialists.

    Args:
        settings: `self_accuracy` of the controller, `generalist` and `specialist` of experts, and
            `specialist_advantage`, how far a specialist is above or below that at full complementarity.
        complementarity: From 0, where a specialist is equally good on all kinds, to 1.

    Returns:
        (kinds, options) probabilities of a correct answer.
    """
    advantage = settings.specialist_advantage * complementarity
    num_specialists = len(settings.prices) - 1

    accuracy = np.full((settings.kinds, 1 + len(settings.prices)), settings.specialist - advantage)
    accuracy[:, 0] = settings.self_accuracy
    accuracy[:, -1] = settings.generalist
    for specialist in range(num_specialists):
        best_kind = specialist % settings.kinds
        accuracy[best_kind, 1 + specialist] = settings.specialist + advantage
    return accuracy


def draw_uniforms(
    settings: RoutingSyntheticSettings, stream: str, num_episodes: int, batch_number: int = 0
) -> Tensor:
    """Draws all random numbers that episodes of the synthetic environment need.

    They are the same for every variant of training and at every grid point, so that comparisons are paired.

    Args:
        settings: `kinds` is the number of kinds of queries, `seeds` the number of environments.
        stream: Name of the random stream, such as "episodes".
        num_episodes: Number of episodes of each seed.
        batch_number: Number of the batch; each has other random numbers.

    Returns:
        (seeds, num_episodes, 1 + kinds + 5) uniform numbers in [0, 1): one for the kind of the query, `kinds` for the
        noise of its observation, and the five of UNIFORMS_OF_TURNS (choices, replies and the signal).
    """
    num_uniforms = 1 + settings.kinds + len(UNIFORMS_OF_TURNS)
    keys = seeds.keys("routing", "synthetic", stream, batch_number, n=settings.seeds)  # (seeds,)
    uniforms = seeds.uniform(keys[:, None], np.arange(num_episodes * num_uniforms))
    uniforms = torch.tensor(uniforms, dtype=torch.float32)
    return uniforms.view(settings.seeds, num_episodes, num_uniforms)


def make_queries(environments: RoutingEnvironments, uniforms: Tensor) -> tuple[Tensor, Tensor]:
    """Makes queries: the kind of each, and the noisy observation of it that is all a controller reads.

    Args:
        environments: G environments; number of kinds K and noise of observations.
        uniforms: (G, n, 1 + K or more) uniform numbers in [0, 1) from `draw_uniforms`, for n queries: the first decides
            the kind, the next K the noise; what follows is not read.

    Returns:
        kinds (G, n), and observations (G, n, K): the unit vector of the kind plus Gaussian noise.
    """
    num_kinds = environments.accuracy.shape[1]
    kinds = (uniforms[..., 0] * num_kinds).long()

    # The inverse of the normal distribution function is infinite at 0 and 1.
    uniforms_of_noise = uniforms[..., 1 : 1 + num_kinds].clamp(1e-6, 1 - 1e-6)
    standard_normal = torch.special.ndtri(uniforms_of_noise)  # (G, n, K)
    observations = nn.functional.one_hot(kinds, num_kinds) + environments.noise * standard_normal
    return kinds, observations
