"""ToolOrchestra's reward: outcome, cost, latency and calls of tools, weighed by a user's preferences.

A rollout has an outcome vector M = [calls of each tool, outcome, -US dollars, -seconds], and a user the vector P of
preferences over the same entries. In training M is normalized within the group of rollouts of one example, in the
evaluation against the checkpoint before training. These are two different normalizations; both are here, with the
paper's formula beside the line.

    normalize_within_groups     training
    normalize_with_sign_error   training, as the code that the paper released computes it
    normalize_against_start     evaluation (ToolOrchestra, appendix)
    normalize_with_bound        evaluation with a bound (the bench's own)

Letters of shapes: n rollouts, k = tools + 3 entries.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

VERSION = 1  # of the rewards and filters of rollouts
MIN_GROUP_STD = 0.1  # groups whose rewards deviate less are left out (ToolOrchestra, filters)
MICRO_USD_PER_USD = 1e6
MS_PER_SECOND = 1e3
NUM_OBJECTIVES = 3  # outcome, cost and latency, the last entries of M and P
OUTCOME_INDEX = -3
COST_INDEX = -2
LATENCY_INDEX = -1

NormalizeInTraining = Callable[[np.ndarray, Sequence[int]], np.ndarray]


def make_outcome_vectors(
    calls: np.ndarray, correct: np.ndarray, cost_usd: np.ndarray, seconds: np.ndarray
) -> np.ndarray:
    """Makes M of every rollout.

    Args:
        calls: (n, tools) calls of each tool.
        correct: (n,) outcome in [0, 1].
        cost_usd: (n,) US dollars.
        seconds: (n,) latency.

    Returns:
        (n, tools + 3): calls, outcome, -US dollars, -seconds.
    """
    entries = [calls, correct, -np.asarray(cost_usd), -np.asarray(seconds)]
    return np.column_stack(entries).astype(float)


# Normalization in training -------------------------------------------------------------------------


def normalize_within_groups(vectors: np.ndarray, groups: Sequence[int]) -> np.ndarray:
    """Scales each entry of M to [0, 1] between the minimum and the maximum of its group.

        M_norm[k] = (M[k] - M_min[k]) / (M_max[k] - M_min[k]),    0 where M_max[k] = M_min[k]

    A group holds the rollouts of one example. The paper says "rollout batch"; over different examples the cheapest
    rollout would be that of the easiest question (decision).

    Args:
        vectors: (n, k) M of every rollout.
        groups: (n,) id of the example of each rollout.

    Returns:
        (n, k) M_norm.
    """
    minimum, maximum = _compute_group_bounds(vectors, groups)
    return _scale_between(vectors, minimum, maximum)


def normalize_with_sign_error(vectors: np.ndarray, groups: Sequence[int]) -> np.ndarray:
    """Normalizes as the released code does: bounds of -US dollars and -seconds, but +US dollars and +seconds in them.

        (c + c_max) / (c_max - c_min)

    This is never below 1, and larger for the more expensive rollout: of two correct rollouts the more expensive one
    gets the larger reward.

    Args:
        vectors: (n, k) M of every rollout.
        groups: (n,) id of the example of each rollout.

    Returns:
        (n, k); calls and outcome as they should be.
    """
    normalized = normalize_within_groups(vectors, groups)
    negative_amounts = vectors[:, COST_INDEX:]
    minimum, maximum = _compute_group_bounds(negative_amounts, groups)
    normalized[:, COST_INDEX:] = _scale_between(-negative_amounts, minimum, maximum)
    return normalized


def _compute_group_bounds(
    values: np.ndarray, groups: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Computes the minimum and the maximum of each entry over the group of every row.

    Args:
        values: (n, k).
        groups: (n,) id of the group of each row.

    Returns:
        Minimum and maximum, (n, k) each: equal in all rows of a group.
    """
    _, group_index = np.unique(np.asarray(groups), return_inverse=True)  # (n,)

    # Rows of a group side by side, so that a reduction runs from one group's first row to the next group's.
    order = np.argsort(group_index, kind="stable")
    first_rows = np.flatnonzero(np.diff(group_index[order], prepend=-1))
    minimum = np.minimum.reduceat(values[order], first_rows)  # (groups, k)
    maximum = np.maximum.reduceat(values[order], first_rows)
    return minimum[group_index], maximum[group_index]


