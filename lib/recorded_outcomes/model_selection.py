"""Scores a method on recorded outcomes: cross-validation over whole groups of items, tuned on dev, scored on test.

Words of this module:

    constant         one model for every item; the *best constant* is the most accurate one
    knob             the one number of a method that trades accuracy for cost, such as a budget
    mixture          a random choice between two knob settings, or two constants, with fixed probabilities
    hull             the upper convex hull of accuracy over mean cost; its corners are knob settings
    promised cost    the mean cost per item for which a mixture was chosen on dev
    equal quality    the cheapest mixture that is at least as accurate as the best constant

A method is a set of `Choices`: which model it would ask for each item, at each knob setting. On dev these choices and
the constants span a hull (`stats.hull`). For each promised cost, the best mixture on that hull is chosen. At equal
quality the mixture must beat the best constant by a margin on dev, because the best of many knob settings on dev is
seldom the best on test. Where no mixture does so for less money, the constant itself is chosen. Test items are scored
with what dev chose.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from lib import stats
from lib.experiment import seeds
from lib.recorded_outcomes.tables import OutcomeTable, TableError

VERSION = 1  # of choices and their scores
# Promised mean costs per item, as fractions of the way from the cheapest model's cost (0) to the best constant's (1).
LEVELS = (0.05, 0.1, 0.25, 0.5, 0.75, 1.0)
# Conditions in which methods are compared: as accurate as the best constant, or at the cost midway between the
# cheapest model's and the best constant's.
EQUAL_QUALITY, HALF_COST = "equal quality", "half the money"
MAX_SPENDING_RATIO = 1.05  # a budget is broken where more than this multiple of it is spent


@dataclass(frozen=True)
class Fold:
    """One split of a table's items, as item indices.

    Attributes:
        train: Items that a method learns from.
        dev: Items on which its knob, its one parameter that trades accuracy for cost, is chosen.
        test: Items on which it is scored.
    """

    train: np.ndarray
    dev: np.ndarray
    test: np.ndarray

    @property
    def train_and_dev(self) -> np.ndarray:
        """Indices of the train and dev items: a method that learns nothing may choose its knob on both."""
        return np.concatenate([self.train, self.dev])


@dataclass(frozen=True)
class Choices:
    """Outcomes of a method at each setting of its knob, the one parameter that trades accuracy for cost.

    Attributes:
        correct: (knob settings, items), expected correctness in [0, 1].
        cost_usd: (knob settings, items), expected cost in USD.
        names: A name for each knob setting.
        learned: Whether the method learned from the train items. Its knob is then chosen on dev alone, because its
            accuracy on the train items is too high.
    """

    correct: np.ndarray
    cost_usd: np.ndarray
    names: tuple[str, ...]
    learned: bool = False


class ItemOutcomes(NamedTuple):
    """Outcomes on the items of a table, nan for an item that was never held out.

    Attributes:
        correct: (items,), expected correctness in [0, 1].
        cost_usd: (items,), expected cost in USD.
    """

    correct: np.ndarray
    cost_usd: np.ndarray


@dataclass(frozen=True)
class HeldOutScores:
    """Outcomes of a method on the test items of every fold; nan for an item that was never a test item.

    Attributes:
        correct: (levels, items), correctness at each of the promised mean costs `LEVELS`.
        cost_usd: (levels, items), the cost in USD at each of them.
        promised: (levels, items), the promised mean cost in USD, the same for all test items of a fold.
        at_equal_quality: The outcomes of the cheapest choice that is as accurate as the best constant on dev.
        picked: By fold, the name of the knob setting with the largest weight at equal quality.
    """

    correct: np.ndarray
    cost_usd: np.ndarray
    promised: np.ndarray
    at_equal_quality: ItemOutcomes
    picked: tuple[str, ...]


def assign_folds(table: OutcomeTable, folds: int, seed: int) -> np.ndarray:
    """Divides items into folds, so that all items of a group are in one fold.

    Groups are taken in random order; each goes into the fold that has the fewest items so far.

    Args:
        table: Items with their groups.
        folds: Number of folds; fewer are made where there are fewer groups.
        seed: Seed of the random order, another one for each repeat of cross-validation.

    Returns:
        (items,), the fold index of each item.

    Raises:
        TableError: There are fewer than 3 groups (train, dev, test) or folds.
    """
    names, group_of_item = np.unique(table.groups, return_inverse=True)
    if len(names) < 3:
        raise TableError(
            f"{len(names)} groups cannot be parted into items to learn from, to choose on and to score; "
            "three are the least, more are better"
        )
    if folds < 3:
        raise TableError(f"folds must be at least 3, got {folds}")
    group_sizes = np.bincount(group_of_item)
    fold_sizes = np.zeros(min(folds, len(names)))
    fold_of_group = np.zeros(len(names), dtype=int)
    rng = seeds.rng("outcomes", "parts", table.name, seed=seed)
    for group in rng.permutation(len(names)):
        smallest_fold = fold_sizes.argmin()
        fold_of_group[group] = smallest_fold
        fold_sizes[smallest_fold] += group_sizes[group]
    return fold_of_group[group_of_item]


def make_cross_validation_folds(fold_of_item: np.ndarray) -> list[Fold]:
    """Splits items into train, dev and test once for each fold.

    Args:
        fold_of_item: (items,) 0 to num_folds - 1.

    Returns:
        For each fold k: fold k as test, fold k + 1 as dev, all others as train.
    """
    num_folds = int(fold_of_item.max()) + 1
    rows_by_fold = [np.flatnonzero(fold_of_item == fold) for fold in range(num_folds)]
    folds = []
    for test_fold in range(num_folds):
        dev_fold = (test_fold + 1) % num_folds
        # Fold by fold, because the order of rows is that of a network's minibatches.
        train_rows = []
        for fold, rows in enumerate(rows_by_fold):
            if fold not in (test_fold, dev_fold):
                train_rows.append(rows)
        folds.append(
            Fold(
                train=np.concatenate(train_rows),
                dev=rows_by_fold[dev_fold],
                test=rows_by_fold[test_fold],
            )
        )
    return folds


def constant_choices(table: OutcomeTable) -> Choices:
    """The choices of the constants, which ask one model for every item; each model is a knob setting."""
    return Choices(table.correct.T, table.cost_usd.T, table.models)


def find_best_constant(table: OutcomeTable, rows: np.ndarray) -> int:
    """Finds the model with the highest accuracy on some items; among equally accurate models, the cheapest.

    Args:
        table: The recorded outcomes.
        rows: Indices of the items to look at.

    Returns:
        The index of the model in `table.models`.
    """
    accuracy = table.correct[rows].mean(0)  # (models,)
    mean_cost = table.cost_usd[rows].mean(0)  # (models,)
    # Equal accuracies may differ in their last bits, because sums depend on their order; rounding removes that.
    rounded = np.round(accuracy, 12)
    best_first = np.lexsort((mean_cost, -rounded))
    return int(best_first[0])


def score_best_constant(table: OutcomeTable, folds: Sequence[Fold]) -> ItemOutcomes:
    """Scores the best constant: one model for every item, the most accurate one on train and dev of each fold.

    Args:
        table: The recorded outcomes.
        folds: Train, dev and test items.

    Returns:
        Correctness and cost of every test item.
    """
    correct = np.full(len(table), np.nan)
    cost_usd = np.full(len(table), np.nan)
    for fold in folds:
        model = find_best_constant(table, fold.train_and_dev)
        correct[fold.test] = table.correct[fold.test, model]
        cost_usd[fold.test] = table.cost_usd[fold.test, model]
    return ItemOutcomes(correct, cost_usd)


def promised_costs(table: OutcomeTable, rows: np.ndarray) -> np.ndarray:
    """Computes the mean costs per item for which methods choose their knob.

    Args:
        table: The recorded outcomes.
        rows: Indices of the items over which costs are averaged.

    Returns:
        (levels,), USD, at the fractions `LEVELS` of the way from the cheapest model's cost to the best constant's.
    """
    mean_cost = table.cost_usd[rows].mean(0)  # (models,)
    lowest = mean_cost.min()
    highest = mean_cost[find_best_constant(table, rows)]
    return lowest + np.array(LEVELS) * (highest - lowest)


def score_choices(
    table: OutcomeTable, folds: Sequence[Fold], choices: Sequence[Choices], min_dev_gain: float
) -> HeldOutScores:
    """Chooses a method's knob on dev, at each promised cost and at equal quality, and scores it on test.

    Knob settings may be mixed with each other and with the constants, which ask one model for every item.

    Args:
        table: The recorded outcomes.
        folds: Train, dev and test items.
        choices: The method's choices, one `Choices` for each fold.
        min_dev_gain: Accuracy by which a mixture must beat the best constant on dev, at a lower cost, to replace it
            at equal quality.

    Returns:
        Correctness and cost of every test item, at each promised cost and at equal quality.
    """
    num_levels = len(LEVELS)
    num_items = len(table)
    correct = np.full((num_levels, num_items), np.nan)
    cost_usd = correct.copy()
    promised = correct.copy()
    equal_quality_correct = np.full(num_items, np.nan)
    equal_quality_cost = np.full(num_items, np.nan)
    picked = []
    constants = constant_choices(table)
    for fold, fold_choices in zip(folds, choices, strict=True):
        # What was learned from train would look too good there.
        rows = fold.dev if fold_choices.learned else fold.train_and_dev
        options = join_choices(fold_choices, constants)
        frontier = compute_frontier(options, rows)

        # At each promised cost, the most accurate mixture that costs no more on dev.
        for level, budget in enumerate(promised_costs(table, fold.train_and_dev)):
            weights = frontier.mix_for_cost(budget)
            level_correct, level_cost = expect_mixture(options, weights, fold.test)
            promised[level, fold.test] = budget
            correct[level, fold.test] = level_correct
            cost_usd[level, fold.test] = level_cost

        # At equal quality, the cheapest mixture that clearly beats the best constant.
        best_model = find_best_constant(table, fold.train_and_dev)
        first_constant = len(options.names) - len(
            table.models
        )  # constants follow the method's choices
        constant_weights = {first_constant + best_model: 1.0}
        target = table.correct[rows, best_model].mean() + min_dev_gain
        weights = constant_weights
        if frontier.correct[-1] >= target:
            weights = frontier.mix_for_accuracy(target)

        # A mixture that saves nothing is replaced by the constant.
        _, costs = expect_mixture(options, weights, rows)
        if costs.mean() > table.cost_usd[rows, best_model].mean():
            weights = constant_weights
        fold_correct, fold_cost = expect_mixture(options, weights, fold.test)
        equal_quality_correct[fold.test] = fold_correct
        equal_quality_cost[fold.test] = fold_cost
        largest_weight = max(weights, key=weights.get)
        picked.append(options.names[largest_weight])
    return HeldOutScores(
        correct=correct,
        cost_usd=cost_usd,
        promised=promised,
        at_equal_quality=ItemOutcomes(equal_quality_correct, equal_quality_cost),
        picked=tuple(picked),
    )


def join_choices(choices: Choices, constants: Choices) -> Choices:
    """Joins a method's knob settings and the constants along the first axis, the method's settings first."""
    return Choices(
        correct=np.vstack([choices.correct, constants.correct]),
        cost_usd=np.vstack([choices.cost_usd, constants.cost_usd]),
        names=(*choices.names, *constants.names),
    )


@dataclass(frozen=True)
class CostFrontier:
    """The corners of the upper convex hull of accuracy over mean cost, in the order of rising cost.

    Attributes:
        knobs: (corners,), indices of the knob settings, or constants, that are corners.
        cost_usd: (corners,), their mean costs in USD.
        correct: (corners,), their accuracies.
    """

    knobs: np.ndarray
    cost_usd: np.ndarray
    correct: np.ndarray

    def mix_for_cost(self, budget: float) -> dict[int, float]:
        """Finds the most accurate mixture of knob settings whose mean cost is within a budget.

        A budget below the cheapest corner gets that corner.

        Args:
            budget: Mean cost in USD that is allowed.

        Returns:
            Probability by index of the knob setting.
        """
        costs = self.cost_usd
        if budget >= costs[-1] or len(self.knobs) == 1:
            best_knob = int(self.knobs[-1])
            return {best_knob: 1.0}
        # The first corner that costs more than the budget is mixed with the one before it.
        upper = int(np.searchsorted(costs, budget, side="right"))
        upper = max(1, upper)
        cost_step = costs[upper] - costs[upper - 1]
        lower_weight = (costs[upper] - budget) / cost_step
        return self._mix_neighbours(upper, min(lower_weight, 1.0))

    def mix_for_accuracy(self, target: float) -> dict[int, float]:
        """Finds the cheapest mixture of knob settings that reaches an accuracy.

        Args:
            target: The accuracy.

        Returns:
            Probability by index of the knob setting.
        """
        accuracies = self.correct
        upper = int(np.searchsorted(accuracies, target - 1e-12))
        if upper == 0:
            cheapest_knob = int(self.knobs[0])
            return {cheapest_knob: 1.0}
        accuracy_step = accuracies[upper] - accuracies[upper - 1]
        lower_weight = (accuracies[upper] - target) / accuracy_step
        return self._mix_neighbours(upper, lower_weight)

    def _mix_neighbours(self, upper: int, lower_weight: float) -> dict[int, float]:
        """Mixes corner `upper` with the cheaper one before it, which has the probability `lower_weight`."""
        lower_knob = int(self.knobs[upper - 1])
        upper_knob = int(self.knobs[upper])
        weights = {lower_knob: lower_weight, upper_knob: 1 - lower_weight}
        return {knob: weight for knob, weight in weights.items() if weight > 0}


def compute_frontier(options: Choices, rows: np.ndarray) -> CostFrontier:
    """Computes the convex hull of accuracy over mean cost that knob settings span.

    Args:
        options: Outcomes of all knob settings, (knobs, items).
        rows: Indices of the items that count.

    Returns:
        The corners, from the cheapest to the most accurate.
    """
    mean_cost = options.cost_usd[:, rows].mean(1)  # (knobs,)
    accuracy = options.correct[:, rows].mean(1)
    corners = stats.hull(mean_cost, accuracy)
    return CostFrontier(
        knobs=corners,
        cost_usd=mean_cost[corners],
        correct=accuracy[corners],
    )


def expect_mixture(
    options: Choices, weights: dict[int, float], rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Computes the expected outcomes of a mixture; nothing is sampled.

    Args:
        options: Knob settings with their outcomes.
        weights: {knob index: probability}, which sum to 1.
        rows: Indices of the items.

    Returns:
        Correctness and cost in USD, (rows,) each.
    """
    correct = 0.0
    cost_usd = 0.0
    for knob, weight in weights.items():
        correct = correct + weight * options.correct[knob, rows]
        cost_usd = cost_usd + weight * options.cost_usd[knob, rows]
    return correct, cost_usd


