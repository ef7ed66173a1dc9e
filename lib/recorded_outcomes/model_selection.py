"""Scores a method on recorded outcomes: folds of whole groups, a choice of its knob on dev, a score on test.

A method is a set of `Choices`: which model it would ask for each item, at each setting of its knob. On dev the choices,
and each model for every item, span a hull (`stats.hull`); a mixture of two of its corners is what a method may promise
for a mean cost. Its answer at *equal quality* is the cheapest mixture that beats the best constant by a margin on dev,
because the best of many knobs on dev is not the best on test; where none does for less money, it is that constant. Test
items see what dev chose.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from lib import stats
from lib.experiment import seeds
from lib.recorded_outcomes.tables import OutcomeTable, TableError

VERSION = 1  # of choices and their scores
# Costs to promise, between the cheapest model's (0) and the best constant's (1).
LEVELS = (0.05, 0.1, 0.25, 0.5, 0.75, 1.0)
EQUAL, HALF = "equal quality", "half the money"


@dataclass(frozen=True)
class Fold:
    """Item indices: what a method learns from, what its knob is chosen on, and what is scored."""

    train: np.ndarray
    dev: np.ndarray
    test: np.ndarray

    @property
    def train_and_dev(self) -> np.ndarray:
        """(items,) what a method that learns nothing may choose its knob on."""
        return np.concatenate([self.train, self.dev])


@dataclass(frozen=True)
class Choices:
    """What a method's choices bring at each setting of its knob.

    Attributes:
        correct: (knobs, items), expected correctness.
        cost_usd: (knobs, items), expected cost.
        names: (knobs,).
        learned: Whether the method learned from the train items, so that the knob must not be chosen there.
    """

    correct: np.ndarray
    cost_usd: np.ndarray
    names: tuple[str, ...]
    learned: bool = False


@dataclass(frozen=True)
class HeldOutScores:
    """A method on the items of a table, each while it was held out (nan where it never was).

    Attributes:
        correct: (levels, items), at each promised cost.
        cost_usd: (levels, items), at each promised cost.
        promised: (levels, items), the promised cost per item in USD.
        equal: (2, items), correctness and cost at equal quality.
        picked: By fold, the name of the knob with the largest weight at equal quality.
    """

    correct: np.ndarray
    cost_usd: np.ndarray
    promised: np.ndarray
    equal: np.ndarray
    picked: tuple[str, ...]


def assign_folds(table: OutcomeTable, folds: int, seed: int) -> np.ndarray:
    """Divides items into folds: whole groups, in random order, each into the smallest fold so far.

    Args:
        table: Items with their groups.
        folds: Folds at most; never more than groups.
        seed: Of the random order, one for each repeat of cross-validation.

    Returns:
        (items,) the fold of each item.

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
    """Each model for every item: the constants, and with the hull their mixtures."""
    return Choices(table.correct.T, table.cost_usd.T, table.models)


def find_best_constant(table: OutcomeTable, rows: np.ndarray) -> int:
    """The model that is correct most often on `rows`; of equals the cheaper one."""
    accuracy = table.correct[rows].mean(0)  # (models,)
    mean_cost = table.cost_usd[rows].mean(0)  # (models,)
    # Rounding makes equals of accuracies that differ by the order of summation.
    rounded = np.round(accuracy, 12)
    best_first = np.lexsort((mean_cost, -rounded))
    return int(best_first[0])


def score_best_constant(table: OutcomeTable, folds: Sequence[Fold]) -> np.ndarray:
    """Correctness and cost, (2, items), of the constant that was best on train and dev of each fold."""
    scores = np.full((2, len(table)), np.nan)
    for fold in folds:
        model = find_best_constant(table, fold.train_and_dev)
        scores[0, fold.test] = table.correct[fold.test, model]
        scores[1, fold.test] = table.cost_usd[fold.test, model]
    return scores


def promised_costs(table: OutcomeTable, rows: np.ndarray) -> np.ndarray:
    """Mean costs per item that are promised, (levels,): from the cheapest model's to the best constant's on `rows`."""
    mean_cost = table.cost_usd[rows].mean(0)  # (models,)
    lowest = mean_cost.min()
    highest = mean_cost[find_best_constant(table, rows)]
    return lowest + np.array(LEVELS) * (highest - lowest)


def score_choices(
    table: OutcomeTable, folds: Sequence[Fold], choices: Sequence[Choices], min_dev_gain: float
) -> HeldOutScores:
    """Scores on test the mixtures that dev chooses among a method's choices and the constants.

    Args:
        table: The recorded outcomes.
        folds: Train, dev and test items.
        choices: One for each fold.
        min_dev_gain: Accuracy by which the best constant must be beaten on dev, for less money, to be replaced.
    """
    num_levels = len(LEVELS)
    num_items = len(table)
    correct = np.full((num_levels, num_items), np.nan)
    cost_usd = correct.copy()
    promised = correct.copy()
    equal = np.full((2, num_items), np.nan)
    picked = []
    constants = constant_choices(table)
    for fold, fold_choices in zip(folds, choices, strict=True):
        # What was learned from train would look too good there.
        rows = fold.dev if fold_choices.learned else fold.train_and_dev
        options = join_choices(fold_choices, constants)
        frontier = compute_frontier(options, rows)

        # At each promised cost, the best mixture for it.
        for level, budget in enumerate(promised_costs(table, fold.train_and_dev)):
            weights = frontier.mix_for_cost(budget)
            level_correct, level_cost = expect_mixture(options, weights, fold.test)
            promised[level, fold.test] = budget
            correct[level, fold.test] = level_correct
            cost_usd[level, fold.test] = level_cost

        # At equal quality, the cheapest mixture that clearly beats the best constant, or that constant.
        best_model = find_best_constant(table, fold.train_and_dev)
        first_constant = len(options.names) - len(table.models)  # constants follow the choices
        constant_weights = {first_constant + best_model: 1.0}
        target = table.correct[rows, best_model].mean() + min_dev_gain
        weights = constant_weights
        if frontier.correct[-1] >= target:
            weights = frontier.mix_for_accuracy(target)
        _, costs = expect_mixture(options, weights, rows)
        if costs.mean() > table.cost_usd[rows, best_model].mean():
            weights = constant_weights
        equal[:, fold.test] = expect_mixture(options, weights, fold.test)
        largest_weight = max(weights, key=weights.get)
        picked.append(options.names[largest_weight])
    return HeldOutScores(correct, cost_usd, promised, equal, tuple(picked))