def _scale_between(values: np.ndarray, minimum: np.ndarray, maximum: np.ndarray) -> np.ndarray:
    """Scales values so that `minimum` becomes 0 and `maximum` becomes 1; 0 where the two are equal."""
    width = maximum - minimum
    scaled = np.zeros(values.shape)
    np.divide(values - minimum, width, out=scaled, where=width > 0)
    return scaled


# Normalization in the evaluation -------------------------------------------------------------------


def normalize_against_start(
    vectors: np.ndarray,
    start_vectors: np.ndarray,
    units: tuple[float, float] = (MICRO_USD_PER_USD, MS_PER_SECOND),
) -> np.ndarray:
    """Normalizes M_s of a checkpoint by M_0 of the checkpoint before training, on the same examples.

        M_norm[k] = M_s[k] / max(1, M_0[k])    tools and outcome
        M_norm[k] = M_0[k] / max(1, M_s[k])    cost and latency

    Read literally, with -US dollars and -seconds, max(1, M_s) is always 1 and what the checkpoint spends never counts;
    so it is with +US dollars, which are far below 1. Hence amounts here, in millionths of a dollar and in milliseconds
    (decision; the lesson shows what other units would say).

    The entries of cost and latency have no bound: an episode that spends next to nothing is worth hundreds.
    `normalize_with_bound` has one.

    Args:
        vectors: (n, k) M_s.
        start_vectors: (n, k) M_0.
        units: How many of the unit a dollar and a second are.

    Returns:
        (n, k) M_norm.
    """
    amounts = -vectors[:, COST_INDEX:] * np.array(units)  # (n, 2)
    start_amounts = -start_vectors[:, COST_INDEX:] * np.array(units)
    counts = vectors[:, :COST_INDEX] / np.maximum(1, start_vectors[:, :COST_INDEX])
    savings = start_amounts / np.maximum(1, amounts)
    return np.hstack([counts, savings])


def normalize_with_bound(vectors: np.ndarray, start_vectors: np.ndarray) -> np.ndarray:
    """Normalizes like `normalize_against_start`, with every entry in [0, 1] (the bench's own).

        M_norm[k] = min(1, M_s[k] / max(1, M_0[k]))     tools and outcome
        M_norm[k] = M_0[k] / (M_0[k] + M_s[k])          cost and latency, as amounts

    An episode that spends as much as the start has 1/2, one that spends nothing has 1 and no more, so that no single
    example can decide the sum. The unit of the amounts does not matter.

    Args:
        vectors: (n, k) M_s.
        start_vectors: (n, k) M_0.

    Returns:
        (n, k) M_norm in [0, 1]; 1/2 where neither spends anything.
    """
    start_counts = np.maximum(1, start_vectors[:, :COST_INDEX])
    counts = vectors[:, :COST_INDEX] / start_counts  # (n, k - 2)

    # Amounts are the negative entries; 1/2 where neither spends anything.
    amounts = -vectors[:, COST_INDEX:]  # (n, 2)
    start_amounts = -start_vectors[:, COST_INDEX:]
    total = start_amounts + amounts
    savings = np.full(total.shape, 0.5)
    np.divide(start_amounts, total, out=savings, where=total > 0)
    return np.hstack([np.minimum(1, counts), savings])


# Rewards, scores and filters -----------------------------------------------------------------------


def compute_preference_rewards(
    normalized: np.ndarray, preferences: np.ndarray, correct: np.ndarray
) -> np.ndarray:
    """Computes R: M_norm . P where the outcome is correct, else 0.

    Args:
        normalized: (n, k) M_norm.
        preferences: (n, k) P of the user of each rollout, in [0, 1].
        correct: (n,) outcome.

    Returns:
        (n,) rewards.

    Raises:
        ValueError: A preference is out of range.
    """
    in_range = (preferences >= 0) & (preferences <= 1)  # nan is out of range too
    if not in_range.all():
        raise ValueError(
            f"preferences lie in [0, 1], got {preferences.min():g} to {preferences.max():g}; scale them"
        )
    weighted_sum = (normalized * preferences).sum(1)
    return np.where(np.asarray(correct) > 0, weighted_sum, 0.0)


