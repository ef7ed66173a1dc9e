"""The reward of a configuration (ARC, eq. 3 and 4).

    R = alpha 1[correct] - beta_s n_steps - beta_t n_tokens / T_max + eta R_tool

             delta_1 n_used + delta_2 1[correct]    if n_used > 0
    R_tool = -delta_3 n_alloc                       if n_used = 0 and n_alloc > 0
             0                                      otherwise

Steps are calls of agents, tokens what agents wrote: that is what budgets bound. T_max is what all agents may write
under the largest budgets (decisions: the paper leaves both open).
"""

import math
from dataclasses import dataclass

import numpy as np

VERSION = 1  # of rewards
NUM_AGENTS = 3


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


def compute_tool_reward(
    correct: np.ndarray, used: np.ndarray, allocated: np.ndarray, weights: Weights
) -> np.ndarray:
    """Compute ARC's reward for tools, R_tool (eq. 4).

    Args:
        correct: (n,) bool, or 0 and 1.
        used: (n,) calls of tools.
        allocated: (n,) tools allocated to agents that the workflow has.
        weights: The coefficients.

    Returns:
        (n,) rewards for tools.
    """
    used = np.asarray(used)
    reward_if_used = weights.delta_1 * used + weights.delta_2 * np.asarray(correct)
    reward_if_idle = -weights.delta_3 * np.asarray(allocated)  # 0 where nothing was allocated
    return np.where(used > 0, reward_if_used, reward_if_idle)


def reward(
    correct: np.ndarray,
    steps: np.ndarray,
    tokens: np.ndarray,
    used: np.ndarray,
    allocated: np.ndarray,
    max_tokens: float,
    weights: Weights,
) -> np.ndarray:
    """Compute R of eq. 3.

    Args:
        correct: (n,) bool, or 0 and 1.
        steps: (n,) calls of agents.
        tokens: (n,) tokens that agents wrote.
        used: (n,) calls of tools.
        allocated: (n,) tools allocated to agents that the workflow has.
        max_tokens: T_max.
        weights: The coefficients.

    Returns:
        (n,) rewards.
    """
    return (
        weights.alpha * np.asarray(correct)  # task success
        - weights.beta_s * np.asarray(steps)  # latency
        - weights.beta_t * np.asarray(tokens) / max_tokens  # cost
        + weights.eta * compute_tool_reward(correct, used, allocated, weights)
    )


@dataclass(frozen=True)
class RewardFacts:
    """What follows from eq. 3 and 4, whatever a policy learns.

    Attributes:
        right_without_tools: Reward of a right answer in one call that uses no tool.
        right_with_idle_tools: The same where every tool was allocated and none was used.
        wrong_with_most_tool_calls: Reward of a wrong answer after as many tool calls as a workflow can make.
        tool_calls_to_outweigh: The fewest tool calls, in one call of an agent, with which a wrong answer earns more
            than the right one without tools.
        most_tool_calls: As many as a workflow can make.
        largest_token_share: The most that n_tokens / T_max can be; above 1 where a workflow makes more than three
            calls.
    """

    right_without_tools: float
    right_with_idle_tools: float
    wrong_with_most_tool_calls: float
    tool_calls_to_outweigh: int
    most_tool_calls: int
    largest_token_share: float


def derive_reward_facts(
    weights: Weights, num_tools: int, most_steps: int, most_tool_calls: int
) -> RewardFacts:
    """Work out what eq. 3 and 4 reward at their ends.

    Args:
        weights: The coefficients.
        num_tools: Tools that can be allocated to one agent.
        most_steps: The most calls of agents in one episode.
        most_tool_calls: The most tool calls in one episode.

    Returns:
        The facts. Tokens are left out of the rewards: they cost beta_t at most a few times.
    """

    def compute_without_tokens(correct: float, steps: int, used: int, allocated: int) -> float:
        return float(reward(correct, steps, 0, used, allocated, 1.0, weights))

    right = compute_without_tokens(correct=1, steps=1, used=0, allocated=0)
    wrong = compute_without_tokens(correct=0, steps=1, used=0, allocated=0)
    # Each tool call adds eta * delta_1 to a wrong answer: R_wrong(n) = R_wrong(0) + eta delta_1 n > R_right.
    bonus_per_call = weights.eta * weights.delta_1
    calls_to_outweigh = -1
    if bonus_per_call:
        calls_to_outweigh = math.floor((right - wrong) / bonus_per_call) + 1
    return RewardFacts(
        right_without_tools=right,
        right_with_idle_tools=compute_without_tokens(
            correct=1, steps=1, used=0, allocated=num_tools
        ),
        wrong_with_most_tool_calls=compute_without_tokens(
            correct=0, steps=most_steps, used=most_tool_calls, allocated=num_tools
        ),
        tool_calls_to_outweigh=calls_to_outweigh,
        most_tool_calls=most_tool_calls,
        # T_max is what three agents may write in one call each.
        largest_token_share=most_steps / NUM_AGENTS,
    )
