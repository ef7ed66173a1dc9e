"""Compares routers with single models, mixtures and an oracle on one table of outcomes, on held-out items.

    comparison = compare_methods(table, settings, num_repeats=5)
    comparison.at("logistic", SAME_MONEY).gain      # accuracy minus the best constant's, with its interval

The *best constant* is the most accurate single model, asked for every item. A *knob* is the one parameter of a method
that trades accuracy for cost. Whole groups of items are held out; the knob is chosen on dev and scored on test
(`model_selection`), in three conditions: at the cost of the best constant, midway between it and the cheapest model's
(*half the money*), and at equal quality, which is the least cost at which dev shows no loss of accuracy. Differences
are taken within an item; intervals are over groups of items and repeats of the cross-validation. Left out: what could
be won at most (`headroom`), and what the numbers mean (`evaluation_sentence`).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats as scipy_stats

from lib import stats
from lib.config import RecordedSettings
from lib.recorded_outcomes import headroom, model_selection
from lib.recorded_outcomes.model_selection import (
    EQUAL_QUALITY,
    HALF_COST,
    MAX_SPENDING_RATIO,
    Choices,
    Fold,
    HeldOutScores,
    ItemOutcomes,
)
from lib.recorded_outcomes.tables import OutcomeTable
from lib.routers import methods
from lib.routers.matrix_factorization import predict_matrix_factorization
from lib.routers.methods import (
    BEST_CONSTANT,
    CONSTANT_MIXTURES,
    CORL,
    LOGISTIC,
    NEAREST,
    ORACLE,
    PERFECT_CHECK,
    POOR_CHECK,
    RANDOM_MODEL,
    STOP_OR_ESCALATE,
)
from lib.stats import Interval
from lib.stats.verdicts import UNDECIDED

MATRIX = "matrix factorization"
# What a user can run: these look at the item, or at what a first call has cost, and at nothing else.
ROUTERS = (NEAREST, LOGISTIC, MATRIX, CORL, STOP_OR_ESCALATE)
# A check of the first answer is assumed; an oracle knows all outcomes; the others do not look at the item.
CONTROLS = (PERFECT_CHECK, POOR_CHECK, CONSTANT_MIXTURES, RANDOM_MODEL, ORACLE)
LABELS = {
    BEST_CONSTANT: "best constant",
    RANDOM_MODEL: "a model at random",
    CONSTANT_MIXTURES: "mixture of constants",
    NEAREST: "nearest neighbours",
    LOGISTIC: "logistic regression",
    MATRIX: "matrix factorization as in RouteLLM",
    CORL: "policy trained with CoRL's reward",
    STOP_OR_ESCALATE: "cascade without a check",
    POOR_CHECK: "cascade with a poor check",
    PERFECT_CHECK: "cascade with a perfect check",
    ORACLE: "oracle",
}
SAME_MONEY = "the same money"
CONDITIONS = (SAME_MONEY, HALF_COST, EQUAL_QUALITY)
# Verdicts on a budget, beside UNDECIDED; see `decide_budget`.
KEPT, BROKEN = "kept", "broken"
_MIN_ITEMS_OF_GROUP = 10  # a smaller group says too little about its mean cost


@dataclass(frozen=True)
class MethodEstimate:
    """Accuracy and cost of a method in one condition, also relative to the best constant on the same items.

    The best constant is the most accurate single model, asked for every item.

    Attributes:
        method: One of the names in `LABELS`.
        condition: One of `CONDITIONS`.
        accuracy: Mean over held-out items, with its interval.
        cost_usd: Mean cost of an item, with its interval.
        gain: Accuracy minus the best constant's.
        gain_over_mixtures: Accuracy minus that of the mixture of constants in the same condition.
        cost_ratio: Cost over the best constant's cost.
    """

    method: str
    condition: str
    accuracy: Interval
    cost_usd: Interval
    gain: Interval
    gain_over_mixtures: Interval
    cost_ratio: Interval


@dataclass(frozen=True)
class MethodComparison:
    """Estimates of all methods on one table.

    Attributes:
        estimates: By (method, condition).
        budgets: A row for each method and budget, see `compare_budgets`.
        num_groups: Number of groups of items over which intervals are taken.
        unavailable: By method, the reason why it could not be compared.
    """

    estimates: Mapping[tuple[str, str], MethodEstimate]
    budgets: pd.DataFrame
    num_groups: int
    unavailable: Mapping[str, str]

    @property
    def methods(self) -> list[str]:
        """All methods, in the order of `LABELS`."""
        names = {method for method, _ in self.estimates}
        return [method for method in LABELS if method in names]

    @property
    def routers(self) -> list[str]:
        """The methods that a user could run."""
        return [method for method in self.methods if method in ROUTERS]

    def at(self, method: str, condition: str) -> MethodEstimate:
        """The estimate of a method in a condition."""
        return self.estimates[method, condition]

    def to_frame(self) -> pd.DataFrame:
        """Converts the estimates to a table.

        Returns:
            A row for each method and condition; intervals are columns NAME, NAME_ci_low, NAME_ci_high.
        """
        rows = []
        for method, condition in itertools.product(self.methods, CONDITIONS):
            estimate = self.at(method, condition)
            row = {"method": LABELS[estimate.method], "condition": estimate.condition}
            for name in ("accuracy", "cost_usd", "gain", "gain_over_mixtures", "cost_ratio"):
                row |= getattr(estimate, name).as_metrics(name)
            rows.append(row)
        return pd.DataFrame(rows)


def compare_methods(
    table: OutcomeTable, settings: RecordedSettings, num_repeats: int
) -> MethodComparison:
    """Estimates accuracy and cost of every method on held-out items, by repeated cross-validation.

    Args:
        table: The recorded outcomes.
        settings: folds, updates, batch, learning_rate, neighbours and min_dev_gain are read.
        num_repeats: Number of repeats of the cross-validation, each with other folds.

    Returns:
        The estimates, what was spent of each budget, and which methods the table does not allow.
    """
    # By repeat, the outcomes of each method and condition.
    outcomes_by_repeat: list[dict[tuple[str, str], ItemOutcomes]] = []
    scores_by_repeat: list[dict[str, HeldOutScores]] = []
    for cv_repeat in range(num_repeats):
        fold_of_item = model_selection.assign_folds(table, settings.folds, cv_repeat)
        folds = model_selection.make_cross_validation_folds(fold_of_item)
        choices = make_choices(table, settings, cv_repeat, folds)

        # A method chooses on the test items of each fold, with what it learned on the others.
        scores = {
            method: model_selection.score_choices(
                table, folds, method_choices, settings.min_dev_gain
            )
            for method, method_choices in choices.items()
        }
        outcomes_by_repeat.append(_collect_outcomes(table, folds, scores))
        scores_by_repeat.append(scores)

    return MethodComparison(
        estimates=_estimate_all(outcomes_by_repeat, table.groups),
        budgets=compare_budgets(scores_by_repeat, table.groups),
        num_groups=len(np.unique(table.groups)),
        unavailable=_explain_unavailable(table, scores_by_repeat[0]),
    )


def make_choices(
    table: OutcomeTable, settings: RecordedSettings, cv_repeat: int, folds: Sequence[Fold]
) -> dict[str, list[Choices]]:
    """Fits every method on the train items of each fold, and lets it choose models for all items.

    Args:
        table: The recorded outcomes.
        settings: As for `compare_methods`.
        cv_repeat: Index of the repeat of the cross-validation, which seeds what is random.
        folds: Train, dev and test items.

    Returns:
        By method, one `Choices` for each fold: the outcomes at each setting of its knob.
    """
    names = [*ROUTERS, *CONTROLS]
    choices = methods.make_choices(table, settings, cv_repeat, folds, names)
    # Nearest neighbours are missing where nothing describes the items; matrix factorization needs features, too.
    if NEAREST in choices:
        choices[MATRIX] = [choose_by_matrix_factorization(table, fold, cv_repeat) for fold in folds]
    return choices


def choose_by_matrix_factorization(table: OutcomeTable, fold: Fold, cv_repeat: int) -> Choices:
    """Fits a matrix factorization on the train items, and chooses a model for every item at every rate.

    A rate is the price at which expected cost is subtracted from the predicted probability of being correct; see
    `headroom.choose_at_rates`.

    Args:
        table: The recorded outcomes.
        fold: Train, dev and test items.
        cv_repeat: Index of the repeat of the cross-validation, which seeds the initial weights.

    Returns:
        Outcomes of the chosen models, (rates, items).
    """
    features = headroom.standardize_features(table.features, fold.train)
    # Folds of a repeat differ in their test items, so that the first one names them.
    stream = (table.name, cv_repeat, int(fold.test[0]))
    probabilities = predict_matrix_factorization(features, table.correct, fold.train, *stream)
    all_models = np.arange(len(table.models))
    expected_cost = table.cost_usd[fold.train].mean(0)
    return headroom.choose_at_rates(table, probabilities, all_models, expected_cost)


def _collect_outcomes(
    table: OutcomeTable, folds: Sequence[Fold], scores: Mapping[str, HeldOutScores]
) -> dict[tuple[str, str], ItemOutcomes]:
    """Collects the outcomes of all methods in one repeat of the cross-validation.

    Args:
        table: The recorded outcomes.
        folds: Train, dev and test items of the repeat.
        scores: Held-out scores by method.

    Returns:
        Outcomes by (method, condition).
    """
    outcomes = {}
    for method, method_scores in scores.items():
        for condition, condition_outcomes in _select_conditions(method_scores).items():
            outcomes[method, condition] = condition_outcomes

    # These have no knob, and so the same outcomes in every condition.
    constant = model_selection.score_best_constant(table, folds)
    random_model = ItemOutcomes(table.correct.mean(1), table.cost_usd.mean(1))
    for condition in CONDITIONS:
        outcomes[BEST_CONSTANT, condition] = constant
        outcomes[RANDOM_MODEL, condition] = random_model
    return outcomes


def _select_conditions(scores: HeldOutScores) -> dict[str, ItemOutcomes]:
    """Selects a method's outcomes in each condition: same money, half the money, equal quality.

    Args:
        scores: Held-out scores at several levels of cost.

    Returns:
        Outcomes by condition.
    """
    # Levels are fractions of the way from the cheapest model's cost to the best constant's.
    same = model_selection.LEVELS.index(1.0)
    half = model_selection.LEVELS.index(0.5)
    return {
        SAME_MONEY: ItemOutcomes(scores.correct[same], scores.cost_usd[same]),
        HALF_COST: ItemOutcomes(scores.correct[half], scores.cost_usd[half]),
        EQUAL_QUALITY: scores.at_equal_quality,
    }


def _explain_unavailable(
    table: OutcomeTable, scores: Mapping[str, HeldOutScores]
) -> dict[str, str]:
    """Explains for each method without scores why this table does not allow it.

    Args:
        table: The recorded outcomes.
        scores: Held-out scores of the methods that were possible.

    Returns:
        The reason by method.
    """
    reasons = {}
    if STOP_OR_ESCALATE not in scores:
        reasons[STOP_OR_ESCALATE] = (
            "what a call costs does not tell here how long the model worked on the item"
        )
    for method in (NEAREST, LOGISTIC, MATRIX):
        if method not in scores:
            reasons[method] = "nothing describes the items"
    return reasons


# Estimates -----------------------------------------------------------------------------------------


def _estimate_all(
    outcomes_by_repeat: Sequence[Mapping[tuple[str, str], ItemOutcomes]], groups: np.ndarray
) -> dict[tuple[str, str], MethodEstimate]:
    """Estimates every method in every condition, beside the best constant and mixtures of single models.

    Args:
        outcomes_by_repeat: For each repeat, outcomes by (method, condition).
        groups: (items,), the group of each item, over which intervals are taken.

    Returns:
        Accuracy, cost, gains and cost ratio by (method, condition), each with an interval.
    """
    correct = {}  # by method and condition, (repeats, items)
    cost_usd = {}
    for key in outcomes_by_repeat[0]:
        correct[key] = np.stack([outcomes[key].correct for outcomes in outcomes_by_repeat])
        cost_usd[key] = np.stack([outcomes[key].cost_usd for outcomes in outcomes_by_repeat])

    estimates = {}
    for key in correct:
        method, condition = key
        constant = (BEST_CONSTANT, condition)
        mixtures = (CONSTANT_MIXTURES, condition)
        estimates[key] = MethodEstimate(
            method=method,
            condition=condition,
            accuracy=estimate_mean(correct[key], groups),
            cost_usd=estimate_mean(cost_usd[key], groups),
            gain=estimate_gain(correct[key], correct[constant], groups),
            gain_over_mixtures=estimate_gain(correct[key], correct[mixtures], groups),
            cost_ratio=estimate_cost_ratio(cost_usd[key], cost_usd[constant], groups),
        )
    return estimates


def estimate_mean(values: np.ndarray, groups: np.ndarray) -> Interval:
    """Estimates a mean with its 95 % interval over groups of items and repeats.

    Args:
        values: (repeats, items).
        groups: (items,), the group of each item; items of a group are not independent.
    """
    over_items = stats.grouped_interval(values.mean(0), groups)
    return model_selection.add_repeat_variance(over_items, values.mean(1))


def estimate_gain(treatment: np.ndarray, baseline: np.ndarray, groups: np.ndarray) -> Interval:
    """Estimates the mean paired difference of two methods, treatment minus baseline.

    Args:
        treatment: (repeats, items), correctness of a method.
        baseline: (repeats, items), correctness of the method that it is compared with.
        groups: (items,), the group of each item.

    Returns:
        The difference, with a 95 % interval over groups and repeats.
    """
    return estimate_mean(treatment - baseline, groups)


def estimate_cost_ratio(
    treatment: np.ndarray, baseline: np.ndarray, groups: np.ndarray
) -> Interval:
    """Estimates the ratio of two mean costs, with an interval by the delta method on its logarithm.

    Args:
        treatment: (repeats, items), costs of a method.
        baseline: (repeats, items), costs of the method that it is compared with.
        groups: (items,), the group of each item.

    Returns:
        The ratio, with a 95 % interval over groups and repeats; nan where one of the two costs nothing.
    """
    mean_cost = treatment.mean()
    mean_baseline = baseline.mean()
    if not (mean_cost > 0 and mean_baseline > 0):
        return Interval(float("nan"), float("nan"), float("nan"))
    # log(a / b) varies as a / mean(a) - b / mean(b), which is 0 on average.
    relative = treatment.mean(0) / mean_cost - baseline.mean(0) / mean_baseline
    over_items = stats.grouped_interval(relative, groups)
    log_ratios = np.log(treatment.mean(1) / baseline.mean(1))  # (repeats,)
    half_width = model_selection.add_repeat_variance(over_items, log_ratios).ci_high
    ratio = float(mean_cost / mean_baseline)
    return Interval(ratio, ratio * np.exp(-half_width), ratio * np.exp(half_width))


def widen_for_comparisons(interval: Interval, num_comparisons: int, num_groups: int) -> Interval:
    """Widens an interval for multiple comparisons by Bonferroni's correction.

    All intervals so widened hold together with a probability of 95 %, so that the best of several may be named.

    Args:
        interval: A 95 % interval of a mean or a difference, by Student's t.
        num_comparisons: Number of comparisons that are made.
        num_groups: Number of groups over which the interval was taken.

    Returns:
        The wider interval around the same value.
    """
    degrees = max(num_groups - 1, 1)
    tail = (1 - stats.LEVEL) / 2
    single_quantile = scipy_stats.t.ppf(1 - tail, degrees)
    joint_quantile = scipy_stats.t.ppf(1 - tail / num_comparisons, degrees)
    factor = float(joint_quantile / single_quantile)
    return Interval(
        interval.value,
        interval.value - factor * (interval.value - interval.ci_low),
        interval.value + factor * (interval.ci_high - interval.value),
    )


def widen_ratio_for_comparisons(ratio: Interval, num_comparisons: int, num_groups: int) -> Interval:
    """Widens the interval of a ratio by Bonferroni's correction, see `widen_for_comparisons`.

    The interval of a ratio is symmetric on the logarithmic scale, so it is widened there.

    Args:
        ratio: The ratio with a 95 % interval.
        num_comparisons: Number of comparisons that are made together.
        num_groups: Number of groups behind the interval.

    Returns:
        The ratio with a wider interval.
    """
    logarithm = Interval(np.log(ratio.value), np.log(ratio.ci_low), np.log(ratio.ci_high))
    widened = widen_for_comparisons(logarithm, num_comparisons, num_groups)
    return Interval(ratio.value, float(np.exp(widened.ci_low)), float(np.exp(widened.ci_high)))


# Budgets -------------------------------------------------------------------------------------------


def compare_budgets(
    scores_by_repeat: Sequence[Mapping[str, HeldOutScores]], groups: np.ndarray
) -> pd.DataFrame:
    """Compares what each method spent on held-out items with the mean cost that it promised on dev.

    Args:
        scores_by_repeat: For each repeat, the scores by method.
        groups: (items,), the group of each item.

    Returns:
        A row for each method and budget: method (its label); level, the budget as a fraction of the way from the
        cheapest model's cost to the best constant's; promised_usd and spent_usd per item; ratio, spent over promised;
        accuracy; groups_over, the fraction of groups that spent too much; and budget, the verdict KEPT, BROKEN or
        UNDECIDED. spent_usd, ratio and accuracy have columns NAME_ci_low and NAME_ci_high.
    """
    rows = []
    for method in scores_by_repeat[0]:
        for level, level_share in enumerate(model_selection.LEVELS):
            # (repeats, items) each.
            spent = np.stack([scores[method].cost_usd[level] for scores in scores_by_repeat])
            promised = np.stack([scores[method].promised[level] for scores in scores_by_repeat])
            correct = np.stack([scores[method].correct[level] for scores in scores_by_repeat])
            ratio = estimate_cost_ratio(spent, promised, groups)
            rows.append(
                {
                    "method": LABELS[method],
                    "level": level_share,
                    "promised_usd": promised.mean(),
                    **estimate_mean(spent, groups).as_metrics("spent_usd"),
                    **ratio.as_metrics("ratio"),
                    **estimate_mean(correct, groups).as_metrics("accuracy"),
                    "groups_over": _share_of_groups_over(spent.mean(0), promised.mean(0), groups),
                    "budget": decide_budget(ratio),
                }
            )
    return pd.DataFrame(rows)


def _share_of_groups_over(spent: np.ndarray, promised: np.ndarray, groups: np.ndarray) -> float:
    """Computes the fraction of large groups whose mean cost exceeds the promise by more than 5 %.

    Args:
        spent: (items,) costs.
        promised: (items,) promised costs.
        groups: (items,) the group of each item.

    Returns:
        The fraction; nan where no group is large enough.
    """
    frame = pd.DataFrame({"group": groups, "spent": spent, "promised": promised})
    group_size = frame.groupby("group")["spent"].transform("size")
    means = frame[group_size >= _MIN_ITEMS_OF_GROUP].groupby("group").mean()
    is_over = means["spent"] > MAX_SPENDING_RATIO * means["promised"]
    return float(is_over.mean()) if len(is_over) else float("nan")


def decide_budget(ratio: Interval) -> str:
    """Decides whether a budget was kept.

    Args:
        ratio: Cost that was spent over cost that was promised.

    Returns:
        KEPT where the whole interval is at most MAX_SPENDING_RATIO, BROKEN where it is above, or UNDECIDED.
    """
    if ratio.ci_high <= MAX_SPENDING_RATIO:
        return KEPT
    if ratio.ci_low > MAX_SPENDING_RATIO:
        return BROKEN
    return UNDECIDED
