"""What a configuration is paid (ARC, eq. 3 and 4).

    R = alpha 1[correct] - beta_s n_steps - beta_t n_tokens / T_max + eta R_tool

             delta_1 n_used + delta_2 1[correct]    if n_used > 0
    R_tool = -delta_3 n_alloc                       if n_used = 0 and n_alloc > 0
             0                                      otherwise

Steps are calls of agents, tokens what agents wrote: that is what budgets bound. T_max is what all agents may write
under the largest budgets (decisions: the paper leaves both open).
"""

from dataclasses import dataclass

import numpy as np

VERSION = 1  # of rewards


@dataclass(frozen=True)
class Weights:
    """Coefficients of eq. 3 and 4 (ARC, appendix F); eta is in no list, 1 is a decision."""

    alpha: float = 5.0
    beta_s: float = 0.02
    beta_t: float = 0.03
    eta: float = 1.0
    delta_1: float = 0.1
    delta_2: float = 0.2
    delta_3: float = 0.3


def tool_shaping(
    correct: np.ndarray, used: np.ndarray, allocated: np.ndarray, weights: Weights
) -> np.ndarray:
    """R_tool of eq. 4, (n,). correct: bool or 0/1; used, allocated: numbers of tools, (n,) each."""
    paid = weights.delta_1 * np.asarray(used) + weights.delta_2 * np.asarray(correct)
    return np.where(np.asarray(used) > 0, paid, -weights.delta_3 * np.asarray(allocated))


def reward(
    correct: np.ndarray,
    steps: np.ndarray,
    tokens: np.ndarray,
    used: np.ndarray,
    allocated: np.ndarray,
    most: float,
    weights: Weights,
) -> np.ndarray:
    """R of eq. 3, (n,). steps: calls of agents; tokens: written by agents; most: T_max; the rest as above."""
    return (
        weights.alpha * np.asarray(correct)  # task success
        - weights.beta_s * np.asarray(steps)  # latency
        - weights.beta_t * np.asarray(tokens) / most  # cost
        + weights.eta * tool_shaping(correct, used, allocated, weights)
    )


def utility(correct: np.ndarray, cost: np.ndarray, weight: float) -> np.ndarray:
    """U(q, c) = 1[correct] - lambda C_cost(c), (n,) (ARC, eq. 1). weight: lambda, per unit of cost."""
    return np.asarray(correct) - weight * np.asarray(cost)