def make_result_rows(
    table: OutcomeTable, scores: HeldOutScores, method: str, role: str
) -> pd.DataFrame:
    """Makes the rows of a method for `lib.experiment.results_table`.

    Args:
        table: The recorded outcomes.
        scores: The method's scores on them.
        method: Its name.
        role: Its role in figures, one of the values of `lib.routers.methods.ROLES`.

    Returns:
        Two rows for each item: the column condition is EQUAL_QUALITY in one and HALF_COST in the other. The column
        correct may be a fraction, because it is the expectation over a mixture.
    """
    half = LEVELS.index(0.5)
    columns = {
        "method": method,
        "role": role,
        "backend": "replay",
        "split": "test",
        "item": table.items,
        "group": table.name,
        "context": table.groups,
    }
    at_equal_quality = columns | {
        "condition": EQUAL_QUALITY,
        "correct": scores.at_equal_quality.correct,
        "cost_usd": scores.at_equal_quality.cost_usd,
    }
    at_half_cost = columns | {
        "condition": HALF_COST,
        "correct": scores.correct[half],
        "cost_usd": scores.cost_usd[half],
    }
    return pd.concat(
        [pd.DataFrame(at_equal_quality), pd.DataFrame(at_half_cost)], ignore_index=True
    )


def add_repeat_variance(
    interval: stats.Interval, repeat_means: Sequence[float] | np.ndarray
) -> stats.Interval:
    """Widens an interval over items by the variance that the random folds of cross-validation add.

    The folds add (variance over R repeats) / R to the variance of the mean. Items and folds are independent sources, so
    the squares of their half-widths add up. With one repeat the variance is unknown, and the interval is returned as it
    is.

    Args:
        interval: Interval over items, around the mean over repeats.
        repeat_means: (R,), the estimate of each repeat.

    Returns:
        The wider interval around the same value.
    """
    if len(repeat_means) < 2 or not interval.known:
        return interval
    repeats = stats.t_interval(np.asarray(repeat_means, dtype=float))
    repeats_half_width = (repeats.ci_high - repeats.ci_low) / 2
    lower_half_width = np.hypot(interval.value - interval.ci_low, repeats_half_width)
    upper_half_width = np.hypot(interval.ci_high - interval.value, repeats_half_width)
    return stats.Interval(
        interval.value,
        interval.value - float(lower_half_width),
        interval.value + float(upper_half_width),
    )


