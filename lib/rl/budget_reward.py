"""What an episode is paid (CoRL, 3.3): right, and within the budget.

    r_p = 1 if the answer is right                        performance
    r_c = 1 if c <= B else 0                              cost, eq. 5
    r   = r_p * r_c                                       eq. 6 and 7

Nothing else: no reward for form, none for spending less than the budget. c is what the experts cost, as in
the paper, whose controller's own tokens are free.
"""

VERSION = 1  # of the reward of an episode


def cost_reward(cost_usd, budget):
    """r_c, eq. 5: 1 where the cost stays within the budget, the limit itself included. Numbers, arrays or tensors."""
    return 1.0 * (cost_usd <= budget)


def reward(performance, cost_usd, budget):
    """r, eq. 7; performance: r_p in [0, 1]. Numbers, or arrays or tensors that fit each other."""
    return performance * cost_reward(cost_usd, budget)
