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
OBJECTIVE_ENTRIES = slice(OUTCOME_INDEX, None)  # outcome (of M) or accuracy (of P), cost, latency
SPENDING_ENTRIES = slice(COST_INDEX, None)  # cost, latency
COUNT_ENTRIES = slice(None, COST_INDEX)  # calls of each tool, outcome

NormalizeInTraining = Callable[[np.ndarray, Sequence[int]], np.ndarray]


def make_outcome_vectors(
    calls: np.ndarray, correct: np.ndarray, cost_usd: np.ndarray, seconds: np.ndarray
) -> np.ndarray:
    """Makes the outcome vector M of each of n rollouts: what it called, whether it was correct, what it spent.

    Cost and latency are entered as negative numbers, so that a higher entry is always better.

    Args:
        calls: (n, tools) number of calls of each tool.
        correct: (n,) outcome in [0, 1], 1 for a correct answer.
        cost_usd: (n,) cost in US dollars, 0 or more.
        seconds: (n,) latency in seconds, 0 or more.

    Returns:
        (n, tools + 3) vectors M = [calls of each tool, outcome, -US dollars, -seconds].
    """
    entries = [calls, correct, -np.asarray(cost_usd), -np.asarray(seconds)]
    return np.column_stack(entries).astype(float)


# Normalization in training -------------------------------------------------------------------------


def normalize_within_groups(vectors: np.ndarray, groups: Sequence[int]) -> np.ndarray:
    """Scales each entry of outcome vectors to [0, 1] between its minimum and its maximum within a group of rollouts.

        M_norm[i] = (M[i] - M_min[i]) / (M_max[i] - M_min[i]),    0 where M_max[i] = M_min[i]

    M is the outcome vector of a rollout, [calls of each tool, outcome, -US dollars, -seconds]; M_min and M_max are its
    extremes over the group, entry by entry. A group holds the rollouts of one example. The paper says "rollout batch";
    over different examples the cheapest rollout would be that of the easiest question (decision).

    Args:
        vectors: (n, k) outcome vector M of each of n rollouts, k = tools + 3 entries.
        groups: (n,) id of the example of each rollout.

    Returns:
        (n, k) scaled vectors M_norm: 1 for the largest entry of the group, which of cost and latency is the lowest
        spending, and 0 for the smallest.
    """
    minimum, maximum = _compute_group_bounds(vectors, groups)
    return _scale_between(vectors, minimum, maximum)


def normalize_with_sign_error(vectors: np.ndarray, groups: Sequence[int]) -> np.ndarray:
    """Normalizes outcome vectors as the released code of the paper does, which has a sign error in cost and latency.

    Let c be what a rollout spends (US dollars, or seconds), with the extremes c_min and c_max of its group.

        intended:   (c_max - c) / (c_max - c_min)    1 for the cheapest rollout of the group, 0 for the most expensive
        released:   (c_max + c) / (c_max - c_min)    at least 1, and largest for the most expensive rollout

    So of two correct rollouts the more expensive one gets the larger reward. The other entries, calls of tools and
    outcome, are scaled as by `normalize_within_groups`.

    Args:
        vectors: (n, k) outcome vector of each of n rollouts: [calls of each tool, outcome, -US dollars, -seconds].
        groups: (n,) id of the example of each rollout.

    Returns:
        (n, k) normalized vectors; cost and latency by the released formula, 0 where all of a group spend the same.
    """
    normalized = normalize_within_groups(vectors, groups)

    # The vectors hold -c.
    spending = -vectors[:, SPENDING_ENTRIES]  # (n, 2) US dollars, seconds
    lowest, highest = _compute_group_bounds(spending, groups)

    # The error: + spending, where - spending is meant.
    width = highest - lowest
    with_sign_error = np.zeros_like(spending)
    np.divide(highest + spending, width, out=with_sign_error, where=width > 0)
    normalized[:, SPENDING_ENTRIES] = with_sign_error
    return normalized


