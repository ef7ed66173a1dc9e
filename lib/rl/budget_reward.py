"""Reward of an episode under a budget (CoRL, section 3.3): a correct answer whose cost is within the budget.

    r_p = 1 if the answer is correct                      performance
    r_c = 1 if c <= B else 0                              cost, eq. 5
    r   = r_p * r_c                                       eq. 6, and eq. 7 by cases

c is what the calls of experts cost. As in the paper the controller's own tokens are free, the format of a turn is not
rewarded, and neither is spending less than the budget.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the module itself needs neither
    import numpy as np
    from torch import Tensor

VERSION = 1  # of the reward of an episode


def compute_cost_reward(
    cost_usd: float | np.ndarray | Tensor, budget: float | np.ndarray | Tensor
) -> float | np.ndarray | Tensor:
    """Cost reward r_c of CoRL: whether the cost is within the budget.

    Args:
        cost_usd: c, cost of the episode's expert calls; a number, or an array or tensor of any shape.
        budget: B, the limit in the unit of `cost_usd`; of a shape that fits it.

    Returns:
        1.0 where the cost is at most the budget, the limit itself included, else 0.0 (also where the cost is NaN).

    Source: CoRL, eq. 5.
    """
    return 1.0 * (cost_usd <= budget)  # r_c = 1[c <= B]


def compute_budget_reward(
    performance: float | np.ndarray | Tensor,
    cost_usd: float | np.ndarray | Tensor,
    budget: float | np.ndarray | Tensor,
) -> float | np.ndarray | Tensor:
    """Reward r of an episode in CoRL: its performance if the cost is within the budget, else 0.

    Args:
        performance: r_p in [0, 1], 1 for a correct answer; a number, or an array or tensor of any shape.
        cost_usd: c, cost of the episode's expert calls; of a shape that fits `performance`.
        budget: B, the limit in the unit of `cost_usd`; of a shape that fits it.

    Returns:
        The reward, of the shape that the three arguments have together.

    Source: CoRL, eq. 6 and 7.
    """
    return performance * compute_cost_reward(cost_usd, budget)  # r = r_p r_c