def curve_height(correct: np.ndarray, cost_usd: np.ndarray, low: float, high: float) -> np.ndarray:
    """Computes AIQ, the mean accuracy of a curve of accuracy over cost (RouterBench, section 3).

    No hull is taken here: it would choose the best points on the test items.

    Args:
        correct: (levels,), or (resamples, levels).
        cost_usd: The cost at each level, of the same shape.
        low: Lowest cost of the range over which accuracy is averaged.
        high: Highest cost of that range.

    Returns:
        (resamples,), or (1,) for one curve.
    """
    correct = np.atleast_2d(correct)
    cost_usd = np.atleast_2d(cost_usd)
    if not high > low:  # one price for all: the curve is a point
        return correct.max(1)
    grid = np.linspace(low, high, 101)
    heights = []
    for curve_correct, curve_cost in zip(correct, cost_usd, strict=True):
        order = np.argsort(curve_cost, kind="stable")
        quality = np.interp(grid, curve_cost[order], curve_correct[order])
        heights.append(np.trapezoid(quality, grid) / (high - low))
    return np.array(heights)


def aiq_gap(
    table: OutcomeTable,
    treatment: Sequence[HeldOutScores],
    baseline: Sequence[HeldOutScores],
    draws: int,
) -> stats.Interval:
    """Estimates the AIQ (mean accuracy of a curve over cost) of a method minus that of another.

    Costs range from the cheapest model's to that of the best constant, the most accurate single model.

    Args:
        table: The recorded outcomes.
        treatment: Scores of the method, one for each repeat of cross-validation.
        baseline: Scores of the other method, in the same repeats.
        draws: Bootstrap resamples.

    Returns:
        The difference with its 95 % interval: a bootstrap over whole groups of items, widened by the variance over
        repeats.
    """
    num_items = len(table)
    costs = promised_costs(table, np.arange(num_items))
    low = costs[0]
    high = costs[-1]

    # Each resample weights groups by how often they are drawn; the first row is the table itself.
    names, group_of_item = np.unique(table.groups, return_inverse=True)
    num_groups = len(names)
    rng = seeds.rng("outcomes", "aiq", table.name)
    equal_chances = np.full(num_groups, 1 / num_groups)
    counts = rng.multinomial(num_groups, equal_chances, size=draws)  # (draws, groups)
    weights = np.vstack([np.ones(num_items), counts[:, group_of_item]])
    weights = weights / weights.sum(1, keepdims=True)  # (1 + draws, items)

    def resampled_heights(repeats: Sequence[HeldOutScores]) -> np.ndarray:
        """Computes AIQ (the mean height of the cost-quality curve) of each bootstrap resample.

        Args:
            repeats: Scores of each repeat, which are averaged.

        Returns:
            (1 + draws,) heights, the first of the table itself.
        """
        correct = np.mean([scores.correct for scores in repeats], axis=0)  # (levels, items)
        cost_usd = np.mean([scores.cost_usd for scores in repeats], axis=0)
        # Weighted means over items: sum_i weights[r, i] correct[level, i].
        mean_correct = weights @ correct.T  # (1 + draws, levels)
        mean_cost = weights @ cost_usd.T
        return curve_height(mean_correct, mean_cost, low, high)

    def repeat_heights(repeats: Sequence[HeldOutScores]) -> list[float]:
        """Computes AIQ (the mean height of the cost-quality curve) of each repeat on the table itself.

        Args:
            repeats: Scores of each repeat.

        Returns:
            A height for each.
        """
        heights = []
        for scores in repeats:
            mean_correct = scores.correct.mean(1)  # (levels,)
            mean_cost = scores.cost_usd.mean(1)
            heights.append(curve_height(mean_correct, mean_cost, low, high)[0])
        return heights

    differences = resampled_heights(treatment) - resampled_heights(baseline)
    ci_low, ci_high = np.quantile(differences[1:], [0.025, 0.975])
    over_groups = stats.Interval(float(differences[0]), float(ci_low), float(ci_high))
    repeat_differences = np.subtract(repeat_heights(treatment), repeat_heights(baseline))
    return add_repeat_variance(over_groups, repeat_differences)