def compute_preference_scores(
    vectors: np.ndarray,
    start_vectors: np.ndarray,
    preferences: np.ndarray,
    units: tuple[float, float] = (MICRO_USD_PER_USD, MS_PER_SECOND),
) -> np.ndarray:
    """Computes R^e of every example of the preference benchmark; its result is their sum (ToolOrchestra, appendix).

    Args:
        vectors: (n, k) M_s of the checkpoint.
        start_vectors: (n, k) M_0 of the checkpoint before training, on the same examples.
        preferences: (n, k) P.
        units: How many of the unit a dollar and a second are.

    Returns:
        (n,) scores, without an upper bound.
    """
    normalized = normalize_against_start(vectors, start_vectors, units)
    return compute_preference_rewards(normalized, preferences, vectors[:, OUTCOME_INDEX])


def compute_bounded_scores(
    vectors: np.ndarray, start_vectors: np.ndarray, preferences: np.ndarray
) -> np.ndarray:
    """Computes the score of every example with a bound: the share of the user's wishes that is met.

    Args:
        vectors: (n, k) M_s of the checkpoint.
        start_vectors: (n, k) M_0 of the checkpoint before training, on the same examples.
        preferences: (n, k) P.

    Returns:
        (n,) scores in [0, 1]: M_norm . P / sum(P) with `normalize_with_bound`, 0 where the outcome is wrong.
    """
    normalized = normalize_with_bound(vectors, start_vectors)
    rewards = compute_preference_rewards(normalized, preferences, vectors[:, OUTCOME_INDEX])
    return rewards / np.maximum(preferences.sum(1), 1e-12)


@dataclass(frozen=True)
class FilteredRollouts:
    """The rollouts that are learned from, and how many the filters left out.

    Attributes:
        rows: Indices of the rollouts that remain.
        malformed: Number with a malformed call.
        unanswered: Number of the others that have no answer.
        agreeing: Number of the others whose group has rewards that are nearly the same.
    """

    rows: np.ndarray
    malformed: int
    unanswered: int
    agreeing: int


def filter_rollouts(
    rewards: np.ndarray,
    groups: Sequence[int],
    is_malformed: np.ndarray,
    is_answered: np.ndarray,
    min_std: float = MIN_GROUP_STD,
) -> FilteredRollouts:
    """Leaves out rollouts with malformed calls, those without an answer, and groups whose rewards agree, in this order.

    Args:
        rewards: (n,).
        groups: (n,) id of the example of each rollout.
        is_malformed: (n,) bool, whether there is a malformed call.
        is_answered: (n,) bool, whether there is an answer.
        min_std: A group is left out where the rewards of its remaining rollouts have a smaller standard deviation.

    Returns:
        What remains.
    """
    is_malformed = np.asarray(is_malformed, bool)
    is_answered = np.asarray(is_answered, bool)
    is_valid = ~is_malformed & is_answered
    _, group_index = np.unique(np.asarray(groups), return_inverse=True)

    group_mean = _average_over_groups(rewards, group_index, is_valid)  # (n,)
    group_variance = _average_over_groups((rewards - group_mean) ** 2, group_index, is_valid)
    is_agreeing = is_valid & (np.sqrt(group_variance) < min_std)
    return FilteredRollouts(
        rows=np.flatnonzero(is_valid & ~is_agreeing),
        malformed=int(is_malformed.sum()),
        unanswered=int((~is_malformed & ~is_answered).sum()),
        agreeing=int(is_agreeing.sum()),
    )


def _average_over_groups(
    values: np.ndarray, group_index: np.ndarray, is_counted: np.ndarray
) -> np.ndarray:
    """Averages over the counted rows of each row's group.

    Args:
        values: (n,).
        group_index: (n,) number of the group of each row, from 0.
        is_counted: (n,) bool.

    Returns:
        (n,) the mean of the group; nan where the group has no row that is counted.
    """
    sums = np.bincount(group_index, np.where(is_counted, values, 0.0))  # (groups,)
    counts = np.bincount(group_index, is_counted)
    means = np.full(len(sums), np.nan)
    np.divide(sums, counts, out=means, where=counts > 0)
    return means[group_index]
