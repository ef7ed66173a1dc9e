"""What strategies earn in CoRL's synthetic environment, exactly: their values, the optimum and the baselines.

A strategy says which option follows a query, and which follows the reply and its signal. An episode is a path (first
option, signal, second option), of which there are few, so that means over episodes are sums over paths instead of
samples, and the best strategy is found by comparing paths.

Letters of shapes and sums: g of G environments, k of K kinds, n queries, b of B budgets, i of A first options, c for
whether the first reply is correct, s for its signal (0 looks wrong, 1 looks correct), j of A second options.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lib.budgeted_routing.synthetic_environment import RoutingEnvironments
from lib.rl import budget_reward

CONTROLLER_ALONE = "controller alone"
BEST_CONSTANT = "best constant"
BEST_WITHOUT_QUERY = "best without the query"
OPTIMUM = "optimum"


@dataclass(frozen=True)
class Strategy:
    """Probabilities of the two choices of an episode: to answer or call an expert, and what to do after its reply.

    Shapes: G environments, B budgets, n queries (1 where the strategy does not depend on the query), A options (option
    0 answers or hands on the reply, the others call an expert).

    Attributes:
        first: (G, B, n, A) of the first option.
        second: (G, B, n, A, 2, A) of the second option, given the first one and the signal whether its reply looks
            correct. After option 0, which answers, only option 0 is possible.
    """

    first: Tensor
    second: Tensor

    def make_greedy(self) -> Strategy:
        """Makes the strategy that always takes the likeliest option, as a policy at temperature 0 does.

        Returns:
            A strategy of the same shapes, with probabilities 0 and 1.
        """
        return make_deterministic_strategy(
            self.first.argmax(-1), self.second.argmax(-1), self.first.shape[-1]
        )


def make_deterministic_strategy(
    first_options: Tensor, second_options: Tensor, num_options: int
) -> Strategy:
    """Makes the strategy that takes given options with probability 1.

    Shapes: G environments, B budgets, n queries, A options.

    Args:
        first_options: (G, B, n) numbers of the first options; 0 answers, the others call an expert.
        second_options: (G, B, n, A, 2) numbers of the second ones, by first option and signal (0 the reply looks wrong,
            1 it looks correct).
        num_options: A.

    Returns:
        The strategy, with probabilities 0 and 1.
    """
    return Strategy(
        first=nn.functional.one_hot(first_options, num_options).float(),
        second=nn.functional.one_hot(second_options, num_options).float(),
    )


@dataclass(frozen=True)
class PathOutcomes:
    """What every path through an episode leads to: first option i, signal s of its reply, second option j.

    Shapes: G environments, n queries, A options (0 calls nobody), 2 signals (0 looks wrong, 1 looks correct).

    Attributes:
        signal_probability: (G, n, A, 2) P(s | i) for each query.
        correct_probability: (G, n, A, 2, A) P(s and the answer that is handed on is correct | i, j).
        cost_usd: (G, A, A) cost of the calls i and j together.
    """

    signal_probability: Tensor
    correct_probability: Tensor
    cost_usd: Tensor


def compute_path_outcomes(environments: RoutingEnvironments, beliefs: Tensor) -> PathOutcomes:
    """Computes signal, correctness and cost of every path through an episode, averaged over kinds of the query.

    A path is a first option i (0 answers, others call an expert), the signal s whether its reply looks correct, and a
    second option j (0 hands on the reply, others call an expert whose reply is handed on). Sums are over kinds k and
    over c, whether the first reply is correct.

    Args:
        environments: G environments with K kinds of queries and A options.
        beliefs: (G, n, K) probability of every kind, for each of n queries.

    Returns:
        Probabilities and costs of all paths.
    """
    reply_probability = environments.compute_reply_probabilities()  # (G, K, A, 2, 2)

    # P(s | i) = sum_k P(k) sum_c P(c, s | k, i)
    signal_probability = torch.einsum("gnk,gkics->gnis", beliefs, reply_probability)

    # j = 0 hands on the reply: P(s, correct | i) = sum_k P(k) P(c = 1, s | k, i)
    correct_without_second_call = torch.einsum(
        "gnk,gkis->gnis", beliefs, reply_probability[..., 1, :]
    )

    # j > 0 calls again: P(s, correct | i, j) = sum_k P(k) P(s | k, i) accuracy_kj. The product of the last two is
    # taken first, because it is small: it has no axis of queries.
    signal_by_kind = reply_probability.sum(3)  # (G, K, A, 2)
    expert_accuracy = environments.accuracy[..., 1:]  # (G, K, E)
    correct_by_kind = torch.einsum("gkis,gkj->gkisj", signal_by_kind, expert_accuracy)
    correct_with_second_call = torch.einsum("gnk,gkisj->gnisj", beliefs, correct_by_kind)

    price = environments.price
    return PathOutcomes(
        signal_probability=signal_probability,
        correct_probability=torch.cat(
            [correct_without_second_call[..., None], correct_with_second_call], -1
        ),
        cost_usd=price[:, :, None] + price[:, None, :],
    )


def compute_path_rewards(environments: RoutingEnvironments, outcomes: PathOutcomes) -> Tensor:
    """Computes the expected reward of every path under every budget, times the probability of its signal (CoRL, eq. 7).

    A path is a first option i, the signal s whether its reply looks correct, and a second option j.

    Args:
        environments: G environments with prices, and B budgets.
        outcomes: Correctness and cost of all paths, from `compute_path_outcomes`, for n queries and A options.

    Returns:
        (G, B, n, A, 2, A) by i, s and j: P(s, correct | i, j) where the calls i and j cost at most the budget, else 0.
    """
    return budget_reward.compute_budget_reward(
        outcomes.correct_probability[:, None],  # (G, 1, n, A, 2, A)
        outcomes.cost_usd[:, None, None, :, None, :],  # (G, 1, 1, A, 1, A)
        environments.budget[:, None, None, None, None],  # (B, 1, 1, 1, 1)
    )


def evaluate_strategy(
    environments: RoutingEnvironments, beliefs: Tensor, strategy: Strategy
) -> dict[str, Tensor]:
    """Computes exact means of a strategy over all its episodes, for each query and budget.

    Shapes: G environments, B budgets, n queries, K kinds, A options. In sums i is the first option, s the signal
    whether its reply looks correct, and j the second option.

    Args:
        environments: G environments.
        beliefs: (G, n, K) probability of every kind, for each query; the means are taken over these.
        strategy: Probabilities of options, for the same n queries, or one for all of them.

    Returns:
        (G, B, n) tensors by name: `correct` (accuracy), `reward` (correct and within the budget), `cost_usd`, `within`
        (share of episodes whose cost is within the budget), `mean_calls`, and `mean_expensive_calls` (calls of the last
        expert, the most expensive one).
    """
    outcomes = compute_path_outcomes(environments, beliefs)
    path_rewards = compute_path_rewards(environments, outcomes)  # (G, B, n, A, 2, A)
    is_within = budget_reward.compute_cost_reward(
        outcomes.cost_usd[:, None], environments.budget[:, None, None]
    )  # (G, B, A, A)

    # The probability that the strategy takes i, and j after s; and that of i and j, whatever the signal.
    choice_probability = strategy.first[..., None, None] * strategy.second  # (G, B, n, A, 2, A)
    signal_probability = outcomes.signal_probability[:, None, ..., None]  # (G, 1, n, A, 2, 1)
    option_probability = (choice_probability * signal_probability).sum(4)  # (G, B, n, A, A)

    # Calls on the path i, j; there is no second call without a first one. (A, A) each.
    option = torch.arange(outcomes.cost_usd.shape[1])
    is_call = (option > 0).float()
    is_expensive = (option == option[-1]).float()
    calls = is_call[:, None] + is_call * is_call[:, None]
    expensive_calls = is_expensive[:, None] + is_expensive * is_call[:, None]

    correct_probability = outcomes.correct_probability[:, None]  # (G, 1, n, A, 2, A)
    return {
        "correct": (choice_probability * correct_probability).sum((3, 4, 5)),
        "reward": (choice_probability * path_rewards).sum((3, 4, 5)),
        # sum_ij P(i, j) cost_ij, and the same of the three others
        "cost_usd": torch.einsum("gbnij,gij->gbn", option_probability, outcomes.cost_usd),
        "within": torch.einsum("gbnij,gbij->gbn", option_probability, is_within),
        "mean_calls": torch.einsum("gbnij,ij->gbn", option_probability, calls),
        "mean_expensive_calls": torch.einsum("gbnij,ij->gbn", option_probability, expensive_calls),
    }


def find_optimum(environments: RoutingEnvironments, beliefs: Tensor) -> Strategy:
    """Finds the strategy with the highest expected reward among all that observe the same of a query.

    Dynamic programming over the two choices: the best second option after every first option and signal, then the first
    option that is best if it is followed by these.

    Args:
        environments: G environments.
        beliefs: (G, n, K) probability of each of K kinds, for each of n queries. With one belief for all queries (n =
            1) the result is the best strategy that does not depend on the query.

    Returns:
        The optimum; of equally good options the first.
    """
    outcomes = compute_path_outcomes(environments, beliefs)
    path_rewards = compute_path_rewards(environments, outcomes)  # (G, B, n, A, 2, A)
    # After its own answer a controller calls nobody: no reward is as low as this.
    path_rewards[:, :, :, 0, :, 1:] = -1.0

    # V(i, s) = max_j reward(i, s, j), which has P(s | i) in it, so that V(i) = sum_s V(i, s)
    second_values, second_options = path_rewards.max(-1)  # (G, B, n, A, 2)
    first_options = second_values.sum(-1).argmax(-1)  # (G, B, n)
    num_options = path_rewards.shape[-1]
    return make_deterministic_strategy(first_options, second_options, num_options)


def make_constant_strategy(environments: RoutingEnvironments, option: Tensor | int) -> Strategy:
    """Makes the strategy that takes one option for every query, and hands on its reply.

    Args:
        environments: G environments with B budgets.
        option: Number of the option (0 answers, others call an expert), or (G, B) one for every environment and budget.

    Returns:
        The strategy, which does not depend on the query.
    """
    num_environments, num_options = environments.price.shape
    num_budgets = len(environments.budget)
    first_options = torch.as_tensor(option).expand(num_environments, num_budgets)[:, :, None]
    second_options = torch.zeros(num_environments, num_budgets, 1, num_options, 2, dtype=torch.long)
    return make_deterministic_strategy(first_options, second_options, num_options)


def make_baselines(environments: RoutingEnvironments, beliefs: Tensor) -> dict[str, Strategy]:
    """Makes the strategies that need no training, because all accuracies are known to them.

    Args:
        environments: G environments with K kinds of queries.
        beliefs: (G, n, K) probability of every kind, for each of n queries.

    Returns:
        Strategies by name: "controller alone", "specialist 1", ..., "generalist" (one option for all queries); "best
        constant" (the best of these under each budget); "best without the query" (the best that does not depend on the
        query; it may still react to the signal of a reply); and "optimum".
    """
    # One option for all queries.
    num_options = environments.price.shape[1]
    specialists = [f"specialist {number}" for number in range(1, num_options - 1)]
    constants = {}
    for option, name in enumerate([CONTROLLER_ALONE, *specialists, "generalist"]):
        constants[name] = make_constant_strategy(environments, option)

    # The best of them under each budget. Without the query all kinds are equally likely.
    num_kinds = beliefs.shape[-1]
    prior = torch.full_like(beliefs[:, :1], 1 / num_kinds)  # (G, 1, K)
    constant_rewards = []
    for strategy in constants.values():
        rewards = evaluate_strategy(environments, prior, strategy)["reward"]  # (G, B, 1)
        constant_rewards.append(rewards[..., 0])
    best_option = torch.stack(constant_rewards).argmax(0)  # (G, B)

    return constants | {
        BEST_CONSTANT: make_constant_strategy(environments, best_option),
        BEST_WITHOUT_QUERY: find_optimum(environments, prior),
        OPTIMUM: find_optimum(environments, beliefs),
    }


def evaluate_with_known_kind(
    environments: RoutingEnvironments, beliefs: Tensor
) -> dict[str, Tensor]:
    """Computes exact means of the best strategy that is given the kind of every query: an upper bound for controllers.

    A controller sees a noisy observation of the kind alone.

    Args:
        environments: G environments with K kinds of queries and B budgets.
        beliefs: (G, n, K) probability of every kind, for each of n queries, over which the means are taken.

    Returns:
        (G, B, n) tensors by name, as those of `evaluate_strategy`.
    """
    # One query of each kind, whose kind is certain.
    num_environments, _, num_kinds = beliefs.shape
    certain_beliefs = torch.eye(num_kinds).expand(num_environments, -1, -1)  # (G, K, K)
    optimum = find_optimum(environments, certain_beliefs)
    means_by_kind = evaluate_strategy(environments, certain_beliefs, optimum)  # (G, B, K) each

    # mean = sum_k P(k) mean_k
    return {
        name: torch.einsum("gnk,gbk->gbn", beliefs, means) for name, means in means_by_kind.items()
    }