def join_choices(choices: Choices, constants: Choices) -> Choices:
    return Choices(
        correct=np.vstack([choices.correct, constants.correct]),
        cost_usd=np.vstack([choices.cost_usd, constants.cost_usd]),
        names=(*choices.names, *constants.names),
    )


@dataclass(frozen=True)
class CostFrontier:
    """The hull on dev: knobs, with their mean costs and accuracies, by rising cost."""

    knobs: np.ndarray
    cost_usd: np.ndarray
    correct: np.ndarray

    def mix_for_cost(self, budget: float) -> dict[int, float]:
        """{knob: weight} of the mixture that costs at most `budget` on dev."""
        costs = self.cost_usd
        if budget >= costs[-1] or len(self.knobs) == 1:
            best_knob = int(self.knobs[-1])
            return {best_knob: 1.0}
        # The corner above the budget; a budget below all corners gets the cheapest.
        upper = int(np.searchsorted(costs, budget, side="right"))
        upper = max(1, upper)
        cost_step = costs[upper] - costs[upper - 1]
        lower_weight = (costs[upper] - budget) / cost_step
        return self._mix_neighbours(upper, min(lower_weight, 1.0))

    def mix_for_accuracy(self, target: float) -> dict[int, float]:
        """{knob: weight} of the cheapest mixture with the accuracy `target` on dev."""
        accuracies = self.correct
        upper = int(np.searchsorted(accuracies, target - 1e-12))
        if upper == 0:
            cheapest_knob = int(self.knobs[0])
            return {cheapest_knob: 1.0}
        accuracy_step = accuracies[upper] - accuracies[upper - 1]
        lower_weight = (accuracies[upper] - target) / accuracy_step
        return self._mix_neighbours(upper, lower_weight)

    def _mix_neighbours(self, upper: int, lower_weight: float) -> dict[int, float]:
        lower_knob = int(self.knobs[upper - 1])
        upper_knob = int(self.knobs[upper])
        weights = {lower_knob: lower_weight, upper_knob: 1 - lower_weight}
        return {knob: weight for knob, weight in weights.items() if weight > 0}


def compute_frontier(options: Choices, rows: np.ndarray) -> CostFrontier:
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
    """Expected correctness and cost of a mixture on `rows`, (rows,) each; no coin is tossed."""
    correct = 0.0
    cost_usd = 0.0
    for knob, weight in weights.items():
        correct = correct + weight * options.correct[knob, rows]
        cost_usd = cost_usd + weight * options.cost_usd[knob, rows]
    return correct, cost_usd


def make_result_rows(
    table: OutcomeTable, scores: HeldOutScores, method: str, role: str
) -> pd.DataFrame:
    """Rows for `lib.experiment.results_table`: at equal quality, and at half of the best constant's cost.

    correct may be a fraction, the expectation over a mixture's coin.
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
        "condition": EQUAL,
        "correct": scores.equal[0],
        "cost_usd": scores.equal[1],
    }
    at_half_cost = columns | {
        "condition": HALF,
        "correct": scores.correct[half],
        "cost_usd": scores.cost_usd[half],
    }
    return pd.concat(
        [pd.DataFrame(at_equal_quality), pd.DataFrame(at_half_cost)], ignore_index=True
    )


def add_repeat_variance(
    interval: stats.Interval, repeat_means: Sequence[float] | np.ndarray
) -> stats.Interval:
    """Widens an interval over items by what the random folds add.

    The mean over R repeats of cross-validation varies by their variance / R beside the items, and half-widths of
    independent sources add as squares. With one repeat, of which that is not known, the interval stays as it is.

    Args:
        interval: Over items, of the mean over repeats.
        repeat_means: (R,), the estimate of each repeat.
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
    """Computes AIQ, the mean height of quality over cost (RouterBench, section 3).

    The curves are taken as they are; a new hull would choose on test.

    Args:
        correct: (levels,), or (resamples, levels).
        cost_usd: Of the same shape.
        low: Cost at which the mean begins.
        high: Cost at which it ends.

    Returns:
        (resamples,), or (1,).
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
    """The AIQ of a method minus that of another, between the costs of the cheapest and of the best constant.

    Args:
        table: The recorded outcomes.
        treatment: Scores of the method, one for each repeat of cross-validation.
        baseline: Scores of the other method, in the same repeats.
        draws: Bootstrap resamples.

    Returns:
        The difference with an interval over groups of items (bootstrap of whole groups) and repeats, which are averaged
        within an item.
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
        correct = np.mean([scores.correct for scores in repeats], axis=0)  # (levels, items)
        cost_usd = np.mean([scores.cost_usd for scores in repeats], axis=0)
        # Weighted means over items: sum_i weights[r, i] correct[level, i].
        mean_correct = weights @ correct.T  # (1 + draws, levels)
        mean_cost = weights @ cost_usd.T
        return curve_height(mean_correct, mean_cost, low, high)

    def repeat_heights(repeats: Sequence[HeldOutScores]) -> list[float]:
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