def _compute_group_bounds(
    values: np.ndarray, groups: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Computes the minimum and the maximum of each column over the group of every row.

    Args:
        values: (n, k) one row for each rollout.
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
    """Scales values linearly so that `minimum` becomes 0 and `maximum` becomes 1.

    Args:
        values: (n, k) one row for each rollout.
        minimum: (n, k) what becomes 0.
        maximum: (n, k) what becomes 1.

    Returns:
        (n, k) scaled values; 0 where minimum and maximum are equal.
    """
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
    """Normalizes outcome vectors of a checkpoint by those of the checkpoint before training, on the same examples.

        M_norm[i] = M_s[i] / max(1, M_0[i])    calls of tools and outcome
        M_norm[i] = M_0[i] / max(1, M_s[i])    cost and latency

    M_s is the outcome vector after s updates and M_0 the one before training, on the same example.
    Read literally, with -US dollars and -seconds, max(1, M_s) is always 1 and what the checkpoint spends never counts;
    so it is with +US dollars, which are far below 1. Hence amounts here, in millionths of a dollar and in milliseconds
    (decision; the lesson shows what other units would say).

    The entries of cost and latency have no bound: an episode that spends next to nothing is worth hundreds.
    `normalize_with_bound` has one.

    Args:
        vectors: (n, k) outcome vectors M_s of n examples, [calls of each tool, outcome, -US dollars, -seconds].
        start_vectors: (n, k) outcome vectors M_0 of the same examples.
        units: Into how many units of the formula a dollar and a second are converted.

    Returns:
        (n, k) M_norm; higher is better in every entry.
    """
    # Cost and latency as positive amounts.
    amounts = -vectors[:, SPENDING_ENTRIES] * np.array(units)  # (n, 2)
    start_amounts = -start_vectors[:, SPENDING_ENTRIES] * np.array(units)
    savings = start_amounts / np.maximum(1, amounts)

    counts = vectors[:, COUNT_ENTRIES] / np.maximum(1, start_vectors[:, COUNT_ENTRIES])
    return np.hstack([counts, savings])


def normalize_with_bound(vectors: np.ndarray, start_vectors: np.ndarray) -> np.ndarray:
    """Normalizes like `normalize_against_start`, with every entry in [0, 1] (the bench's own).

        M_norm[i] = min(1, M_s[i] / max(1, M_0[i]))     calls of tools and outcome
        M_norm[i] = M_0[i] / (M_0[i] + M_s[i])          cost and latency, as positive amounts

    M_s is the outcome vector after s updates and M_0 the one before training, on the same example. An episode that
    spends as much as before training has 1/2, one that spends nothing has 1 and no more, so that no single example can
    decide the sum. The unit of the amounts does not matter.

    Args:
        vectors: (n, k) outcome vectors M_s of n examples, [calls of each tool, outcome, -US dollars, -seconds].
        start_vectors: (n, k) outcome vectors M_0 of the same examples.

    Returns:
        (n, k) M_norm in [0, 1]; 1/2 where neither spends anything.
    """
    start_counts = np.maximum(1, start_vectors[:, COUNT_ENTRIES])
    counts = vectors[:, COUNT_ENTRIES] / start_counts  # (n, k - 2)

    # Cost and latency as positive amounts; 1/2 where neither spends anything.
    amounts = -vectors[:, SPENDING_ENTRIES]  # (n, 2)
    start_amounts = -start_vectors[:, SPENDING_ENTRIES]
    total = start_amounts + amounts
    savings = np.full(total.shape, 0.5)
    np.divide(start_amounts, total, out=savings, where=total > 0)
    return np.hstack([np.minimum(1, counts), savings])


# Rewards, scores and filters -----------------------------------------------------------------------


def compute_preference_rewards(
    normalized: np.ndarray, preferences: np.ndarray, correct: np.ndarray
) -> np.ndarray:
    """Computes the reward of each rollout: M_norm . P where its answer is correct, else 0.

    Args:
        normalized: (n, k) normalized outcome vector M_norm of each of n rollouts, k = tools + 3 entries.
        preferences: (n, k) preference vector P of the user of each rollout: weights in [0, 1] of the same entries.
        correct: (n,) outcome; above 0 for a correct answer.

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
    """Computes the score of every example of the preference benchmark (R^e in ToolOrchestra, appendix).

    The result of a checkpoint on the benchmark is the sum of these scores.

    Args:
        vectors: (n, k) outcome vectors of the checkpoint on n examples, k = tools + 3 entries.
        start_vectors: (n, k) outcome vectors of the checkpoint before training, on the same examples.
        preferences: (n, k) preference vector of the user of each example.
        units: Into how many units a dollar and a second are converted (`normalize_against_start`).

    Returns:
        (n,) scores, without an upper bound; 0 where the answer is wrong.
    """
    normalized = normalize_against_start(vectors, start_vectors, units)
    return compute_preference_rewards(normalized, preferences, vectors[:, OUTCOME_INDEX])


def compute_bounded_scores(
    vectors: np.ndarray, start_vectors: np.ndarray, preferences: np.ndarray
) -> np.ndarray:
    """Computes a bounded score of every example: normalized outcomes, averaged with the user's preferences as weights.

        score = M_norm . P / sum(P) for a correct answer, else 0,    with M_norm from `normalize_with_bound`

    Args:
        vectors: (n, k) outcome vectors of the checkpoint on n examples, k = tools + 3 entries.
        start_vectors: (n, k) outcome vectors of the checkpoint before training, on the same examples.
        preferences: (n, k) preference vector P of the user of each example.

    Returns:
        (n,) scores in [0, 1].
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

    A group is the rollouts of one example. Its rewards agree where their standard deviation is below `min_std`: then
    the group's advantages carry no signal.

    Args:
        rewards: (n,) reward of each rollout.
        groups: (n,) id of the example of each rollout.
        is_malformed: (n,) bool, whether there is a malformed call.
        is_answered: (n,) bool, whether there is an answer.
        min_std: A group is left out where the rewards of its remaining rollouts have a smaller standard deviation.

    Returns:
        The indices of the rollouts that remain, and how many each filter left out.
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
    """Averages values over the counted rows of each row's group.

    Args:
        values: (n,) one value for each rollout.
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
